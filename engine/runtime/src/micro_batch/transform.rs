//! Transform: from splits to a physical plan, anew for every batch. Lazy as well.

use tidemill_core::{AttemptId, Result, Split};

use super::{Logged, MicroBatch};
use crate::dataflow::{BatchJob, BatchRequest};

impl MicroBatch {
    /// Plans the batch's tasks. `now()` becomes the logged time, so a re-run sees the time of the first run.
    pub(super) async fn transform(&self, logged: &Logged, splits: Vec<Split>, attempt: AttemptId) -> Result<BatchJob> {
        let body = &logged.entry.body;
        let request = BatchRequest {
            query_id: self.checkpoint.query_id().clone(),
            batch_id: body.batch_id,
            attempt,
            timestamp_ms: body.timestamp_ms,
            ranges: ranges(logged),
            splits,
            sinks: self.query.sinks.clone(),
        };
        let plan = self.engine.plan_batch(request);
        self.timings.phase(&*self.clock, "queryPlanning", plan).await
    }
}

/// What the batch reads, by source, for the sinks' records and the footers of files.
pub(super) fn ranges(logged: &Logged) -> serde_json::Value {
    let range = |(name, entry): (&String, &crate::checkpoint::entry::SourceEntry)| {
        let range = serde_json::json!({"start": entry.range.start, "end": entry.range.end});
        (name.clone(), range)
    };
    logged.entry.body.sources.iter().map(range).collect::<serde_json::Map<_, _>>().into()
}
