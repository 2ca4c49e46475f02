//! The driver's side: the end of a table is its number of rows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde_json::Value;
use tidemill_core::{Error, Loss, Offer, Offsets, Range, ReadLimit, Result, Source, SourceSpec, Split, code};

use super::config::Table;
use super::offset::{decode, encode};

/// A table, in the driver.
#[derive(Debug)]
pub(super) struct MemoryTableSource {
    table: Arc<Table>,
    spec: SourceSpec,
}

impl MemoryTableSource {
    pub(super) fn new(table: Arc<Table>) -> Self {
        let spec = table.spec();
        MemoryTableSource { table, spec }
    }
}

#[async_trait]
impl Source for MemoryTableSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table.schema)
    }

    fn description(&self) -> String {
        format!("memory table {}, from its first row", self.table.name)
    }

    async fn initial(&self) -> Result<Offsets> {
        Ok(encode(0))
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>> {
        let (start, count) = (decode(from)?, self.table.state().count);
        if count < start {
            let what = format!("table \"{}\" has {count} rows, below the known position {start}", self.table.name);
            return Err(Error::new(code::SOURCE_TRUNCATED, what));
        }
        let bound = limit.up_to.as_ref().map(decode).transpose()?.unwrap_or(u64::MAX);
        let most = limit.rows.map_or(u64::MAX, |rows| start.saturating_add(rows));
        let end = count.min(bound).min(most);
        if end <= start {
            return Ok(None);
        }
        Ok(Some(Offer {
            range: Range { start: from.clone(), end: encode(end) },
            latest: encode(count),
            loss: Loss::default(),
        }))
    }

    /// Pieces that differ by one row at most. They depend on the number of splits, which is the table's, not the range's:
    /// a test that changes it between two runs gets other pieces of the same rows.
    fn plan(&self, name: &str, range: &Range, _interpretation: &Value) -> Result<Vec<Split>> {
        let (start, end) = (decode(&range.start)?, decode(&range.end)?);
        let rows = end.checked_sub(start).ok_or_else(|| {
            Error::new(code::BAD_OFFSET, format!("the range starts at row {start} and ends at row {end}"))
        })?;
        let pieces = (self.table.state().splits as u64).min(rows);
        let cut = |piece: u64| start + rows * piece / pieces.max(1);
        let splits = (0..pieces).map(|piece| Split {
            source: name.to_owned(),
            id: format!("{}-{piece}", self.table.name),
            start: encode(cut(piece)),
            end: encode(cut(piece + 1)),
            estimated_rows: cut(piece + 1) - cut(piece),
        });
        Ok(splits.collect())
    }

    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        Some(decode(end).ok()?.saturating_sub(decode(start).ok()?))
    }
}
