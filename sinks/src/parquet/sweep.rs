//! Sweeping: what lost attempts of a committed batch left behind is removed.
//!
//! [`discard`] touches only the folder of its batch, and in it never the winner's files; [`up_to`] takes the folders of
//! batches that are finished for ever. On a local disk the temporary files of dead processes and the empty folders go
//! too: readers that walk the table would walk them for ever.

use std::io;
use std::path::{Path as OsPath, PathBuf};

use object_store::path::Path;
use tidemill_core::store::{self, Location};
use tidemill_core::{AttemptId, BatchId, Result, SinkKey};

use super::layout::Layout;

pub(super) async fn discard(location: &Location, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
    let layout = Layout::of(key)?;
    let (stages, kept) = (layout.stages(batch_id)?, layout.attempt(batch_id, winner)?);
    delete_all(location, &stages, |path| !path.prefix_matches(&kept)).await?;
    sweep_folders(location, stages, move |root, stages| {
        let kept = root.join(kept.as_ref());
        for attempt in std::fs::read_dir(stages)?.flatten() {
            if attempt.path() == kept {
                // Removes it only if it is empty.
                let _ = std::fs::remove_dir(attempt.path());
            } else {
                std::fs::remove_dir_all(attempt.path())?;
            }
        }
        std::fs::remove_dir(stages)
    })
    .await;
    Ok(())
}

pub(super) async fn up_to(location: &Location, key: &SinkKey, last: BatchId) -> Result<()> {
    let layout = Layout::of(key)?;
    // Folders of batches sort by their numbers, and all names below a folder begin with its own.
    let (staging, above) = (layout.staging()?, layout.stages(last.next())?);
    delete_all(location, &staging, |path| *path < above).await?;
    sweep_folders(location, staging, move |root, staging| {
        let above = root.join(above.as_ref());
        for batch in std::fs::read_dir(staging)?.flatten().filter(|batch| batch.path() < above) {
            std::fs::remove_dir_all(batch.path())?;
        }
        Ok(())
    })
    .await;
    Ok(())
}

async fn delete_all(location: &Location, folder: &Path, goes: impl Fn(&Path) -> bool) -> Result<()> {
    for path in location.paths(folder).await?.iter().filter(|path| goes(path)) {
        store::create::delete(location, path).await?;
    }
    Ok(())
}

/// Removes folders on a local disk, best effort: a folder that stays is no harm, and the next call tries again. `sweep`
/// gets the table's root and the folder.
async fn sweep_folders(
    location: &Location,
    folder: Path,
    sweep: impl FnOnce(&OsPath, &OsPath) -> io::Result<()> + Send + 'static,
) {
    let root = PathBuf::from(&location.url);
    if !root.is_absolute() {
        return;
    }
    let swept = tokio::task::spawn_blocking(move || sweep(&root, &root.join(folder.as_ref())));
    if let Ok(Err(error)) = swept.await
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(%error, "folders of staged files were not removed");
    }
}
