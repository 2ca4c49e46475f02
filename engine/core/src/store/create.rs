//! Create-if-absent, the only way in which a checkpoint or a manifest is written.
//!
//! A store's own word is not enough. `AlreadyExists` comes back when another writer was first, *and* when our own
//! request was applied and its answer lost, *and* (S3's 409) when nothing was written at all. So everything but success
//! is decided by reading back: our bytes → written; other bytes → lost, and theirs are binding; nothing → again. Bodies
//! carry a nonce, so equal bytes are ours.

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Location, SAFE_MODE, store_error};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result, code};
use crate::rules::{Rule, is_broken};

/// How long one request may take; most writes are small.
const ANSWER: Duration = Duration::from_secs(10);

/// What became of a create whose outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object holds our bytes, durably.
    Written,
    /// The object holds another writer's bytes, durably: they are valid and binding.
    Lost(Bytes),
}

/// Creates an object if there is none. `body` must be unlike any other writer's: it carries a nonce.
///
/// # Errors
///
/// [`code::WRITE_UNKNOWN`] if neither our bytes nor another's could be seen before the deadline: the write may still
/// land, so the caller must not throw away anything that it refers to. Errors that a person must act on (permission, no
/// space) come back at once, **unless** an earlier try of this call may still land.
pub async fn create(
    location: &Location,
    clock: &dyn Clock,
    path: &Path,
    body: Bytes,
    patience: Duration,
) -> Result<Created> {
    let deadline = clock.elapsed() + patience;
    let mut pause = Duration::from_millis(5);
    let mut maybe_in_flight = false;
    loop {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = location.store.put_opts(path, PutPayload::from(body.clone()), options);
        // A request that is lost is asked again: the bytes are the same.
        let answer_by = || deadline.min(clock.elapsed() + ANSWER);
        let error = match bounded(clock, answer_by(), put).await {
            Some(Ok(_)) => return Ok(Created::Written),
            Some(Err(error)) => Some(error),
            None => None,
        };
        if is_broken(Rule::ReadBack) && matches!(error, Some(object_store::Error::AlreadyExists { .. })) {
            return Ok(Created::Written);
        }
        // A store that says it refused did not write; of everything else we cannot know.
        let refused = error.as_ref().is_some_and(is_refusal);
        maybe_in_flight |= !refused && !matches!(error, Some(object_store::Error::AlreadyExists { .. }));
        let failure = match error {
            Some(error) => {
                let error = store_error(error);
                if error.code() == code::NOT_DURABLE {
                    return Err(error.at("path", location.describe(path)));
                }
                error
            }
            None => Error::new(code::STORE_UNAVAILABLE, "the store does not answer"),
        };
        match read_back(location, clock, path, answer_by()).await {
            Some(Ok(Some(there))) => {
                // Whoever wrote it may have died before its own sync.
                location.store.make_durable(path).await.map_err(|error| location.error(path, error))?;
                return Ok(if there == body { Created::Written } else { Created::Lost(there) });
            }
            Some(Ok(None)) if refused && !maybe_in_flight => {
                return Err(failure.at("path", location.describe(path)));
            }
            Some(Err(error)) if error.kind() != ErrorKind::Retry => return Err(error),
            _ => {}
        }
        if clock.elapsed() + pause >= deadline {
            let error = Error::new(code::WRITE_UNKNOWN, "it is not known whether a write took effect")
                .at("path", location.describe(path))
                .fix("start again when the store answers: the start finds out");
            return Err(error.because(failure));
        }
        clock.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Whether the store says for certain that it wrote nothing.
fn is_refusal(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. }
            | object_store::Error::InvalidPath { .. }
    ) || super::is_no_bucket(error)
        || super::io_kind(error).is_some_and(|kind| {
            use std::io::ErrorKind as K;
            let refusals = [K::StorageFull, K::QuotaExceeded, K::ReadOnlyFilesystem, K::PermissionDenied];
            refusals.contains(&kind) || kind == SAFE_MODE
        })
}

async fn read_back(
    location: &Location,
    clock: &dyn Clock,
    path: &Path,
    deadline: Duration,
) -> Option<Result<Option<Bytes>>> {
    bounded(clock, deadline, location.read(path)).await
}

/// A store call bounded by the deadline; at least 100 ms, so that the read-back after a late put has a chance.
async fn bounded<T>(clock: &dyn Clock, deadline: Duration, call: impl Future<Output = T>) -> Option<T> {
    let left = deadline.saturating_sub(clock.elapsed()).max(Duration::from_millis(100));
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = clock.sleep(left) => None,
    }
}

/// Deletes an object; one that is not there is deleted already.
pub async fn delete(location: &Location, path: &Path) -> Result<()> {
    match location.store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(location.error(path, error)),
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use object_store::memory::InMemory;

    use super::*;
    use crate::clock::SystemClock;
    use crate::store::faulty::{Fault, FaultyStore, OpKind};
    use crate::testing::ManualClock;

    const PATIENCE: Duration = Duration::from_millis(300);

    /// Creates over a store whose nth put meets the nth fault (the last for ever), then reports both.
    async fn try_create(faults: &'static [Fault], there: Option<&'static str>) -> (Result<Created>, Option<Bytes>) {
        let inner = Arc::new(InMemory::new());
        let path = Path::from("offsets/7");
        if let Some(body) = there {
            inner.put(&path, body.into()).await.unwrap();
        }
        let puts = AtomicUsize::new(0);
        let store = FaultyStore::new(inner.clone(), move |op| match op.kind {
            OpKind::Put => faults[puts.fetch_add(1, Ordering::SeqCst).min(faults.len() - 1)],
            _ => Fault::None,
        });
        let location = Location::new(store, "memory");
        let answer = create(&location, &SystemClock::default(), &path, "mine".into(), PATIENCE).await;
        let there = Location::new(inner, "memory").read(&path).await.unwrap();
        (answer, there)
    }

    #[tokio::test]
    async fn outcome_is_decided_by_reading_back() {
        use Fault::*;
        let mine = Some(Bytes::from("mine"));
        for faults in
            [&[None][..], &[AppliedThenFails], &[Fails, None], &[Conflict, None], &[Fails, AppliedThenFails, None]]
        {
            let (answer, there) = try_create(faults, Option::None).await;
            assert_eq!((answer.unwrap(), &there), (Created::Written, &mine), "{faults:?}");
        }
        for faults in [&[None][..], &[AppliedThenFails], &[Fails, None], &[Conflict], &[Hangs]] {
            let (answer, _) = try_create(faults, Some("theirs")).await;
            assert_eq!(answer.unwrap(), Created::Lost("theirs".into()), "{faults:?}");
        }
    }

    #[tokio::test]
    async fn undecided_at_the_deadline_is_unknown_and_bounded() {
        for faults in [&[Fault::Hangs][..], &[Fault::Fails], &[Fault::Conflict], &[Fault::InFlight]] {
            let (answer, there) = try_create(faults, None).await;
            let error = answer.expect_err("unknown");
            assert_eq!((error.code(), error.exit_code(), there), (code::WRITE_UNKNOWN, 74, None), "{faults:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_is_never_answered_is_made_again() {
        let puts = AtomicUsize::new(0);
        let store = FaultyStore::new(Arc::new(InMemory::new()), move |op| match op.kind {
            OpKind::Put if puts.fetch_add(1, Ordering::SeqCst) == 0 => Fault::Hangs,
            _ => Fault::None,
        });
        let (location, clock) = (Location::new(store, "memory"), ManualClock::at(0));
        let path = Path::from("offsets/7");
        let time_passes = async {
            loop {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_secs(1));
            }
        };
        let answer = tokio::select! {
            answer = create(&location, &clock, &path, "mine".into(), Duration::from_secs(300)) => answer,
            () = time_passes => unreachable!("it passes for ever"),
        };
        assert_eq!(answer.unwrap(), Created::Written);
        assert!((ANSWER..2 * ANSWER).contains(&clock.elapsed()), "{:?}", clock.elapsed());
    }

    #[tokio::test]
    async fn write_that_could_not_be_synced_is_not_taken_as_ours() {
        let (answer, there) = try_create(&[Fault::NotDurable], None).await;
        assert_eq!(answer.expect_err("not durable").code(), code::NOT_DURABLE);
        assert_eq!(there, Some("mine".into()), "it is visible, and still not durable");
    }
}
