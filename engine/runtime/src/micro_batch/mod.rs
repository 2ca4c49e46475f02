//! One micro-batch, step by step: the data path as a folder.
//!
//! | step | file | durable afterwards | a crash right here, and the restart… |
//! | --- | --- | --- | --- |
//! | plan offsets → [`Planned`] | `plan`, `pace` | nothing | plans again, maybe other ends |
//! | log offsets → [`Logged`] | `log` | `offsets/N`: what N reads | runs N over exactly these ranges |
//! | read, transform (lazy) | `read`, `transform` | nothing | runs N again, with the logged time |
//! | write → [`Written`] | `write` | staged rows, invisible | runs N again; the old stage is swept later |
//! | acknowledge → [`Acked`] | `ack` | `acks/N`: what N wrote | rolls forward: publishes this attempt, never re-reads |
//! | publish → [`Published`] | `publish` | sinks show N, their record of N last | publishes again (idempotent) |
//! | commit → [`Committed`] | `commit` | `commits/N`; then sources told, old entries purged | goes on with N+1 |
//!
//! Each step takes the token of the step before it, so writing before logging does not compile. A step that fails with
//! an error of kind `Retry` is tried again from the last *durable* token: [`Pending`] is what the driver holds on to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::{AttemptId, BatchId, Clock, Nonce, Offsets, Result, Rng, Source};
use tokio_util::sync::CancellationToken;

use crate::checkpoint::entry::{AcksBody, Entry, OffsetsBody};
use crate::checkpoint::{Checkpoint, purge::Kept};
use crate::dataflow::{BatchExecutor, Engine, SinkPlan};

mod ack;
mod commit;
mod log;
mod pace;
mod plan;
mod publish;
mod read;
pub(crate) mod recover;
mod transform;
mod write;

pub use commit::Committed;
pub use pace::Paces;
pub(crate) use plan::Ahead;
pub use plan::UpTo;
pub use publish::Published;
pub use write::Written;

/// What a query reads, does and writes: the same for every batch.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    /// The query's name, for people.
    pub name: String,
    /// The sources, by their names in the query.
    pub sources: BTreeMap<String, Arc<dyn Source>>,
    /// The sinks, each with the plan of its rows.
    pub sinks: Vec<SinkPlan>,
    /// Tells one program from another: a batch that another program planned is run all the same, and that is said.
    pub fingerprint: String,
}

impl QueryPlan {
    /// The names of the sinks.
    pub fn sink_names(&self) -> BTreeSet<String> {
        self.sinks.iter().map(|sink| sink.name.clone()).collect()
    }
}

/// Everything that the steps of one driver's batches share.
#[derive(Debug)]
pub struct MicroBatch {
    /// The query.
    pub query: QueryPlan,
    /// Its checkpoint.
    pub checkpoint: Checkpoint,
    /// Plans batches.
    pub engine: Arc<Engine>,
    /// Runs them.
    pub executor: Arc<dyn BatchExecutor>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness: attempt ids.
    pub rng: Arc<dyn Rng>,
    /// Batches in the log, for the purge.
    pub kept: Mutex<Kept>,
    /// Batches of which other attempts may have left stages behind, with the attempt that won.
    pub contested: Mutex<BTreeSet<BatchId>>,
    /// How much each source gave so far, for its limits.
    pub paces: Paces,
    /// How long each phase of the current batch took.
    pub timings: Timings,
    /// Where warnings go that a person should see.
    pub notices: Notices,
}

/// Warnings for people: they go to the program's log, and to standard error if the session logs there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notices {
    /// Whether standard error gets them too.
    pub to_stderr: bool,
}

impl Notices {
    /// Tells of something odd that the query goes on with.
    pub fn warn(self, text: &str) {
        use std::io::Write as _;
        tracing::warn!("{text}");
        if self.to_stderr {
            // Nobody may be there to hear it any more; that is no reason to fail.
            let _ = writeln!(std::io::stderr(), "warning: {text}");
        }
    }
}

/// Where a query stands between two batches: all of it from `acks/<N-1>`.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The batch to plan.
    pub batch_id: BatchId,
    /// The revision that its `offsets/<N>` takes: above 0 if what is there is torn.
    pub revision: u32,
    /// The nonce of `acks/<N-1>`.
    pub previous_acks: Option<Nonce>,
    /// Where each source is. A source that is not in it is new, and starts at its own start.
    pub offsets: BTreeMap<String, Offsets>,
    /// Whether there is a start in `offsets` that no log knows yet and that would be another one in the next run.
    pub has_unlogged_start: bool,
    /// Watermarks for the batch.
    pub watermarks: BTreeMap<String, i64>,
}

/// A batch that exists only in memory.
#[derive(Clone, Debug)]
pub struct Planned {
    body: OffsetsBody,
    revision: u32,
    latest: BTreeMap<String, Offsets>,
}

/// A batch whose ranges are durable.
#[derive(Clone, Debug)]
pub struct Logged {
    entry: Entry<OffsetsBody>,
    latest: BTreeMap<String, Offsets>,
    /// The plan of its first execution, if it was made meanwhile.
    transformed: Option<transform::Transformed>,
}

/// A batch of which one attempt has won, durably.
#[derive(Clone, Debug)]
pub struct Acked {
    logged: Option<Logged>,
    entry: Entry<AcksBody>,
    commit_revision: u32,
}

/// The last durable token of the batch in hand: where a retry begins.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved once a step")]
#[derive(Clone, Debug)]
pub enum Pending {
    /// Not logged yet.
    Planned(Planned),
    /// Logged: its ranges are fixed.
    Logged(Logged),
    /// Acknowledged: only publishing and committing are left.
    Acked(Acked),
}

impl Pending {
    /// The batch in hand.
    pub fn batch_id(&self) -> BatchId {
        match self {
            Pending::Planned(planned) => planned.body.batch_id,
            Pending::Logged(logged) => logged.entry.body.batch_id,
            Pending::Acked(acked) => acked.entry.body.batch_id,
        }
    }
}

impl MicroBatch {
    /// Takes a batch to its next durable token, or from the last one to its end. After an error, `pending` is the last
    /// durable token, and the call may be repeated.
    pub async fn advance(&self, pending: &mut Pending, cancel: &CancellationToken) -> Result<Option<Committed>> {
        *pending = match pending {
            Pending::Planned(planned) => Pending::Logged(self.log_offsets(planned).await?),
            Pending::Logged(logged) => {
                let written = self.write(logged, cancel).await?;
                Pending::Acked(self.acknowledge(written).await?)
            }
            Pending::Acked(acked) => {
                let published = self.publish(acked).await?;
                return self.commit(published).await.map(Some);
            }
        };
        Ok(None)
    }

    fn next_attempt(&self) -> AttemptId {
        AttemptId::random(&*self.rng)
    }

    fn contested(&self, batch_id: BatchId) {
        self.contested.lock().unwrap_or_else(PoisonError::into_inner).insert(batch_id);
    }
}

/// How long each phase of a batch took, in Spark's words.
#[derive(Debug, Default)]
pub struct Timings(Mutex<BTreeMap<&'static str, u64>>);

impl Timings {
    /// Adds the time that a future takes to its phase, in milliseconds.
    pub async fn phase<T>(&self, clock: &dyn Clock, name: &'static str, work: impl Future<Output = T>) -> T {
        let start = clock.elapsed();
        let answer = work.await;
        let took_ms = u64::try_from(clock.elapsed().saturating_sub(start).as_millis()).unwrap_or(u64::MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += took_ms;
        answer
    }

    /// The phases so far, which are taken out.
    pub fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
