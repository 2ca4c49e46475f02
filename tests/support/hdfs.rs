//! A real HDFS, whose name node and data node can be killed.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::service::Service;

/// A running HDFS.
pub struct Hdfs(Service);

impl Hdfs {
    /// Starts one with settings of `hdfs-site.xml`.
    pub fn start(settings: &[(&str, &str)]) -> Hdfs {
        Hdfs(Service::start("hdfs", settings, &[]))
    }

    /// The one that all tests of this process share. Whoever harms it has it for himself meanwhile, and heals it.
    pub fn shared() -> MutexGuard<'static, Hdfs> {
        static SHARED: OnceLock<Mutex<Hdfs>> = OnceLock::new();
        SHARED.get_or_init(|| Mutex::new(Hdfs::start(&[]))).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `hdfs://HOST:PORT`.
    pub fn url(&self) -> &str {
        self.0.address()
    }

    /// Has a command done: `kill namenode`, `start datanode`, `admin -safemode enter`.
    pub fn ask(&mut self, command: &str) {
        self.0.ask(command);
    }
}
