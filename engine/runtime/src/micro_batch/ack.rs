//! Acknowledge: whoever creates `acks/N` first decides which attempt N is. Every other attempt is void.

use std::collections::BTreeMap;

use tidemill_core::crash::crash_point;
use tidemill_core::{Ack, Result};

use super::transform::ranges;
use super::{Acked, MicroBatch, Written};
use crate::checkpoint::entry::AcksBody;

impl MicroBatch {
    /// Makes an attempt the one that N is, or adopts the attempt that was first. From here on N is only rolled forward.
    pub(super) async fn acknowledge(&self, written: Written) -> Result<Acked> {
        self.checkpoint.check_fence().await?;
        let Written { logged, attempt, outcome } = written;
        let plan = &logged.entry.body;
        let mut sinks: BTreeMap<String, Vec<Ack>> = outcome.acks;
        for name in self.query.sink_names() {
            // A batch without rows for a sink leaves a record there too.
            sinks.entry(name).or_default();
        }
        let body = AcksBody {
            batch_id: plan.batch_id,
            attempt,
            offsets_nonce: logged.entry.head.nonce.clone(),
            fingerprint: self.query.fingerprint.clone(),
            receipts: outcome.receipts,
            positions: plan.sources.iter().map(|(name, source)| (name.clone(), source.range.end.clone())).collect(),
            watermarks: plan.watermarks.clone(),
            state: Vec::new(),
            sinks,
            ranges: ranges(plan),
        };
        let batch_id = body.batch_id;
        let create = self.checkpoint.create_acks(body);
        let acks = self.timings.phase(&*self.clock, "walCommit", create).await?;
        crash_point("acks", batch_id);
        if acks.adopted {
            self.contested(batch_id);
        }
        self.check_sinks(&acks.entry)?;
        Ok(Acked { logged: Some(logged), entry: acks.entry, commit_revision: 0 })
    }
}
