//! The Parquet sink, on a local disk and over a store that fails on purpose.

mod plain_copy;
mod publish;
mod write;

use std::fs::File;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::future::BoxFuture;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;
use tidemill_core::clock::SystemClock;
use tidemill_core::store::faulty::{Fault, FaultyStore, Op};
use tidemill_core::store::{Location, Stores};
use tidemill_core::testing::sink_promises::SinkHarness;
use tidemill_core::{Clock, Context, Sink, SinkKey, sink_promises};

use super::config::{Config, Parquet};
use super::sink::ParquetSink;

/// Time that runs 200 times as fast: a store that is dead for good is given up soon.
#[derive(Debug, Default)]
struct FastClock(SystemClock);

impl Clock for FastClock {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed() * 200
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration / 200)
    }
}

/// A table in a folder of its own.
struct Table {
    folder: TempDir,
    config: Config,
}

impl Table {
    fn new() -> Self {
        Table::with(|table| table)
    }

    fn with(set: impl FnOnce(Parquet) -> Parquet) -> Self {
        // In memory where there is such a folder: what the disk makes of a sync is not what is tested.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let config = set(Parquet::table(folder.path().display().to_string())).into_config();
        Table { folder, config }
    }

    fn root(&self) -> &FsPath {
        self.folder.path()
    }

    fn location(&self) -> Location {
        Stores::default().open(&self.config.path).unwrap()
    }

    fn open(&self) -> ParquetSink {
        self.over(self.location())
    }

    fn over(&self, location: Location) -> ParquetSink {
        ParquetSink::over(self.config.clone(), location, &Context::default()).unwrap()
    }

    /// A sink whose store will die: it need not be waited for.
    fn doomed(&self, location: Location) -> ParquetSink {
        let context = Context { clock: Arc::new(FastClock::default()), ..Context::default() };
        ParquetSink::over(self.config.clone(), location, &context).unwrap()
    }

    /// The sink over a store that follows a script.
    fn scripted(&self, script: impl Fn(&Op) -> Fault + Send + Sync + 'static) -> (ParquetSink, Arc<FaultyStore>) {
        let location = self.location();
        let store = FaultyStore::new(Arc::clone(&location.store), script);
        (self.over(Location::new(store.clone(), location.url)), store)
    }

    /// The sink over a store that follows a script in which it dies.
    fn scripted_to_die(
        &self,
        script: impl Fn(&Op) -> Fault + Send + Sync + 'static,
    ) -> (ParquetSink, Arc<FaultyStore>) {
        let location = self.location();
        let store = FaultyStore::new(Arc::clone(&location.store), script);
        (self.doomed(Location::new(store.clone(), location.url)), store)
    }

    /// Every file under the root, hidden ones too.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        walk(self.root(), &mut files);
        files.sort();
        files
    }

    /// What `**/*.parquet` matches, as paths below the root.
    fn parquet_files(&self) -> Vec<String> {
        let files = self.files().into_iter();
        let names = files.map(|file| file.strip_prefix(self.root()).unwrap().display().to_string());
        names.filter(|name| name.ends_with(".parquet")).collect()
    }

    /// Rows of one file.
    fn read(&self, name: &str) -> Vec<RecordBatch> {
        let file = File::open(self.root().join(name)).unwrap();
        ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
    }

    /// What a folder of this sink holds.
    fn own_folder(&self, key: &SinkKey, name: &str) -> PathBuf {
        self.root().join("_tidemill").join(key.query_id.as_str()).join(&key.sink).join(name)
    }
}

fn walk(folder: &FsPath, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            _ => files.push(entry.path()),
        }
    }
}

#[async_trait]
impl SinkHarness for Table {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.open())
    }

    fn faulty(&self, at: u64, fault: Fault) -> Option<(Arc<dyn Sink>, Arc<FaultyStore>)> {
        let script = move |op: &Op| if op.number == at { fault } else { Fault::None };
        let (sink, store) = match fault {
            Fault::DiesBefore | Fault::DiesAfter => self.scripted_to_die(script),
            _ => self.scripted(script),
        };
        Some((Arc::new(sink), store))
    }

    async fn visible(&self) -> Vec<RecordBatch> {
        self.parquet_files().iter().flat_map(|name| self.read(name)).collect()
    }

    async fn staged(&self) -> usize {
        self.files().iter().filter(|file| file.components().any(|part| part.as_os_str() == "staging")).count()
    }
}

sink_promises!(Table::new());
