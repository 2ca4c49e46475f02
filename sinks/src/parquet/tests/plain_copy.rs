//! A store without folders that cannot copy without overwriting, as S3 is: it keeps the same promises.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_core::store::faulty::{Fault, FaultyStore, Op};
use tidemill_core::store::{Location, Store};
use tidemill_core::testing::sink_promises::SinkHarness;
use tidemill_core::{Sink, sink_promises};

use super::Table;

#[derive(Debug, Default)]
struct PlainCopy(InMemory);

impl std::fmt::Display for PlainCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlainCopy")
    }
}

#[async_trait]
impl Store for PlainCopy {}

#[async_trait]
impl ObjectStore for PlainCopy {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        match options.mode {
            CopyMode::Overwrite => self.0.copy_opts(from, to, options).await,
            CopyMode::Create => Err(Error::NotImplemented {
                operation: "copy without overwriting".to_owned(),
                implementer: self.to_string(),
            }),
        }
    }
}

struct Bucket {
    store: Arc<PlainCopy>,
    table: Table,
}

impl Bucket {
    fn new() -> Self {
        Bucket { store: Arc::default(), table: Table::new() }
    }

    async fn names(&self) -> Vec<Path> {
        let listed: Vec<ObjectMeta> = self.store.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|meta| meta.location).collect()
    }
}

#[async_trait]
impl SinkHarness for Bucket {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.table.over(Location::new(self.store.clone(), "bucket")))
    }

    fn faulty(&self, at: u64, fault: Fault) -> Option<(Arc<dyn Sink>, Arc<FaultyStore>)> {
        let script = move |op: &Op| if op.number == at { fault } else { Fault::None };
        let store = FaultyStore::new(self.store.clone(), script);
        let location = Location::new(store.clone(), "bucket");
        let sink = match fault {
            Fault::DiesBefore | Fault::DiesAfter => self.table.doomed(location),
            _ => self.table.over(location),
        };
        Some((Arc::new(sink), store))
    }

    async fn visible(&self) -> Vec<RecordBatch> {
        let mut rows = Vec::new();
        for name in self.names().await.into_iter().filter(|name| name.as_ref().ends_with(".parquet")) {
            let file = self.store.get(&name).await.unwrap().bytes().await.unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
            rows.extend(reader.map(|rows| rows.unwrap()));
        }
        rows
    }

    async fn staged(&self) -> usize {
        self.names().await.iter().filter(|name| name.as_ref().contains("/staging/")).count()
    }
}

sink_promises!(Bucket::new());
