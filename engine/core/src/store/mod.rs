//! Object stores: where checkpoints and tables live.
//!
//! The only door to `object_store` for checkpoints. Three things are added to it:
//!
//! * [`local`]: a local store whose writes are durable when they return (file synced, linked, directory synced);
//! * [`mod@create`]: the one write primitive of the protocol, create-if-absent decided by reading back;
//! * [`entry`]: the self-describing envelope, with a checksum, of every durable file of ours.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::error::{Error, Result, code};

pub mod create;
pub mod entry;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod local;
mod upload;

pub use create::{Created, create};
pub use entry::{Damage, seal, unseal};
pub use local::DurableLocal;
pub use object_store::path::Path;
pub use upload::Upload;

/// An object store that can be asked to make what it shows durable.
#[async_trait]
pub trait Store: ObjectStore {
    /// Makes an object durable that somebody else wrote: its bytes and its name. On stores that acknowledge only what
    /// is durable there is nothing to do; on a local disk another process may have died before its own sync.
    async fn make_durable(&self, path: &Path) -> object_store::Result<()>;
}

#[async_trait]
impl Store for object_store::memory::InMemory {
    async fn make_durable(&self, _path: &Path) -> object_store::Result<()> {
        Ok(())
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

    /// Opens a location: a path, or a `file://` URL. A folder that does not exist is made.
    pub fn open(text: &str) -> Result<Location> {
        let path = local_path(text)?;
        let local = DurableLocal::open(path).map_err(|error| {
            let error = object_store::Error::Generic { store: "DurableLocal", source: error.into() };
            let error = store_error(error).with_code(code::STORE_REFUSED).at("location", text);
            error.fix("name a folder that this user may make and write to")
        })?;
        let url = local.root().display().to_string();
        Ok(Location { store: Arc::new(local), url })
    }

    /// Opens a location that must be there already.
    pub fn open_existing(text: &str) -> Result<Location> {
        if !local_path(text)?.is_dir() {
            return Err(Error::new(code::UNKNOWN_LOCATION, "there is no such location").at("location", text));
        }
        Location::open(text)
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
            listed => listed.map_err(|error| self.error(folder, error)),
        }
    }

    /// The paths of the files below a folder, in no order; none if there is no folder.
    pub async fn paths(&self, folder: &Path) -> Result<Vec<Path>> {
        Ok(self.files(folder).await?.into_iter().map(|meta| meta.location).collect())
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

fn local_path(text: &str) -> Result<&std::path::Path> {
    let path = match text.split_once("://") {
        None => text,
        Some(("file", path)) => path,
        Some((scheme, _)) => {
            return Err(Error::new(code::UNKNOWN_LOCATION, format!("locations of \"{scheme}://\" are not known"))
                .at("location", strip_secrets(text))
                .fix("this build opens paths and file:// URLs"));
        }
    };
    match path {
        "" => Err(Error::new(code::INVALID_OPTION, "the location is empty").fix("name a folder")),
        path => Ok(std::path::Path::new(path)),
    }
}

/// Wraps an error of the store: what may pass is told from what a person must change.
pub fn store_error(error: object_store::Error) -> Error {
    use object_store::Error as E;
    let not_durable = std::error::Error::source(&error).is_some_and(|source| source.is::<local::NotDurable>());
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
                Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
                    (code::STORE_REFUSED, "no space is left", "free some space, then start again")
                }
                Some(std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied) => {
                    (code::STORE_REFUSED, "the store refused", "check the permissions of this user on the location")
                }
                _ => (code::STORE_UNAVAILABLE, "the store failed", "it is tried again for a while"),
            },
        }
    };
    Error::new(code, what).fix(fix).because(error)
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

/// A URL without user, password and query.
fn strip_secrets(text: &str) -> String {
    match url::Url::parse(text) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        Err(_) => text.split(['?', '@']).next().unwrap_or_default().to_owned(),
    }
}
