//! One read, several consumers: the sinks of a query, or the two sides of a union, get the same rows from one read.
//!
//! The planner counts the consumers of a source over all plans of the batch and writes the number into each of them.
//! The first that asks for a split starts its read, with one small queue for every consumer; each of the others takes
//! one of the queues that are left. A consumer that is dropped closes its queue and the others go on; the slowest sets
//! the pace. A consumer that never comes would fill its queue and halt the read; that does not happen while the attempt
//! runs, because the executor runs all partitions of all plans at once, and ends with the attempt.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use futures::Stream;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::offsets::Split;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Record batches that may wait for a consumer. Two, so that the reader works while its consumer does.
const QUEUE: usize = 2;

/// The writing ends of a read's queues, one for each consumer.
pub(super) type Outlets = Vec<Sender<Result<RecordBatch>>>;

/// The rows of one split, as one consumer gets them. Dropping it takes the consumer off the read.
#[derive(Debug)]
pub(super) struct SplitRows {
    queue: Receiver<Result<RecordBatch>>,
    _read: Arc<RunningRead>,
}

impl Stream for SplitRows {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.poll_recv(context)
    }
}

/// A read that runs until the last of its consumers is gone, unless it has given all of its rows: then its receipt is
/// all that is left, and nobody's to stop but the attempt's.
#[derive(Debug)]
pub(super) struct RunningRead {
    /// Told first: it reaches into blocking calls of a client.
    cancel: CancellationToken,
    task: AbortHandle,
    /// Whether all rows were given.
    ended: Arc<AtomicBool>,
}

impl RunningRead {
    /// A read that runs as `task`, listens to `cancel` and sets `ended` when it has given all of its rows.
    pub fn new(cancel: CancellationToken, task: AbortHandle, ended: Arc<AtomicBool>) -> Self {
        RunningRead { cancel, task, ended }
    }
}

impl Drop for RunningRead {
    fn drop(&mut self) {
        if !self.ended.load(Ordering::Acquire) {
            self.cancel.cancel();
            self.task.abort();
        }
    }
}

/// A read with a single consumer: one queue and nothing to share.
pub(super) fn read_alone(start: impl FnOnce(Outlets) -> RunningRead) -> SplitRows {
    let (outlet, queue) = channel(QUEUE);
    SplitRows { queue, _read: Arc::new(start(vec![outlet])) }
}

/// The shared reads of one attempt, by source and split.
#[derive(Debug, Default)]
pub(super) struct SharedReads(Mutex<HashMap<(String, String), Waiting>>);

/// What a read still has for consumers to come. It stays when all have come, so that one too many is noticed.
#[derive(Debug, Default)]
struct Waiting {
    queues: Vec<Receiver<Result<RecordBatch>>>,
    read: Option<Arc<RunningRead>>,
}

impl SharedReads {
    /// Takes part in the read of a split, which has `consumers` in all. The first one starts it.
    pub fn join(
        &self,
        split: &Split,
        consumers: usize,
        start: impl FnOnce(Outlets) -> RunningRead,
    ) -> Result<SplitRows> {
        let key = (split.source.clone(), split.id.clone());
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = reads.entry(key).or_insert_with(|| {
            let (outlets, queues) = (0..consumers).map(|_| channel(QUEUE)).unzip();
            Waiting { queues, read: Some(Arc::new(start(outlets))) }
        });
        let taken = waiting.queues.pop().zip(waiting.read.clone());
        if waiting.queues.is_empty() {
            waiting.read = None;
        }
        match taken {
            Some((queue, read)) => Ok(SplitRows { queue, _read: read }),
            None => Err(Error::new(code::BUG, format!("split \"{}\" is read more often than was planned", split.id))
                .at("source", &split.source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use serde_json::json;
    use tidemill_core::offsets::Offsets;

    use super::super::testing::numbers_schema;
    use super::*;

    fn split() -> Split {
        let offset = Offsets::encode(&json!(0));
        Split { source: "s".into(), id: "a".into(), start: offset.clone(), end: offset, estimated_rows: 0 }
    }

    /// A read of ten empty record batches that goes on as long as somebody takes them.
    fn ten(cancel: &CancellationToken) -> impl FnOnce(Outlets) -> RunningRead + use<> {
        let cancel = cancel.clone();
        move |outlets| {
            let task = tokio::spawn(async move {
                for _ in 0..10 {
                    for outlet in &outlets {
                        let _ = outlet.send(Ok(RecordBatch::new_empty(numbers_schema()))).await;
                    }
                }
            });
            RunningRead::new(cancel, task.abort_handle(), Arc::default())
        }
    }

    #[tokio::test]
    async fn consumer_that_is_dropped_early_does_not_hold_up_the_others() {
        let (reads, cancel) = (SharedReads::default(), CancellationToken::new());
        let [first, second, third] = [(); 3].map(|()| reads.join(&split(), 3, ten(&cancel)).expect("joins"));
        drop(second);
        let early = first.take(1).count();
        let (early, all) = tokio::join!(early, third.count());
        assert_eq!((early, all), (1, 10));
        assert!(cancel.is_cancelled(), "the last consumer is gone");
    }

    #[tokio::test]
    async fn one_consumer_too_many_is_refused() {
        let (reads, cancel) = (SharedReads::default(), CancellationToken::new());
        let joined = [(); 2].map(|()| reads.join(&split(), 2, ten(&cancel)).expect("joins"));
        let error = reads.join(&split(), 2, ten(&cancel)).expect_err("refused");
        assert_eq!(error.code(), code::BUG);
        drop(joined);
        let error = reads.join(&split(), 2, ten(&cancel)).expect_err("refused, though the read is over");
        assert_eq!(error.code(), code::BUG);
    }

    #[tokio::test]
    async fn read_that_has_given_all_rows_is_left_to_report() {
        let cancel = CancellationToken::new();
        let ended = Arc::new(AtomicBool::new(false));
        let report = tokio::spawn(std::future::pending::<()>());
        let read = RunningRead::new(cancel.clone(), report.abort_handle(), Arc::clone(&ended));
        ended.store(true, Ordering::Release);
        drop(read);
        tokio::task::yield_now().await;
        assert!(!cancel.is_cancelled() && !report.is_finished());
    }

    #[tokio::test]
    async fn read_ends_when_its_last_consumer_is_dropped() {
        let cancel = CancellationToken::new();
        let rows = read_alone(ten(&cancel));
        assert!(!cancel.is_cancelled());
        drop(rows);
        assert!(cancel.is_cancelled());
    }
}
