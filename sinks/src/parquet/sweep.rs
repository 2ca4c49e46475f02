//! Sweeping: what lost attempts of a committed batch left behind is removed.
//!
//! [`discard`] touches only the folder of its batch, and in it never the winner's; [`up_to`] takes the folders of batches
//! that are finished for ever. Where there are folders, these go too: readers that walk the table would walk them for
//! ever.

use tidemill_core::store::Location;
use tidemill_core::store::create::delete;
use tidemill_core::{AttemptId, BatchId, Result, SinkKey};

use super::layout::{self, Layout};

pub(super) async fn discard(location: &Location, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
    let layout = Layout::of(key)?;
    let (stages, kept) = (layout.stages(batch_id)?, layout.attempt(batch_id, winner)?);
    for attempt in location.folders(&stages).await? {
        if attempt != kept {
            location.remove_folder(&attempt).await?;
        }
    }
    // What the winner staged is published, so its folder is empty, unless somebody still publishes it once more.
    match location.paths(&stages).await?.is_empty() {
        true => location.remove_folder(&stages).await,
        false => Ok(()),
    }
}

pub(super) async fn up_to(location: &Location, key: &SinkKey, last: BatchId) -> Result<()> {
    let layout = Layout::of(key)?;
    // Folders of batches sort by their numbers.
    let (staging, above) = (layout.staging()?, layout.stages(last.next())?);
    for batch in location.folders(&staging).await? {
        if batch < above {
            location.remove_folder(&batch).await?;
        }
    }
    // The manifests of these batches are there: they say what the claims said.
    for claim in location.paths(&layout.claims()?).await? {
        if layout::manifest_batch(&claim).is_some_and(|batch_id| batch_id <= last) {
            delete(location, &claim).await?;
        }
    }
    Ok(())
}
