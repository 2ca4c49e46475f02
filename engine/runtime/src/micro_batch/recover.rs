//! How a start goes on: from a decision about the checkpoint to the batch in hand.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use tidemill_core::{BatchId, Error, Guarantee, Result, code};
use tracing::info;

use super::{Acked, Logged, MicroBatch, Pending, Position};
use crate::checkpoint::Log;
use crate::checkpoint::entry::{AcksBody, Entry, OffsetsBody};
use crate::checkpoint::purge::Kept;
use crate::checkpoint::recovery::{Decision, View};
use crate::checkpoint::view::SinkOfQuery;

/// Where a start goes on.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved once a step")]
#[derive(Debug)]
pub(crate) enum Resume {
    /// With the next batch.
    Next(Position),
    /// With a batch that an earlier driver left unfinished.
    Finish(Pending),
}

impl MicroBatch {
    /// Reads the checkpoint and decides.
    pub(crate) async fn recover(&self) -> Result<Resume> {
        let remembers =
            |sink: &&crate::dataflow::SinkPlan| matches!(sink.sink.guarantee(), Guarantee::ExactlyOnce { .. });
        let sinks: Vec<SinkOfQuery<'_>> = self
            .query
            .sinks
            .iter()
            .filter(remembers)
            .map(|sink| SinkOfQuery { key: self.sink_key(&sink.name), sink: &*sink.sink })
            .collect();
        let mut before = None;
        loop {
            let (view, decision) = self.checkpoint.recover(&sinks).await?;
            match self.resume(&view, decision).await {
                // What was there a moment ago may have been purged since: then the view is another one now.
                Err(error) if error.code() == code::CHECKPOINT_DAMAGED && before.as_ref() != Some(&view) => {
                    self.checkpoint.check_fence().await?;
                    before = Some(view);
                }
                answer => return answer,
            }
        }
    }

    /// Reads what a decision is about.
    async fn resume(&self, view: &View, decision: Decision) -> Result<Resume> {
        self.remember(view, &decision).await?;
        let reader = self.checkpoint.reader();
        match decision {
            Decision::Plan { batch_id, revision } => {
                if revision > 0 {
                    let path = self.checkpoint.location().describe(&Log::Offsets.path(batch_id.0, revision - 1));
                    self.notices.warn(&format!("{path} is torn: batch {batch_id} is planned again"));
                }
                Ok(Resume::Next(self.position(batch_id, revision).await?))
            }
            Decision::Run { batch_id } => {
                let entry = reader.binding::<OffsetsBody>(Log::Offsets, batch_id.0).await?;
                let entry = entry.ok_or_else(|| reader.damaged(Log::Offsets, batch_id.0))?;
                self.check_program(&entry)?;
                info!(%batch_id, "a logged batch is run again");
                self.contested(batch_id);
                Ok(Resume::Finish(Pending::Logged(Logged { entry, latest: Default::default(), transformed: None })))
            }
            Decision::RollForward { batch_id, commit_revision } => {
                if commit_revision > 0 {
                    let path = self.checkpoint.location().describe(&Log::Commits.path(batch_id.0, commit_revision - 1));
                    self.notices.warn(&format!("{path} is torn: batch {batch_id} is published and committed again"));
                }
                let entry = reader.binding::<AcksBody>(Log::Acks, batch_id.0).await?;
                let entry = entry.ok_or_else(|| reader.damaged(Log::Acks, batch_id.0))?;
                self.check_sinks(&entry)?;
                info!(%batch_id, "an acknowledged batch is rolled forward");
                self.contested(batch_id);
                Ok(Resume::Finish(Pending::Acked(Acked { logged: None, entry, commit_revision })))
            }
            Decision::Unsound(reason) => {
                Err(Error::new(code::BUG, format!("an unsound view came through: {reason:?}")))
            }
        }
    }

    /// Where the query stands before batch N: `acks/<N-1>` says so.
    async fn position(&self, batch_id: BatchId, revision: u32) -> Result<Position> {
        let Some(before) = batch_id.previous() else { return Ok(Position { revision, ..Position::default() }) };
        let reader = self.checkpoint.reader();
        let acks = reader.binding::<AcksBody>(Log::Acks, before.0).await?;
        let Entry { head, body } = acks.ok_or_else(|| reader.damaged(Log::Acks, before.0))?;
        for sink in self.query.sink_names().iter().filter(|sink| !body.sinks.contains_key(*sink)) {
            self.notices.warn(&format!("sink \"{sink}\" is new: what was read up to batch {before} is not in it"));
        }
        Ok(Position {
            batch_id,
            revision,
            previous_acks: Some(head.nonce),
            offsets: body.positions,
            has_unlogged_start: false,
            watermarks: body.watermarks,
        })
    }

    /// What is in the log, for the purge. A batch is as old as the file of its commit.
    async fn remember(&self, view: &View, decision: &Decision) -> Result<()> {
        let dead = view.first_alive();
        let next = match decision {
            Decision::Plan { batch_id, .. } | Decision::Run { batch_id } | Decision::RollForward { batch_id, .. } => {
                *batch_id
            }
            Decision::Unsound(_) => BatchId(0),
        };
        let committed = self.checkpoint.reader().times(Log::Commits).await?;
        // The batch in hand is added when it is committed, also if there is a torn commit of it.
        let batches = committed.into_iter().filter(|(n, _)| (dead..next.0).contains(n));
        let batches = batches.map(|(n, time_ms)| (BatchId(n), time_ms));
        let mut others: Vec<_> = view.files().filter(|(_, n, revision)| n.0 < dead || *revision > 0).collect();
        match decision {
            Decision::Plan { batch_id, revision } if *revision > 0 => others.push((Log::Offsets, *batch_id, *revision)),
            Decision::RollForward { batch_id, commit_revision } if *commit_revision > 0 => {
                others.push((Log::Commits, *batch_id, *commit_revision));
            }
            _ => {}
        }
        let kept = Kept { batches: batches.collect(), others };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }

    /// A pending batch can be run by a changed program, but not with another set of sources or sinks.
    pub(super) fn check_program(&self, entry: &Entry<OffsetsBody>) -> Result<()> {
        let body = &entry.body;
        let reads = body.sources.iter().filter(|(_, source)| source.range.start != source.range.end);
        let logged: BTreeSet<&String> = reads.map(|(name, _)| name).collect();
        let known: BTreeSet<&String> = body.sources.keys().collect();
        let here: BTreeSet<&String> = self.query.sources.keys().collect();
        let gone: Vec<_> = logged.difference(&here).collect();
        let new: Vec<_> = here.difference(&known).collect();
        if !gone.is_empty() || !new.is_empty() {
            return Err(changed(body.batch_id, "sources", &gone, &new));
        }
        self.compare_sinks(body.batch_id, body.sinks.iter().collect())?;
        if body.fingerprint != self.query.fingerprint {
            info!(batch_id = %body.batch_id, "the pending batch was planned by another program; this one runs it");
        }
        Ok(())
    }

    /// An acknowledged batch can only be published by a query that has exactly its sinks.
    pub(super) fn check_sinks(&self, entry: &Entry<AcksBody>) -> Result<()> {
        self.compare_sinks(entry.body.batch_id, entry.body.sinks.keys().collect())
    }

    fn compare_sinks(&self, batch_id: BatchId, pending: BTreeSet<&String>) -> Result<()> {
        let names = self.query.sink_names();
        let here: BTreeSet<&String> = names.iter().collect();
        let gone: Vec<_> = pending.difference(&here).collect();
        let new: Vec<_> = here.difference(&pending).collect();
        if gone.is_empty() && new.is_empty() { Ok(()) } else { Err(changed(batch_id, "sinks", &gone, &new)) }
    }
}

fn changed(batch_id: BatchId, what: &str, gone: &[&&String], new: &[&&String]) -> Error {
    let list = |names: &[&&String]| {
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let what = format!("the {what} changed while a batch is pending: gone {}, new {}", list(gone), list(new));
    Error::new(code::QUERY_CHANGED, what)
        .at("batch", batch_id)
        .fix("run the query as it was until the batch is committed, then change it")
}
