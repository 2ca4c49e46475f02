//! How a session is set up.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionStateBuilder;
use tidemill_core::store::Stores;
use tidemill_core::{Clock, Context, Error, Registry, Result, Rng, Secret, code};

use super::{Inner, Session, Settings, memory};
use crate::dataflow::{Engine, EngineOptions, SpoolFormat};
use crate::frame::DdlTypes;

/// Sets up a [`Session`]. Everything has a default.
#[derive(Debug)]
pub struct SessionBuilder {
    registry: Registry,
    context: Context,
    store_options: Vec<(String, Secret)>,
    #[cfg(feature = "testing")]
    mounted: Vec<(String, Arc<dyn tidemill_core::store::Store>)>,
    memory_budget: Option<usize>,
    parallelism: Option<usize>,
    log_to_stderr: bool,
    retry_start: Duration,
    retry_running: Duration,
}

impl SessionBuilder {
    pub(super) fn new(registry: Registry) -> Self {
        SessionBuilder {
            registry,
            context: Context::default(),
            store_options: Vec::new(),
            #[cfg(feature = "testing")]
            mounted: Vec::new(),
            memory_budget: None,
            parallelism: None,
            log_to_stderr: false,
            retry_start: Duration::from_secs(30),
            retry_running: Duration::from_secs(5 * 60),
        }
    }

    /// Bytes that all queries of the session may use together. The default is half of what the process may have: the
    /// limit of its control group, or the machine's memory; at least 128 MiB.
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// How many tasks of a batch run at once. The default is the number of cores that the process may use.
    #[must_use]
    pub fn parallelism(mut self, tasks: usize) -> Self {
        self.parallelism = Some(tasks);
        self
    }

    /// Writes to standard error, for every query, where it starts and what it will not read, and then one line a batch.
    #[must_use]
    pub fn log_to_stderr(mut self) -> Self {
        self.log_to_stderr = true;
        self
    }

    /// For how long a passing fault (a broker that does not answer) is tried again while a query starts: 30 s unless set.
    /// Counted from a step's first failure: how long the step itself waits (for Kafka 30 s for an answer, 60 s for rows)
    /// comes on top.
    #[must_use]
    pub fn retry_start(mut self, bound: Duration) -> Self {
        self.retry_start = bound;
        self
    }

    /// For how long a passing fault is tried again while a query runs, counted likewise: 5 minutes unless set.
    #[must_use]
    pub fn retry_running(mut self, bound: Duration) -> Self {
        self.retry_running = bound;
        self
    }

    /// Tells the stores of checkpoints and tables something that is not, or otherwise, in the environment:
    /// `aws_access_key_id`, `aws_endpoint_url` and the like, Hadoop's properties for `hdfs://`. Values are never printed
    /// and never written down.
    #[must_use]
    pub fn store_option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.store_options.push((name.into(), Secret::new(value)));
        self
    }

    /// Has this URL mean a store that a test brings.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn mount(mut self, url: impl Into<String>, store: Arc<dyn tidemill_core::store::Store>) -> Self {
        self.mounted.push((url.into(), store));
        self
    }

    /// Where time comes from, for tests that move it.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.context.clock = clock;
        self
    }

    /// Where randomness comes from, for tests that seed it.
    #[must_use]
    pub fn rng(mut self, rng: Arc<dyn Rng>) -> Self {
        self.context.rng = rng;
        self
    }

    /// Opens the session.
    pub fn build(self) -> Result<Session> {
        let mut stores = Stores::new(Arc::clone(&self.context.clock));
        for (name, value) in &self.store_options {
            stores.set(name, value.expose())?;
        }
        #[cfg(feature = "testing")]
        for (url, store) in self.mounted {
            stores.mount(url, store);
        }
        let context = Context { stores: Arc::new(stores), ..self.context };
        let settings = Settings {
            memory_budget: self.memory_budget.unwrap_or_else(memory::default_budget),
            parallelism: self.parallelism.unwrap_or_else(cores),
            log_to_stderr: self.log_to_stderr,
            retry_start: self.retry_start,
            retry_running: self.retry_running,
        };
        let positive = |name: &str, value: usize| match value {
            0 => Err(Error::new(code::INVALID_OPTION, format!("{name} is 0")).fix("it must be at least 1")),
            _ => Ok(()),
        };
        positive("memory_budget", settings.memory_budget)?;
        positive("parallelism", settings.parallelism)?;

        let registry = Arc::new(self.registry);
        let defaults = EngineOptions::default();
        let options = EngineOptions {
            parallelism: settings.parallelism,
            memory_bytes: settings.memory_budget,
            fetch_bytes: defaults.fetch_bytes.min(settings.memory_budget / 4),
            ..defaults
        };
        // Tasks find what the engine adds by itself among the formats; users are not offered it.
        let mut formats = Registry::clone(&registry);
        formats.add_sink(Arc::new(SpoolFormat { formats: Registry::clone(&registry) }));
        let engine = Engine::new(Arc::new(formats), context.clone(), options)?;
        // The engine's state with the type names of SQL added; views are in the catalogue, which both share.
        let state = SessionStateBuilder::new_from_existing(engine.state().clone());
        let state = state.with_type_planner(Arc::new(DdlTypes)).build();
        Ok(Session(Arc::new(Inner { engine: Arc::new(engine), state, registry, context, settings })))
    }
}

fn cores() -> usize {
    // A machine that does not tell has one core that we can count on.
    std::thread::available_parallelism().map_or(1, usize::from)
}
