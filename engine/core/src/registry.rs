//! Formats by name: how `format("kafka")` finds its source, and how a task turns a spec into a client.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result, code};
use crate::options::{OptionDoc, Options, nearest};
use crate::rng::{Rng, SystemRng};
use crate::secret::{Secret, TokenSource};
use crate::sink::{Sink, SinkSpec};
use crate::source::{Source, SourceReader, SourceSpec};
use crate::store::Stores;

/// What every client is built with.
#[derive(Clone, Debug)]
pub struct Context {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// The secrets that specs refer to.
    pub vault: Arc<Vault>,
    /// Where locations are opened.
    pub stores: Arc<Stores>,
}

impl Default for Context {
    fn default() -> Self {
        Context {
            clock: Arc::new(SystemClock::default()),
            rng: Arc::new(SystemRng),
            vault: Arc::default(),
            stores: Arc::default(),
        }
    }
}

/// Secrets by name. A spec carries the name, so it can be written down and sent; the value stays in this process.
#[derive(Debug, Default)]
pub struct Vault(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    secrets: BTreeMap<String, Secret>,
    tokens: BTreeMap<String, TokenSource>,
}

impl Vault {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a secret and gives the name under which a spec may refer to it.
    pub fn keep(&self, label: &str, secret: Secret) -> String {
        let secrets = &mut self.kept().secrets;
        let name = format!("{label}#{}", secrets.len());
        secrets.insert(name.clone(), secret);
        name
    }

    /// The secret of this name.
    pub fn get(&self, name: &str) -> Result<Secret> {
        self.kept().secrets.get(name).cloned().ok_or_else(|| unknown(name))
    }

    /// Keeps what gives tokens, in the same way.
    pub fn keep_tokens(&self, label: &str, source: TokenSource) -> String {
        let tokens = &mut self.kept().tokens;
        let name = format!("{label}#{}", tokens.len());
        tokens.insert(name.clone(), source);
        name
    }

    /// What gives tokens, by this name.
    pub fn tokens(&self, name: &str) -> Result<TokenSource> {
        self.kept().tokens.get(name).cloned().ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> Error {
    Error::new(code::MISSING_OPTION, format!("secret \"{name}\" is not known in this process"))
}

/// A kind of source.
#[async_trait]
pub trait SourceFormat: Send + Sync + Debug {
    /// Its name, lower case.
    fn name(&self) -> &'static str;

    /// The options that it takes, for people.
    fn options(&self) -> &'static [OptionDoc] {
        &[]
    }

    /// Builds a source from options in string form. Takes every option and ends with [`Options::finish`].
    async fn open(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>>;

    /// The same for a static read, which has an end. Most sources are streams alone.
    async fn open_static(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>> {
        let _ = (options, context);
        Err(Error::new(code::USAGE, format!("the format \"{}\" has no static reads", self.name()))
            .fix("read it as a stream, with read_stream()"))
    }

    /// Builds the task's side from a spec.
    fn reader(&self, spec: &SourceSpec, context: &Context) -> Result<Arc<dyn SourceReader>>;
}

/// A kind of sink.
#[async_trait]
pub trait SinkFormat: Send + Sync + Debug {
    /// Its name, lower case.
    fn name(&self) -> &'static str;

    /// Builds a sink from options in string form. `partition_by` comes from `partition_by(…)` of the writer. Takes every
    /// option and ends with [`Options::finish`].
    async fn open(&self, options: Options, partition_by: Vec<String>, context: &Context) -> Result<Arc<dyn Sink>>;

    /// Builds a sink from its spec, on whatever machine.
    fn sink(&self, spec: &SinkSpec, context: &Context) -> Result<Arc<dyn Sink>>;
}

/// A typed builder of a source, such as `Kafka::brokers(…)`.
#[async_trait]
pub trait SourceBuilder: Send {
    /// Builds it.
    async fn build(self, context: &Context) -> Result<Arc<dyn Source>>;

    /// Builds it for a static read, which has an end. Most sources are streams alone.
    async fn build_static(self, context: &Context) -> Result<Arc<dyn Source>>
    where
        Self: Sized,
    {
        let _ = context;
        Err(Error::new(code::USAGE, "this source has no static reads").fix("read it as a stream, with stream(…)"))
    }
}

/// A typed builder of a sink, such as `Parquet::table(…)`.
pub trait SinkBuilder: Send {
    /// Builds it.
    fn build(self, context: &Context) -> Result<Arc<dyn Sink>>;
}

/// The formats that a session knows.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    sources: BTreeMap<&'static str, Arc<dyn SourceFormat>>,
    sinks: BTreeMap<&'static str, Arc<dyn SinkFormat>>,
}

impl Registry {
    /// A registry that knows nothing.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds a kind of source.
    pub fn add_source(&mut self, format: Arc<dyn SourceFormat>) {
        self.sources.insert(format.name(), format);
    }

    /// Adds a kind of sink.
    pub fn add_sink(&mut self, format: Arc<dyn SinkFormat>) {
        self.sinks.insert(format.name(), format);
    }

    /// The kinds of source, by name.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<dyn SourceFormat>> {
        self.sources.values()
    }

    /// The kind of source of this name, in any case.
    pub fn source(&self, name: &str) -> Result<&Arc<dyn SourceFormat>> {
        find(&self.sources, name, "source")
    }

    /// The kind of sink of this name, in any case.
    pub fn sink(&self, name: &str) -> Result<&Arc<dyn SinkFormat>> {
        find(&self.sinks, name, "sink")
    }
}

fn find<'a, T>(formats: &'a BTreeMap<&'static str, T>, name: &str, what: &str) -> Result<&'a T> {
    formats.get(name.to_lowercase().as_str()).ok_or_else(|| {
        let error = Error::new(code::UNKNOWN_FORMAT, format!("no {what} has the format \"{name}\""));
        match nearest(name, formats.keys().copied()) {
            Some(known) => error.fix(format!("did you mean \"{known}\"?")),
            None => error.fix(format!("there is: {}", formats.keys().copied().collect::<Vec<_>>().join(", "))),
        }
    })
}
