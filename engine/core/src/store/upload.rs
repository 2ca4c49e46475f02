//! An object that is written in parts, and is there, durably, when the last one is.

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};

use super::{Location, Path};
use crate::error::Result;

/// An upload under way. Dropped without [`Upload::finish`], it leaves nothing that anybody sees.
#[derive(Debug)]
pub struct Upload {
    location: Location,
    path: Path,
    parts: Box<dyn MultipartUpload>,
}

impl Upload {
    /// Begins an object, whose name nobody else uses.
    pub async fn start(location: &Location, path: &Path) -> Result<Upload> {
        let parts = location.store.put_multipart(path).await.map_err(|error| location.error(path, error))?;
        Ok(Upload { location: location.clone(), path: path.clone(), parts })
    }

    /// Adds bytes at the end. S3-like stores want at least 5 MiB in every part but the last.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let part = self.parts.put_part(PutPayload::from(bytes));
        part.await.map_err(|error| self.location.error(&self.path, error))
    }

    /// Ends the object: when it returns, all of it is there, durably.
    pub async fn finish(mut self) -> Result<()> {
        let done = self.parts.complete().await;
        done.map(drop).map_err(|error| self.location.error(&self.path, error))
    }

    /// Gives the object up. Best effort.
    pub async fn abort(mut self) {
        let _ = self.parts.abort().await;
    }
}
