//! The task's side: slices of the record batches that were added, and the faults that a test asked for.

use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tidemill_core::{Error, ReadContext, ReadItem, Receipt, Result, SourceReader, Split, code};

use super::config::Table;
use super::offset::decode;

/// Reads ranges of a table.
#[derive(Debug)]
pub(super) struct MemoryReader {
    table: Arc<Table>,
}

impl MemoryReader {
    pub(super) fn new(table: Arc<Table>) -> Self {
        MemoryReader { table }
    }
}

/// A read in the middle.
struct Read {
    table: Arc<Table>,
    split: Split,
    context: ReadContext,
    start: u64,
    next: u64,
    end: u64,
    bytes: u64,
    begun: bool,
    over: bool,
}

impl SourceReader for MemoryReader {
    fn read(&self, split: Split, context: ReadContext) -> BoxStream<'static, Result<ReadItem>> {
        let table = Arc::clone(&self.table);
        let ends = decode(&split.start).and_then(|start| Ok((start, decode(&split.end)?)));
        let (start, end) = match ends {
            Ok(ends) => ends,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let read = Read { table, split, context, start, next: start, end, bytes: 0, begun: false, over: false };
        stream::unfold(read, |mut read| async move {
            // The rows are there already: without this, a read would never let anything else run.
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
            return Err(Error::new(code::STOPPED, "stopped while reading a memory table"));
        }
        let mut state = self.table.state();
        if !std::mem::replace(&mut self.begun, true) {
            state.reads.push((self.start, self.end));
        }
        if self.next >= self.end {
            drop(state);
            return Ok(ReadItem::Receipt(self.receipt()));
        }
        let ahead = |row: u64| (self.next..self.end).contains(&row);
        let fault = state.faults.iter_mut().filter(|fault| fault.times > 0 && ahead(fault.row)).min_by_key(|f| f.row);
        let mut end = self.end;
        if let Some(fault) = fault {
            if fault.row == self.next {
                fault.times -= 1;
                let (row, panics) = (fault.row, fault.panics);
                drop(state);
                assert!(!panics, "a panic at row {row} was asked for");
                return Err(Error::new(code::SOURCE_UNAVAILABLE, format!("a failure at row {row} was asked for")));
            }
            end = fault.row;
        }
        let rows = rows_from(&state.rows, self.next, end, self.context.batch_rows.max(1)).ok_or_else(|| {
            let what =
                format!("table \"{}\" has {} rows, and row {} is wanted", self.table.name, state.count, self.next);
            Error::new(code::DATA_LOSS, what).fix("rows of a memory table are gone when its process ends")
        })?;
        drop(state);
        self.next += rows.num_rows() as u64;
        self.bytes += rows.get_array_memory_size() as u64;
        let rows = match &self.context.projection {
            Some(wanted) => rows
                .project(wanted)
                .map_err(|error| Error::new(code::BUG, "a column that the source does not have").because(error))?,
            None => rows,
        };
        Ok(ReadItem::Rows(rows))
    }

    fn receipt(&self) -> Receipt {
        let rows = self.end - self.start;
        Receipt {
            source: self.split.source.clone(),
            split: self.split.id.clone(),
            start: self.split.start.clone(),
            end: self.split.end.clone(),
            rows,
            bytes: self.bytes,
            first: (rows > 0).then_some(self.start as i64),
            last: (rows > 0).then(|| self.end as i64 - 1),
            ascending: true,
            lost: 0,
            identity: Value::Null,
        }
    }
}

/// The rows from `start` on, up to `end`, as many as one stored record batch and `most` allow; none if row `start` is not
/// there.
fn rows_from(stored: &[RecordBatch], start: u64, end: u64, most: usize) -> Option<RecordBatch> {
    let mut before = 0;
    for rows in stored {
        let count = rows.num_rows() as u64;
        if start < before + count {
            let at = (start - before) as usize;
            let len = (end - start).min(count - at as u64).min(most as u64) as usize;
            return Some(rows.slice(at, len));
        }
        before += count;
    }
    None
}
