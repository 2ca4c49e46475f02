//! Write: run the batch's tasks. Afterwards its rows are staged, durable and invisible.

use std::collections::BTreeMap;

use tidemill_core::crash::crash_point;
use tidemill_core::rules::{Rule, is_broken};
use tidemill_core::{AttemptId, BatchId, Receipt, Result, Split};
use tokio_util::sync::CancellationToken;

use super::transform::Transformed;
use super::{Logged, MicroBatch};
use crate::dataflow::BatchOutcome;

/// A batch whose rows one attempt has staged.
#[derive(Debug)]
pub struct Written {
    pub(super) logged: Logged,
    pub(super) attempt: AttemptId,
    pub(super) outcome: BatchOutcome,
}

impl MicroBatch {
    /// Runs one attempt of a logged batch, over exactly its ranges.
    pub(super) async fn write(&self, logged: &mut Logged, cancel: &CancellationToken) -> Result<Written> {
        let batch_id = logged.entry.body.batch_id;
        if is_broken(Rule::KeepStages) {
            self.sweep_too_early(batch_id).await;
        }
        // A plan runs once: the next attempt makes its own.
        let transformed = match logged.transformed.take() {
            Some(transformed) => transformed,
            None => self.transform(&logged.entry.body).await?,
        };
        let Transformed { attempt, splits, job } = transformed;
        let run = self.executor.execute(job, cancel.child_token());
        let outcome = self.timings.phase(&*self.clock, "addBatch", run).await.inspect_err(|_| {
            // What the attempt staged is nobody's: it is swept after the commit.
            self.contested(batch_id);
        })?;
        self.check_receipts(batch_id, &splits, &outcome.receipts).inspect_err(|_| self.contested(batch_id))?;
        crash_point("write", batch_id);
        Ok(Written { logged: logged.clone(), attempt, outcome })
    }

    /// Takes away what other attempts have staged, though one of them may win.
    async fn sweep_too_early(&self, batch_id: BatchId) {
        let nobody = self.next_attempt();
        for sink in &self.query.sinks {
            let _ = sink.sink.discard(&self.sink_key(&sink.name), batch_id, &nobody).await;
        }
    }

    /// An attempt counts only if it read what was planned: all of it, once, in order, from the same source as planned.
    fn check_receipts(&self, batch_id: BatchId, splits: &[Split], receipts: &[Receipt]) -> Result<()> {
        if is_broken(Rule::CheckReceipts) {
            return Ok(());
        }
        let place = |error: tidemill_core::Error| error.at("batch", batch_id);
        Receipt::check(splits, receipts).map_err(place)?;
        let by_id: BTreeMap<_, _> = splits.iter().map(|split| ((&split.source, &split.id), split)).collect();
        for receipt in receipts {
            let split = by_id[&(&receipt.source, &receipt.split)];
            self.query.sources[&split.source].check_receipt(split, receipt).map_err(place)?;
        }
        Ok(())
    }
}
