//! Publishing: an acknowledged batch's files get their final names, its manifest is written last.
//!
//! Any number of drivers may do this at once, after any crash. What has been done is judged by looking, never by an
//! error. The order is what makes it safe:
//!
//! 1. the manifest: there already → nothing is left to do, whatever became of the files since (a compaction may have
//!    replaced them);
//! 2. the claim: created if absent before the first name, so that another checkpoint (restored from a backup, copied) that
//!    holds another attempt for this batch, with rows or without, is refused before it shows one, though the manifest is
//!    not there yet; then the manifest once more: a claim is swept only after its manifest is there, so whoever slept
//!    before he claimed a swept name sees it;
//! 3. for each file its stage, then its target: another publisher removes the stage only after the target is there, so
//!    in this order a file is never missed;
//! 4. names for all files, folders synced, and only then the stages removed: a power cut never leaves neither;
//! 5. the manifest, once no stage is left: from here on nobody can bring a file back.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tidemill_core::crash::crash_point;
use tidemill_core::store::{self, Created, Location};
use tidemill_core::{Acked, Clock, Error, Published, Result, code};

use super::layout::{self, Layout};
use super::manifest::{Claim, Manifest};

/// Files that are renamed at the same time.
const FILES_AT_ONCE: usize = 8;
/// How long the outcome of writing the claim or the manifest may stay undecided.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// Looks at a file that moves under us. Two publishers need two.
const LOOKS: usize = 3;

/// A staged file and the name that it will have.
#[derive(Debug)]
struct Move {
    stage: Path,
    target: Path,
    bytes: u64,
}

pub(super) async fn publish(location: &Location, clock: &dyn Clock, batch: &Acked) -> Result<Published> {
    let layout = Layout::of(&batch.key)?;
    let manifest = Manifest::of(batch)?;
    let path = layout.manifest(batch.batch_id)?;
    if recorded(location, &path, &manifest).await? {
        return Ok(manifest.published());
    }
    let moves = moves_of(&layout, batch, &manifest)?;
    claim(location, clock, &layout, batch).await?;
    if recorded(location, &path, &manifest).await? {
        return Ok(manifest.published());
    }
    if let Err(error) = show_all(location, batch, &moves).await {
        // A file is missing. If another publisher has finished meanwhile, it was right to take it away.
        if error.code() == code::STAGE_LOST && recorded(location, &path, &manifest).await? {
            return Ok(manifest.published());
        }
        return Err(error.at("sink", &batch.key.sink).at("batch", batch.batch_id));
    }
    crash_point("publish", batch.batch_id);
    match store::create(location, clock, &path, store::seal(&manifest), PATIENCE).await? {
        Created::Written => {}
        Created::Lost(theirs) => {
            manifest.recognise(&Manifest::read(&theirs, location, &path)?, location, &path)?;
        }
    }
    crash_point("manifest", batch.batch_id);
    Ok(manifest.published())
}

/// Whether this very batch is recorded as published. The record is made durable: its writer may have died too early.
async fn recorded(location: &Location, path: &Path, manifest: &Manifest) -> Result<bool> {
    let Some(file) = location.read(path).await? else { return Ok(false) };
    manifest.recognise(&Manifest::read(&file, location, path)?, location, path)?;
    location.store.make_durable(path).await.map_err(|error| location.error(path, error))?;
    Ok(true)
}

/// Claims the batch for the attempt that this checkpoint's `acks/N` names.
async fn claim(location: &Location, clock: &dyn Clock, layout: &Layout, batch: &Acked) -> Result<()> {
    let (claim, path) = (Claim::of(batch), layout.claim(batch.batch_id)?);
    match store::create(location, clock, &path, store::seal(&claim), PATIENCE).await? {
        Created::Written => Ok(()),
        Created::Lost(theirs) => claim.recognise(&theirs, location, &path),
    }
}

fn moves_of(layout: &Layout, batch: &Acked, manifest: &Manifest) -> Result<Vec<Move>> {
    let files = manifest.files.iter();
    files
        .map(|file| {
            let target = layout::target(&file.path)?;
            let stage = layout.stage(batch.batch_id, &batch.attempt, &target)?;
            Ok(Move { stage, target, bytes: file.bytes })
        })
        .collect()
}

/// Gives every file its name, then removes every stage.
async fn show_all(location: &Location, batch: &Acked, moves: &[Move]) -> Result<()> {
    let (first, others) = moves.split_at(moves.len().min(1));
    for file in first {
        show(location, file).await?;
    }
    crash_point("mid-publish", batch.batch_id);
    at_once(others.iter().map(|file| show(location, file).boxed()).collect()).await?;
    at_once(moves.iter().map(|file| unstage(location, file).boxed()).collect()).await
}

async fn at_once(steps: Vec<BoxFuture<'_, Result<()>>>) -> Result<()> {
    stream::iter(steps).buffer_unordered(FILES_AT_ONCE).try_collect().await
}

/// Gives one file its name, durably.
async fn show(location: &Location, file: &Move) -> Result<()> {
    let mut failure = None;
    for _ in 0..LOOKS {
        let staged = size_of(location, &file.stage).await?;
        if staged.is_some_and(|bytes| bytes != file.bytes) {
            return Err(lost(location, &file.stage, file.bytes, staged));
        }
        // By a link, a rename, or a copy that puts the same bytes there again: the target's name is the attempt's own.
        let named = match staged {
            Some(_) => location.store.give_name(&file.stage, &file.target).await.map(|()| true),
            None => Ok(false),
        };
        let named = named.map_err(|error| location.error(&file.target, error));
        let shown = size_of(location, &file.target).await?;
        match (named, shown) {
            (Err(error), _) if error.code() == code::NOT_DURABLE => return Err(error),
            (Ok(true), Some(bytes)) if bytes == file.bytes => return Ok(()),
            // Named by somebody who may have died before the name was durable.
            (_, Some(bytes)) if bytes == file.bytes => {
                return location
                    .store
                    .make_durable(&file.target)
                    .await
                    .map_err(|error| location.error(&file.target, error));
            }
            (_, Some(bytes)) => return Err(lost(location, &file.target, file.bytes, Some(bytes))),
            (Ok(false), None) => return Err(lost(location, &file.stage, file.bytes, None)),
            // The stage was there and the target is not: that failed, or the stage was just taken. Look again.
            (Ok(true), None) => {}
            (Err(error), None) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        Error::new(code::STORE_UNAVAILABLE, "a file that was named does not appear")
            .at("path", location.describe(&file.target))
    }))
}

/// Removes a stage whose target is durable.
async fn unstage(location: &Location, file: &Move) -> Result<()> {
    let Err(error) = store::create::delete(location, &file.stage).await else { return Ok(()) };
    match size_of(location, &file.stage).await? {
        None => Ok(()),
        Some(_) => Err(error),
    }
}

async fn size_of(location: &Location, path: &Path) -> Result<Option<u64>> {
    match location.store.head(path).await {
        Ok(meta) => Ok(Some(meta.size)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(location.error(path, error)),
    }
}

fn lost(location: &Location, path: &Path, listed: u64, found: Option<u64>) -> Error {
    let what = match found {
        None => "a staged file is gone, and it is not published either".to_owned(),
        Some(found) => format!("a file has {found} bytes, its task wrote {listed}"),
    };
    Error::new(code::STAGE_LOST, what)
        .at("path", location.describe(path))
        .fix("somebody removed or changed it; put it back from a backup")
}
