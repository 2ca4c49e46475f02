//! From messages to Arrow columns: bytes are copied once, from the library's memory into the column's.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use tidemill_core::{Error, Result, code};

use super::ffi::{Code, Message};

/// The largest sum of bytes in a column of one record batch: offsets are 32 bits wide.
const COLUMN_BYTES_MAX: usize = i32::MAX as usize;

fn header_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

fn header_field() -> Field {
    Field::new_list_field(DataType::Struct(header_fields()), true)
}

fn utc_timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The columns of every row, with Spark's names.
pub(super) fn schema(include_headers: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("topic", DataType::Utf8, false),
        Field::new("partition", DataType::Int32, false),
        Field::new("offset", DataType::Int64, false),
        Field::new("timestamp", utc_timestamp(), true),
        Field::new("timestampType", DataType::Int32, false),
    ];
    if include_headers {
        fields.push(Field::new("headers", DataType::List(Arc::new(header_field())), true));
    }
    Arc::new(Schema::new(fields))
}

/// The columns of the schema, by their place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
}

const ALL: [Column; 8] = [
    Column::Key,
    Column::Value,
    Column::Topic,
    Column::Partition,
    Column::Offset,
    Column::Timestamp,
    Column::TimestampType,
    Column::Headers,
];

/// Byte strings of one column, with nulls.
#[derive(Debug, Default)]
struct Bytes {
    data: Vec<u8>,
    ends: Vec<i32>,
    /// Present from the first null on: whether each row is there.
    valid: Option<Vec<bool>>,
}

impl Bytes {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Bytes { data: Vec::with_capacity(bytes), ends, valid: None }
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => {
                self.data.extend_from_slice(value);
                if let Some(valid) = &mut self.valid {
                    valid.push(true);
                }
            }
            None => {
                let rows = self.ends.len() - 1;
                self.valid.get_or_insert_with(|| vec![true; rows]).push(false);
            }
        }
        // Beyond `COLUMN_BYTES_MAX` it wraps, and `Rows::finish` refuses the record batch.
        self.ends.push(self.data.len() as i32);
    }

    fn finish(self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        (ends, Buffer::from_vec(self.data), self.valid.map(NullBuffer::from))
    }
}

/// Rows of one partition that become one record batch.
#[derive(Debug)]
pub(super) struct Rows {
    schema: SchemaRef,
    columns: Vec<Column>,
    topic: String,
    partition: i32,
    /// Rows that a record batch has.
    rows_max: usize,
    /// Bytes with which a record batch is handed over, however few rows those are.
    bytes_max: usize,
    rows: usize,
    bytes: usize,
    /// The first row whose timestamp does not fit, and that timestamp.
    too_late: Option<(i64, i64)>,
    /// The first row whose headers cannot be read, and the library's reason.
    damaged: Option<(i64, Code)>,
    key: Option<Bytes>,
    value: Option<Bytes>,
    offset: Option<Vec<i64>>,
    timestamp: Option<Times>,
    timestamp_type: Option<Vec<i32>>,
    headers: Option<Headers>,
    /// Full-length columns of what is the same in every row, made once and sliced.
    topic_column: Option<StringArray>,
    partition_column: Option<Int32Array>,
}

/// Microseconds, with nulls.
#[derive(Debug, Default)]
struct Times {
    values: Vec<i64>,
    valid: Option<Vec<bool>>,
}

#[derive(Debug)]
struct Headers {
    /// The number of headers up to and with each row.
    ends: Vec<i32>,
    /// Whether each row has any: the column is null otherwise (as in Spark).
    valid: Vec<bool>,
    keys: Bytes,
    values: Bytes,
}

impl Rows {
    /// A builder for the columns that are wanted, with about `rows_max` rows or `bytes_max` bytes a record batch.
    pub(super) fn new(
        all: &SchemaRef,
        projection: Option<&[usize]>,
        topic: &str,
        partition: i32,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Self> {
        let (schema, columns) = match projection {
            None => (Arc::clone(all), ALL[..all.fields().len()].to_vec()),
            Some(wanted) => {
                let schema = all
                    .project(wanted)
                    .map_err(|error| Error::new(code::BUG, "a column that the source does not have").because(error))?;
                (Arc::new(schema), wanted.iter().map(|at| ALL[*at]).collect())
            }
        };
        let rows_max = rows_max.max(1);
        let wants = |column| columns.contains(&column);
        let topic_column = wants(Column::Topic).then(|| repeated(topic, rows_max)).transpose()?;
        let partition_column =
            wants(Column::Partition).then(|| Int32Array::from_iter_values(std::iter::repeat_n(partition, rows_max)));
        let mut rows = Rows {
            schema,
            columns,
            topic: topic.to_owned(),
            partition,
            rows_max,
            bytes_max,
            rows: 0,
            bytes: 0,
            too_late: None,
            damaged: None,
            key: None,
            value: None,
            offset: None,
            timestamp: None,
            timestamp_type: None,
            headers: None,
            topic_column,
            partition_column,
        };
        rows.reset(0, 0);
        Ok(rows)
    }

    /// Empty columns, with room for as much as the last record batch had.
    fn reset(&mut self, key_bytes: usize, value_bytes: usize) {
        let wants = |column| self.columns.contains(&column);
        let rows = self.rows_max;
        // A little more than last time, so that a steady stream of rows never grows a column.
        let room = |bytes: usize| (bytes + bytes / 16).min(2 * self.bytes_max);
        self.key = wants(Column::Key).then(|| Bytes::with_capacity(rows, room(key_bytes)));
        self.value = wants(Column::Value).then(|| Bytes::with_capacity(rows, room(value_bytes)));
        self.offset = wants(Column::Offset).then(|| Vec::with_capacity(rows));
        self.timestamp = wants(Column::Timestamp).then(|| Times { values: Vec::with_capacity(rows), valid: None });
        self.timestamp_type = wants(Column::TimestampType).then(|| Vec::with_capacity(rows));
        self.headers = wants(Column::Headers).then(|| Headers {
            ends: vec![0],
            valid: Vec::new(),
            keys: Bytes::with_capacity(0, 0),
            values: Bytes::with_capacity(0, 0),
        });
        self.rows = 0;
        self.bytes = 0;
    }

    /// Whether a row of this many bytes still goes into the record batch.
    #[inline]
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.rows == 0 || (self.rows < self.rows_max && self.bytes + bytes <= self.bytes_max)
    }

    /// Whether there is nothing to hand over.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row.
    #[inline]
    pub(super) fn push(&mut self, message: Message<'_>, bytes: usize) {
        if let Some(key) = &mut self.key {
            key.push(message.key());
        }
        if let Some(value) = &mut self.value {
            value.push(message.value());
        }
        if let Some(offset) = &mut self.offset {
            offset.push(message.offset());
        }
        if self.timestamp.is_some() || self.timestamp_type.is_some() {
            let (time, kind) = message.timestamp();
            if let Some(timestamp) = &mut self.timestamp {
                timestamp.push(time, kind);
                // One that is no number of microseconds is refused with its record batch.
                if time.unsigned_abs() > i64::MAX as u64 / 1000 && kind >= 0 {
                    self.too_late.get_or_insert((message.offset(), time));
                }
            }
            if let Some(timestamp_type) = &mut self.timestamp_type {
                timestamp_type.push(kind);
            }
        }
        if let Some(headers) = &mut self.headers {
            let (bytes, read) = headers.push(message);
            self.bytes += bytes;
            if let Err(code) = read {
                self.damaged.get_or_insert((message.offset(), code));
            }
        }
        self.rows += 1;
        self.bytes += bytes;
    }

    /// The record batch; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Result<RecordBatch> {
        let rows = self.rows;
        let held = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.data.len());
        let (key_bytes, value_bytes) = (held(&self.key), held(&self.value));
        let header_bytes =
            self.headers.as_ref().map_or(0, |headers| headers.keys.data.len() + headers.values.data.len());
        if key_bytes.max(value_bytes).max(header_bytes) > COLUMN_BYTES_MAX {
            let at = format!("{}-{}", self.topic, self.partition);
            return Err(Error::new(code::BAD_RECORD, "a message of more than 2 GiB").at("partition", at));
        }
        if let Some((offset, time)) = self.too_late {
            let at = format!("{}-{}@{offset}", self.topic, self.partition);
            return Err(Error::new(code::BAD_RECORD, format!("the timestamp {time} is no number of milliseconds"))
                .at("position", at)
                .fix("correct the producer (did it write nanoseconds?), or leave the column \"timestamp\" out"));
        }
        if let Some((offset, code)) = self.damaged {
            let at = format!("{}-{}@{offset}", self.topic, self.partition);
            return Err(Error::new(code::BAD_RECORD, format!("a message's headers cannot be read: {}", code.text()))
                .at("position", at)
                .fix("correct the producer, or leave the column \"headers\" out"));
        }
        let columns = std::mem::take(&mut self.columns);
        let arrays = columns.iter().map(|column| self.column(*column, rows)).collect::<Result<Vec<_>>>();
        self.columns = columns;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays?, &options)
            .map_err(|error| Error::new(code::BUG, "columns do not fit together").because(error))?;
        self.reset(key_bytes, value_bytes);
        Ok(batch)
    }

    /// A column, taken out of the builder.
    fn column(&mut self, column: Column, rows: usize) -> Result<ArrayRef> {
        let twice = || Error::new(code::BUG, "a column is wanted twice");
        Ok(match column {
            Column::Key => binary(self.key.take().ok_or_else(twice)?),
            Column::Value => binary(self.value.take().ok_or_else(twice)?),
            Column::Topic => Arc::new(self.topic_column.as_ref().ok_or_else(twice)?.slice(0, rows)),
            Column::Partition => Arc::new(self.partition_column.as_ref().ok_or_else(twice)?.slice(0, rows)),
            Column::Offset => Arc::new(Int64Array::from(self.offset.take().ok_or_else(twice)?)),
            Column::Timestamp => {
                let Times { values, valid } = self.timestamp.take().ok_or_else(twice)?;
                let array = TimestampMicrosecondArray::new(values.into(), valid.map(NullBuffer::from));
                Arc::new(array.with_timezone("UTC"))
            }
            Column::TimestampType => Arc::new(Int32Array::from(self.timestamp_type.take().ok_or_else(twice)?)),
            Column::Headers => self.headers.take().ok_or_else(twice)?.finish()?,
        })
    }
}

impl Times {
    #[inline]
    fn push(&mut self, time_ms: i64, kind: i32) {
        if kind >= 0 {
            self.values.push(time_ms.wrapping_mul(1000));
            if let Some(valid) = &mut self.valid {
                valid.push(true);
            }
        } else {
            let rows = self.values.len();
            self.valid.get_or_insert_with(|| vec![true; rows]).push(false);
            self.values.push(0);
        }
    }
}

impl Headers {
    /// Adds a row: how many bytes it has, and whether its headers could be read.
    fn push(&mut self, message: Message<'_>) -> (usize, Result<(), Code>) {
        let before = self.keys.data.len() + self.values.data.len();
        let read = message.headers(|key, value| {
            self.keys.push(Some(key.as_bytes()));
            self.values.push(value);
        });
        let end = (self.keys.ends.len() - 1) as i32;
        self.valid.push(self.ends.last() != Some(&end));
        self.ends.push(end);
        (self.keys.data.len() + self.values.data.len() - before, read)
    }

    fn finish(self) -> Result<ArrayRef> {
        let bug = |error| Error::new(code::BUG, "headers do not fit together").because(error);
        let (ends, data, _) = self.keys.finish();
        let keys = StringArray::try_new(ends, data, None).map_err(bug)?;
        let values = binary(self.values);
        let entries = StructArray::try_new(header_fields(), vec![Arc::new(keys), values], None).map_err(bug)?;
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let valid = Some(NullBuffer::from(self.valid));
        Ok(Arc::new(ListArray::try_new(Arc::new(header_field()), ends, Arc::new(entries), valid).map_err(bug)?))
    }
}

fn binary(bytes: Bytes) -> ArrayRef {
    let (ends, data, nulls) = bytes.finish();
    Arc::new(BinaryArray::new(ends, data, nulls))
}

/// The same text in every row.
fn repeated(text: &str, rows: usize) -> Result<StringArray> {
    let ends = OffsetBuffer::from_repeated_length(text.len(), rows);
    StringArray::try_new(ends, Buffer::from_vec(text.as_bytes().repeat(rows)), None)
        .map_err(|error| Error::new(code::BUG, "a topic's name is not a text").because(error))
}
