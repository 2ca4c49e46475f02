//! How columns are written: types that every reader knows, a dictionary only where rows repeat, statistics only where
//! they help.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use parquet::basic::{Compression as Codec, Encoding, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tidemill_core::{Error, Result, WriteTask, code};

use super::config::Compression;

/// So many rows of a file's first batch tell whether a column repeats.
const SAMPLE_ROWS: usize = 1024;

/// A page has about so many bytes before it is compressed.
const PAGE_BYTES: usize = 128 << 10;

/// The type under which a column is stored. Parquet has no seconds and no dates in milliseconds: readers other than
/// Arrow would show plain numbers. What takes their place holds the same moments.
fn stored(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| Arc::new(field.as_ref().clone().with_data_type(stored(field.data_type())));
    match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        DataType::Date64 => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::List(inner) => DataType::List(field(inner)),
        DataType::LargeList(inner) => DataType::LargeList(field(inner)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// The schema of the files that hold these columns.
pub(super) fn stored_schema(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields: Vec<Field> = fields.map(|f| f.as_ref().clone().with_data_type(stored(f.data_type()))).collect();
    Arc::new(Schema::new(fields))
}

/// The same rows under the schema of the files.
pub(super) fn stored_rows(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns: Result<Vec<ArrayRef>, _> = columns
        .map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            // A value that does not fit is an error, and no null.
            false => {
                cast_with_options(column, field.data_type(), &CastOptions { safe: false, ..CastOptions::default() })
            }
        })
        .collect();
    columns
        .and_then(|columns| RecordBatch::try_new(Arc::clone(schema), columns))
        .map_err(|error| Error::new(code::ENCODE, "the rows do not fit the columns of the sink").because(error))
}

/// The properties of a file that begins with these rows.
pub(super) fn properties(task: &WriteTask, compression: Compression, first: &RecordBatch) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(codec(compression))
        .set_created_by(concat!("tidemill version ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(footer(task)))
        // Bytes bound a row group, see `file`; rows only where they are tiny.
        .set_max_row_group_row_count(Some(4 << 20))
        // So small that what one step has written the next one finds in the processor's cache.
        .set_data_page_size_limit(PAGE_BYTES)
        // Page sizes are looked at after so many rows.
        .set_write_batch_size((PAGE_BYTES / 2 / (bytes_of(first) / first.num_rows().max(1)).max(1)).clamp(64, 1024));
    for (field, column) in first.schema().fields().iter().zip(first.columns()) {
        if field.data_type().is_nested() {
            continue;
        }
        let path = ColumnPath::new(vec![field.name().clone()]);
        if !repeats(column) {
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            if is_counted(field.data_type()) {
                // Offsets, sequence numbers and times mostly ascend: a few bits a row.
                properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
            }
        }
        if is_binary(field.data_type()) {
            // The least and the greatest of opaque bytes let no reader skip anything.
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
    }
    properties.build()
}

/// What a file says about where it came from.
fn footer(task: &WriteTask) -> Vec<KeyValue> {
    let entry = |name: &str, value: String| KeyValue::new(format!("tidemill.{name}"), value);
    vec![
        entry("query_id", task.key.query_id.to_string()),
        entry("sink", task.key.sink.clone()),
        entry("batch_id", task.batch_id.to_string()),
        entry("attempt", task.attempt.to_string()),
        entry("task", task.task.to_string()),
        entry("ranges", task.ranges.to_string()),
    ]
}

fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::Zstd => Codec::ZSTD(ZstdLevel::default()),
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Snappy => Codec::SNAPPY,
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Gzip => Codec::GZIP(GzipLevel::default()),
    }
}

fn is_binary(data_type: &DataType) -> bool {
    use DataType as T;
    matches!(data_type, T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_))
}

/// Whether Parquet stores it as a plain 32 or 64 bit integer.
fn is_counted(data_type: &DataType) -> bool {
    use DataType as T;
    data_type.is_integer() || matches!(data_type, T::Timestamp(..) | T::Date32 | T::Time32(_) | T::Time64(_))
}

/// Whether the values of a column repeat, judged by its first rows: a dictionary of values that do not costs the time
/// of hashing each, and is thrown away when it is full.
fn repeats(column: &ArrayRef) -> bool {
    use DataType as T;
    let sample = column.slice(0, column.len().min(SAMPLE_ROWS));
    let rows = sample.len() - sample.null_count();
    if rows < 16 {
        return true;
    }
    match sample.data_type() {
        T::Utf8 => at_most(rows / 2, sample.as_string::<i32>().iter().flatten()),
        T::LargeUtf8 => at_most(rows / 2, sample.as_string::<i64>().iter().flatten()),
        T::Utf8View => at_most(rows / 2, sample.as_string_view().iter().flatten()),
        T::Binary => at_most(rows / 2, sample.as_binary::<i32>().iter().flatten()),
        T::LargeBinary => at_most(rows / 2, sample.as_binary::<i64>().iter().flatten()),
        T::BinaryView => at_most(rows / 2, sample.as_binary_view().iter().flatten()),
        fixed => {
            let (data, width) = (sample.to_data(), fixed.primitive_width());
            let bytes =
                data.buffers().first().zip(width).and_then(|(buffer, width)| buffer.get(data.offset() * width..));
            // Of other types it is not known.
            let (Some(bytes), Some(width)) = (bytes, width) else { return true };
            let values = bytes.chunks_exact(width).take(data.len()).enumerate();
            at_most(rows / 2, values.filter(|(row, _)| !sample.is_null(*row)).map(|(_, value)| value))
        }
    }
}

/// Whether there are at most so many different values. Seen as soon as there are more.
fn at_most<T: Eq + Hash>(count: usize, mut values: impl Iterator<Item = T>) -> bool {
    let mut different = HashSet::with_capacity(count + 1);
    values.all(|value| !different.insert(value) || different.len() <= count)
}

/// What these rows take, about: of shared buffers only their own part.
pub(super) fn bytes_of(rows: &RecordBatch) -> usize {
    let lengths = |views: &[u128]| views.iter().map(|view| 16 + (*view as u32) as usize).sum();
    let columns = rows.columns().iter();
    columns
        .map(|column| match column.data_type() {
            DataType::Utf8View => lengths(column.as_string_view().views()),
            DataType::BinaryView => lengths(column.as_binary_view().views()),
            _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, Date64Array, Float64Array, Int64Array, StringArray, StringViewArray, TimestampSecondArray,
    };
    use arrow::datatypes::TimestampMillisecondType;

    use super::*;

    #[test]
    fn dictionary_is_for_columns_that_repeat() {
        let words = || (0..100).map(|n| ["ok", "hot", "cold"][n % 3]);
        let unlike: Vec<String> = (0..100).map(|n| format!("row {n}")).collect();
        for (column, expected) in [
            (Arc::new(StringArray::from_iter_values(words())) as ArrayRef, true),
            (Arc::new(StringViewArray::from_iter_values(words())), true),
            (Arc::new(StringArray::from_iter_values(&unlike)), false),
            (Arc::new(BinaryArray::from_iter_values(&unlike)), false),
            (Arc::new(Int64Array::from_iter_values(0..100)), false),
            (Arc::new(Int64Array::from_iter_values((0..100).map(|n| n % 4))), true),
            (Arc::new(Int64Array::from_iter_values((0..100).map(|n| n.max(50))).slice(50, 50)), false),
            (Arc::new(Float64Array::from_iter_values((0..100).map(f64::from))), false),
            (Arc::new(Int64Array::from_iter((0..100).map(|n| (n % 50 == 0).then_some(n)))), true),
            (Arc::new(Int64Array::from_iter_values(0..3)), true),
        ] {
            assert_eq!(repeats(&column), expected, "{column:?}");
        }
    }

    #[test]
    fn moments_that_do_not_fit_are_an_error_and_no_null() {
        let seconds = |value| {
            let column: ArrayRef = Arc::new(TimestampSecondArray::from(vec![value]));
            RecordBatch::try_from_iter([("at", column)]).unwrap()
        };
        let stored = |rows: &RecordBatch| stored_rows(rows, &stored_schema(&rows.schema()));
        assert!(stored(&seconds(1_700_000_000)).is_ok());
        assert_eq!(stored(&seconds(i64::MAX / 10)).expect_err("no room").code(), code::ENCODE);
        let dates: ArrayRef = Arc::new(Date64Array::from(vec![-1, 86_400_001]));
        let rows = stored(&RecordBatch::try_from_iter([("on", dates)]).unwrap()).unwrap();
        assert_eq!(rows.column(0).as_primitive::<TimestampMillisecondType>().values(), &[-1, 86_400_001]);
    }

    #[test]
    fn types_without_a_parquet_form_are_stored_as_the_nearest() {
        let second = DataType::Timestamp(TimeUnit::Second, Some("UTC".into()));
        let milli = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let list = |inner: DataType| DataType::List(Arc::new(Field::new("item", inner, true)));
        for (given, expected) in [
            (second.clone(), milli.clone()),
            (list(second), list(milli)),
            (DataType::Date64, DataType::Timestamp(TimeUnit::Millisecond, None)),
            (DataType::Utf8View, DataType::Utf8View),
        ] {
            assert_eq!(stored(&given), expected);
        }
    }
}
