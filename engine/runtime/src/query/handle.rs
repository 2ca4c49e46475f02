//! The handle that a user holds of a running query.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::{BatchId, Error, QueryId, Result, RunId, code};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::progress::{StreamingQueryProgress, StreamingQueryStatus};

/// So many of the newest progress reports are kept.
const RECENT: usize = 100;

/// A running query. Cheap to clone; dropping it does not stop the query.
#[derive(Clone, Debug)]
pub struct StreamingQuery(pub(super) Arc<Shared>);

/// What the handle and the query's own task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub id: QueryId,
    pub run_id: RunId,
    pub name: String,
    pub explanation: String,
    /// Set by `stop`: the batch in hand may end, then the query does.
    pub stop: CancellationToken,
    pub status: Mutex<StreamingQueryStatus>,
    pub recent: Mutex<VecDeque<StreamingQueryProgress>>,
    /// How the query ended; none while it runs.
    pub ended: watch::Sender<Option<Result<()>>>,
    /// The newest batch that this run has committed.
    pub newest: watch::Sender<Option<BatchId>>,
    /// Looks at the sources that have begun.
    pub looks: AtomicU64,
    /// The number of the last look that found nothing.
    pub idle: watch::Sender<u64>,
}

impl Shared {
    pub fn set_status(&self, message: &str, is_data_available: bool, is_trigger_active: bool) {
        let status = StreamingQueryStatus { message: message.to_owned(), is_data_available, is_trigger_active };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    pub fn push(&self, progress: StreamingQueryProgress) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        let batch_id = progress.batch_id;
        recent.push_back(progress);
        drop(recent);
        self.newest.send_replace(Some(batch_id));
    }
}

impl StreamingQuery {
    /// The query, for ever: the same after every restart from its checkpoint.
    pub fn id(&self) -> &QueryId {
        &self.0.id
    }

    /// This start of it.
    pub fn run_id(&self) -> &RunId {
        &self.0.run_id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it runs.
    pub fn is_active(&self) -> bool {
        self.0.ended.borrow().is_none()
    }

    /// What it is doing at this moment.
    pub fn status(&self) -> StreamingQueryStatus {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest batch; none before the first one is committed.
    pub fn last_progress(&self) -> Option<StreamingQueryProgress> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner).back().cloned()
    }

    /// The newest 100 batches, oldest first.
    pub fn recent_progress(&self) -> Vec<StreamingQueryProgress> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// What it reads, does and writes, for people.
    pub fn explain(&self) -> String {
        self.0.explanation.clone()
    }

    /// Why it failed; none while it runs and after it has stopped in order.
    pub fn exception(&self) -> Option<Error> {
        self.0.ended.borrow().as_ref().and_then(|ended| ended.as_ref().err().cloned())
    }

    /// Stops it and waits until it has stopped. The batch in hand is finished if that takes a few seconds at most;
    /// otherwise the next start finishes it.
    ///
    /// # Errors
    ///
    /// The error that the query ended with.
    pub async fn stop(&self) -> Result<()> {
        self.0.stop.cancel();
        self.await_termination().await
    }

    /// Waits until it ends: after `stop`, after all that was available, or with the error that it failed with.
    pub async fn await_termination(&self) -> Result<()> {
        let mut ended = self.0.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().expect("waited for"),
            Err(_) => Err(Error::new(code::BUG, "the query's task is gone without a word")),
        }
    }

    /// Waits until a look at the sources that began after this call finds nothing: everything that was there is
    /// committed. For tests; on a source that never pauses it does not return.
    ///
    /// # Errors
    ///
    /// The error that the query ended with meanwhile.
    pub async fn process_all_available(&self) -> Result<()> {
        let after = self.0.looks.load(Ordering::SeqCst);
        let mut idle = self.0.idle.subscribe();
        tokio::select! {
            found = idle.wait_for(|look| *look > after) => {
                found.map(drop).map_err(|_| Error::new(code::BUG, "the query's task is gone without a word"))
            }
            ended = self.await_termination() => ended,
        }
    }

    /// Waits until this batch is committed, or the query ends.
    ///
    /// # Errors
    ///
    /// The error that the query ended with.
    pub async fn await_batch(&self, batch_id: BatchId) -> Result<()> {
        let mut newest = self.0.newest.subscribe();
        tokio::select! {
            found = newest.wait_for(|newest| *newest >= Some(batch_id)) => {
                found.map(drop).map_err(|_| Error::new(code::BUG, "the query's task is gone without a word"))
            }
            ended = self.await_termination() => ended,
        }
    }

    /// Stops the query when the process is asked to end: SIGINT or SIGTERM. A library installs no handler by itself.
    pub fn stop_on_signal(&self) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let install = |kind| {
            signal(kind).map_err(|error| Error::new(code::USAGE, "the signal handler cannot be set").because(error))
        };
        let (mut interrupt, mut terminate) = (install(SignalKind::interrupt())?, install(SignalKind::terminate())?);
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut ended = shared.ended.subscribe();
            tokio::select! {
                _ = interrupt.recv() => shared.stop.cancel(),
                _ = terminate.recv() => shared.stop.cancel(),
                _ = ended.wait_for(Option::is_some) => {}
            }
        });
        Ok(())
    }
}
