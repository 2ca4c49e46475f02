//! Tables of rows by name, and the handle with which a test fills them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::{Context, Error, Result, Source, SourceBuilder, SourceSpec, code};

use super::source::MemoryTableSource;

/// The name under which the source is registered.
pub(super) const FORMAT: &str = "memory";

/// All tables of this process. They are kept for ever: a spec may name one at any time.
static TABLES: Mutex<BTreeMap<String, Arc<Table>>> = Mutex::new(BTreeMap::new());

/// The config of the spec.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MemoryConfig {
    table: String,
}

/// The rows of one name.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) schema: SchemaRef,
    state: Mutex<State>,
}

/// What of a table changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rows: Vec<RecordBatch>,
    pub(super) count: u64,
    pub(super) splits: usize,
    pub(super) faults: Vec<Fault>,
    pub(super) reads: Vec<(u64, u64)>,
}

/// A fault that waits for a reader to come by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    /// The row before which it strikes.
    pub(super) row: u64,
    /// How often it still does.
    pub(super) times: u32,
    pub(super) panics: bool,
}

impl Table {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic on request may leave the lock poisoned; the state is whole at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spec(&self) -> SourceSpec {
        let config = serde_json::json!({ "table": self.name });
        SourceSpec { format: FORMAT.to_owned(), config }
    }
}

/// The table of this name.
pub(super) fn find(name: &str) -> Result<Arc<Table>> {
    let tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.get(name).cloned().ok_or_else(|| {
        Error::new(code::SOURCE_NOT_FOUND, format!("no table \"{name}\" is in this process"))
            .fix("make it with MemorySource::named")
    })
}

/// The table that a spec names.
pub(super) fn from_spec(spec: &SourceSpec) -> Result<Arc<Table>> {
    let config = MemoryConfig::deserialize(&spec.config)
        .map_err(|error| Error::new(code::INVALID_OPTION, "the spec of a memory source is not one").because(error))?;
    find(&config.table)
}

/// A source of rows that a test adds. Clones are handles of the same rows, and every source built from one reads them.
///
/// ```
/// use std::sync::Arc;
/// use arrow::array::{Int64Array, RecordBatch};
/// use arrow::datatypes::{DataType, Field, Schema};
/// use tidemill_connectors::MemorySource;
///
/// let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
/// let source = MemorySource::new(schema.clone()).splits(2);
/// source.add(RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2, 3]))]).unwrap());
/// assert_eq!(source.row_count(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct MemorySource {
    table: Arc<Table>,
}

impl MemorySource {
    /// A source without rows, under a new name.
    pub fn new(schema: SchemaRef) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        MemorySource::named(format!("table-{}", NUMBER.fetch_add(1, Ordering::Relaxed)), schema)
    }

    /// The source of this name; without rows if there is none yet. An existing one keeps its schema.
    pub fn named(name: impl Into<String>, schema: SchemaRef) -> Self {
        let name = name.into();
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry(name.clone()).or_insert_with(|| {
            let state = State { rows: Vec::new(), count: 0, splits: 1, faults: Vec::new(), reads: Vec::new() };
            Arc::new(Table { name, schema, state: Mutex::new(state) })
        });
        MemorySource { table: Arc::clone(table) }
    }

    /// Into how many pieces a range is cut; 1 by default.
    #[must_use]
    pub fn splits(self, splits: usize) -> Self {
        self.table.state().splits = splits.max(1);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.table.name
    }

    /// Adds rows at the end. They must have the source's schema.
    pub fn add(&self, rows: RecordBatch) {
        assert_eq!(rows.schema().fields(), self.table.schema.fields(), "rows of another schema");
        let mut state = self.table.state();
        state.count += rows.num_rows() as u64;
        if rows.num_rows() > 0 {
            state.rows.push(rows);
        }
    }

    /// How many rows have been added.
    pub fn row_count(&self) -> u64 {
        self.table.state().count
    }

    /// Lets the next `times` reads that come to this row fail before it, with an error that passes. Rows before it are
    /// delivered.
    pub fn fail_at(&self, row: u64, times: u32) {
        self.table.state().faults.push(Fault { row, times, panics: false });
    }

    /// Lets the next `times` reads that come to this row panic before it. Rows before it are delivered.
    pub fn panic_at(&self, row: u64, times: u32) {
        self.table.state().faults.push(Fault { row, times, panics: true });
    }

    /// Takes back every fault that has not struck yet.
    pub fn heal(&self) {
        self.table.state().faults.clear();
    }

    /// Every read so far, failed ones too, as `(first row, row after the last)`, in the order in which they began.
    pub fn reads(&self) -> Vec<(u64, u64)> {
        self.table.state().reads.clone()
    }
}

#[async_trait]
impl SourceBuilder for MemorySource {
    async fn build(self, _context: &Context) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(MemoryTableSource::new(self.table)))
    }
}
