//! Sweeping: what lost attempts of a committed batch left behind is removed.
//!
//! Only the folder of the batch is touched, and in it never the winner's files. On a local disk the temporary files of
//! dead processes and the empty folders go too: readers that walk the table would walk them for ever.

use futures::TryStreamExt;
use object_store::path::Path;
use tidemill_core::store::{self, Location};
use tidemill_core::{AttemptId, BatchId, Result, SinkKey};

use super::layout::Layout;

pub(super) async fn discard(location: &Location, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
    let layout = Layout::of(key)?;
    let (stages, kept) = (layout.stages(batch_id)?, layout.attempt(batch_id, winner)?);
    let listed: Vec<_> = match location.store.list(Some(&stages)).try_collect().await {
        Ok(listed) => listed,
        Err(object_store::Error::NotFound { .. }) => Vec::new(),
        Err(error) => return Err(location.error(&stages, error)),
    };
    for meta in listed {
        if !meta.location.prefix_matches(&kept) {
            store::create::delete(location, &meta.location).await?;
        }
    }
    sweep_folders(location, stages, kept).await;
    Ok(())
}

/// Removes emptied folders on a local disk, best effort: a folder that stays is no harm, and the next call tries again.
async fn sweep_folders(location: &Location, stages: Path, kept: Path) {
    let root = std::path::PathBuf::from(&location.url);
    if !root.is_absolute() {
        return;
    }
    let swept = tokio::task::spawn_blocking(move || {
        let folder = root.join(stages.as_ref());
        let kept = root.join(kept.as_ref());
        for attempt in std::fs::read_dir(&folder)?.flatten() {
            if attempt.path() == kept {
                // Removes it only if it is empty.
                let _ = std::fs::remove_dir(attempt.path());
            } else {
                std::fs::remove_dir_all(attempt.path())?;
            }
        }
        std::fs::remove_dir(&folder)
    });
    if let Ok(Err(error)) = swept.await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(%error, "folders of staged files were not removed");
    }
}
