//! Transform: from splits to a physical plan, anew for every batch. Lazy as well.

use tidemill_core::{AttemptId, Result, Split};

use super::MicroBatch;
use crate::checkpoint::entry::OffsetsBody;
use crate::dataflow::{BatchJob, BatchRequest};

/// One execution of a batch, planned and not begun: nothing is read yet.
#[derive(Clone, Debug)]
pub(super) struct Transformed {
    pub(super) attempt: AttemptId,
    pub(super) splits: Vec<Split>,
    pub(super) job: BatchJob,
}

impl MicroBatch {
    /// Plans the batch's tasks. `now()` becomes the logged time, so a re-run sees the time of the first run.
    pub(super) async fn transform(&self, body: &OffsetsBody) -> Result<Transformed> {
        let (attempt, splits) = (self.next_attempt(), self.splits(body)?);
        let request = BatchRequest {
            query_id: self.checkpoint.query_id().clone(),
            batch_id: body.batch_id,
            attempt: attempt.clone(),
            timestamp_ms: body.timestamp_ms,
            ranges: ranges(body),
            splits: splits.clone(),
            sinks: self.query.sinks.clone(),
        };
        let plan = self.engine.plan_batch(request);
        let job = self.timings.phase(&*self.clock, "queryPlanning", plan).await?;
        Ok(Transformed { attempt, splits, job })
    }
}

/// What the batch reads, by source, for the sinks' records and the footers of files.
pub(super) fn ranges(body: &OffsetsBody) -> serde_json::Value {
    let range = |(name, entry): (&String, &crate::checkpoint::entry::SourceEntry)| {
        let range = serde_json::json!({"start": entry.range.start, "end": entry.range.end});
        (name.clone(), range)
    };
    body.sources.iter().map(range).collect::<serde_json::Map<_, _>>().into()
}
