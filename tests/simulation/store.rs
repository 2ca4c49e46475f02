//! One driver's view of a store that all share: calls take time, arrive out of order, are lost, are applied and lost, or
//! land long after their sender gave up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tidemill::store::Store;
use tidemill_core::rules::{Rule, is_broken};

use super::World;
use super::driver::Gate;

/// How a name is given to an object.
#[derive(Clone, Copy, Debug)]
pub enum Naming {
    /// A local disk.
    Link,
    /// HDFS.
    Rename,
    /// S3.
    Copy,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Done,
    Fails,
    DoneThenFails,
    /// Done after its sender has given up, or was told that it failed.
    DoneLate,
    /// `AlreadyExists`, and nothing is done.
    Conflict,
    Hangs,
}

/// The store, as one driver reaches it.
#[derive(Clone)]
pub struct SimStore {
    world: Arc<World>,
    gate: Arc<Gate>,
    inner: Arc<InMemory>,
    name: &'static str,
}

impl std::fmt::Debug for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimStore({})", self.name)
    }
}

impl std::fmt::Display for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn failed() -> Error {
    Error::Generic { store: "SimStore", source: "injected".into() }
}

impl SimStore {
    pub fn new(world: &Arc<World>, gate: &Arc<Gate>, inner: &Arc<InMemory>, name: &'static str) -> Arc<Self> {
        Arc::new(SimStore { world: Arc::clone(world), gate: Arc::clone(gate), inner: Arc::clone(inner), name })
    }

    /// Lets a call meet its fate.
    async fn call<T: Send + 'static>(
        &self,
        what: &str,
        path: &Path,
        apply: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let world = &self.world;
        self.gate.pass().await;
        world.time.sleep(world.latency()).await;
        self.gate.pass().await;
        let fate = self.fate(what);
        let told = format!("{} {what} {}/{path}", self.gate.name, self.name);
        if fate != Fate::Done {
            world.log(format!("{told}: {fate:?}"));
        }
        let answer = match fate {
            Fate::Done => {
                let answer = apply.await;
                world.log(format!("{told}: {}", outcome(&answer)));
                answer
            }
            Fate::Fails => Err(failed()),
            Fate::DoneThenFails => apply.await.and(Err(failed())),
            Fate::Conflict => Err(Error::AlreadyExists { path: path.to_string(), source: "injected".into() }),
            Fate::DoneLate => {
                let (world, delay) = (Arc::clone(world), world.between(1_000, 120_000));
                tokio::spawn(async move {
                    world.time.sleep(delay).await;
                    let answer = apply.await;
                    world.log(format!("{told} late: {}", outcome(&answer)));
                });
                match self.world.chance(0.5) {
                    true => Err(failed()),
                    false => std::future::pending().await,
                }
            }
            Fate::Hangs => std::future::pending().await,
        };
        world.time.sleep(world.latency()).await;
        self.gate.pass().await;
        answer
    }

    fn fate(&self, what: &str) -> Fate {
        let world = &self.world;
        if world.calm.load(Ordering::Relaxed) || !world.chance(world.weather) {
            return Fate::Done;
        }
        match world.below(10) {
            0..4 => Fate::Fails,
            4..7 => Fate::DoneThenFails,
            7 if what == "create" => Fate::Conflict,
            7 | 8 => Fate::DoneLate,
            _ => Fate::Hangs,
        }
    }
}

fn outcome<T>(answer: &Result<T>) -> &'static str {
    match answer {
        Ok(_) => "ok",
        Err(Error::NotFound { .. }) => "not found",
        Err(Error::AlreadyExists { .. }) => "already there",
        Err(_) => "error",
    }
}

#[async_trait]
impl Store for SimStore {
    async fn give_name(&self, from: &Path, to: &Path) -> Result<()> {
        let (inner, naming, source, target) = (Arc::clone(&self.inner), self.world.naming, from.clone(), to.clone());
        let apply = async move {
            match naming {
                Naming::Link => inner.copy_opts(&source, &target, CopyOptions::new().with_mode(CopyMode::Create)).await,
                Naming::Rename => inner.rename_if_not_exists(&source, &target).await,
                Naming::Copy => inner.copy(&source, &target).await,
            }
        };
        self.call("name", to, Box::pin(apply)).await
    }
}

#[async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let what = if matches!(options.mode, PutMode::Create) { "create" } else { "put" };
        // A store that the first start would have refused.
        let options = match is_broken(Rule::TryStoreOut) {
            true => PutOptions { mode: PutMode::Overwrite, ..options },
            false => options,
        };
        let (inner, target) = (Arc::clone(&self.inner), path.clone());
        self.call(what, path, Box::pin(async move { inner.put_opts(&target, payload, options).await })).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let (inner, target) = (Arc::clone(&self.inner), path.clone());
        self.call("upload", path, Box::pin(async move { inner.put_multipart_opts(&target, options).await })).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let (inner, target) = (Arc::clone(&self.inner), path.clone());
        self.call("get", path, Box::pin(async move { inner.get_opts(&target, options).await })).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        paths
            .then(move |path| {
                let this = this.clone();
                async move {
                    let path = path?;
                    let (inner, target) = (Arc::clone(&this.inner), path.clone());
                    this.call("delete", &path, Box::pin(async move { inner.delete(&target).await })).await?;
                    Ok(path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (this, folder) = (self.clone(), prefix.cloned().unwrap_or_default());
        let listed = async move {
            let inner = Arc::clone(&this.inner);
            let below = folder.clone();
            let apply = async move { Ok(inner.list(Some(&below)).collect::<Vec<_>>().await) };
            match this.call("list", &folder, Box::pin(apply)).await {
                Ok(listed) => futures::stream::iter(listed),
                Err(error) => futures::stream::iter(vec![Err(error)]),
            }
        };
        futures::stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let folder = prefix.cloned().unwrap_or_default();
        let (inner, below) = (Arc::clone(&self.inner), folder.clone());
        self.call("folders", &folder, Box::pin(async move { inner.list_with_delimiter(Some(&below)).await })).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (inner, source, target) = (Arc::clone(&self.inner), from.clone(), to.clone());
        self.call("copy", to, Box::pin(async move { inner.copy_opts(&source, &target, options).await })).await
    }
}
