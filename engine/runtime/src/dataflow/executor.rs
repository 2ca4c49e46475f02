//! The seam between a batch and what runs it, and the executor of this process.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::ids::{AttemptId, BatchId};
use tidemill_core::sink::Ack;
use tidemill_core::source::Receipt;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::attempt::AttemptContext;
use super::clients::Clients;
use super::engine::{Engine, EngineOptions};
use super::errors::{from_datafusion, from_panic, stopped};
use super::plan_batch::BatchJob;
use super::sink_write::acks_of;

/// How long the tasks of a failed attempt are waited for. One that hangs longer is left behind: it can touch nothing
/// that another attempt uses, for everything it writes carries its own attempt's name.
const END_BOUND: Duration = Duration::from_secs(10);

/// The least and the most that one read may buffer, whatever its share is.
const READ_BYTES: std::ops::RangeInclusive<usize> = (1 << 20)..=(16 << 20);

/// Runs batches.
#[async_trait]
pub trait BatchExecutor: Send + Sync + Debug {
    /// Runs a planned batch to its end. When it returns, no task of the attempt writes any more, unless one hangs. An
    /// error means that the attempt is void: nothing of it is visible, and the batch may be planned and run again.
    /// `cancel` ends it with [`code::STOPPED`].
    async fn execute(&self, job: BatchJob, cancel: CancellationToken) -> Result<BatchOutcome>;
}

/// What an attempt did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    /// By sink, the acks of its tasks, by their number; an empty list for a sink without rows.
    pub acks: BTreeMap<String, Vec<Ack>>,
    /// What was read. To be compared with the plan before anything is acknowledged.
    pub receipts: Vec<Receipt>,
    /// By source, rows read.
    pub input_rows: BTreeMap<String, u64>,
    /// By sink, rows written.
    pub output_rows: BTreeMap<String, u64>,
}

/// Runs every partition of every sink as a task of the current tokio runtime; the driver's own loop only waits.
#[derive(Clone, Debug)]
pub struct LocalExecutor {
    clients: Arc<Clients>,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
    options: EngineOptions,
}

impl LocalExecutor {
    /// An executor with this engine's clients, memory and settings.
    pub(super) fn new(engine: &Engine) -> Self {
        LocalExecutor {
            clients: Arc::clone(engine.clients()),
            config: engine.state().config().clone(),
            runtime: Arc::clone(engine.runtime()),
            options: engine.options().clone(),
        }
    }

    /// The rows of a plan by [`Engine::plan_rows`], and the receipts of what was read for them.
    pub async fn read(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        batch_id: BatchId,
        splits: usize,
        cancel: CancellationToken,
    ) -> Result<(Vec<RecordBatch>, Vec<Receipt>)> {
        let attempt = AttemptId::random(self.clients.context().rng.as_ref());
        let mut tasks = Tasks::new(self, batch_id, attempt, splits, &cancel);
        tasks.start(plan);
        tasks.finish(&cancel).await
    }
}

#[async_trait]
impl BatchExecutor for LocalExecutor {
    async fn execute(&self, job: BatchJob, cancel: CancellationToken) -> Result<BatchOutcome> {
        let mut tasks = Tasks::new(self, job.batch_id, job.attempt.clone(), job.splits.len(), &cancel);
        let mut outcome = BatchOutcome::default();
        for split in job.splits {
            outcome.input_rows.entry(split.source).or_default();
        }
        for (sink, plan) in job.sinks {
            outcome.acks.insert(sink.clone(), Vec::new());
            outcome.output_rows.insert(sink, 0);
            tasks.start(plan);
        }
        for plan in job.drains {
            tasks.start_drain(plan);
        }
        let (acked, receipts) = tasks.finish(&cancel).await?;
        for rows in acked {
            for (sink, ack) in acks_of(&rows)? {
                *outcome.output_rows.entry(sink.clone()).or_default() += ack.rows;
                outcome.acks.entry(sink).or_default().push(ack);
            }
        }
        for acks in outcome.acks.values_mut() {
            acks.sort_by_key(|ack| ack.task);
        }
        outcome.receipts = receipts;
        for receipt in &outcome.receipts {
            *outcome.input_rows.entry(receipt.source.clone()).or_default() += receipt.rows;
        }
        Ok(outcome)
    }
}

/// What each of so many reads at once may buffer.
pub(super) fn read_bytes(all: usize, splits: usize) -> usize {
    (all / splits.max(1)).clamp(*READ_BYTES.start(), *READ_BYTES.end())
}

/// The tasks of one attempt. Dropping it ends them.
struct Tasks {
    attempt: Arc<AttemptContext>,
    context: Arc<TaskContext>,
    running: JoinSet<Result<Vec<RecordBatch>>>,
    /// What the reads buffer, taken out of what operators may hold.
    _fetched: MemoryReservation,
    _end: DropGuard,
}

impl Tasks {
    fn new(
        executor: &LocalExecutor,
        batch_id: BatchId,
        attempt: AttemptId,
        splits: usize,
        cancel: &CancellationToken,
    ) -> Self {
        let cancel = cancel.child_token();
        let read_bytes = read_bytes(executor.options.fetch_bytes, splits);
        let fetched = MemoryConsumer::new("tidemill-fetch").register(&executor.runtime.memory_pool);
        fetched.grow(read_bytes * splits);
        let attempt = Arc::new(AttemptContext {
            batch_id,
            attempt,
            clients: Arc::clone(&executor.clients),
            clock: Arc::clone(&executor.clients.context().clock),
            cancel: cancel.clone(),
            batch_rows: executor.options.batch_rows,
            read_bytes,
            reports: Default::default(),
            shared: Default::default(),
            running: Default::default(),
        });
        // Functions are in the plan already; none is looked up by its name any more.
        let context = TaskContext::new(
            Some(format!("{batch_id}/{}", attempt.attempt)),
            String::new(),
            executor.config.clone().with_extension(Arc::clone(&attempt)),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            Arc::clone(&executor.runtime),
        );
        Tasks {
            attempt,
            context: Arc::new(context),
            running: JoinSet::new(),
            _fetched: fetched,
            _end: cancel.drop_guard(),
        }
    }

    /// Starts a task for each partition of a plan, and keeps its rows.
    fn start(&mut self, plan: Arc<dyn ExecutionPlan>) {
        for partition in 0..plan.output_partitioning().partition_count() {
            let (plan, context) = (Arc::clone(&plan), Arc::clone(&self.context));
            self.running.spawn(async move {
                let rows = plan.execute(partition, context).map_err(from_datafusion)?;
                rows.try_collect().await.map_err(from_datafusion)
            });
        }
    }

    /// Starts a task for each partition of a plan, and drops its rows.
    fn start_drain(&mut self, plan: Arc<dyn ExecutionPlan>) {
        for partition in 0..plan.output_partitioning().partition_count() {
            let (plan, context) = (Arc::clone(&plan), Arc::clone(&self.context));
            self.running.spawn(async move {
                let mut rows = plan.execute(partition, context).map_err(from_datafusion)?;
                while rows.try_next().await.map_err(from_datafusion)?.is_some() {}
                Ok(Vec::new())
            });
        }
    }

    /// Waits for all tasks and for the receipts of what they read. The first error ends the others, which are waited for,
    /// within a bound.
    async fn finish(&mut self, cancel: &CancellationToken) -> Result<(Vec<RecordBatch>, Vec<Receipt>)> {
        let mut kept = Vec::new();
        let error = loop {
            let joined = tokio::select! {
                biased;
                () = cancel.cancelled() => break stopped(),
                joined = self.running.join_next() => joined,
            };
            match joined.map(flatten) {
                None => {
                    break match self.receipts(cancel).await {
                        Ok(receipts) => return Ok((kept, receipts)),
                        Err(error) => error,
                    };
                }
                Some(Ok(rows)) => kept.extend(rows),
                Some(Err(error)) => break error,
            }
        };
        self.end().await;
        Err(error)
    }

    /// The receipts of all reads: some come a moment after the rows have ended. A reader's questions have bounds.
    async fn receipts(&self, cancel: &CancellationToken) -> Result<Vec<Receipt>> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(stopped()),
            () = self.attempt.running.ended() => self.attempt.reports.take_receipts(),
        }
    }

    /// Ends all tasks and waits until they are gone, within a bound: readers and writers too, which go on for a moment
    /// when the task that they work for is dropped.
    async fn end(&mut self) {
        self.attempt.cancel.cancel();
        let bound = self.attempt.clock.sleep(END_BOUND);
        let ended = async {
            self.running.shutdown().await;
            self.attempt.running.ended().await;
        };
        let hanging = tokio::select! { () = ended => false, () = bound => true };
        if hanging {
            let (batch_id, attempt) = (self.attempt.batch_id, &self.attempt.attempt);
            warn!(%batch_id, %attempt, "tasks of a failed attempt did not end in time");
        }
    }
}

fn flatten<T>(joined: std::result::Result<Result<T>, JoinError>) -> Result<T> {
    match joined {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(from_panic(error.into_panic())),
        Err(_) => Err(Error::new(code::STOPPED, "a task was cancelled")),
    }
}
