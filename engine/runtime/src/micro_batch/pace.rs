//! Pace: how much the next batch reads of each source, and whether it is held back. Decided from what the source's options
//! say and from what this run has seen; nothing of it is durable, since a range that is logged is never judged again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_core::{Hold, Offsets, Pace, ReadLimit, Receipt};

/// How many bytes a row is taken to have before any was seen: as many as Kafka's largest by default. So the first batch of
/// a run is small, and never above its limit.
const ROW_BYTES_UNKNOWN: u64 = 1 << 20;

/// What this run has seen of each source.
#[derive(Debug, Default)]
pub struct Paces(Mutex<BTreeMap<String, Seen>>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// When the last batch that reads of the source was planned, on the monotonic clock.
    last_batch: Option<Duration>,
    /// Bytes a row in the last batch that had rows.
    row_bytes: Option<u64>,
}

impl Paces {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much the next batch may read of a source.
    pub(super) fn limit(&self, source: &str, pace: &Pace, up_to: Option<Offsets>) -> ReadLimit {
        let row_bytes = self.seen().get(source).and_then(|seen| seen.row_bytes);
        ReadLimit { rows: rows_max(pace, row_bytes), up_to }
    }

    /// Whether a source with this many rows waiting is held back. One that has not been read in this run never is.
    pub(super) fn holds_back(&self, source: &str, hold: Hold, waiting: u64, now: Duration) -> bool {
        let last = self.seen().get(source).and_then(|seen| seen.last_batch);
        last.is_some_and(|last| waiting < hold.rows && now.saturating_sub(last) < hold.delay_max)
    }

    /// Takes note of what was read.
    pub(super) fn read(&self, receipts: &[Receipt]) {
        let mut read: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for receipt in receipts {
            let (rows, bytes) = read.entry(&receipt.source).or_default();
            (*rows, *bytes) = (*rows + receipt.rows, *bytes + receipt.bytes);
        }
        let mut seen = self.seen();
        for (source, (rows, bytes)) in read.into_iter().filter(|(_, (rows, _))| *rows > 0) {
            seen.entry(source.to_owned()).or_default().row_bytes = Some(bytes.div_ceil(rows).max(1));
        }
    }

    /// Takes note of a source that a batch reads, planned now.
    pub(super) fn planned(&self, source: &str, now: Duration) {
        self.seen().entry(source.to_owned()).or_default().last_batch = Some(now);
    }
}

/// At least one row, however little is allowed: otherwise nothing would ever be read.
fn rows_max(pace: &Pace, row_bytes: Option<u64>) -> Option<u64> {
    let by_bytes = pace.bytes_max.map(|bytes| (bytes / row_bytes.unwrap_or(ROW_BYTES_UNKNOWN)).max(1));
    [pace.rows_max, by_bytes].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use tidemill_core::Offsets;

    use super::*;

    fn receipt(source: &str, rows: u64, bytes: u64) -> Receipt {
        let nowhere = Offsets::encode(&());
        Receipt {
            source: source.to_owned(),
            split: "s".to_owned(),
            start: nowhere.clone(),
            end: nowhere,
            rows,
            bytes,
            first: None,
            last: None,
            ascending: true,
            lost: 0,
            identity: serde_json::Value::Null,
        }
    }

    #[test]
    fn the_lowest_limit_counts_and_one_row_is_always_read() {
        let paces = Paces::default();
        let rows = |rows_max, bytes_max| paces.limit("k", &Pace { rows_max, bytes_max, hold: None }, None).rows;
        assert_eq!(rows(None, None), None);
        assert_eq!(rows(Some(7), None), Some(7));
        // Nothing is known of the rows yet: each may have a mebibyte.
        assert_eq!(rows(None, Some(64 << 20)), Some(64));
        assert_eq!(rows(Some(7), Some(64 << 20)), Some(7));
        assert_eq!(rows(None, Some(10)), Some(1));
        paces.read(&[receipt("k", 2, 100), receipt("k", 2, 101), receipt("other", 1, 9)]);
        // 201 bytes in four rows are 51 bytes a row: rounded up, so that the limit holds.
        assert_eq!(rows(None, Some(64 << 20)), Some((64 << 20) / 51));
        // A batch without rows says nothing about them, and rows without bytes have some size.
        paces.read(&[receipt("k", 0, 0)]);
        assert_eq!(rows(None, Some(102)), Some(2));
        paces.read(&[receipt("k", 5, 0)]);
        assert_eq!(rows(None, Some(102)), Some(102));
    }

    #[test]
    fn a_batch_is_held_back_until_enough_rows_wait_or_the_delay_is_over() {
        let (paces, second) = (Paces::default(), Duration::from_secs(1));
        let hold = Hold { rows: 10, delay_max: 60 * second };
        let held = |waiting, now| paces.holds_back("k", hold, waiting, now * second);
        assert!(!held(1, 5), "the first batch of a run is not held back");
        paces.planned("other", 5 * second);
        assert!(!held(1, 6), "what another source does is nothing to this one");
        paces.planned("k", 10 * second);
        for (waiting, now, expected) in [(9, 11, true), (10, 11, false), (1, 69, true), (1, 70, false), (0, 20, true)] {
            assert_eq!(held(waiting, now), expected, "{waiting} rows at {now} s");
        }
    }
}
