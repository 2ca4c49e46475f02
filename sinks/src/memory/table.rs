//! The tables of the process, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::RecordBatch;
use tidemill_core::{AttemptId, BatchId, Nonce, SinkKey};

/// A stage's name: whose, which batch, which execution, which task.
pub(super) type StageKey = (String, BatchId, AttemptId, u32);
/// A published batch's name.
pub(super) type BatchKey = (String, BatchId);

/// A sink's key as one text, since tables are sorted by it. The parts cannot run into one another: the first is quoted.
pub(super) fn owner(key: &SinkKey) -> String {
    format!("{:?}/{}", key.query_id.as_str(), key.sink)
}

/// One batch that is visible.
#[derive(Debug)]
pub(super) struct Visible {
    pub acks_nonce: Nonce,
    pub rows: Vec<RecordBatch>,
}

/// What a table holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub staged: BTreeMap<StageKey, Vec<RecordBatch>>,
    pub visible: BTreeMap<BatchKey, Visible>,
    /// Published batches in the order in which they became visible.
    pub order: Vec<BatchKey>,
}

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    pub name: String,
    contents: Mutex<Contents>,
}

impl Table {
    pub(super) fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Tables {
    /// Every table, so that a spec finds it.
    known: BTreeMap<String, Weak<Table>>,
    /// Tables that were named by a user stay; those without a name go with their last holder.
    kept: Vec<Arc<Table>>,
    unnamed: u64,
}

static TABLES: Mutex<Option<Tables>> = Mutex::new(None);

fn with_tables<T>(use_them: impl FnOnce(&mut Tables) -> T) -> T {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    use_them(tables.get_or_insert_default())
}

impl Tables {
    fn make(&mut self, name: String) -> Arc<Table> {
        let table = Arc::new(Table { name: name.clone(), contents: Mutex::default() });
        self.known.retain(|_, table| table.strong_count() > 0);
        self.known.insert(name, Arc::downgrade(&table));
        table
    }
}

/// The table of this name; it is made if there is none.
pub(super) fn named(name: &str) -> Arc<Table> {
    with_tables(|tables| {
        if let Some(table) = tables.known.get(name).and_then(Weak::upgrade) {
            return table;
        }
        let table = tables.make(name.to_owned());
        tables.kept.push(Arc::clone(&table));
        table
    })
}

/// A table of its own.
pub(super) fn unnamed() -> Arc<Table> {
    with_tables(|tables| {
        tables.unnamed += 1;
        let name = format!("memory#{}", tables.unnamed);
        tables.make(name)
    })
}
