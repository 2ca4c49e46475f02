//! Splitting rows by their partition folder.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, make_array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_core::{Error, Result, code};

use super::layout;

/// Folders remembered between batches of rows. More are made again.
const FOLDERS_MAX: usize = 10_000;

/// Knows the folder of each row.
#[derive(Debug)]
pub(super) struct Partitioner {
    /// Partition columns by position, outermost folder first.
    keys: Vec<(usize, String)>,
    /// The columns that stay in the files.
    data: Vec<usize>,
    schema: SchemaRef,
    /// None if nothing is partitioned.
    converter: Option<RowConverter>,
    folders: HashMap<Box<[u8]>, Arc<str>>,
}

impl Partitioner {
    /// Checks the partition columns against the rows' schema.
    pub(super) fn new(schema: &Schema, partition_by: &[String]) -> Result<Self> {
        let refuse = |what: String| Error::new(code::SINK_SCHEMA, what);
        let mut keys: Vec<(usize, String)> = Vec::new();
        for name in partition_by {
            let Ok(at) = schema.index_of(name) else {
                let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(refuse(format!("there is no column \"{name}\" to partition by"))
                    .fix(format!("the columns are {}", columns.join(", "))));
            };
            if keys.iter().any(|(other, _)| *other == at) {
                return Err(refuse(format!("column \"{name}\" is a partition column twice")));
            }
            if name.starts_with(['_', '.']) {
                return Err(refuse(format!("column \"{name}\" cannot be a partition column"))
                    .fix("rename it: readers take folders that begin with \"_\" or \".\" as hidden"));
            }
            if !can_be_folder(schema.field(at).data_type()) {
                return Err(refuse(format!(
                    "a column of type {} cannot be a partition column",
                    schema.field(at).data_type()
                ))
                .at("column", name)
                .fix("partition by text, whole numbers, decimals, dates, timestamps or booleans; cast others"));
            }
            keys.push((at, name.clone()));
        }
        let data: Vec<usize> = (0..schema.fields().len()).filter(|at| keys.iter().all(|(key, _)| key != at)).collect();
        if data.is_empty() {
            return Err(refuse("no column is left for the files".to_owned())
                .fix("keep at least one column that is not a partition column"));
        }
        let fields = keys.iter().map(|(at, _)| SortField::new(schema.field(*at).data_type().clone())).collect();
        let converter = match keys.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields).map_err(split_failed)?),
        };
        let schema = Arc::new(schema.project(&data).map_err(split_failed)?);
        Ok(Partitioner { keys, data, schema, converter, folders: HashMap::new() })
    }

    /// The columns that stay in the files.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Splits rows by folder (empty: the table's root), without the partition columns. Order within a folder is kept.
    pub(super) fn split(&mut self, rows: &RecordBatch) -> Result<Vec<(Arc<str>, RecordBatch)>> {
        let data = rows.project(&self.data).map_err(split_failed)?;
        let Some(converter) = &self.converter else { return Ok(vec![("".into(), data)]) };
        let keys: Vec<ArrayRef> = self.keys.iter().map(|(at, _)| Arc::clone(rows.column(*at))).collect();
        let encoded = converter.convert_columns(&keys).map_err(split_failed)?;
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        let mut last: Option<(&[u8], usize)> = None;
        for (row, key) in encoded.iter().enumerate() {
            let key = key.data();
            // Neighbours are mostly alike.
            let group = match last {
                Some((last, group)) if last == key => group,
                _ => *known.entry(key).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                }),
            };
            last = Some((key, group));
            groups[group].push(row as u32);
        }
        let mut split = Vec::with_capacity(groups.len());
        for group in groups {
            let first = group[0] as usize;
            let key = encoded.row(first);
            let folder = match self.folders.get(key.data()) {
                Some(folder) => Arc::clone(folder),
                None => {
                    let folder: Arc<str> = folder_of(&self.keys, &keys, first)?.into();
                    if self.folders.len() >= FOLDERS_MAX {
                        self.folders.clear();
                    }
                    self.folders.insert(key.data().into(), Arc::clone(&folder));
                    folder
                }
            };
            let part = match group.len() == data.num_rows() {
                true => data.clone(),
                false => take_record_batch(&data, &UInt32Array::from(group)).map_err(split_failed)?,
            };
            split.push((folder, part));
        }
        Ok(split)
    }
}

/// Floats are refused: -0.0, NaN and rounding make folders that cannot be asked for by value.
fn can_be_folder(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Boolean | T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Date32 | T::Timestamp(..) => true,
        T::Dictionary(_, values) => can_be_folder(values),
        other => other.is_integer() || other.is_decimal(),
    }
}

fn folder_of(names: &[(usize, String)], columns: &[ArrayRef], row: usize) -> Result<String> {
    let mut folders = Vec::with_capacity(names.len());
    for ((_, name), column) in names.iter().zip(columns) {
        let value = value_text(column, row).map_err(split_failed)?;
        folders.push(layout::folder(name, value.as_deref())?);
    }
    Ok(folders.join("/"))
}

/// A value as readers parse it back: `true`, `42`, `1.50`, `2026-10-01`, `2026-10-01 12:00:00.5` (in UTC if it has a
/// zone).
fn value_text(column: &ArrayRef, row: usize) -> Result<Option<String>, ArrowError> {
    let mut column = column.slice(row, 1);
    if column.is_null(0) {
        return Ok(None);
    }
    if let DataType::Timestamp(unit, Some(_)) = column.data_type() {
        let without_zone = DataType::Timestamp(*unit, None);
        column = make_array(column.to_data().into_builder().data_type(without_zone).build()?);
    }
    let options = FormatOptions::new().with_display_error(false).with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let formatter = ArrayFormatter::try_new(&column, &options)?;
    if column.logical_nulls().is_some_and(|nulls| nulls.is_null(0)) {
        return Ok(None);
    }
    formatter.value(0).try_to_string().map(Some)
}

fn split_failed(error: ArrowError) -> Error {
    Error::new(code::ENCODE, "the rows cannot be split by partition").because(error)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Int32Array, Int64Array, StringArray,
        StringViewArray, TimestampMicrosecondArray, UInt64Array,
    };
    use arrow::datatypes::{Field, Int32Type};

    use super::*;

    fn folders(column: ArrayRef) -> Vec<String> {
        let rows = column.len() as i64;
        let schema = Schema::new(vec![
            Field::new("p", column.data_type().clone(), true),
            Field::new("id", DataType::Int64, false),
        ]);
        let mut partitioner = Partitioner::new(&schema, &["p".to_owned()]).unwrap();
        let ids = Arc::new(Int64Array::from_iter_values(0..rows));
        let rows = RecordBatch::try_new(Arc::new(schema), vec![column, ids]).unwrap();
        let parts = partitioner.split(&rows).unwrap();
        assert_eq!(parts.iter().map(|(_, part)| part.num_rows()).sum::<usize>(), rows.num_rows());
        parts.into_iter().map(|(folder, _)| folder.to_string()).collect()
    }

    #[test]
    fn every_type_has_one_text() {
        let at = 1_790_000_000_500_000;
        for (column, expected) in [
            (Arc::new(BooleanArray::from(vec![true, false, true])) as ArrayRef, vec!["p=true", "p=false"]),
            (Arc::new(Int32Array::from(vec![Some(-1), None])), vec!["p=-1", "p=__HIVE_DEFAULT_PARTITION__"]),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), vec!["p=18446744073709551615"]),
            (Arc::new(Date32Array::from(vec![20_727])), vec!["p=2026-10-01"]),
            (
                Arc::new(Decimal128Array::from(vec![150, -5]).with_precision_and_scale(10, 2).unwrap()),
                vec!["p=1.50", "p=-0.05"],
            ),
            (Arc::new(TimestampMicrosecondArray::from(vec![at])), vec!["p=2026-09-21 14%3A13%3A20.500"]),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![at]).with_timezone("+02:00")),
                vec!["p=2026-09-21 14%3A13%3A20.500"],
            ),
            (Arc::new(StringViewArray::from(vec!["a/b", "a%2Fb"])), vec!["p=a%2Fb", "p=a%252Fb"]),
            (Arc::new(DictionaryArray::<Int32Type>::from_iter(["x", "y", "x"])), vec!["p=x", "p=y"]),
        ] {
            assert_eq!(folders(column), expected);
        }
    }

    #[test]
    fn rows_keep_their_order_within_a_folder() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("p", DataType::Utf8, true),
        ]));
        let mut partitioner = Partitioner::new(&schema, &["p".to_owned()]).unwrap();
        let ids = Arc::new(Int64Array::from_iter_values(0..6));
        let keys = Arc::new(StringArray::from(vec![Some("a"), Some("b"), Some("a"), None, Some(""), Some("b")]));
        let rows = RecordBatch::try_new(schema, vec![ids, keys]).unwrap();
        let parts = partitioner.split(&rows).unwrap();
        let ids: Vec<(String, Vec<i64>)> = parts
            .iter()
            .map(|(folder, part)| {
                assert_eq!(part.num_columns(), 1);
                let ids = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(part.column(0));
                (folder.to_string(), ids.values().to_vec())
            })
            .collect();
        let null = "p=__HIVE_DEFAULT_PARTITION__".to_owned();
        assert_eq!(
            ids,
            [("p=a".to_owned(), vec![0, 2]), ("p=b".to_owned(), vec![1, 5]), (null.clone(), vec![3]), (null, vec![4])]
        );
    }

    #[test]
    fn columns_that_cannot_be_folders_are_refused() {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("f", DataType::Float64, false),
            Field::new("_day", DataType::Utf8, false),
            Field::new("raw", DataType::Binary, false),
        ]);
        for columns in [&["nope"][..], &["f"], &["_day"], &["raw"], &["id", "id"]] {
            let columns: Vec<String> = columns.iter().map(|&name| name.to_owned()).collect();
            let error = Partitioner::new(&schema, &columns).expect_err("refused");
            assert_eq!(error.code(), code::SINK_SCHEMA, "{error}");
        }
        let only = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        assert!(Partitioner::new(&only, &["id".to_owned()]).is_err());
    }
}
