//! What a store must do for the protocol to hold, tried out on the store itself.
//!
//! Everything rests on one thing: of several writers that create the same name, exactly one wins. Some stores that
//! speak S3 ignore the condition on a write, or look at it before they write; on those, two drivers would both own a
//! batch. [`examine`] races for it; [`glance`] is the short form, with which every query starts on a new location.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Created, Location, create};
use crate::clock::Clock;
use crate::error::{Error, Result, code};
use crate::ids::Nonce;
use crate::rng::Rng;
use crate::rules::{Rule, is_broken};

/// Names that are raced for.
const NAMES: usize = 100;
/// Writers that race for each.
const WRITERS: usize = 8;
/// A clock that differs by so much from the store's is told.
const SKEW_MS: i64 = 5_000;

/// What was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// One line for each thing that was tried: what, and how it went.
    pub lines: Vec<String>,
}

/// Tries a location out, in a folder of its own that is removed again: a few hundred small writes.
///
/// # Errors
///
/// [`code::STORE_UNFIT`] if the store gave one name to two writers, lost a write that it acknowledged, or does not show
/// in a list what it acknowledged; whatever the store says if it cannot be asked.
pub async fn examine(location: &Location, clock: &dyn Clock, rng: &dyn Rng) -> Result<Examination> {
    let folder = Path::from(unused_name(rng));
    let examined = in_folder(location, clock, &folder).await;
    let swept = location.remove_folder(&folder).await;
    let lines = examined?;
    swept?;
    Ok(Examination { lines })
}

async fn in_folder(location: &Location, clock: &dyn Clock, folder: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let since = clock.elapsed();
    for number in 0..NAMES {
        race(location, &folder.clone().join(format!("race-{number:03}"))).await?;
    }
    let took = (clock.elapsed() - since) / NAMES as u32;
    lines.push(format!(
        "create if absent: {NAMES} names, {WRITERS} writers each, one winner each; {} ms a race",
        took.as_millis()
    ));

    let listed = location.paths(folder).await?.len();
    if listed != NAMES {
        return Err(unfit(location, folder, format!("a list shows {listed} of {NAMES} files that were acknowledged")));
    }
    lines.push(format!("list: shows all {NAMES} at once"));

    let (from, to) = (folder.clone().join("race-000"), folder.clone().join("named"));
    let before = location.read(&from).await?;
    location.store.give_name(&from, &to).await.map_err(|error| location.error(&to, error))?;
    if location.read(&to).await? != before {
        return Err(unfit(location, &to, "an object that was given another name has other bytes there".to_owned()));
    }
    let kept = location.read(&from).await?.is_some();
    lines.push(format!("names: given by {}", if kept { "a copy or a link" } else { "a rename" }));

    let now = clock.now_ms();
    let path = folder.clone().join("clock");
    let put = location.store.put(&path, PutPayload::from_static(b"tick")).await;
    put.map_err(|error| location.error(&path, error))?;
    let meta = location.store.head(&path).await.map_err(|error| location.error(&path, error))?;
    let ahead = meta.last_modified.timestamp_millis() - now;
    let note = if ahead.abs() > SKEW_MS { ": set one of them right, or ages in logs mislead" } else { "" };
    lines.push(format!("clock: the store's is {ahead} ms from ours{note}"));
    Ok(lines)
}

/// Lets some writers create one name at the same time.
async fn race(location: &Location, path: &Path) -> Result<()> {
    let bodies: Vec<Bytes> = (0..WRITERS).map(|writer| Bytes::from(format!("writer {writer}"))).collect();
    let answers = join_all(bodies.iter().map(|body| put_if_absent(location, path, body.clone()))).await;
    let mut winners = Vec::new();
    for (body, answer) in bodies.iter().zip(answers) {
        match answer {
            Ok(()) => winners.push(body),
            // A loser, or one of whom we cannot know: then the name tells.
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(location.error(path, error)),
        }
    }
    let there = location.read(path).await?;
    match (&winners[..], &there) {
        // None was told that it won: an answer was lost on the way. What counts is that there is one.
        ([], Some(_)) => Ok(()),
        ([winner], Some(there)) if *winner == there => Ok(()),
        ([_], _) => Err(unfit(location, path, "a write that was acknowledged is not there".to_owned())),
        ([], None) => Err(unfit(location, path, "every writer was told that another one had won".to_owned())),
        (winners, _) => Err(unfit(location, path, format!("{} writers created the same name", winners.len()))),
    }
}

/// The short form: whether a second writer of a name in a folder is refused, and the first one's bytes stay.
pub async fn glance(
    location: &Location,
    folder: &Path,
    clock: &dyn Clock,
    rng: &dyn Rng,
    patience: Duration,
) -> Result<()> {
    if is_broken(Rule::TryStoreOut) {
        return Ok(());
    }
    let path = folder.clone().join(unused_name(rng));
    create(location, clock, &path, Bytes::from_static(b"one"), patience).await?;
    let again = create(location, clock, &path, Bytes::from_static(b"two"), patience).await;
    create::delete(location, &path).await?;
    match again? {
        Created::Lost(there) if there == "one" => Ok(()),
        _ => Err(unfit(location, &path, "a name that was taken was written once more".to_owned())),
    }
}

async fn put_if_absent(location: &Location, path: &Path, body: Bytes) -> object_store::Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    location.store.put_opts(path, PutPayload::from(body), options).await.map(drop)
}

/// A name that nobody else uses.
fn unused_name(rng: &dyn Rng) -> String {
    format!("doctor-{}", Nonce::random(rng))
}

fn unfit(location: &Location, path: &Path, what: String) -> Error {
    Error::new(code::STORE_UNFIT, what)
        .at("path", location.describe(path))
        .fix("keep checkpoints and tables elsewhere: on this store two drivers could both own a batch")
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::clock::SystemClock;
    use crate::rng::SeededRng;
    use crate::store::faulty::{Fault, FaultyStore, OpKind};

    const PATIENCE: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_store_that_keeps_its_word_passes_and_is_left_clean() {
        let (clock, rng) = (SystemClock::default(), SeededRng::new(1));
        let folder = tempfile::tempdir().unwrap();
        let local = crate::store::Stores::default().open(&folder.path().to_string_lossy()).unwrap();
        for location in [local, Location::new(Arc::new(InMemory::new()), "memory")] {
            glance(&location, &Path::default(), &clock, &rng, PATIENCE).await.unwrap();
            let examined = examine(&location, &clock, &rng).await.unwrap();
            assert_eq!(examined.lines.len(), 4, "{examined:?}");
            assert_eq!(location.paths(&Path::default()).await.unwrap(), []);
        }
    }

    #[tokio::test]
    async fn a_store_that_ignores_conditions_is_refused() {
        let (clock, rng) = (SystemClock::default(), SeededRng::new(1));
        let careless = FaultyStore::new(Arc::new(InMemory::new()), |op| match op.kind {
            OpKind::Put => Fault::Unconditional,
            _ => Fault::None,
        });
        let location = Location::new(careless, "memory");
        let error = glance(&location, &Path::default(), &clock, &rng, PATIENCE).await.expect_err("refused");
        assert_eq!(error.code(), code::STORE_UNFIT, "{error}");
        let error = examine(&location, &clock, &rng).await.expect_err("refused");
        assert!(error.code() == code::STORE_UNFIT && error.to_string().contains("8 writers"), "{error}");
    }
}
