//! After `acks/N` batch N is what its attempt was: another program, another driver or a source that is gone cannot change
//! it any more.

use std::sync::Arc;
use std::time::Duration;

use tidemill::prelude::*;
use tidemill::store::faulty::{Fault, FaultyStore, OpKind};
use tidemill::store::{Location, Store, Stores};
use tidemill::{BatchId, MemorySource, code};

use crate::support::pipeline::{files, rows, session, source, table_numbers};

struct Rig {
    root: tempfile::TempDir,
    source: MemorySource,
}

impl Rig {
    fn new() -> Rig {
        Rig { root: tempfile::tempdir().unwrap(), source: source(0..100) }
    }

    fn at(&self, name: &str) -> String {
        self.root.path().join(name).to_string_lossy().into_owned()
    }

    fn checkpoint(&self) -> Location {
        Stores::default().open(&self.at("checkpoint")).unwrap()
    }

    /// Runs the program with this filter until all is read.
    async fn run(&self, checkpoint: Location, filter: &str) -> tidemill::Result<()> {
        let session = session();
        let frame = session.stream(self.source.clone()).await?.filter(filter);
        let query = session
            .query("rolled")
            .sink("table", frame, Parquet::table(self.at("table")))
            .checkpoint_at(checkpoint)
            .write_patience(Duration::from_millis(200))
            .trigger(Trigger::available_now());
        query.start().await?.await_termination().await
    }

    /// A checkpoint whose process dies right after this entry was created.
    fn dies_after(&self, log: &'static str, number: u64) -> Location {
        let inner: Arc<dyn Store> = Arc::clone(&self.checkpoint().store);
        let store = FaultyStore::new(inner, move |op| {
            let hit = op.kind == OpKind::Put && op.path.as_ref() == format!("{log}/{number:020}");
            if hit { Fault::DiesAfter } else { Fault::None }
        });
        Location::new(store, "dying")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_an_acknowledged_batch_are_those_of_the_program_that_ran_it() {
    let rig = Rig::new();
    rig.run(rig.dies_after("acks", 0), "n % 2 = 0").await.expect_err("it died");
    assert_eq!(table_numbers(&rig.root.path().join("table")), Vec::<i64>::new(), "staged and invisible");
    rig.source.add(rows(100..200));
    rig.run(rig.checkpoint(), "n % 10 = 0").await.unwrap();
    let expected: Vec<i64> = (0..100).step_by(2).chain((100..200).step_by(10)).collect();
    assert_eq!(table_numbers(&rig.root.path().join("table")), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_only_logged_is_run_by_the_changed_program_over_the_same_range() {
    let rig = Rig::new();
    rig.run(rig.dies_after("offsets", 0), "n % 2 = 0").await.expect_err("it died");
    rig.source.add(rows(100..200));
    rig.run(rig.checkpoint(), "n % 10 = 0").await.unwrap();
    assert_eq!(rig.source.reads(), [(0, 100), (100, 200)], "the logged range, though more was there");
    assert_eq!(table_numbers(&rig.root.path().join("table")), (0..200).step_by(10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_batch_is_published_though_its_source_has_lost_the_rows() {
    let rig = Rig::new();
    rig.run(rig.dies_after("acks", 0), "n >= 0").await.expect_err("it died");
    let reads = rig.source.reads().len();
    rig.source.fail_at(0, 1_000);
    rig.run(rig.checkpoint(), "n >= 0").await.unwrap();
    assert_eq!(rig.source.reads().len(), reads, "nothing is read again");
    assert_eq!(table_numbers(&rig.root.path().join("table")), (0..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_batch_refuses_another_set_of_sinks_with_a_readable_difference() {
    for log in ["offsets", "acks"] {
        let rig = Rig::new();
        rig.run(rig.dies_after(log, 0), "n >= 0").await.expect_err("it died");
        let session = session();
        let frame = session.stream(rig.source.clone()).await.unwrap();
        let changed = session
            .query("rolled")
            .sink("other", frame, Parquet::table(rig.at("other")))
            .checkpoint_at(rig.checkpoint())
            .trigger(Trigger::available_now());
        let error = changed.start().await.unwrap().await_termination().await.expect_err("refused");
        assert_eq!((error.code(), error.exit_code()), (code::QUERY_CHANGED, 78), "{error:?}");
        assert!(error.what().contains("\"table\"") && error.what().contains("\"other\""), "{error}");
        rig.run(rig.checkpoint(), "n >= 0").await.unwrap();
        assert_eq!(table_numbers(&rig.root.path().join("table")), (0..100).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_created_only_after_every_sink_shows_the_batch() {
    let rig = Rig::new();
    rig.run(rig.dies_after("acks", 0), "n >= 0").await.expect_err("it died");
    assert!(!files(&rig.root.path().join("checkpoint")).iter().any(|path| path.to_string_lossy().contains("commits")));
    rig.run(rig.dies_after("commits", 0), "n >= 0").await.expect_err("it died");
    assert_eq!(table_numbers(&rig.root.path().join("table")), (0..100).collect::<Vec<_>>(), "shown before it counts");
    rig.run(rig.checkpoint(), "n >= 0").await.unwrap();
    assert_eq!(table_numbers(&rig.root.path().join("table")), (0..100).collect::<Vec<_>>());
}

/// What [`two_sinks_under_sigkill`] starts and kills: two tables fed by one read, under one commit.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process of another test"]
async fn child_with_two_sinks() {
    let Ok(root) = std::env::var("TIDEMILL_TEST_ROOT") else { return };
    let at = |name: &str| format!("{root}/{name}");
    let session = session();
    // Rows by offset alone, so that every process finds the same: 60 batches of 500.
    let rate = session.read_stream().format("rate-micro-batch").option("rowsPerBatch", 500).load().await.unwrap();
    let rows = rate.select_expr(["value AS n"]);
    let query = session
        .query("two")
        .sink("even", rows.clone().filter("n % 2 = 0"), Parquet::table(at("even")))
        .sink("odd", rows.filter("n % 2 = 1"), Parquet::table(at("odd")))
        .checkpoint(at("checkpoint"))
        .trigger(Trigger::processing_time(Duration::ZERO))
        .start()
        .await
        .unwrap();
    query.await_batch(BatchId(60)).await.unwrap();
    query.stop().await.unwrap();
}

#[test]
fn two_sinks_under_sigkill_have_each_row_once_and_the_same_batches() {
    use tidemill_core::Rng;

    let root = tempfile::tempdir().unwrap();
    let start = |env: &[(&str, &str)]| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "roll_forward::child_with_two_sinks", "--ignored", "--nocapture"])
            .env("TIDEMILL_TEST_ROOT", root.path())
            .envs(env.iter().copied())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    for (batch, point) in
        ["log", "mid-write", "write", "acks", "mid-publish", "publish", "manifest", "commit"].iter().enumerate()
    {
        let status = start(&[("TIDEMILL_CRASH_AT", &format!("{point}:{}", batch * 2))]).wait().unwrap();
        assert_eq!(status.code(), None, "{point} kills it");
    }
    let rng = tidemill_core::rng::SeededRng::new(7);
    for _ in 0..8 {
        let mut child = start(&[]);
        std::thread::sleep(Duration::from_millis(300 + rng.next_u64() % 200));
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(start(&[]).wait().unwrap().success());
    let even = table_numbers(&root.path().join("even"));
    let odd = table_numbers(&root.path().join("odd"));
    let last = *even.last().unwrap().max(odd.last().unwrap());
    assert!(last >= 61 * 500 - 1, "{last}");
    assert_eq!(even, (0..=last).step_by(2).collect::<Vec<_>>());
    assert_eq!(odd, (1..=last).step_by(2).collect::<Vec<_>>());
}
