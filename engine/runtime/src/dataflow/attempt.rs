//! What the tasks of one attempt share in this process, and where they report to.
//!
//! Operators find it in the task context, as an extension of the session's configuration. Reports go here and not among
//! the rows, so a plan may drop, filter or merge rows as it likes and no receipt is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::TaskContext;
use tidemill_core::clock::Clock;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::ids::{AttemptId, BatchId};
use tidemill_core::source::Receipt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::clients::Clients;
use super::shared_reads::SharedReads;

/// One attempt, as its tasks in this process see it.
#[derive(Debug)]
pub struct AttemptContext {
    /// The batch.
    pub batch_id: BatchId,
    /// This execution of it.
    pub attempt: AttemptId,
    /// Readers and sinks.
    pub clients: Arc<Clients>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Set when the attempt is over, whatever the reason: every task must end soon.
    pub cancel: CancellationToken,
    /// Rows that a record batch should have.
    pub batch_rows: usize,
    /// Bytes that each read may hold between the client library and its consumers.
    pub read_bytes: usize,
    /// What tasks have reported.
    pub reports: TaskReports,
    /// The reads that several plans share.
    pub(super) shared: SharedReads,
    /// The tasks that outlive the stream they work for, if only for a moment.
    pub(super) running: Running,
}

impl AttemptContext {
    /// The attempt that a task works for.
    pub fn of(context: &TaskContext) -> Result<Arc<AttemptContext>> {
        let attempt = context.session_config().get_extension::<AttemptContext>();
        attempt.ok_or_else(|| Error::new(code::BUG, "an operator runs outside of an attempt"))
    }
}

/// What the tasks of one attempt report, beside their rows.
#[derive(Debug, Default)]
pub struct TaskReports {
    receipts: Mutex<Vec<Receipt>>,
    /// What went wrong where nobody was left to be told.
    failure: Mutex<Option<Error>>,
    /// By sink: the next task number.
    tasks: Mutex<BTreeMap<String, u32>>,
}

impl TaskReports {
    /// A split has been read.
    pub fn add_receipt(&self, receipt: Receipt) {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner).push(receipt);
    }

    /// A split has been read, and then something went wrong with its receipt. The first such error counts.
    pub fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The receipts, which are taken out, or what went wrong with one.
    pub fn take_receipts(&self) -> Result<Vec<Receipt>> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut *self.receipts.lock().unwrap_or_else(PoisonError::into_inner))),
        }
    }

    /// A task number that nobody else has in this attempt and sink.
    pub fn next_task(&self, sink: &str) -> u32 {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let next = tasks.entry(sink.to_owned()).or_default();
        *next += 1;
        *next - 1
    }
}

/// Counts the spawned tasks of an attempt, so that its end can be waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<RunningInner>);

#[derive(Debug, Default)]
struct RunningInner {
    count: AtomicUsize,
    ended: Notify,
}

impl Running {
    /// One more task, until the guard is dropped.
    pub fn enter(&self) -> RunningGuard {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        RunningGuard(Arc::clone(&self.0))
    }

    /// Waits until there is no task left. The caller sets the bound.
    pub async fn ended(&self) {
        loop {
            let ended = self.0.ended.notified();
            let mut ended = std::pin::pin!(ended);
            // Registered before looking, so that an end between looking and waiting is not missed.
            ended.as_mut().enable();
            if self.0.count.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// A running task.
#[derive(Debug)]
pub(super) struct RunningGuard(Arc<RunningInner>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
