//! Finished columns as Arrow arrays.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, ListArray, MapArray,
    PrimitiveArray, StringArray, StructArray, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, ArrowTimestampType, DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type,
};
use arrow::error::ArrowError;

use super::column::{Column, Ends, Slices, Values};
use super::group::Group;

type Finished = Result<ArrayRef, ArrowError>;

impl Group {
    /// The columns as one struct of `rows` rows.
    pub(super) fn finish(self, nulls: Option<NullBuffer>, rows: usize) -> Result<StructArray, ArrowError> {
        let arrays = self.columns.into_iter().map(Column::finish).collect::<Result<_, _>>()?;
        StructArray::try_new_with_length(self.fields, arrays, nulls, rows)
    }
}

impl Column {
    /// The rows as an array of exactly the column's type.
    pub(super) fn finish(mut self) -> Finished {
        let rows = self.len();
        let nulls = self.nulls.finish();
        let data_type = self.data_type;
        Ok(match self.values {
            Values::Bool(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int { values, .. } => return ints(values, nulls, &data_type),
            Values::UInt64(values) => Arc::new(UInt64Array::try_new(values.into(), nulls)?),
            Values::Float(values) => Arc::new(Float32Array::try_new(values.into(), nulls)?),
            Values::Double(values) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            Values::Decimal { values, precision, scale } => {
                let array = Decimal128Array::try_new(values.into(), nulls)?;
                Arc::new(array.with_precision_and_scale(precision, scale)?)
            }
            Values::Text(slices) => slices.finish_text(nulls, &data_type)?,
            Values::Bytes(slices) => {
                let array = BinaryArray::try_new(slices.ends.finish(), slices.data.into(), nulls)?;
                as_type(Arc::new(array), &data_type)?
            }
            Values::Date(values) => narrow::<Date32Type>(values, nulls)?,
            Values::Timestamp { values, .. } => return timestamps(values, nulls, &data_type),
            Values::Struct(group) => Arc::new(group.finish(nulls, rows)?),
            Values::List { ends, items } => {
                let (DataType::List(field) | DataType::LargeList(field)) = &data_type else {
                    return Err(not_a(&data_type, "list"));
                };
                let array = ListArray::try_new(field.clone(), ends.finish(), items.finish()?, nulls)?;
                as_type(Arc::new(array), &data_type)?
            }
            Values::Map { ends, keys, values } => {
                let DataType::Map(entry, sorted) = &data_type else { return Err(not_a(&data_type, "map")) };
                let DataType::Struct(fields) = entry.data_type() else { return Err(not_a(&data_type, "map")) };
                let columns = vec![keys.finish_text(None, &DataType::Utf8)?, values.finish()?];
                let entries = StructArray::try_new(fields.clone(), columns, None)?;
                Arc::new(MapArray::try_new(entry.clone(), ends.finish(), entries, nulls, *sorted)?)
            }
        })
    }
}

impl Slices {
    /// As text of `data_type`; its bytes are checked once more to be UTF-8, all at once.
    pub(super) fn finish_text(self, nulls: Option<NullBuffer>, data_type: &DataType) -> Finished {
        let array = StringArray::try_new(self.ends.finish(), self.data.into(), nulls)?;
        as_type(Arc::new(array), data_type)
    }
}

impl Ends {
    fn finish(self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(self.0))
    }
}

/// The same values in the wider or viewing layout that the schema asks for.
fn as_type(array: ArrayRef, data_type: &DataType) -> Finished {
    if array.data_type() == data_type { Ok(array) } else { cast(&array, data_type) }
}

fn ints(values: Vec<i64>, nulls: Option<NullBuffer>, data_type: &DataType) -> Finished {
    match data_type {
        DataType::Int8 => narrow::<Int8Type>(values, nulls),
        DataType::Int16 => narrow::<Int16Type>(values, nulls),
        DataType::Int32 => narrow::<Int32Type>(values, nulls),
        DataType::Int64 => Ok(Arc::new(PrimitiveArray::<Int64Type>::try_new(values.into(), nulls)?)),
        DataType::UInt8 => narrow::<UInt8Type>(values, nulls),
        DataType::UInt16 => narrow::<UInt16Type>(values, nulls),
        DataType::UInt32 => narrow::<UInt32Type>(values, nulls),
        other => Err(not_a(other, "whole number")),
    }
}

/// To the column's own width, to which the values were held when they were read.
fn narrow<T: ArrowPrimitiveType<Native: TryFrom<i64>>>(values: Vec<i64>, nulls: Option<NullBuffer>) -> Finished {
    let narrowed = values.into_iter().map(T::Native::try_from).collect::<Result<Vec<_>, _>>();
    let narrowed = narrowed.map_err(|_| ArrowError::ComputeError("a value passes its column's width".to_owned()))?;
    Ok(Arc::new(PrimitiveArray::<T>::try_new(narrowed.into(), nulls)?))
}

fn timestamps(values: Vec<i64>, nulls: Option<NullBuffer>, data_type: &DataType) -> Finished {
    fn of<T: ArrowTimestampType>(values: Vec<i64>, nulls: Option<NullBuffer>, data_type: &DataType) -> Finished {
        let array = PrimitiveArray::<T>::try_new(values.into(), nulls)?;
        Ok(Arc::new(array.with_data_type(data_type.clone())))
    }
    match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(values, nulls, data_type),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(values, nulls, data_type),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(values, nulls, data_type),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(values, nulls, data_type),
        other => Err(not_a(other, "timestamp")),
    }
}

fn not_a(data_type: &DataType, what: &str) -> ArrowError {
    ArrowError::SchemaError(format!("{data_type} is not a {what}"))
}
