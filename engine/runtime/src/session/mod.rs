//! The session: what a program opens first. It knows the formats, the views and the limits of memory, and makes frames.
//!
//! * `builder`: [`Session::with_registry`]; `memory`: how much memory is allowed when nobody says
//! * `reader`: from sources to streaming frames
//! * `views`: static rows, temporary views, SQL

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionState;
use tidemill_core::store::doctor::{Examination, examine};
use tidemill_core::{Context, Registry, Result};

use crate::dataflow::Engine;

mod builder;
mod memory;
mod reader;
mod views;

#[cfg(test)]
mod tests;

pub use builder::SessionBuilder;
pub use reader::{DataFrameReader, DataStreamReader, StreamLoad};

/// A session. Clones are handles of the same one.
///
/// ```
/// use tidemill_core::Registry;
/// use tidemill_runtime::session::Session;
///
/// # fn main() -> tidemill_core::Result<()> {
/// let session = Session::with_registry(Registry::new()).parallelism(2).memory_budget(256 << 20).build()?;
/// assert_eq!(session.parallelism(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Plans and runs; every query of the session shares it.
    engine: Arc<Engine>,
    /// What names and SQL are resolved with. Views are registered in it; copies of it see them.
    state: SessionState,
    registry: Arc<Registry>,
    context: Context,
    settings: Settings,
}

/// What the builder was told, with the gaps filled.
#[derive(Clone, Copy, Debug)]
struct Settings {
    memory_budget: usize,
    parallelism: usize,
    log_to_stderr: bool,
    retry_start: Duration,
    retry_running: Duration,
}

impl Session {
    /// Begins a session that knows the formats of this registry, and no others.
    pub fn with_registry(registry: Registry) -> SessionBuilder {
        SessionBuilder::new(registry)
    }

    /// The formats that this session knows.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// What sources and sinks are built with: time, randomness and secrets.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Tries out whether a location can hold checkpoints: races for names on it, a few hundred small writes in a folder
    /// that is removed again. A query does the short form of it when it first starts on a checkpoint.
    ///
    /// # Errors
    ///
    /// [`code::STORE_UNFIT`](tidemill_core::code::STORE_UNFIT) if two writers of one name both win, or if the store loses
    /// or does not show what it acknowledged.
    pub async fn examine(&self, location: impl AsRef<str>) -> Result<Examination> {
        let context = self.context();
        let location = context.stores.open(location.as_ref())?;
        examine(&location, &*context.clock, &*context.rng).await
    }

    /// Bytes that the queries of this session may use together.
    pub fn memory_budget(&self) -> usize {
        self.0.settings.memory_budget
    }

    /// How many tasks of a batch run at once.
    pub fn parallelism(&self) -> usize {
        self.0.settings.parallelism
    }

    /// For how long a passing fault is tried again while a query starts.
    pub fn retry_start(&self) -> Duration {
        self.0.settings.retry_start
    }

    /// For how long a passing fault is tried again while a query runs.
    pub fn retry_running(&self) -> Duration {
        self.0.settings.retry_running
    }

    /// Whether queries write their start line, and one line a batch, to standard error.
    pub fn logs_to_stderr(&self) -> bool {
        self.0.settings.log_to_stderr
    }

    /// What plans and runs the batches of this session.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// What names, types and SQL are resolved with.
    pub(crate) fn state(&self) -> &SessionState {
        &self.0.state
    }

    /// Whether both are handles of one session.
    pub(crate) fn is_same(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
