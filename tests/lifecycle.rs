//! How a query starts, is stopped, and ends badly: what whoever waits for it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use object_store::memory::InMemory;
use tidemill::arrow::datatypes::SchemaRef;
use tidemill::prelude::*;
use tidemill::store::Location;
use tidemill::store::faulty::{Fault, FaultyStore, OpKind};
use tidemill::{Error, MemorySource, code};
use tidemill_core::{Context, Offer, Offsets, Range, ReadLimit, Receipt, Source, SourceBuilder, SourceSpec, Split};

use crate::support::gate::Gate;
use crate::support::pipeline::{BOUND, ended, numbers, rows, schema, session, source, table_numbers};

/// A memory source that starts at its end, panics in the driver, or does not believe its own readers.
#[derive(Debug)]
struct Peculiar {
    rows: MemorySource,
    inner: Option<Arc<dyn Source>>,
    panics: bool,
    /// How many receipts it still refuses.
    refuses: AtomicU32,
}

impl Peculiar {
    fn new(rows: &MemorySource, panics: bool) -> Peculiar {
        Peculiar { rows: rows.clone(), inner: None, panics, refuses: AtomicU32::new(0) }
    }

    fn refusing(rows: &MemorySource, receipts: u32) -> Peculiar {
        Peculiar { refuses: AtomicU32::new(receipts), ..Peculiar::new(rows, false) }
    }

    fn inner(&self) -> &dyn Source {
        self.inner.as_deref().expect("it is built")
    }
}

#[async_trait]
impl SourceBuilder for Peculiar {
    async fn build(mut self, context: &Context) -> tidemill::Result<Arc<dyn Source>> {
        self.inner = Some(self.rows.clone().build(context).await?);
        Ok(Arc::new(self))
    }
}

#[async_trait]
impl Source for Peculiar {
    fn spec(&self) -> &SourceSpec {
        self.inner().spec()
    }

    fn schema(&self) -> SchemaRef {
        self.inner().schema()
    }

    fn description(&self) -> String {
        "peculiar".to_owned()
    }

    async fn initial(&self) -> tidemill::Result<Offsets> {
        let first = self.inner().initial().await?;
        let offer = self.inner().next(&first, &ReadLimit::default()).await?;
        Ok(offer.map_or(first, |offer| offer.latest))
    }

    fn start_moves(&self) -> bool {
        true
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> tidemill::Result<Option<Offer>> {
        assert!(!self.panics, "out of my mind");
        self.inner().next(from, limit).await
    }

    fn plan(&self, name: &str, range: &Range, interpretation: &serde_json::Value) -> tidemill::Result<Vec<Split>> {
        self.inner().plan(name, range, interpretation)
    }

    fn check_receipt(&self, split: &Split, receipt: &Receipt) -> tidemill::Result<()> {
        let left = self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(Error::new(code::RECEIPT_MISMATCH, "this was read from somewhere else")),
            Err(_) => self.inner().check_receipt(split, receipt),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_whose_receipt_is_refused_does_not_count_and_the_range_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let rows_of = source(0..5);
    let session = session();
    for (receipts, added) in [(0, 5..5), (1, 5..15)] {
        rows_of.add(rows(added));
        let frame = session.stream(Peculiar::refusing(&rows_of, receipts)).await.unwrap();
        let table = Parquet::table(root.path().join("table").to_string_lossy());
        let query = frame.write_stream().sink(table).trigger(Trigger::available_now());
        let location = root.path().join("checkpoint").to_string_lossy().into_owned();
        ended(&query.option("checkpointLocation", location).start().await.unwrap()).await.unwrap();
    }
    assert_eq!(rows_of.reads(), [(5, 15), (5, 15)]);
    assert_eq!(table_numbers(&root.path().join("table")), (5..15).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_at_the_end_is_remembered_though_nothing_was_there_to_read() {
    let root = tempfile::tempdir().unwrap();
    let rows_of = source(0..5);
    let session = session();
    let run = async || {
        let frame = session.stream(Peculiar::new(&rows_of, false)).await.unwrap();
        let table = Parquet::table(root.path().join("table").to_string_lossy());
        let query = frame.write_stream().sink(table).trigger(Trigger::available_now());
        let location = root.path().join("checkpoint").to_string_lossy().into_owned();
        ended(&query.option("checkpointLocation", location).start().await.unwrap()).await.unwrap();
    };
    run().await;
    rows_of.add(rows(5..15));
    run().await;
    assert_eq!(table_numbers(&root.path().join("table")), (5..15).collect::<Vec<_>>());
    run().await;
    let commits = crate::support::pipeline::files(&root.path().join("checkpoint/commits"));
    assert_eq!(commits.len(), 2, "once known, a start makes no more empty batches");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_driver_ends_the_query_with_an_error() {
    let session = session();
    let frame = session.stream(Peculiar::new(&source(0..5), true)).await.unwrap();
    let query = session.query("panics").sink("table", frame, MemorySink::new()).start().await.unwrap();
    let error = ended(&query).await.expect_err("it panicked");
    assert_eq!((error.code(), error.exit_code()), (code::BUG, 70), "{error:?}");
    assert!(error.to_string().contains("out of my mind"), "{error}");
    assert!(!query.is_active());
    query.stop().await.expect_err("it ended before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_stopped_while_it_tries_again_has_not_failed() {
    let session = session();
    let rows_of = source(0..10);
    rows_of.fail_at(5, 1_000);
    let frame = session.stream(rows_of).await.unwrap();
    let query = session.query("stopped").sink("table", frame, MemorySink::new()).start().await.unwrap();
    let trying = async {
        while !query.status().message.contains("Trying again") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, trying).await.expect("it tries again");
    query.stop().await.expect("stopping is no failure");
    assert!(query.exception().is_none());
    assert_eq!(query.status().message, "Stopped");
}

/// The fence's read fails before the plan and, long after, before the acks: two faults of two steps.
#[tokio::test(flavor = "multi_thread")]
async fn every_step_has_the_whole_time_to_try_again() {
    let patience = Duration::from_millis(300);
    let looks = AtomicU32::new(0);
    let store = FaultyStore::new(Arc::new(InMemory::new()), move |op| {
        if op.kind != OpKind::Get || !op.path.as_ref().starts_with("generations/") {
            return Fault::None;
        }
        match looks.fetch_add(1, Ordering::SeqCst) {
            0 => Fault::Fails,
            2 => {
                std::thread::sleep(patience + patience / 2);
                Fault::Fails
            }
            _ => Fault::None,
        }
    });
    let session = Session::builder().retry_start(patience).retry_running(patience).build().unwrap();
    let (rows_of, table) = (source(0..10), MemorySink::new());
    let query = session
        .query("patient")
        .sink("table", session.stream(rows_of).await.unwrap(), table.clone())
        .checkpoint_at(Location::new(store, "memory"))
        .trigger(Trigger::available_now());
    ended(&query.start().await.unwrap()).await.unwrap();
    assert_eq!(numbers(&table.rows()), (0..10).collect::<Vec<_>>());
}

/// A newer driver with another set of sinks wins `offsets/0` after the older one's look at the fence.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_driver_makes_impossible_is_told_as_the_newer_driver() {
    let memory = Arc::new(InMemory::new());
    let gate = Gate::new();
    let store = FaultyStore::new(memory.clone(), {
        let door = gate.door();
        move |op| {
            if op.kind == OpKind::Put && op.path.as_ref() == format!("offsets/{:020}", 0) {
                door.pass();
            }
            Fault::None
        }
    });
    let (session, rows_of) = (session(), source(0..10));
    let frame = session.stream(rows_of).await.unwrap();
    let (table, more) = (MemorySink::new(), MemorySink::new());
    let query = |location: Location| {
        let query = session.query("raced").sink("table", frame.clone(), table.clone());
        query.checkpoint_at(location).trigger(Trigger::available_now())
    };
    let older = query(Location::new(store, "memory")).start().await.unwrap();
    gate.reached().await;
    let newer = query(Location::new(memory, "memory")).sink("more", frame.clone(), more.clone());
    ended(&newer.start().await.unwrap()).await.unwrap();
    gate.open();
    let error = ended(&older).await.expect_err("fenced");
    assert_eq!((error.code(), error.exit_code()), (code::FENCED, 75), "{error:?}");
    assert!(error.report().contains(code::QUERY_CHANGED.id), "its cause is told too: {}", error.report());
    for table in [table, more] {
        assert_eq!(numbers(&table.rows()), (0..10).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_takes_partition_columns_and_a_name_where_they_count() {
    let (session, rows_of) = (session(), MemorySource::new(schema()));
    rows_of.add(rows(0..3));
    let frame = session.stream(rows_of).await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let table = Parquet::table(root.path().join("table").to_string_lossy());
    let refused = frame.clone().write_stream().sink(table).partition_by(["n"]).start().await;
    let error: Error = refused.expect_err("the columns would be forgotten");
    assert_eq!(error.code(), code::USAGE, "{error:?}");

    let writer = frame.write_stream().format("memory").query_name("lifecycle_table").trigger(Trigger::available_now());
    ended(&writer.start().await.unwrap()).await.unwrap();
    assert_eq!(numbers(&MemorySink::named("lifecycle_table").rows()), [0, 1, 2]);
}
