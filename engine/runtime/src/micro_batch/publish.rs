//! Publish: every sink shows the winning attempt's rows, its own record of N last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::rules::{Rule, is_broken};
use tidemill_core::{Result, SinkKey};

use super::{Acked, MicroBatch};

/// A batch that every sink shows.
#[derive(Debug)]
pub struct Published {
    pub(super) acked: Acked,
    /// What each sink shows of it.
    pub(super) sinks: BTreeMap<String, tidemill_core::Published>,
}

impl MicroBatch {
    /// Publishes in every sink that `acks/N` names. It may be repeated, and two drivers may do it at once.
    pub(super) async fn publish(&self, acked: &Acked) -> Result<Published> {
        let body = &acked.entry.body;
        let mut sinks = BTreeMap::new();
        for sink in &self.query.sinks {
            let Some(acks) = body.sinks.get(&sink.name) else { continue };
            let batch = tidemill_core::Acked {
                key: self.sink_key(&sink.name),
                batch_id: body.batch_id,
                attempt: body.attempt.clone(),
                offsets_nonce: body.offsets_nonce.clone(),
                acks_nonce: acked.entry.head.nonce.clone(),
                ranges: body.ranges.clone(),
                acks: acks.clone(),
            };
            if is_broken(Rule::PublishBeforeCommit) {
                let (sink, clock) = (Arc::clone(&sink.sink), Arc::clone(&self.clock));
                tokio::spawn(async move {
                    clock.sleep(Duration::from_millis(300)).await;
                    let _ = sink.publish(&batch).await;
                });
                continue;
            }
            let publish = self.timings.phase(&*self.clock, "addBatch", sink.sink.publish(&batch));
            let shown = publish.await.map_err(|error| error.at("sink", &sink.name).at("batch", body.batch_id))?;
            sinks.insert(sink.name.clone(), shown);
        }
        Ok(Published { acked: acked.clone(), sinks })
    }

    /// The key under which a sink of this query remembers batches.
    pub(super) fn sink_key(&self, sink: &str) -> SinkKey {
        SinkKey { query_id: self.checkpoint.query_id().clone(), sink: sink.to_owned() }
    }
}
