//! A store that fails on purpose, for tests.
//!
//! Every operation is put to a script, which answers with a [`Fault`]. "Applied, then an error" is one of them: it is
//! the fault that naive protocols do not survive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use super::{Store, local::NotDurable};

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Write an object at once.
    Put,
    /// End an upload in parts.
    Complete,
    /// Read an object, or its size.
    Get,
    /// List objects.
    List,
    /// Delete an object.
    Delete,
    /// Copy (or, on a local disk, link) an object.
    Copy,
    /// Make another's object durable.
    MakeDurable,
}

/// One operation, as the script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What is asked.
    pub kind: OpKind,
    /// Of which object (the target of a copy; the prefix of a list).
    pub path: Path,
    /// The number of the operation on this store, from 0.
    pub number: u64,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It works.
    None,
    /// Nothing is done, and an error that may pass comes back.
    Fails,
    /// It is done, and an error comes back all the same.
    AppliedThenFails,
    /// Nothing is done, and `AlreadyExists` comes back, as S3 answers 409.
    Conflict,
    /// It is done as if a name that must not be taken could be taken: a store that ignores conditions.
    Unconditional,
    /// It is done, but cannot be made durable.
    NotDurable,
    /// Nothing is done, and no answer ever comes.
    Hangs,
    /// It is done later, by [`FaultyStore::land`]; until then no answer comes.
    InFlight,
    /// The process dies before the operation: every later one fails.
    DiesBefore,
    /// The process dies right after the operation was done.
    DiesAfter,
}

type Script = dyn Fn(&Op) -> Fault + Send + Sync;

/// A store with a script of faults in front.
pub struct FaultyStore {
    /// For streams that outlive the call.
    this: Weak<FaultyStore>,
    inner: Arc<dyn Store>,
    script: Box<Script>,
    dead: AtomicBool,
    count: AtomicU64,
    log: Mutex<Vec<Op>>,
    in_flight: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({:?})", self.inner)
    }
}

impl std::fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

impl FaultyStore {
    /// Puts a script in front of a store.
    pub fn new(inner: Arc<dyn Store>, script: impl Fn(&Op) -> Fault + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|this| FaultyStore {
            this: Weak::clone(this),
            inner,
            script: Box::new(script),
            dead: AtomicBool::new(false),
            count: AtomicU64::new(0),
            log: Mutex::default(),
            in_flight: Mutex::default(),
        })
    }

    /// Every operation so far, in order.
    pub fn log(&self) -> Vec<Op> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the script let the process die.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Lets every write that is in flight land now, in order; a name that was taken meanwhile stays as it is.
    pub async fn land(&self) {
        let writes = std::mem::take(&mut *self.in_flight.lock().unwrap_or_else(PoisonError::into_inner));
        for (path, payload, options) in writes {
            let _ = self.inner.put_opts(&path, payload, options).await;
        }
    }

    fn ask(&self, kind: OpKind, path: &Path) -> Result<Fault> {
        if self.is_dead() {
            return Err(failed("the process is dead"));
        }
        let op = Op { kind, path: path.clone(), number: self.count.fetch_add(1, Ordering::SeqCst) };
        let fault = (self.script)(&op);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(op);
        Ok(fault)
    }

    /// Asks the script, then applies its fault around an operation.
    async fn change<T>(&self, kind: OpKind, path: &Path, apply: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fault = self.ask(kind, path)?;
        self.apply(fault, path, apply).await
    }

    async fn apply<T>(&self, fault: Fault, path: &Path, apply: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match fault {
            Fault::None | Fault::Unconditional => apply.await,
            Fault::Fails => Err(failed("injected")),
            Fault::AppliedThenFails => apply.await.and(Err(failed("injected after the operation was applied"))),
            Fault::Conflict => Err(Error::AlreadyExists { path: path.to_string(), source: "injected 409".into() }),
            Fault::NotDurable => apply.await.and(Err(NotDurable::injected())),
            Fault::Hangs | Fault::InFlight => std::future::pending().await,
            Fault::DiesBefore => {
                self.dead.store(true, Ordering::SeqCst);
                Err(failed("the process died"))
            }
            Fault::DiesAfter => {
                let _ = apply.await;
                self.dead.store(true, Ordering::SeqCst);
                Err(failed("the process died"))
            }
        }
    }
}

fn failed(text: &'static str) -> Error {
    Error::Generic { store: "FaultyStore", source: text.into() }
}

#[async_trait]
impl Store for FaultyStore {
    async fn make_durable(&self, path: &Path) -> Result<()> {
        self.change(OpKind::MakeDurable, path, self.inner.make_durable(path)).await
    }

    async fn give_name(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(OpKind::Copy, to, self.inner.give_name(from, to)).await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.change(OpKind::Delete, folder, self.inner.remove_folder(folder)).await
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fault = self.ask(OpKind::Put, path)?;
        let options = match fault {
            Fault::Unconditional => PutOptions { mode: PutMode::Overwrite, ..options },
            _ => options,
        };
        if fault == Fault::InFlight {
            let write = (path.clone(), payload, options);
            self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).push(write);
            return std::future::pending().await;
        }
        self.apply(fault, path, self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        if self.is_dead() {
            return Err(failed("the process is dead"));
        }
        let inner = self.inner.put_multipart_opts(path, options).await?;
        let fault = self.ask(OpKind::Complete, path)?;
        Ok(Box::new(FaultyUpload { inner, fault }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.change(OpKind::Get, path, self.inner.get_opts(path, options)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let Some(this) = self.this.upgrade() else { return paths };
        paths
            .then(move |path| {
                let this = Arc::clone(&this);
                async move {
                    let path = path?;
                    this.change(OpKind::Delete, &path, this.inner.delete(&path)).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.ask(OpKind::List, prefix.unwrap_or(&Path::default())) {
            Ok(Fault::None) => self.inner.list(prefix),
            _ => futures::stream::iter([Err(failed("injected"))]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.change(OpKind::List, &path, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.change(OpKind::Copy, to, self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fault: Fault,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        match self.fault {
            Fault::None | Fault::Unconditional => self.inner.complete().await,
            Fault::AppliedThenFails | Fault::DiesAfter => {
                self.inner.complete().await.and(Err(failed("injected after the operation was applied")))
            }
            Fault::NotDurable => self.inner.complete().await.and(Err(NotDurable::injected())),
            _ => Err(failed("injected")),
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
