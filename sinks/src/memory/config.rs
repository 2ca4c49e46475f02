//! Which table rows go to: the option `queryName`, or a typed handle that can read them back.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::registry::SinkFormat;
use tidemill_core::{BatchId, Context, Error, Options, Result, Sink, SinkBuilder, SinkSpec, code};

use super::sink::MemoryTableSink;
use super::table::{self, Table};

/// The registered name.
pub(super) const FORMAT: &str = "memory";

/// The spec's settings.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Config {
    /// The table, in this process.
    pub table: String,
}

/// A table in memory: a sink, and the handle that reads it back. Clones share the table.
///
/// ```
/// use tidemill_sinks::MemorySink;
///
/// let table = MemorySink::new();
/// let sink = table.clone(); // give this one to a query
/// assert!(table.rows().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct MemorySink(Arc<Table>);

impl Default for MemorySink {
    fn default() -> Self {
        MemorySink::new()
    }
}

impl MemorySink {
    /// A table of its own, which goes with its last handle.
    pub fn new() -> Self {
        MemorySink(table::unnamed())
    }

    /// The table of this name, which stays as long as the process: the one that the option `queryName` names.
    pub fn named(name: &str) -> Self {
        MemorySink(table::named(name))
    }

    /// The table's name in this process.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// All visible rows, batch by batch as they were published.
    pub fn rows(&self) -> Vec<RecordBatch> {
        self.batches().into_iter().flat_map(|(_, rows)| rows).collect()
    }

    /// The visible batches as they were published, each with its number. Batches without rows are among them.
    pub fn batches(&self) -> Vec<(BatchId, Vec<RecordBatch>)> {
        let contents = self.0.lock();
        let order = contents.order.iter();
        order.filter_map(|key| Some((key.1, contents.visible.get(key)?.rows.clone()))).collect()
    }

    /// How many tasks' rows wait, written and not published.
    pub fn staged(&self) -> usize {
        self.0.lock().staged.len()
    }
}

impl SinkBuilder for MemorySink {
    fn build(self, _context: &Context) -> Result<Arc<dyn Sink>> {
        Ok(Arc::new(MemoryTableSink::new(self.0)?))
    }
}

/// The format `memory`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFormat;

#[async_trait]
impl SinkFormat for MemoryFormat {
    fn name(&self) -> &'static str {
        FORMAT
    }

    async fn open(&self, mut options: Options, partition_by: Vec<String>, context: &Context) -> Result<Arc<dyn Sink>> {
        let name = options.require("queryName", "the name of the table; .query_name(…) of the writer sets it too")?;
        options.finish(FORMAT)?;
        if !partition_by.is_empty() {
            return Err(
                Error::new(code::INVALID_OPTION, "a memory table has no partitions").fix("leave partition_by out")
            );
        }
        MemorySink::named(&name).build(context)
    }

    fn sink(&self, spec: &SinkSpec, context: &Context) -> Result<Arc<dyn Sink>> {
        let config: Config = serde_json::from_value(spec.config.clone())
            .map_err(|error| Error::new(code::BUG, "the spec of a memory sink cannot be read").because(error))?;
        MemorySink::named(&config.table).build(context)
    }
}
