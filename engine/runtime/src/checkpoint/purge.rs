//! Deleting what nobody needs any more.
//!
//! A purged name could be created again by a driver that slept meanwhile. So the boundary comes first, durably: names at
//! or below it mean nothing for ever, and every writer looks at it after every create.
//!
//! Boundaries would stay for ever, and a driver that slept finds the one that concerns it by its number. So they go by
//! hundreds, and `purged/<j>` says of the j-th hundred that it is gone, before it goes: an absent boundary is believed only
//! if its hundred is not purged, looked at afterwards.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_core::crash::crash_point;
use tidemill_core::store::{Created, create::delete};
use tidemill_core::{BatchId, Result};
use tracing::warn;

use super::entry::{Body, BoundaryBody, Entry, PurgedBody, encode};
use super::{Checkpoint, Log};

/// So many boundaries are purged at once.
const HUNDRED: u64 = 100;
/// So many newer ones there are then, at least: one that tears is not alone.
const BOUNDARIES_MIN: u64 = 2;
/// So many driver starts stay on record.
const GENERATIONS_MAX: usize = 100;

/// How many batches a checkpoint keeps, for replay and audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// At least so many of the newest batches.
    pub batches_min: u64,
    /// Everything younger than this…
    pub age: Duration,
    /// …but never more than so many batches.
    pub batches_max: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { batches_min: 100, age: Duration::from_secs(24 * 60 * 60), batches_max: 10_000 }
    }
}

/// What a driver remembers of the log, so that a purge lists nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The batches above the boundary, the oldest first, each with its commit's time.
    pub batches: VecDeque<(BatchId, i64)>,
    /// Files of other names: revisions, and what lay at or below the boundary when this driver started: the rest of a
    /// purge that died, or what a driver created that woke too late.
    pub others: Vec<(Log, BatchId, u32)>,
}

impl Kept {
    /// The files of batches up to `last`, which are dead once the boundary says so.
    fn files(&self, last: BatchId) -> Vec<(Log, BatchId, u32)> {
        let batches = self.batches.iter().map(|(batch_id, _)| *batch_id);
        let of_batch = |batch_id| [Log::Offsets, Log::Acks, Log::Commits].map(|log| (log, batch_id, 0));
        batches.flat_map(of_batch).chain(self.others.iter().copied()).filter(|(_, at, _)| *at <= last).collect()
    }

    /// Forgets what a purge has deleted.
    pub fn forget(&mut self, last: BatchId) {
        self.batches.retain(|(batch_id, _)| *batch_id > last);
        self.others.retain(|(_, batch_id, _)| *batch_id > last);
    }
}

impl Retention {
    /// The highest batch that may go, once it is worth a boundary. It never passes the newest commit − 2: a start needs
    /// two whole batches.
    pub fn purge_up_to(&self, kept: &Kept, now_ms: i64) -> Option<BatchId> {
        let kept = &kept.batches;
        let count = kept.len() as u64;
        let spare = count.saturating_sub(self.batches_min.max(2));
        // A purge waits until it is worth its boundary, a tenth of what is there: boundaries stay for ever. So one for the
        // maximum makes room for as many.
        let step = (count / 10).max(1);
        let over = count.saturating_sub(self.batches_max.max(2));
        let must_go = if over > 0 { over + step } else { 0 };
        let age_ms = i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX);
        let too_old = |time_ms: i64| now_ms.saturating_sub(time_ms) > age_ms;
        let goes = |(at, (_, time_ms)): &(usize, &(BatchId, i64))| (*at as u64) < must_go || too_old(*time_ms);
        let last = kept.iter().enumerate().take(spare as usize).take_while(goes).last();
        last.filter(|(at, _)| *at as u64 + 1 >= step).map(|(_, (batch_id, _))| *batch_id)
    }
}

impl Checkpoint {
    /// How many batches are kept.
    pub fn retention(&self) -> &Retention {
        &self.settings.retention
    }

    /// Deletes what is kept of the batches up to `last`. The boundary is durable before the first delete; a purge that
    /// dies half-way leaves names that mean nothing, and the next driver's purge deletes them.
    pub async fn purge(&self, kept: &Kept, last: BatchId) -> Result<()> {
        // A boundary never goes back: what another driver has declared dead stays so.
        if last.0 >= self.dead.load(Ordering::SeqCst) {
            let body = BoundaryBody { batch_id: last };
            let entry = Entry { head: self.head(BoundaryBody::KIND), body };
            let number = self.next_boundary.load(Ordering::SeqCst);
            if let Created::Lost(_) = self.create(&Log::Boundary.path(number, 0), encode(&entry)).await? {
                // Another driver purges here. Its boundary is as good as ours; the fence check ends one of us.
                return self.check_fence().await;
            }
            // A driver that slept may have taken a number again that was purged.
            if self.is_boundary_purged(number).await? {
                return Err(self.outrun(last).await);
            }
            self.next_boundary.store(number + 1, Ordering::SeqCst);
            self.dead.fetch_max(last.0 + 1, Ordering::SeqCst);
        }
        for (deleted, (log, batch_id, revision)) in kept.files(last).into_iter().enumerate() {
            if deleted == 1 {
                crash_point("mid-purge", last);
            }
            delete(&self.location, &log.path(batch_id.0, revision)).await?;
        }
        self.purge_boundaries().await
    }

    /// Deletes the boundaries of every hundred that is full and has newer ones.
    async fn purge_boundaries(&self) -> Result<()> {
        loop {
            let hundred = self.oldest_boundary.load(Ordering::SeqCst) / HUNDRED;
            let below = (hundred + 1) * HUNDRED;
            if self.next_boundary.load(Ordering::SeqCst) < below + BOUNDARIES_MIN {
                return Ok(());
            }
            let entry = Entry { head: self.head(PurgedBody::KIND), body: PurgedBody { below } };
            // It counts by its name: another driver's is as good as ours.
            self.create(&Log::Purged.path(hundred, 0), encode(&entry)).await?;
            for number in hundred * HUNDRED..below {
                delete(&self.location, &Log::Boundary.path(number, 0)).await?;
            }
            self.oldest_boundary.store(below, Ordering::SeqCst);
        }
    }

    /// Whether a boundary that is not there is one that has been purged. A driver that may conclude from its absence
    /// asks this *afterwards*.
    pub(super) async fn is_boundary_purged(&self, number: u64) -> Result<bool> {
        Ok(self.location.read(&Log::Purged.path(number / HUNDRED, 0)).await?.is_some())
    }

    /// Deletes the oldest driver starts. Safety does not rest on them, so it may fail: the next start tries again.
    pub(super) async fn purge_generations(&self, numbers: impl ExactSizeIterator<Item = u64>) {
        let spare = numbers.len().saturating_sub(GENERATIONS_MAX);
        for number in numbers.take(spare) {
            if let Err(error) = delete(&self.location, &Log::Generations.path(number, 0)).await {
                return warn!(%error, "old driver starts could not be taken off the record");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_keeps_the_newest_the_young_and_no_more_than_its_maximum() {
        let hour_ms = 3_600_000;
        let kept = |count: u64| Kept {
            batches: (0..count).map(|n| (BatchId(n), n as i64 * hour_ms)).collect(),
            others: Vec::new(),
        };
        let retention = Retention { batches_min: 5, age: Duration::from_secs(10 * 3600), batches_max: 20 };
        for (count, now_hours, expected) in [
            (3, 1_000, None),    // fewer than the minimum
            (8, 8, None),        // all young
            (8, 1_000, Some(2)), // all old: five stay
            (12, 12, Some(1)),   // 0 and 1 are older than ten hours
            (30, 30, Some(19)),  // by age alone
            (30, 9, Some(12)),   // by the maximum alone, and a tenth more
        ] {
            let found = retention.purge_up_to(&kept(count), now_hours * hour_ms);
            assert_eq!(found, expected.map(BatchId), "{count} batches at hour {now_hours}");
        }
        let tight = Retention { batches_min: 0, age: Duration::ZERO, batches_max: 0 };
        assert_eq!(tight.purge_up_to(&kept(8), i64::MAX), Some(BatchId(5)), "two batches stay");
        let wide = Retention { batches_min: 50, age: Duration::ZERO, batches_max: 1_000 };
        assert_eq!(wide.purge_up_to(&kept(54), i64::MAX), None, "four are not worth a boundary");
        assert_eq!(wide.purge_up_to(&kept(55), i64::MAX), Some(BatchId(4)));
    }

    #[test]
    fn revisions_and_leftovers_go_with_their_batches() {
        let batches: VecDeque<_> = (5..8).map(|n| (BatchId(n), 0)).collect();
        let others = vec![(Log::Offsets, BatchId(2), 0), (Log::Commits, BatchId(5), 1), (Log::Offsets, BatchId(7), 1)];
        let mut kept = Kept { batches, others };
        let files = kept.files(BatchId(6));
        let expected = [Log::Offsets, Log::Acks, Log::Commits];
        let expected = [5, 6].into_iter().flat_map(|n| expected.map(|log| (log, BatchId(n), 0)));
        let others = [(Log::Offsets, BatchId(2), 0), (Log::Commits, BatchId(5), 1)];
        assert_eq!(files, expected.chain(others).collect::<Vec<_>>());
        kept.forget(BatchId(6));
        assert_eq!(kept.batches, [(BatchId(7), 0)]);
        assert_eq!(kept.others, [(Log::Offsets, BatchId(7), 1)]);
    }
}
