//! Short words for stories: numbered rows, sessions, and what a table shows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidemill::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use tidemill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use tidemill::prelude::*;
use tidemill::{MemorySource, Retention};

/// How long a query may take to end.
pub const BOUND: Duration = Duration::from_secs(20);

/// Waits, within a bound, for a query to end by itself.
pub async fn ended(query: &StreamingQuery) -> tidemill::Result<()> {
    tokio::time::timeout(BOUND, query.await_termination()).await.expect("the query ends")
}

/// One column, `n`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
}

/// Rows whose `n` counts through the range.
pub fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
    RecordBatch::try_new(schema(), vec![numbers]).unwrap()
}

/// A source with these rows in it.
pub fn source(range: std::ops::Range<i64>) -> MemorySource {
    let source = MemorySource::new(schema());
    source.add(rows(range));
    source
}

/// A session as a user would build it, with little patience.
pub fn session() -> Session {
    Session::builder().retry_start(Duration::from_secs(5)).retry_running(Duration::from_secs(5)).build().unwrap()
}

/// The column `n` of record batches, sorted, doubles kept.
pub fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    let columns = batches.iter().map(|batch| batch.column_by_name("n").expect("n").as_primitive::<Int64Type>().clone());
    let mut numbers: Vec<i64> = columns.flat_map(|column| column.values().to_vec()).collect();
    numbers.sort_unstable();
    numbers
}

/// The column `n` of every `*.parquet` below a folder, hidden folders included: what any reader sees.
pub fn table_numbers(table: &Path) -> Vec<i64> {
    let mut found = Vec::new();
    for file in parquet_files(table) {
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&file).unwrap());
        let batches: Result<Vec<RecordBatch>, _> = reader.unwrap().build().unwrap().collect();
        found.extend(numbers(&batches.unwrap()));
    }
    found.sort_unstable();
    found
}

/// Every `*.parquet` below a folder, hidden folders included.
pub fn parquet_files(folder: &Path) -> Vec<std::path::PathBuf> {
    files(folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect()
}

/// Every file below a folder, sorted.
pub fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flat_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path) } else { vec![path] }
        })
        .collect();
    found.sort();
    found
}

/// Runs a query from a memory source into a Parquet table until all that is there is read.
pub async fn land(session: &Session, source: &MemorySource, root: &Path) -> tidemill::Result<()> {
    start_landing(session, source, root).await?.await_termination().await
}

/// Starts what [`land`] runs.
pub async fn start_landing(session: &Session, source: &MemorySource, root: &Path) -> tidemill::Result<StreamingQuery> {
    let frame = session.stream(source.clone()).await?;
    session
        .query("landing")
        .sink("table", frame, Parquet::table(root.join("table").to_string_lossy()))
        .checkpoint(root.join("checkpoint").to_string_lossy())
        .retention(keep_all())
        .trigger(Trigger::available_now())
        .start()
        .await
}

/// A retention under which tests see every batch.
pub fn keep_all() -> Retention {
    Retention::default()
}
