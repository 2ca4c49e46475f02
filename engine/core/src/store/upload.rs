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
    /// The first part, until the second: an object of one part is one request.
    first: Option<Bytes>,
    parts: Option<Box<dyn MultipartUpload>>,
}

impl Upload {
    /// Begins an object, whose name nobody else uses.
    pub fn start(location: &Location, path: &Path) -> Upload {
        Upload { location: location.clone(), path: path.clone(), first: None, parts: None }
    }

    /// Adds bytes at the end. S3-like stores want at least 5 MiB in every part but the last.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if self.parts.is_none() && self.first.is_none() {
            self.first = Some(bytes);
            return Ok(());
        }
        if let Some(first) = self.first.take() {
            self.send(first).await?;
        }
        self.send(bytes).await
    }

    async fn send(&mut self, bytes: Bytes) -> Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => {
                let parts = self.location.store.put_multipart(&self.path).await;
                self.parts.insert(parts.map_err(|error| self.location.error(&self.path, error))?)
            }
        };
        parts.put_part(PutPayload::from(bytes)).await.map_err(|error| self.location.error(&self.path, error))
    }

    /// Ends the object: when it returns, all of it is there, durably.
    pub async fn finish(mut self) -> Result<()> {
        let done = match self.parts.take() {
            Some(mut parts) => parts.complete().await,
            None => {
                let body = PutPayload::from(self.first.take().unwrap_or_default());
                self.location.store.put(&self.path, body).await
            }
        };
        done.map(drop).map_err(|error| self.location.error(&self.path, error))
    }

    /// Gives the object up. Best effort.
    pub async fn abort(mut self) {
        if let Some(parts) = &mut self.parts {
            let _ = parts.abort().await;
        }
    }
}
