//! Commit: the batch counts. Then what may be repeated and may be skipped: sources are told, stages swept, logs purged.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use tidemill_core::crash::crash_point;
use tidemill_core::sink::Mode;
use tidemill_core::{BatchId, Loss, Offsets, Owner, Receipt, Result};
use tracing::warn;

use super::{MicroBatch, Position, Published};
use crate::checkpoint::entry::CommitBody;

/// A batch that counts.
#[derive(Debug)]
pub struct Committed {
    /// N.
    pub batch_id: BatchId,
    /// The batch's time, if this driver logged or ran it.
    pub timestamp_ms: Option<i64>,
    /// Where the query stands now.
    pub position: Position,
    /// The readers' accounts.
    pub receipts: Vec<Receipt>,
    /// What each source gave: start and end.
    pub ranges: serde_json::Value,
    /// Where each source ended when N was planned.
    pub latest: BTreeMap<String, Offsets>,
    /// What each source was to give and did not have any more.
    pub losses: BTreeMap<String, Loss>,
    /// What each sink shows of it.
    pub sinks: BTreeMap<String, tidemill_core::Published>,
}

impl MicroBatch {
    /// Makes the batch count.
    pub(super) async fn commit(&self, published: Published) -> Result<Committed> {
        let Published { acked, sinks } = published;
        let (nonce, body) = (acked.entry.head.nonce, acked.entry.body);
        let batch_id = body.batch_id;
        let commit = CommitBody {
            batch_id,
            acks_nonce: nonce.clone(),
            input_rows: body.receipts.iter().map(|receipt| receipt.rows).sum(),
            output_rows: sinks.iter().map(|(name, shown)| (name.clone(), shown.rows)).collect(),
        };
        let create = self.checkpoint.create_commit(commit, acked.commit_revision);
        self.timings.phase(&*self.clock, "commitOffsets", create).await?;
        crash_point("commit", batch_id);
        let mut losses: BTreeMap<String, Loss> = BTreeMap::new();
        for receipt in body.receipts.iter().filter(|receipt| receipt.lost > 0) {
            let loss = losses.entry(receipt.source.clone()).or_default();
            loss.add(receipt.lost, format!("{} rows of {} while it was read", receipt.lost, receipt.split));
        }
        let (timestamp_ms, latest) = match acked.logged {
            Some(logged) => {
                for (name, source) in &logged.entry.body.sources {
                    let loss = losses.entry(name.clone()).or_default();
                    loss.rows += source.loss.rows;
                    loss.why.extend_from_slice(&source.loss.why);
                }
                (Some(logged.entry.body.timestamp_ms), logged.latest)
            }
            None => (None, BTreeMap::new()),
        };
        let committed = Committed {
            batch_id,
            timestamp_ms,
            position: Position {
                batch_id: batch_id.next(),
                revision: 0,
                previous_acks: Some(nonce),
                offsets: body.positions,
                has_unlogged_start: false,
                watermarks: body.watermarks,
            },
            receipts: body.receipts,
            ranges: body.ranges,
            latest,
            losses,
            sinks,
        };
        self.paces.read(&committed.receipts);
        self.tell_sources(&committed.position).await;
        self.sweep(batch_id, &body.attempt).await;
        self.purge(batch_id).await?;
        Ok(committed)
    }

    /// Who a source is, to itself: several queries may share it.
    pub(crate) fn owner<'a>(&'a self, source: &'a str) -> Owner<'a> {
        Owner { query_id: self.checkpoint.query_id(), source }
    }

    /// Tells every source where the query stands.
    pub(crate) async fn tell_sources(&self, position: &Position) {
        for (name, source) in &self.query.sources {
            let Some(offsets) = position.offsets.get(name) else { continue };
            if let Err(error) = source.committed(offsets, self.owner(name)).await {
                warn!(source = name, %error, "source could not be told of a commit");
            }
        }
    }

    /// Removes what attempts that lost have staged, and what a spooled sink has shown. Of other sinks only batches that
    /// had more than one attempt are looked at.
    async fn sweep(&self, batch_id: BatchId, winner: &tidemill_core::AttemptId) {
        let contested = self.contested.lock().unwrap_or_else(PoisonError::into_inner).remove(&batch_id);
        for sink in self.query.sinks.iter().filter(|sink| contested || sink.sink.mode() == Mode::Spooled) {
            if let Err(error) = sink.sink.discard(&self.sink_key(&sink.name), batch_id, winner).await {
                warn!(sink = sink.name, %batch_id, %error, "stages of lost attempts could not be removed");
            }
        }
    }

    /// Purges when enough batches may go. A purge that fails is tried again with a later batch; only a boundary whose
    /// outcome is unknown, or a newer driver, ends the run.
    async fn purge(&self, batch_id: BatchId) -> Result<()> {
        let (kept, last) = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.batches.push_back((batch_id, self.clock.now_ms()));
            let Some(last) = self.checkpoint.retention().purge_up_to(&kept, self.clock.now_ms()) else {
                return Ok(());
            };
            (kept.clone(), last)
        };
        match self.checkpoint.purge(&kept, last).await {
            Ok(()) => {}
            Err(error) if error.kind() == tidemill_core::ErrorKind::Retry => {
                warn!(%error, "old batches could not be purged");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).forget(last);
        // What drivers staged that slept past a commit, and what a process left that died between commit and discard.
        for sink in &self.query.sinks {
            if let Err(error) = sink.sink.sweep(&self.sink_key(&sink.name), last).await {
                warn!(sink = sink.name, %error, "stages of purged batches could not be removed");
            }
        }
        Ok(())
    }
}
