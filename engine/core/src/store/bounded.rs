//! A store every call of which ends within a bound.
//!
//! Clients of stores elsewhere have bounds of their own, or none: HDFS's waits for ever for a name node that takes the
//! connection and says nothing. A call that is given up may still take effect, like every call whose answer is lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use super::Store;
use crate::clock::Clock;

/// How long one call, or the next piece of a long answer, is waited for. Clients that try again by themselves need
/// half of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store with a bound on every call.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Display for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Bounded {
    pub(super) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Bounded { inner, clock }
    }

    /// Every piece of a stream within the bound; the first that is late ends it.
    fn pieces<T: Send + 'static>(&self, inner: BoxStream<'static, Result<T>>) -> BoxStream<'static, Result<T>> {
        let state = Some((inner, Arc::clone(&self.clock)));
        futures::stream::unfold(state, |state| async move {
            let (mut inner, clock) = state?;
            match within(&*clock, async { Ok(inner.next().await) }).await {
                Ok(None) => None,
                Ok(Some(piece)) => Some((piece, Some((inner, clock)))),
                Err(late) => Some((Err(late), None)),
            }
        })
        // Whoever collects an empty body asks once more after its end.
        .fuse()
        .boxed()
    }
}

async fn within<T>(clock: &dyn Clock, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
    tokio::select! {
        biased;
        answer = call => answer,
        () = clock.sleep(PATIENCE) => Err(Error::Generic {
            store: "Bounded",
            source: format!("no answer within {} s", PATIENCE.as_secs()).into(),
        }),
    }
}

#[async_trait]
impl Store for Bounded {
    async fn make_durable(&self, path: &Path) -> Result<()> {
        within(&*self.clock, self.inner.make_durable(path)).await
    }

    async fn give_name(&self, from: &Path, to: &Path) -> Result<()> {
        within(&*self.clock, self.inner.give_name(from, to)).await
    }

    async fn remove_folder(&self, folder: &Path) -> Result<()> {
        within(&*self.clock, self.inner.remove_folder(folder)).await
    }
}

#[async_trait]
impl ObjectStore for Bounded {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        within(&*self.clock, self.inner.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let inner = within(&*self.clock, self.inner.put_multipart_opts(path, options)).await?;
        Ok(Box::new(BoundedUpload { inner, clock: Arc::clone(&self.clock) }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let mut answer = within(&*self.clock, self.inner.get_opts(path, options)).await?;
        if let GetResultPayload::Stream(body) = answer.payload {
            let body: BoxStream<'static, Result<Bytes>> = body;
            answer.payload = GetResultPayload::Stream(self.pieces(body));
        }
        Ok(answer)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        paths
            .then(move |path| {
                let this = this.clone();
                async move {
                    let path = path?;
                    within(&*this.clock, this.inner.delete(&path)).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.pieces(self.inner.list(prefix))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        within(&*self.clock, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        within(&*self.clock, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        within(&*self.clock, self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct BoundedUpload {
    inner: Box<dyn MultipartUpload>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl MultipartUpload for BoundedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, clock) = (self.inner.put_part(data), Arc::clone(&self.clock));
        Box::pin(async move { within(&*clock, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        within(&*self.clock, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        within(&*self.clock, self.inner.abort()).await
    }
}
