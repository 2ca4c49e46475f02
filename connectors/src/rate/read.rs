//! The task's side: rows are computed from their numbers.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tidemill_core::{Error, ReadContext, ReadItem, Receipt, Result, SourceReader, Split, code};

use super::offset::RateOffset;
use super::source::schema;

/// Reads ranges of a rate source. It has no state: all that a row depends on is in the split.
#[derive(Debug)]
pub(super) struct RateReader;

/// A read in the middle.
struct Read {
    schema: SchemaRef,
    split: Split,
    context: ReadContext,
    start: RateOffset,
    next: u64,
    end: u64,
    over: bool,
}

impl SourceReader for RateReader {
    fn read(&self, split: Split, context: ReadContext) -> BoxStream<'static, Result<ReadItem>> {
        let begun = RateOffset::decode(&split.start).and_then(|start| Ok((start, RateOffset::decode(&split.end)?)));
        let (start, end) = match begun {
            Ok(ends) => ends,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let read = Read { schema: schema(), split, context, start, next: start.row, end: end.row, over: false };
        stream::unfold(read, |mut read| async move {
            // Rows never wait for anything: without this, a read would never let anything else run.
            tokio::task::yield_now().await;
            if read.over {
                return None;
            }
            let item = read.step();
            read.over = !matches!(item, Ok(ReadItem::Rows(_)));
            Some((item, read))
        })
        .boxed()
    }
}

impl Read {
    fn step(&mut self) -> Result<ReadItem> {
        if self.context.cancel.is_cancelled() {
            return Err(Error::new(code::STOPPED, "stopped while reading a rate source"));
        }
        if self.next >= self.end {
            return Ok(ReadItem::Receipt(self.receipt()));
        }
        let until = self.end.min(self.next.saturating_add(self.context.batch_rows.max(1) as u64));
        let rows = rows(&self.schema, self.start, self.next, until, self.context.projection.as_deref())?;
        self.next = until;
        Ok(ReadItem::Rows(rows))
    }

    fn receipt(&self) -> Receipt {
        let rows = self.end - self.start.row;
        Receipt {
            source: self.split.source.clone(),
            split: self.split.id.clone(),
            start: self.split.start.clone(),
            end: self.split.end.clone(),
            rows,
            bytes: rows * 16,
            first: (rows > 0).then_some(self.start.row as i64),
            last: (rows > 0).then(|| self.end as i64 - 1),
            ascending: true,
            lost: 0,
            identity: Value::Null,
        }
    }
}

/// Rows `[from, until)`, by the clock of `clock`.
fn rows(
    schema: &SchemaRef,
    clock: RateOffset,
    from: u64,
    until: u64,
    projection: Option<&[usize]>,
) -> Result<RecordBatch> {
    let bug = |error| Error::new(code::BUG, "a column that the source does not have").because(error);
    let column = |at: usize| -> ArrayRef {
        if at == 0 {
            let times = (from..until).map(|row| clock.time_us(row));
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"))
        } else {
            Arc::new(Int64Array::from_iter_values((from..until).map(|row| row as i64)))
        }
    };
    let (schema, columns) = match projection {
        None => (Arc::clone(schema), vec![column(0), column(1)]),
        Some(wanted) => {
            let schema = Arc::new(schema.project(wanted).map_err(bug)?);
            (schema, wanted.iter().map(|at| column(*at)).collect())
        }
    };
    let options = RecordBatchOptions::new().with_row_count(Some((until - from) as usize));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(bug)
}
