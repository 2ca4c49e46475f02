//! The task's side of sources and sinks, built from specs and kept from batch to batch.
//!
//! Kept, because a client is dear: a Kafka reader pools consumers that go on fetching between two batches. The key is
//! the spec's JSON, so two queries with equal specs share a client, as two tasks of one query do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::error::{Error, Result, code};
use tidemill_core::registry::{Context, Registry};
use tidemill_core::sink::{Sink, SinkSpec};
use tidemill_core::source::{SourceReader, SourceSpec};

/// Readers and sinks by their specs.
#[derive(Debug)]
pub struct Clients {
    registry: Arc<Registry>,
    context: Context,
    readers: Mutex<HashMap<String, Arc<dyn SourceReader>>>,
    sinks: Mutex<HashMap<String, Arc<dyn Sink>>>,
}

impl Clients {
    /// No clients yet. They are built with `registry` and `context` as tasks ask for them.
    pub fn new(registry: Arc<Registry>, context: Context) -> Self {
        Clients { registry, context, readers: Mutex::default(), sinks: Mutex::default() }
    }

    /// What clients are built with.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The reader of this spec.
    pub fn reader(&self, spec: &SourceSpec) -> Result<Arc<dyn SourceReader>> {
        kept(&self.readers, spec, || self.new_reader(spec))
    }

    /// A reader of its own, which is not kept here.
    pub fn new_reader(&self, spec: &SourceSpec) -> Result<Arc<dyn SourceReader>> {
        self.registry.source(&spec.format)?.reader(spec, &self.context)
    }

    /// The sink of this spec.
    pub fn sink(&self, spec: &SinkSpec) -> Result<Arc<dyn Sink>> {
        kept(&self.sinks, spec, || self.registry.sink(&spec.format)?.sink(spec, &self.context))
    }

    /// Lets go of a reader: with the query that read through it, its connections end.
    pub fn release_reader(&self, spec: &SourceSpec) {
        if let Ok(key) = serde_json::to_string(spec) {
            self.readers.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }

    /// Lets go of a sink.
    pub fn release_sink(&self, spec: &SinkSpec) {
        if let Ok(key) = serde_json::to_string(spec) {
            self.sinks.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }
}

fn kept<T: ?Sized>(
    clients: &Mutex<HashMap<String, Arc<T>>>,
    spec: &impl serde::Serialize,
    build: impl FnOnce() -> Result<Arc<T>>,
) -> Result<Arc<T>> {
    let key = serde_json::to_string(spec)
        .map_err(|error| Error::new(code::BUG, "a spec cannot be written down").because(error))?;
    // Built under the lock: two tasks that ask at once get the same client. Building opens no connection.
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.get(&key) {
        return Ok(Arc::clone(client));
    }
    let client = build()?;
    clients.insert(key, Arc::clone(&client));
    Ok(client)
}
