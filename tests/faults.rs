//! The real engine over a store that fails: every operation of a run meets every fault, then a fresh driver goes on. Rows
//! are exactly once, whatever happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::memory::InMemory;
use tidemill::prelude::*;
use tidemill::store::faulty::{Fault, FaultyStore, Op, OpKind};
use tidemill::store::{Location, Store};
use tidemill::{MemorySource, code};

use crate::support::pipeline::{numbers, rows, schema, session};

/// A query over a memory source and a memory table, whose checkpoint lies in memory too: only the store's faults count.
struct Rig {
    source: MemorySource,
    table: MemorySink,
    store: Arc<InMemory>,
    /// Held while a driver counts the source's rows and adds the next ones, so that two drivers add each number once.
    adding: Mutex<()>,
}

/// Rows a batch; three batches.
const ROWS: i64 = 4;
const ALL: i64 = 3 * ROWS;

impl Rig {
    fn new() -> Rig {
        Rig {
            source: MemorySource::new(schema()),
            table: MemorySink::new(),
            store: Arc::new(InMemory::new()),
            adding: Mutex::new(()),
        }
    }

    /// Adds the next portion of rows. False once all are there.
    fn add_rows(&self) -> bool {
        let _adding = self.adding.lock().unwrap();
        let there = self.source.row_count() as i64;
        if there < ALL {
            self.source.add(rows(there..there + ROWS));
        }
        there < ALL
    }

    /// Runs one driver over a store: one batch for each portion of rows that is not there yet.
    async fn drive(&self, store: Arc<dyn Store>) -> tidemill::Result<()> {
        let patience = Duration::from_millis(150);
        let session = Session::builder().retry_start(patience).retry_running(patience).build()?;
        loop {
            let frame = session.stream(self.source.clone()).await?;
            let query = session
                .query("faults")
                .sink("table", frame, self.table.clone())
                .checkpoint_at(Location::new(Arc::clone(&store), "memory"))
                .write_patience(Duration::from_millis(120))
                .trigger(Trigger::available_now());
            query.start().await?.await_termination().await?;
            if !self.add_rows() {
                return Ok(());
            }
        }
    }

    fn shown(&self) -> Vec<i64> {
        numbers(&self.table.rows())
    }

    /// A fresh driver on the bare store finishes what is left.
    async fn finish(&self) {
        self.drive(self.store.clone()).await.expect("a fresh driver finishes");
        assert_eq!(self.shown(), (0..ALL).collect::<Vec<_>>());
    }
}

/// How many operations a run without faults needs.
async fn operations() -> Vec<Op> {
    let rig = Rig::new();
    let store = FaultyStore::new(rig.store.clone(), |_| Fault::None);
    rig.drive(store.clone()).await.unwrap();
    assert_eq!(rig.shown(), (0..ALL).collect::<Vec<_>>());
    store.log()
}

async fn one_fault_at_every_operation(fault: Fault) {
    let operations = operations().await;
    assert!(operations.len() > 30, "{}", operations.len());
    for number in 0..operations.len() as u64 {
        let rig = Rig::new();
        let store =
            FaultyStore::new(rig.store.clone(), move |op| if op.number == number { fault } else { Fault::None });
        let outcome = rig.drive(store.clone()).await;
        let shown = rig.shown();
        let once = shown.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(once, "{fault:?} at operation {number} ({:?}): {shown:?}", store.log().last());
        if let Err(error) = outcome {
            let codes = [code::STORE_UNAVAILABLE, code::WRITE_UNKNOWN, code::NOT_DURABLE];
            assert!(codes.contains(&error.code()), "{fault:?} at operation {number}: {error:?}");
        }
        store.land().await;
        rig.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_may_be_refused() {
    one_fault_at_every_operation(Fault::Fails).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_may_be_applied_and_then_answered_with_an_error() {
    one_fault_at_every_operation(Fault::AppliedThenFails).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_create_may_be_answered_with_a_conflict_though_nothing_is_there() {
    one_fault_at_every_operation(Fault::Conflict).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_may_die_before_every_operation() {
    one_fault_at_every_operation(Fault::DiesBefore).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_may_die_after_every_operation() {
    one_fault_at_every_operation(Fault::DiesAfter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_may_fail_to_become_durable() {
    one_fault_at_every_operation(Fault::NotDurable).await;
}

/// The acks' PUT times out, the read-back says absent, the deadline passes; then it lands after all.
#[tokio::test(flavor = "multi_thread")]
async fn acks_that_are_still_in_flight_at_the_deadline_are_unknown_and_bind_when_they_land() {
    for log in ["offsets", "acks", "commits"] {
        let rig = Rig::new();
        let store = FaultyStore::new(rig.store.clone(), move |op| {
            let hit = op.kind == OpKind::Put && op.path.as_ref() == format!("{log}/{:020}", 1);
            if hit { Fault::InFlight } else { Fault::None }
        });
        let error = rig.drive(store.clone()).await.expect_err("undecided");
        assert_eq!((error.code(), error.exit_code()), (code::WRITE_UNKNOWN, 74), "{log}: {error:?}");
        let staged = rig.table.staged();
        store.land().await;
        let before = rig.source.reads().len();
        rig.finish().await;
        if log == "acks" {
            assert!(staged > 0, "an undecided attempt's stage is kept");
            let again = rig.source.reads()[before..].iter().filter(|read| read.0 == ROWS as u64).count();
            assert_eq!(again, 0, "the batch was rolled forward, not read again");
        }
    }
}

/// Another driver wins the race for one entry; ours is adopted away, and rows are there once.
#[tokio::test(flavor = "multi_thread")]
async fn two_drivers_at_once_show_rows_once_and_one_of_them_ends_fenced() {
    for round in 0..10 {
        let rig = Arc::new(Rig::new());
        let slow = AtomicU64::new(0);
        let (left, right) = (Arc::clone(&rig), Arc::clone(&rig));
        let script = move |_: &Op| {
            // Lets the two drivers meet at other operations every round.
            for _ in 0..(slow.fetch_add(1, Ordering::Relaxed) * round) % 7 {
                std::thread::yield_now();
            }
            Fault::None
        };
        let store: Arc<dyn Store> = FaultyStore::new(rig.store.clone(), script);
        let other = Arc::clone(&store);
        let (one, two) = tokio::join!(
            tokio::spawn(async move { left.drive(store).await }),
            tokio::spawn(async move { right.drive(other).await })
        );
        for ended in [one.unwrap(), two.unwrap()] {
            if let Err(error) = ended {
                assert_eq!(error.code(), code::FENCED, "{error:?}");
            }
        }
        let shown = rig.shown();
        assert!(shown.windows(2).all(|pair| pair[0] < pair[1]), "{shown:?}");
        rig.finish().await;
    }
}

/// A driver sleeps after its plan; meanwhile another goes on far beyond, and purges. It wakes and writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_wakes_below_the_boundary_creates_nothing_that_counts() {
    let rig = Rig::new();
    rig.drive(rig.store.clone()).await.unwrap();
    let session = session();
    let run = async |patience: u64| {
        let frame = session.stream(rig.source.clone()).await?;
        let query = session
            .query("faults")
            .sink("table", frame, rig.table.clone())
            .checkpoint_at(Location::new(rig.store.clone(), "memory"))
            .retention(tidemill::Retention { batches_min: 2, age: Duration::ZERO, batches_max: patience })
            .trigger(Trigger::available_now());
        query.start().await?.await_termination().await
    };
    for n in 0..6 {
        rig.source.add(rows(ALL + n..ALL + n + 1));
        run(2).await.unwrap();
    }
    let purged = Location::new(rig.store.clone(), "memory");
    let path = tidemill::store::Path::from(format!("offsets/{:020}", 1));
    assert_eq!(purged.read(&path).await.unwrap(), None, "batch 1 is purged");
    // A zombie re-creates a purged name and dies before its own look at the boundary.
    let newest = purged.read(&tidemill::store::Path::from(format!("offsets/{:020}", 8))).await.unwrap().unwrap();
    purged.store.put_opts(&path, newest.into(), Default::default()).await.unwrap();
    rig.source.add(rows(100..101));
    run(2).await.unwrap();
    assert_eq!(rig.shown().len() as u64, rig.source.row_count());
    assert_eq!(purged.read(&path).await.unwrap(), None, "what the zombie left goes with the next purge");
}
