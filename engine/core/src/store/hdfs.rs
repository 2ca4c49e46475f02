//! Hadoop's file system.
//!
//! A file is written under a hidden name and then renamed without overwriting, which the name node does for exactly one
//! of several writers. What the data nodes acknowledge is in their memory on every replica; `dfs.datanode.synconclose`
//! puts it on their disks.
//!
//! The client asks the name node *once* whether a file's last block was reported and, if it was not yet, sleeps half a
//! second. Data nodes report within milliseconds, so half of all small files took 520 ms instead of 20. [`Hdfs::close`]
//! goes round it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use hdfs_native::file::FileWriter;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use hdfs_native_object_store::HdfsObjectStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, RenameTargetMode, Result,
};

use super::open::Remote;
use super::{SAFE_MODE, Store};
use crate::clock::Clock;
use crate::error::{self, code};
use crate::secret::Secret;

/// How long a question may take to be answered, beside ten times what another one took just now.
const ANSWER: Duration = Duration::from_millis(20);

/// Opens a folder of a name node or name service.
pub(super) fn open(
    remote: &Remote<'_>,
    options: &[(&str, &Secret)],
    clock: Arc<dyn Clock>,
) -> error::Result<Arc<dyn Store>> {
    let refused = |cause: HdfsError| {
        error::Error::new(code::INVALID_OPTION, "the name node cannot be set up")
            .because(cause)
            .fix("name it as hdfs://HOST:PORT/folder, or set HADOOP_CONF_DIR and use the name service")
    };
    let options = options.iter().map(|(name, value)| (*name, value.expose()));
    let url = format!("hdfs://{}", remote.host);
    let client = ClientBuilder::new().with_url(url).with_config(options).build().map_err(refused)?;
    let files = PrefixStore::new(HdfsObjectStore::new(client.clone()), remote.prefix.clone());
    Ok(Arc::new(Hdfs { client, files: Arc::new(files), root: remote.prefix.clone(), url: remote.url(), clock }))
}

/// A folder of HDFS.
#[derive(Clone)]
struct Hdfs {
    client: Client,
    files: Arc<PrefixStore<HdfsObjectStore>>,
    root: Path,
    url: String,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Hdfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hdfs({})", self.url)
    }
}

impl std::fmt::Display for Hdfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

impl Hdfs {
    /// The name node's name of an object.
    fn absolute(&self, path: &Path) -> String {
        let whole: Path = self.root.parts().chain(path.parts()).collect();
        format!("/{whole}")
    }

    /// Writes a file under a name that nobody else uses.
    async fn write(&self, name: &str, payload: PutPayload) -> hdfs_native::Result<()> {
        let bytes = payload.content_length();
        let mut file = self.client.create(name, WriteOptions::default()).await?;
        for piece in payload {
            file.write(piece).await?;
        }
        self.close(file, name, bytes).await
    }

    /// Ends a file. The client's own call sends what is left, tells the name node the block's length (from then on the
    /// file is seen to have it) and asks whether the block was reported; then it sleeps. Here the sleep is cut short and
    /// the question asked again. To ask twice is no harm; a question that is cut off may have closed the file, and then
    /// the name node says so to the next one.
    async fn close(&self, mut file: FileWriter, name: &str, bytes: usize) -> hdfs_native::Result<()> {
        if bytes == 0 {
            return file.close().await;
        }
        let mut patience = match self.close_until_told(&mut file, name, bytes).await {
            Ok(done) => return done,
            Err(patience) => patience,
        };
        loop {
            tokio::select! {
                biased;
                done = file.close() => return match done {
                    // The question that was cut off had closed it.
                    Err(error) if says_closed(&error) && self.has_length(name, bytes).await => Ok(()),
                    done => done,
                },
                () = self.clock.sleep(patience) => patience *= 2,
            }
        }
    }

    async fn has_length(&self, name: &str, bytes: usize) -> bool {
        self.client.get_file_info(name).await.is_ok_and(|status| status.length == bytes)
    }

    /// Ends a file, or gives up when the name node knows its length and must have answered by now: then tells how long
    /// an answer may take.
    async fn close_until_told(
        &self,
        file: &mut FileWriter,
        name: &str,
        bytes: usize,
    ) -> std::result::Result<hdfs_native::Result<()>, Duration> {
        let close = file.close();
        tokio::pin!(close);
        let told = async {
            loop {
                self.clock.sleep(Duration::from_millis(3)).await;
                let asked = self.clock.elapsed();
                let status = self.client.get_file_info(name).await;
                let patience = ANSWER + 10 * self.clock.elapsed().saturating_sub(asked);
                if status.is_ok_and(|status| status.length == bytes) {
                    self.clock.sleep(patience).await;
                    return patience;
                }
            }
        };
        tokio::select! {
            biased;
            done = &mut close => Ok(done),
            patience = told => Err(patience),
        }
    }
}

/// Whether the name node refused to close a file because it is closed.
fn says_closed(error: &HdfsError) -> bool {
    matches!(error, HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text)
        if class.ends_with(".LeaseExpiredException") && text.contains("is not open for writing"))
}

/// A hidden name beside the one that a file will have.
fn temporary_name(name: &str) -> String {
    let (folder, name) = name.rsplit_once('/').unwrap_or_default();
    format!("{folder}/.{name}.{}.tmp", uuid::Uuid::new_v4().simple())
}

/// Whether a name is one of [`temporary_name`]'s, or of the library's own (`.name.tmp.1`).
fn is_temporary(path: &Path) -> bool {
    path.filename().is_some_and(|name| name.starts_with('.') && (name.ends_with(".tmp") || name.contains(".tmp.")))
}

/// The error in the terms of an object store, told apart by what a person must do.
fn store_error(name: &str, cause: HdfsError) -> Error {
    let path = name.to_owned();
    match &cause {
        HdfsError::FileNotFound(_) => Error::NotFound { path, source: cause.into() },
        HdfsError::AlreadyExists(_) => Error::AlreadyExists { path, source: cause.into() },
        _ => tell_apart(path, Box::new(cause)),
    }
}

/// What follows the first line of an answer is the name node's own stack.
fn without_stack(error: HdfsError) -> HdfsError {
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match error {
        HdfsError::RPCError(class, text) => HdfsError::RPCError(class, first_line(&text)),
        HdfsError::FatalRPCError(class, text) => HdfsError::FatalRPCError(class, first_line(&text)),
        other => other,
    }
}

/// Permission, quota and safe mode from an error that the library wrapped or not; all else may pass.
fn tell_apart(path: String, cause: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let cause: Box<dyn std::error::Error + Send + Sync> = match cause.downcast::<HdfsError>() {
        Ok(error) => Box::new(without_stack(*error)),
        Err(other) => other,
    };
    let (class, text) = match cause.downcast_ref::<HdfsError>() {
        Some(HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text)) => (class.clone(), text.clone()),
        _ => Default::default(),
    };
    if class.ends_with(".AccessControlException") {
        Error::PermissionDenied { path, source: cause }
    } else if class.ends_with("QuotaExceededException") {
        let cause = std::io::Error::new(std::io::ErrorKind::QuotaExceeded, cause);
        Error::Generic { store: "Hdfs", source: cause.into() }
    } else if class.ends_with(".InvalidPathException")
        || class.contains(".FSLimitException")
        || class.ends_with(".ParentNotDirectoryException")
    {
        // A name that it never takes: nothing was written, and nothing will be.
        Error::NotSupported { source: cause }
    } else if class.ends_with(".SafeModeException") || text.contains("in safe mode") {
        let cause = std::io::Error::new(SAFE_MODE, cause);
        Error::Generic { store: "Hdfs", source: cause.into() }
    } else {
        Error::Generic { store: "Hdfs", source: cause }
    }
}

/// An error that came through the library's own object store.
fn told_apart(path: &Path, error: Error) -> Error {
    match error {
        Error::Generic { source, .. } => tell_apart(path.to_string(), source),
        other => other,
    }
}

#[async_trait]
impl Store for Hdfs {
    async fn give_name(&self, from: &Path, to: &Path) -> Result<()> {
        let options = RenameOptions::new().with_target_mode(RenameTargetMode::Create);
        self.files.rename_opts(from, to, options).await.map_err(|error| told_apart(to, error))
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        let name = self.absolute(folder);
        match self.client.delete(&name, true).await {
            Ok(_) | Err(HdfsError::FileNotFound(_)) => Ok(()),
            Err(error) => Err(store_error(&name, error)),
        }
    }
}

#[async_trait]
impl ObjectStore for Hdfs {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let overwrite = match options.mode {
            PutMode::Create => false,
            PutMode::Overwrite => true,
            PutMode::Update(_) => {
                let operation = "compare-and-swap".to_owned();
                return Err(Error::NotImplemented { operation, implementer: "Hdfs".to_owned() });
            }
        };
        let name = self.absolute(path);
        let temporary = temporary_name(&name);
        let written = match self.write(&temporary, payload).await {
            Ok(()) => self.client.rename(&temporary, &name, overwrite).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(error) => {
                // Best effort; if the rename took effect there is nothing of this name.
                let _ = self.client.delete(&temporary, false).await;
                Err(store_error(&name, error))
            }
        }
    }

    /// In the library's own way: a file of more than one part is large, and half a second at its end is little.
    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(path, options).await.map_err(|error| told_apart(path, error))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(path, options).await.map_err(|error| told_apart(path, error))
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        paths
            .then(move |path| {
                let this = this.clone();
                async move {
                    let path = path?;
                    let name = this.absolute(&path);
                    this.client.delete(&name, false).await.map_err(|error| store_error(&name, error))?;
                    Ok(path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.cloned().unwrap_or_default();
        let visible = |meta: &Result<ObjectMeta>| {
            let visible = meta.as_ref().map_or(true, |meta| !is_temporary(&meta.location));
            std::future::ready(visible)
        };
        let listed = self.files.list(prefix).filter(visible);
        listed.map(move |meta| meta.map_err(|error| told_apart(&folder, error))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let folder = prefix.cloned().unwrap_or_default();
        let listed = self.files.list_with_delimiter(prefix).await;
        let mut listed = listed.map_err(|error| told_apart(&folder, error))?;
        listed.objects.retain(|meta| !is_temporary(&meta.location));
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await.map_err(|error| told_apart(to, error))
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.files.rename_opts(from, to, options).await.map_err(|error| told_apart(to, error))
    }
}
