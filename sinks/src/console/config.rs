//! How the console shows rows: options in string form, the typed builder, and where the text goes.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::registry::SinkFormat;
use tidemill_core::{Context, Error, Options, Result, Sink, SinkBuilder, SinkSpec, code};

use super::sink::ConsoleSink;

/// The registered name.
pub(super) const FORMAT: &str = "console";

/// Where the text goes. Tests put a `Vec<u8>` here.
pub type Output = Arc<Mutex<dyn Write + Send>>;

/// How long a cell may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truncate {
    /// Cells are cut to so many characters, and stand to the right.
    At(usize),
    /// Cells are shown whole, and stand to the left.
    Never,
}

impl Truncate {
    fn from_option(text: &str) -> Option<Self> {
        match text.trim().to_lowercase().as_str() {
            "true" => Some(Truncate::At(20)),
            "false" | "0" => Some(Truncate::Never),
            number => number.parse().ok().map(Truncate::At),
        }
    }
}

/// The spec's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Config {
    /// Rows shown of a batch.
    pub rows: usize,
    pub truncate: Truncate,
    /// The name of an output of this process; none for standard output.
    pub output: Option<String>,
}

/// The console, as a sink.
///
/// ```
/// use tidemill_sinks::Console;
/// use tidemill_sinks::console::Truncate;
///
/// let console = Console::new().rows(5).truncate(Truncate::Never);
/// ```
#[derive(Clone)]
pub struct Console {
    config: Config,
    output: Option<Output>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Console({:?})", self.config)
    }
}

impl Default for Console {
    fn default() -> Self {
        Console::new()
    }
}

impl Console {
    /// Shows 20 rows of each batch on standard output, cells cut to 20 characters.
    pub fn new() -> Self {
        Console { config: Config { rows: 20, truncate: Truncate::At(20), output: None }, output: None }
    }

    /// Shows so many rows of each batch.
    #[must_use]
    pub fn rows(mut self, rows: usize) -> Self {
        self.config.rows = rows;
        self
    }

    /// Cuts cells in this way.
    #[must_use]
    pub fn truncate(mut self, truncate: Truncate) -> Self {
        self.config.truncate = truncate;
        self
    }

    /// Writes to `output` instead of standard output.
    #[must_use]
    pub fn to(mut self, output: Output) -> Self {
        self.output = Some(output);
        self
    }

    fn from_options(mut options: Options) -> Result<Self> {
        let mut console = Console::new();
        if let Some(rows) = options.parse("numRows", "a whole number")? {
            console = console.rows(rows);
        }
        if let Some(truncate) =
            options.parse_with("truncate", "true, false or a number of characters", Truncate::from_option)?
        {
            console = console.truncate(truncate);
        }
        options.finish(FORMAT)?;
        Ok(console)
    }
}

impl SinkBuilder for Console {
    fn build(mut self, _context: &Context) -> Result<Arc<dyn Sink>> {
        if let Some(output) = &self.output {
            self.config.output = Some(outputs::name(output));
        }
        Ok(Arc::new(ConsoleSink::new(self.config, self.output)?))
    }
}

/// Outputs by name, so that a sink built from its spec in this process finds the same one. An output lives as long as
/// somebody else holds it.
mod outputs {
    use super::{Arc, BTreeMap, Mutex, Output, PoisonError, Weak, Write};

    type Outputs = BTreeMap<String, Weak<Mutex<dyn Write + Send>>>;

    static OUTPUTS: Mutex<Outputs> = Mutex::new(BTreeMap::new());

    pub(super) fn name(output: &Output) -> String {
        // The address is unique among the outputs that live.
        let name = format!("output@{:x}", Arc::as_ptr(output).cast::<()>() as usize);
        let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.retain(|_, output| output.strong_count() > 0);
        outputs.insert(name.clone(), Arc::downgrade(output));
        name
    }

    pub(super) fn find(name: &str) -> Option<Output> {
        OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner).get(name).and_then(Weak::upgrade)
    }
}

/// The format `console`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConsoleFormat;

#[async_trait]
impl SinkFormat for ConsoleFormat {
    fn name(&self) -> &'static str {
        FORMAT
    }

    async fn open(&self, options: Options, partition_by: Vec<String>, context: &Context) -> Result<Arc<dyn Sink>> {
        if !partition_by.is_empty() {
            return Err(Error::new(code::INVALID_OPTION, "the console has no partitions").fix("leave partition_by out"));
        }
        Console::from_options(options)?.build(context)
    }

    fn sink(&self, spec: &SinkSpec, _context: &Context) -> Result<Arc<dyn Sink>> {
        let config: Config = serde_json::from_value(spec.config.clone())
            .map_err(|error| Error::new(code::BUG, "the spec of a console sink cannot be read").because(error))?;
        let output = match &config.output {
            None => None,
            Some(name) => Some(outputs::find(name).ok_or_else(|| {
                Error::new(code::USAGE, "the console's output belongs to another process, or is gone")
            })?),
        };
        Ok(Arc::new(ConsoleSink::new(config, output)?))
    }
}
