//! Object stores: where checkpoints and tables live.
//!
//! The only door to `object_store` for checkpoints. What is added to it:
//!
//! * [`Stores`]: which store a URL means, and its credentials;
//! * [`local`]: a local store whose writes are durable when they return (file synced, linked, directory synced);
//! * [`mod@create`]: the one write primitive of the protocol, create-if-absent decided by reading back;
//! * [`doctor`]: whether a store does what the protocol needs;
//! * [`entry`]: the self-describing envelope, with a checksum, of every durable file of ours.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use object_store::{CopyMode, CopyOptions, ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::error::{Error, Result, code};

mod bounded;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
mod cloud;
pub mod create;
pub mod doctor;
pub mod entry;
#[cfg(feature = "testing")]
pub mod faulty;
#[cfg(feature = "hdfs")]
mod hdfs;
pub mod local;
mod open;
mod upload;

pub use create::{Created, create};
pub use entry::{Damage, seal, unseal};
pub use local::DurableLocal;
pub use object_store::path::Path;
pub use open::Stores;
pub use upload::Upload;

/// An object store, and what the protocol asks of it beyond that.
#[async_trait]
pub trait Store: ObjectStore {
    /// Makes an object durable that somebody else wrote: its bytes and its name. On stores that acknowledge only what
    /// is durable there is nothing to do; on a local disk another process may have died before its own sync.
    async fn make_durable(&self, _path: &Path) -> object_store::Result<()> {
        Ok(())
    }

    /// Gives an object another name, durably and without reading it: by a link, a rename, or a copy within the store.
    /// Afterwards `from` is gone or still there, as the store has it. Several may do it at once, and an error decides
    /// nothing: look at both names. A name that other bytes have is never taken from them, unless a store can only
    /// copy: then it is upon the caller that nobody else uses `to`.
    async fn give_name(&self, from: &Path, to: &Path) -> object_store::Result<()> {
        self.copy_opts(from, to, CopyOptions::new().with_mode(CopyMode::Overwrite)).await
    }

    /// Removes a folder with whatever is in it, empty folders and what dead processes left half-written included: the
    /// caller knows that it is nobody's, and deletes objects by themselves before. On stores that know objects only
    /// there is nothing to do.
    async fn remove_folder(&self, _folder: &Path) -> object_store::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Store for object_store::memory::InMemory {
    async fn give_name(&self, from: &Path, to: &Path) -> object_store::Result<()> {
        self.copy_opts(from, to, CopyOptions::new().with_mode(CopyMode::Create)).await
    }
}

/// An opened location: a store whose root is the location itself.
#[derive(Clone, Debug)]
pub struct Location {
    /// The store.
    pub store: Arc<dyn Store>,
    /// How the location is called, for people: no credentials, no query string.
    pub url: String,
}

impl Location {
    /// A location over a store that is already there; tests wrap stores with it.
    pub fn new(store: Arc<dyn Store>, url: impl Into<String>) -> Self {
        Location { store, url: url.into() }
    }

    /// The place of an object, for people.
    pub fn describe(&self, path: &Path) -> String {
        format!("{}/{path}", self.url.trim_end_matches('/'))
    }

    /// Reads a whole object; none if it is not there. A body that is shorter than the store says it is counts as an
    /// error that may pass, never as damage.
    pub async fn read(&self, path: &Path) -> Result<Option<bytes::Bytes>> {
        let answer = match self.store.get(path).await {
            Ok(answer) => answer,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.error(path, error)),
        };
        let size = answer.meta.size;
        let body = answer.bytes().await.map_err(|error| self.error(path, error))?;
        if body.len() as u64 != size {
            return Err(Error::new(code::STORE_UNAVAILABLE, format!("read {} of {size} bytes", body.len()))
                .at("path", self.describe(path)));
        }
        Ok(Some(body))
    }

    /// The files below a folder, in no order; none if there is no folder.
    pub async fn files(&self, folder: &Path) -> Result<Vec<ObjectMeta>> {
        match self.store.list(Some(folder)).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.error(folder, error)),
            Ok(listed) => {
                let mut listed: Vec<ObjectMeta> = listed;
                // Consoles of stores like S3 leave an object of the folder's own name: it is no file in it.
                listed.retain(|meta| meta.location != *folder);
                Ok(listed)
            }
        }
    }

    /// The paths of the files below a folder, in no order; none if there is no folder.
    pub async fn paths(&self, folder: &Path) -> Result<Vec<Path>> {
        Ok(self.files(folder).await?.into_iter().map(|meta| meta.location).collect())
    }

    /// The folders directly below a folder, in no order; none if there is no folder.
    pub async fn folders(&self, folder: &Path) -> Result<Vec<Path>> {
        match self.store.list_with_delimiter(Some(folder)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            listed => listed.map(|listed| listed.common_prefixes).map_err(|error| self.error(folder, error)),
        }
    }

    /// Removes a folder that is nobody's any more, with all in it.
    pub async fn remove_folder(&self, folder: &Path) -> Result<()> {
        for path in self.paths(folder).await? {
            create::delete(self, &path).await?;
        }
        self.store.remove_folder(folder).await.map_err(|error| self.error(folder, error))
    }

    /// The names of the files below a folder, in no order; none if there is no folder.
    pub async fn names(&self, folder: &Path) -> Result<Vec<String>> {
        let paths = self.paths(folder).await?;
        Ok(paths.iter().filter_map(|path| path.filename().map(str::to_owned)).collect())
    }

    /// Wraps an error of the store with the place where it happened.
    pub fn error(&self, path: &Path, error: object_store::Error) -> Error {
        store_error(error).at("path", self.describe(path))
    }
}

/// Wraps an error of the store: what may pass is told from what a person must change.
pub fn store_error(error: object_store::Error) -> Error {
    use object_store::Error as E;
    let not_durable = std::error::Error::source(&error).is_some_and(|source| source.is::<local::NotDurable>());
    if is_no_bucket(&error) {
        let error = Error::new(code::UNKNOWN_LOCATION, "there is no such bucket").because(error);
        return error.fix("make it, or name another one");
    }
    let (code, what, fix) = if not_durable {
        (code::NOT_DURABLE, "a write could not be made durable", "check the disk, then start again")
    } else {
        match &error {
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
                (code::STORE_REFUSED, "the store refused", "check the permissions of this user on the location")
            }
            E::NotSupported { .. } | E::NotImplemented { .. } | E::InvalidPath { .. } => {
                (code::STORE_REFUSED, "the store cannot do this", "use another location")
            }
            _ => match io_kind(&error) {
                Some(std::io::ErrorKind::StorageFull) => {
                    (code::STORE_REFUSED, "no space is left", "free some space, then start again")
                }
                Some(std::io::ErrorKind::QuotaExceeded) => {
                    (code::STORE_REFUSED, "a quota is used up", "raise the quota, or free some space, then start again")
                }
                Some(std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied) => {
                    (code::STORE_REFUSED, "the store refused", "check the permissions of this user on the location")
                }
                Some(SAFE_MODE) => (
                    code::STORE_UNAVAILABLE,
                    "the name node is in safe mode",
                    "it leaves it by itself after a start; if not: hdfs dfsadmin -safemode leave",
                ),
                _ => (code::STORE_UNAVAILABLE, "the store failed", "see whether it runs and can be reached"),
            },
        }
    };
    let (what, fix) = if asked_the_machine(&error) {
        (
            "no credentials are set, and this machine gives none",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the other stores' tools call them",
        )
    } else {
        (what, fix)
    };
    Error::new(code, what).fix(fix).because(error)
}

/// What a store says that was asked to write, and has no bucket of that name: not that the object is missing.
#[derive(Debug)]
struct NoBucket(Box<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for NoBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for NoBucket {}

fn is_no_bucket(error: &object_store::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<NoBucket>())
}

/// How HDFS says, within an error, that it takes no writes now, and has written nothing.
const SAFE_MODE: std::io::ErrorKind = std::io::ErrorKind::ResourceBusy;

/// Whether the client looked for credentials where virtual machines of the clouds find theirs, and failed there.
fn asked_the_machine(error: &object_store::Error) -> bool {
    const ADDRESSES: [&str; 2] = ["//169.254.169.254/", "//metadata.google.internal/"];
    let text = error.to_string();
    ADDRESSES.iter().any(|address| text.contains(address))
}

fn io_kind(error: &object_store::Error) -> Option<std::io::ErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use object_store::Error as E;

    use super::*;

    #[test]
    fn credentials_that_are_nowhere_are_told_of() {
        let url = "http://169.254.169.254/latest/api/token";
        let text = || format!("Error performing PUT {url} in 58 ms - 403 Forbidden").into();
        let refused = store_error(E::PermissionDenied { path: "offsets/0".to_owned(), source: text() });
        let silent = store_error(E::Generic { store: "S3", source: text() });
        for (error, code) in [(refused, code::STORE_REFUSED), (silent, code::STORE_UNAVAILABLE)] {
            let told = error.report();
            assert!(error.code() == code && told.contains("no credentials are set"), "{told}");
            assert!(told.contains("AWS_ACCESS_KEY_ID") && told.contains(url), "{told}");
        }
        let other = store_error(E::Generic { store: "S3", source: "http://10.0.0.1/offsets/0".into() });
        assert!(!other.report().contains("credentials"), "{}", other.report());
    }
}
