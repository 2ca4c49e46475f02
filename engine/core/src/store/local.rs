//! A local disk as an object store whose writes are durable when they return.
//!
//! The local store of `object_store` 0.13 never syncs, so an acknowledged file can be empty after a power cut. Here a
//! write goes to a hidden temporary file, which is synced, then takes its name, then the directory is synced, and so is
//! every directory above it that holds a new one: at the end and not when it is made, since the sync of the file has
//! usually written that too. Reading, listing and deleting are `object_store`'s own.
//!
//! A sync that fails leaves the page cache in a state that nobody can know, and a second sync would report success. So
//! the first failure poisons the store for the life of the process: every later write is refused.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::Store;
use crate::rules::{Rule, is_broken};

/// The disk, as long as the process lives.
static DISK: Disk = Disk::new(&Fsync);
/// Makes temporary names unique within the process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A sync failed, now or earlier in this process.
#[derive(Debug)]
pub struct NotDurable(Option<std::io::Error>);

#[cfg(feature = "testing")]
impl NotDurable {
    /// What a store answers whose sync failed, for tests; it poisons nothing.
    pub fn injected() -> Error {
        let source = NotDurable(Some(std::io::Error::other("injected")));
        Error::Generic { store: "DurableLocal", source: source.into() }
    }
}

impl std::fmt::Display for NotDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(error) => write!(f, "sync failed: {error}"),
            None => f.write_str("an earlier sync of this process failed, so nothing more is written"),
        }
    }
}

impl std::error::Error for NotDurable {}

/// A local folder as a durable object store.
#[derive(Clone, Debug)]
pub struct DurableLocal {
    root: PathBuf,
    files: Arc<LocalFileSystem>,
    disk: &'static Disk,
}

impl DurableLocal {
    /// Opens a folder, and makes it (durably) if it is not there.
    pub fn open(root: &std::path::Path) -> std::io::Result<Self> {
        DurableLocal::open_on(root, &DISK)
    }

    fn open_on(root: &std::path::Path, disk: &'static Disk) -> std::io::Result<Self> {
        let root = std::path::absolute(root)?;
        disk.make_folder(&root)?;
        disk.sync_made(&root)?;
        let root = root.canonicalize()?;
        let files = LocalFileSystem::new_with_prefix(&root).map_err(std::io::Error::other)?;
        Ok(DurableLocal { root, files: Arc::new(files), disk })
    }

    /// The folder.
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    fn file(&self, path: &Path) -> Result<PathBuf> {
        self.files.path_to_filesystem(path)
    }

    /// What is there, on the caller's own thread; `NotFound` if nothing is, and none if that cannot be told.
    fn look(&self, path: &Path) -> Result<Option<Metadata>> {
        match std::fs::symlink_metadata(self.file(path)?) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::NotFound { path: path.to_string(), source: error.into() })
            }
            seen => Ok(seen.ok()),
        }
    }
}

impl std::fmt::Display for DurableLocal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DurableLocal({})", self.root.display())
    }
}

#[async_trait]
impl Store for DurableLocal {
    async fn make_durable(&self, path: &Path) -> Result<()> {
        let (file, disk) = (self.file(path)?, self.disk);
        blocking(path, move || {
            disk.sync(&file, &File::open(&file)?)?;
            disk.sync_folder_of(&file)
        })
        .await
    }

    async fn give_name(&self, from: &Path, to: &Path) -> Result<()> {
        self.copy_opts(from, to, CopyOptions::new().with_mode(CopyMode::Create)).await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        let path = self.file(folder)?;
        blocking(folder, move || match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }
}

#[async_trait]
impl ObjectStore for DurableLocal {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let overwrite = match options.mode {
            PutMode::Create => false,
            PutMode::Overwrite => true,
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "compare-and-swap".to_owned(),
                    implementer: self.to_string(),
                });
            }
        };
        let (target, disk) = (self.file(path)?, self.disk);
        blocking(path, move || {
            let temporary = Temporary::create(disk, &target)?;
            let mut at = 0;
            for chunk in &payload {
                temporary.file.write_all_at(chunk, at)?;
                at += chunk.len() as u64;
            }
            temporary.sync()?;
            temporary.take_name(&target, overwrite)
        })
        .await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn put_multipart_opts(&self, path: &Path, _options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let (target, disk) = (self.file(path)?, self.disk);
        let temporary = blocking(path, {
            let target = target.clone();
            move || Temporary::create(disk, &target)
        })
        .await?;
        Ok(Box::new(Upload { path: path.clone(), target, temporary: Some(Arc::new(temporary)), at: 0 }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        // Most looks of a driver find nothing, or ask for no more than this. It costs microseconds; handing it to another
        // thread, ten times that.
        let seen = self.look(path)?;
        match (seen, &options) {
            (Some(seen), GetOptions { head: true, range: None, .. }) if seen.is_file() => {
                let answer = head(path, &seen)?;
                options.check_preconditions(&answer.meta)?;
                Ok(answer)
            }
            _ => self.files.get_opts(path, options).await,
        }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let visible = |meta: &Result<ObjectMeta>| {
            let visible = meta.as_ref().map_or(true, |meta| !is_temporary(&meta.location));
            std::future::ready(visible)
        };
        self.files.list(prefix).filter(visible).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listed = self.files.list_with_delimiter(prefix).await?;
        listed.objects.retain(|meta| !is_temporary(&meta.location));
        Ok(listed)
    }

    /// Copies by linking: both names show one file. Its bytes never change, since every write makes a new file.
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (source, target, disk) = (self.file(from)?, self.file(to)?, self.disk);
        self.look(from)?;
        blocking(to, move || {
            disk.check()?;
            disk.make_folder_of(&target)?;
            if let CopyMode::Overwrite = options.mode {
                let temporary = temporary_name(&target);
                std::fs::hard_link(&source, &temporary)?;
                std::fs::rename(&temporary, &target)?;
            } else {
                std::fs::hard_link(&source, &target)?;
            }
            disk.sync_folder_of(&target)
        })
        .await
    }
}

/// The answer to whoever asks for a file's size and time alone.
fn head(path: &Path, seen: &Metadata) -> Result<GetResult> {
    let modified = seen.modified().map_err(|error| Error::Generic { store: "DurableLocal", source: error.into() })?;
    let (location, size) = (path.clone(), seen.len());
    let meta = ObjectMeta { location, last_modified: modified.into(), size, e_tag: None, version: None };
    let payload = GetResultPayload::Stream(futures::stream::empty().boxed());
    Ok(GetResult { payload, meta, range: 0..size, attributes: Attributes::default() })
}

/// A file that has no name yet. Dropped without one, it is removed.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    file: File,
    disk: &'static Disk,
}

impl Temporary {
    fn create(disk: &'static Disk, target: &std::path::Path) -> std::io::Result<Self> {
        disk.check()?;
        let path = temporary_name(target);
        let open = || File::options().write(true).create_new(true).open(&path);
        let file = match open() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                disk.make_folder_of(target)?;
                open()?
            }
            other => other?,
        };
        Ok(Temporary { path, file, disk })
    }

    fn sync(&self) -> std::io::Result<()> {
        self.disk.sync(&self.path, &self.file)
    }

    /// Gives the (synced) file its name. Without `overwrite` a taken name is `AlreadyExists`.
    fn take_name(&self, target: &std::path::Path, overwrite: bool) -> std::io::Result<()> {
        if overwrite {
            std::fs::rename(&self.path, target)?;
        } else {
            std::fs::hard_link(&self.path, target)?;
        }
        self.disk.sync_folder_of(target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// `.offsets-7.1234-5.tmp` beside its target: linking needs the same file system. It never ends in `.parquet`.
fn temporary_name(target: &std::path::Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    target.with_file_name(format!(".{name}.{}-{serial}.tmp", std::process::id()))
}

/// Whether a name is one of [`temporary_name`]'s, of whatever process.
fn is_temporary(path: &Path) -> bool {
    path.filename().is_some_and(|name| name.starts_with('.') && name.ends_with(".tmp"))
}

#[derive(Debug)]
struct Upload {
    path: Path,
    target: PathBuf,
    temporary: Option<Arc<Temporary>>,
    at: u64,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let start = self.at;
        self.at += data.content_length() as u64;
        let (path, temporary) = (self.path.clone(), self.temporary.clone());
        Box::pin(async move {
            let temporary = temporary.ok_or_else(|| finished(&path))?;
            blocking(&path, move || {
                let mut at = start;
                for chunk in &data {
                    temporary.file.write_all_at(chunk, at)?;
                    at += chunk.len() as u64;
                }
                // Now, while the next part is made, and not all at once at the end.
                temporary.sync()
            })
            .await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let temporary = self.temporary.take().ok_or_else(|| finished(&self.path))?;
        let target = self.target.clone();
        blocking(&self.path, move || {
            temporary.sync()?;
            temporary.take_name(&target, true)
        })
        .await?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        self.temporary = None;
        Ok(())
    }
}

fn finished(path: &Path) -> Error {
    Error::Generic { store: "DurableLocal", source: format!("the upload of {path} is over").into() }
}

/// How a file or a folder gets from the page cache to the disk. Tests put another in its place, which notes the order
/// of what happens, or fails.
trait Syncing: std::fmt::Debug + Send + Sync {
    fn sync(&self, path: &std::path::Path, file: &File) -> std::io::Result<()>;
}

/// The system's own way.
#[derive(Debug)]
struct Fsync;

impl Syncing for Fsync {
    fn sync(&self, _path: &std::path::Path, file: &File) -> std::io::Result<()> {
        file.sync_all()
    }
}

/// What makes writes durable, and remembers that it once could not.
#[derive(Debug)]
struct Disk {
    syncing: &'static dyn Syncing,
    /// Set by the first sync that fails.
    poisoned: AtomicBool,
    /// Folders that got a new folder and were not synced since, with how many they got. Whoever writes below them syncs
    /// them, whoever it was that made the new one.
    unsynced: Mutex<BTreeMap<PathBuf, u64>>,
}

impl Disk {
    const fn new(syncing: &'static dyn Syncing) -> Self {
        Disk { syncing, poisoned: AtomicBool::new(false), unsynced: Mutex::new(BTreeMap::new()) }
    }

    fn check(&self) -> std::io::Result<()> {
        match self.poisoned.load(Ordering::SeqCst) {
            true => Err(std::io::Error::other(NotDurable(None))),
            false => Ok(()),
        }
    }

    fn sync(&self, path: &std::path::Path, file: &File) -> std::io::Result<()> {
        self.check()?;
        if is_broken(Rule::Sync) {
            return Ok(());
        }
        self.syncing.sync(path, file).map_err(|error| {
            self.poisoned.store(true, Ordering::SeqCst);
            std::io::Error::other(NotDurable(Some(error)))
        })
    }

    /// Syncs what shows a file under its name: its folder, and above it what is new.
    fn sync_folder_of(&self, target: &std::path::Path) -> std::io::Result<()> {
        let Some(folder) = target.parent() else { return Ok(()) };
        self.sync(folder, &File::open(folder)?)?;
        self.sync_made(folder)
    }

    /// Syncs every folder above this one that got a new folder, from below.
    fn sync_made(&self, folder: &std::path::Path) -> std::io::Result<()> {
        for above in folder.ancestors().skip(1) {
            let Some(new) = self.unsynced().get(above).copied() else { continue };
            self.sync(above, &File::open(above)?)?;
            // Only now, so that whoever came meanwhile has synced it as well; and not if it got another one meanwhile.
            let mut unsynced = self.unsynced();
            if unsynced.get(above) == Some(&new) {
                unsynced.remove(above);
            }
        }
        Ok(())
    }

    fn unsynced(&self) -> MutexGuard<'_, BTreeMap<PathBuf, u64>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_folder_of(&self, target: &std::path::Path) -> std::io::Result<()> {
        target.parent().map_or(Ok(()), |folder| self.make_folder(folder))
    }

    /// Makes a folder with its parents. They are durable with the first file in it.
    fn make_folder(&self, folder: &std::path::Path) -> std::io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let Some(parent) = folder.parent() else { return Ok(()) };
        self.make_folder(parent)?;
        // Noted and made in one: whoever finds it finds the note, and a sync covers all that the note is about.
        let mut unsynced = self.unsynced();
        *unsynced.entry(parent.to_owned()).or_default() += 1;
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Runs file work off the async workers and gives its error the form that `object_store` uses.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let answer = tokio::task::spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?;
    answer.map_err(|source| {
        let path = path.to_string();
        match source.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound { path, source: source.into() },
            std::io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
            std::io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source: source.into() },
            std::io::ErrorKind::Other if source.get_ref().is_some_and(|inner| inner.is::<NotDurable>()) => {
                let inner = source.into_inner().expect("there is one");
                Error::Generic { store: "DurableLocal", source: inner }
            }
            _ => Error::Generic { store: "DurableLocal", source: source.into() },
        }
    })
}

#[cfg(test)]
mod tests;
