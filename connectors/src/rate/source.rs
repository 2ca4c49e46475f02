//! The driver's side: the clock, or the batch, says how many rows there are.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use serde_json::Value;
use tidemill_core::{
    Clock, Context, Error, Loss, Offer, Offsets, Range, ReadLimit, Result, Source, SourceSpec, Split, code,
};

use super::config::{Pace, RateConfig};
use super::offset::RateOffset;

/// A rate source, in the driver.
#[derive(Debug)]
pub(super) struct RateSource {
    config: RateConfig,
    spec: SourceSpec,
    clock: Arc<dyn Clock>,
}

impl RateSource {
    pub(super) fn new(config: RateConfig, context: &Context) -> Self {
        let spec = config.spec();
        RateSource { config, spec, clock: Arc::clone(&context.clock) }
    }
}

/// The columns of every row.
pub(super) fn schema() -> SchemaRef {
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![Field::new("timestamp", utc, false), Field::new("value", DataType::Int64, false)]))
}

/// Rows that have been made by `now_ms`, if row 0 was due at `origin_ms`.
fn rows_by(now_ms: i64, origin_ms: i64, rows_per_second: u64) -> u64 {
    let elapsed = i128::from(now_ms) - i128::from(origin_ms);
    u64::try_from(elapsed * i128::from(rows_per_second) / 1000).unwrap_or(0)
}

/// Where the source ends now. A changed rate goes on from the row at which the old one stopped, at that row's time.
fn end_now(from: RateOffset, rows_per_second: u64, now_ms: i64) -> RateOffset {
    let origin_ms = if rows_per_second == from.rows_per_second {
        from.origin_ms
    } else {
        let before = i128::from(from.row) * 1000 / i128::from(rows_per_second);
        from.time_us(from.row) / 1000 - i64::try_from(before).unwrap_or(i64::MAX)
    };
    // A clock that was set back makes no rows, and takes none back.
    let row = rows_by(now_ms, origin_ms, rows_per_second).max(from.row);
    RateOffset::new(row, origin_ms, rows_per_second)
}

#[async_trait]
impl Source for RateSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn description(&self) -> String {
        match self.config.pace {
            Pace::PerSecond { rows } => format!("rate of {rows} rows a second"),
            Pace::PerBatch { rows, .. } => format!("rate of {rows} rows a batch"),
        }
    }

    async fn initial(&self) -> Result<Offsets> {
        Ok(match self.config.pace {
            Pace::PerSecond { rows } => RateOffset::new(0, self.clock.now_ms(), rows),
            Pace::PerBatch { start_ms, advance_ms, .. } => RateOffset::new(0, start_ms.saturating_sub(advance_ms), 0),
        }
        .encode())
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>> {
        let from = RateOffset::decode(from)?;
        let latest = match self.config.pace {
            Pace::PerSecond { rows } => end_now(from, rows, self.clock.now_ms()),
            // The offsets before the first batch lie one step before its time.
            Pace::PerBatch { rows, advance_ms, .. } => {
                RateOffset::new(from.row.saturating_add(rows), from.origin_ms.saturating_add(advance_ms), 0)
            }
        };
        let mut end = latest.row;
        if let Some(up_to) = limit.up_to.as_ref().map(RateOffset::decode).transpose()? {
            end = end.min(up_to.row);
        }
        // A batch of `rate-micro-batch` is whole: a cut one would move the times of all that follow.
        if let (Some(rows), Pace::PerSecond { .. }) = (limit.rows, self.config.pace) {
            end = end.min(from.row.saturating_add(rows));
        }
        if end <= from.row {
            return Ok(None);
        }
        let range = Range { start: from.encode(), end: latest.at_row(end).encode() };
        Ok(Some(Offer { range, latest: latest.encode(), loss: Loss::default() }))
    }

    /// Contiguous pieces that differ by one row at most.
    fn plan(&self, name: &str, range: &Range, _interpretation: &Value) -> Result<Vec<Split>> {
        let (start, end) = (RateOffset::decode(&range.start)?, RateOffset::decode(&range.end)?);
        let rows = end.row.checked_sub(start.row).ok_or_else(|| {
            Error::new(code::BAD_OFFSET, format!("the range starts at row {} and ends at row {}", start.row, end.row))
        })?;
        let pieces = self.config.partitions.min(rows);
        let cut = |piece: u64| {
            start.row + u64::try_from(u128::from(rows) * u128::from(piece) / u128::from(pieces)).unwrap_or(rows)
        };
        let splits = (0..pieces).map(|piece| Split {
            source: name.to_owned(),
            id: format!("rate-{piece}"),
            // Both carry the clock of the range's end: it is the one by which the rows are timed.
            start: end.at_row(cut(piece)).encode(),
            end: end.at_row(cut(piece + 1)).encode(),
            estimated_rows: cut(piece + 1) - cut(piece),
        });
        Ok(splits.collect())
    }

    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        Some(RateOffset::decode(end).ok()?.row.saturating_sub(RateOffset::decode(start).ok()?.row))
    }
}
