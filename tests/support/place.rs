//! Where a test keeps its checkpoint and its table: on a local disk, on S3, on HDFS.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use tidemill::store::{Location, Stores};

use super::{hdfs::Hdfs, s3::S3};

/// A place of a test's own.
pub struct Place {
    /// Where it is: what comes before `/table`.
    pub url: String,
    /// What a program needs in its environment to reach it.
    pub env: Vec<(String, String)>,
    /// Its folder, if it is local; logs of children otherwise.
    pub folder: TempDir,
}

impl Place {
    pub fn local() -> Place {
        let folder = tempfile::tempdir().unwrap();
        Place { url: folder.path().display().to_string(), env: Vec::new(), folder }
    }

    pub fn s3(s3: &S3) -> Place {
        Place { url: format!("s3://tidemill/{}", unique()), env: s3.env(), folder: tempfile::tempdir().unwrap() }
    }

    pub fn hdfs(hdfs: &Hdfs) -> Place {
        let url = format!("{}/{}", hdfs.url(), unique());
        Place { url, env: Vec::new(), folder: tempfile::tempdir().unwrap() }
    }

    /// The URL of something in it.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Opens something in it.
    pub fn open(&self, name: &str) -> Location {
        self.stores().open(&self.at(name)).unwrap()
    }

    /// What opens it.
    pub fn stores(&self) -> Stores {
        let mut stores = Stores::default();
        for (name, value) in &self.env {
            stores.set(name, value).unwrap();
        }
        stores
    }

    /// A folder with the Parquet files of a table in it: the table itself, if it is local, else a copy made now.
    pub fn copy_of(&self, table: &str) -> Copy {
        if !self.url.contains("://") {
            return Copy { folder: Path::new(&self.at(table)).to_owned(), _copied: None };
        }
        let copied = tempfile::tempdir().unwrap();
        blocking(async {
            let location = self.open(table);
            let listed: Vec<_> = location.store.list(None).try_collect().await.unwrap();
            for meta in listed.into_iter().filter(|meta| meta.location.as_ref().ends_with(".parquet")) {
                let bytes = location.store.get(&meta.location).await.unwrap().bytes().await.unwrap();
                let file = copied.path().join(meta.location.as_ref());
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, bytes).unwrap();
            }
        });
        Copy { folder: copied.path().to_owned(), _copied: Some(copied) }
    }
}

/// A table's Parquet files on the local disk.
pub struct Copy {
    pub folder: std::path::PathBuf,
    _copied: Option<TempDir>,
}

/// Runs a future to its end on a runtime of its own, from a thread that has none.
pub fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
