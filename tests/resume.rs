//! Stopping, failing and going on: where a query stands is in its checkpoint, and nowhere else.

use std::time::Duration;

use tidemill::prelude::*;
use tidemill::{BatchId, code};

use crate::support::pipeline::{land, numbers, rows, schema, session, source, table_numbers};

/// The lesson: bookmarks. A query that was stopped after offset 449 reads 450 next.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_stopped_after_offset_449_reads_450_next() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..450);
    land(&session(), &source, root.path()).await.unwrap();
    assert_eq!(source.reads(), [(0, 450)]);

    source.add(rows(450..500));
    // Another session: the checkpoint is the only memory.
    land(&session(), &source, root.path()).await.unwrap();
    assert_eq!(source.reads(), [(0, 450), (450, 500)]);
    assert_eq!(table_numbers(&root.path().join("table")), (0..500).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_fails_in_the_middle_of_a_range_fails_its_attempt_and_the_next_starts_at_the_logged_start() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..450);
    land(&session(), &source, root.path()).await.unwrap();

    source.add(rows(450..900));
    source.fail_at(600, 1);
    source.panic_at(700, 1);
    land(&session(), &source, root.path()).await.unwrap();
    assert_eq!(source.reads(), [(0, 450), (450, 900), (450, 900), (450, 900)], "each attempt reads from 450");
    assert_eq!(table_numbers(&root.path().join("table")), (0..900).collect::<Vec<_>>());
    let left = crate::support::pipeline::files(&root.path().join("table"));
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("staging")), "stages of lost attempts: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_does_not_pass_ends_the_query_within_its_bound_and_nothing_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..100);
    source.fail_at(50, 1_000);
    let impatient = Session::builder().retry_start(Duration::from_millis(300)).build().unwrap();
    let error = land(&impatient, &source, root.path()).await.expect_err("the fault stays");
    assert_eq!(error.code(), code::SOURCE_UNAVAILABLE, "{error:?}");
    assert_eq!(table_numbers(&root.path().join("table")), Vec::<i64>::new());

    source.heal();
    land(&session(), &source, root.path()).await.unwrap();
    assert_eq!(table_numbers(&root.path().join("table")), (0..100).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sinks_are_fed_by_one_read_and_committed_together() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let source = source(0..1000);
    let session = session();
    let frame = session.stream(source.clone()).await.unwrap();
    let query = session
        .query("split")
        .sink("even", frame.clone().filter("n % 2 = 0"), Parquet::table(at("even")))
        .sink("odd", frame.filter("n % 2 = 1"), Parquet::table(at("odd")))
        .checkpoint(at("checkpoint"))
        .trigger(Trigger::available_now())
        .start()
        .await
        .unwrap();
    query.await_termination().await.unwrap();
    assert_eq!(source.reads(), [(0, 1000)], "one read of the range");
    assert_eq!(table_numbers(&root.path().join("even")), (0..1000).step_by(2).collect::<Vec<_>>());
    assert_eq!(table_numbers(&root.path().join("odd")), (1..1000).step_by(2).collect::<Vec<_>>());
    let progress = query.last_progress().unwrap();
    assert_eq!((progress.num_input_rows, progress.sinks["even"].num_output_rows), (1000, 500));
    assert_eq!(progress.sinks["odd"].num_output_files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_added_later_is_not_taken_for_behind() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let (source, session) = (source(0..10), session());
    for sinks in [&["one"][..], &["one", "two"], &["one", "two"], &["two"]] {
        source.add(rows(0..10));
        let frame = session.stream(source.clone()).await.unwrap();
        let mut query = session.query("growing").checkpoint(at("checkpoint")).trigger(Trigger::available_now());
        for name in sinks {
            query = query.sink(*name, frame.clone(), Parquet::table(at(name)));
        }
        query.start().await.unwrap().await_termination().await.unwrap();
    }
    assert_eq!(table_numbers(&root.path().join("one")).len(), 40);
    assert_eq!(table_numbers(&root.path().join("two")).len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sinks_of_one_query_may_share_a_root() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let (source, session) = (source(0..10), session());
    let frame = session.stream(source.clone()).await.unwrap();
    let query = session
        .query("shared")
        .sink("low", frame.clone().filter("n < 5"), Parquet::table(at("table")))
        .sink("high", frame.filter("n >= 5"), Parquet::table(at("table")))
        .checkpoint(at("checkpoint"))
        .trigger(Trigger::available_now())
        .start()
        .await
        .unwrap();
    query.await_termination().await.unwrap();
    assert_eq!(table_numbers(&root.path().join("table")), (0..10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_cures_a_poison_record_that_was_logged() {
    use tidemill::BadRecordPolicy;
    use tidemill::arrow::array::{ArrayRef, BinaryArray, RecordBatch};

    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let values: ArrayRef = std::sync::Arc::new(BinaryArray::from_vec(vec![b"{\"n\":1}", b"{\"n\":x}", b"{\"n\":3}"]));
    let messages = RecordBatch::try_from_iter([("value", values)]).unwrap();
    let source = tidemill::MemorySource::new(messages.schema());
    source.add(messages);
    let session = session();
    let run = async |policy: BadRecordPolicy| {
        let frame = session.stream(source.clone()).await?.decode(Json::ddl("n long").on_bad_record(policy));
        let query = session
            .query("poison")
            .sink("table", frame, Parquet::table(at("table")))
            .checkpoint(at("checkpoint"))
            .trigger(Trigger::available_now());
        query.start().await?.await_termination().await
    };
    let error = run(BadRecordPolicy::Fail).await.expect_err("the record is bad");
    assert_eq!((error.code(), error.exit_code()), (code::BAD_RECORD, 65), "{error:?}");
    run(BadRecordPolicy::Null).await.unwrap();
    assert_eq!(source.reads(), [(0, 3), (0, 3)], "the logged range, once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn now_is_the_logged_time_on_every_run_of_a_batch() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let clock = tidemill_core::testing::ManualClock::at(1_767_225_600_000);
    let source = source(0..3);
    source.fail_at(1, 1_000);
    let rows_at = async |clock: &tidemill_core::testing::ManualClock, patience_ms: u64| {
        let session = Session::builder()
            .clock(std::sync::Arc::new(clock.clone()))
            .retry_start(Duration::from_millis(patience_ms))
            .build()
            .unwrap();
        let frame = session.stream(source.clone()).await.unwrap().select_expr(["CAST(now() AS BIGINT) / 1000000 AS n"]);
        let table = MemorySink::new();
        let query = session
            .query("now")
            .sink("table", frame, table.clone())
            .checkpoint(at("checkpoint"))
            .trigger(Trigger::available_now())
            .start()
            .await
            .unwrap();
        let _ = query.await_termination().await;
        numbers(&table.rows())
    };
    assert_eq!(rows_at(&clock, 0).await, Vec::<i64>::new());
    clock.advance(Duration::from_secs(3600));
    source.heal();
    assert_eq!(rows_at(&clock, 0).await, [1_767_225_600_000; 3], "an hour later it is still then");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_batch_gives_the_rows_of_its_range_and_touches_nothing() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..100);
    for more in [100..150, 150..175] {
        land(&session(), &source, root.path()).await.unwrap();
        source.add(rows(more));
    }
    let before = crate::support::pipeline::files(root.path());
    let session = session();
    let frame = session.stream(source.clone()).await.unwrap();
    let checkpoint = root.path().join("checkpoint").to_string_lossy().into_owned();
    let batch = frame.clone().replay(&checkpoint, BatchId(1)).await.unwrap();
    assert!(!batch.is_streaming());
    assert_eq!(numbers(&batch.collect().await.unwrap()), (100..150).collect::<Vec<_>>());
    let doubled = frame.clone().select_expr(["n * 2 AS n"]).replay(&checkpoint, BatchId(0)).await.unwrap();
    assert_eq!(numbers(&doubled.collect().await.unwrap()), (0..100).map(|n| n * 2).collect::<Vec<_>>());
    let error = frame.replay(&checkpoint, BatchId(2)).await.expect_err("never planned");
    assert_eq!(error.code(), code::BATCH_NOT_FOUND);
    assert_eq!(crate::support::pipeline::files(root.path()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_all_available_and_progress_tell_the_same_story() {
    let root = tempfile::tempdir().unwrap();
    let (source, session, table) = (source(0..7), session(), MemorySink::new());
    let frame = session.stream(source.clone()).await.unwrap();
    let query = session
        .query("watched")
        .sink("table", frame, table.clone())
        .checkpoint(root.path().to_string_lossy())
        .trigger(Trigger::processing_time(Duration::ZERO))
        .start()
        .await
        .unwrap();
    query.process_all_available().await.unwrap();
    assert_eq!(table.rows().iter().map(|rows| rows.num_rows()).sum::<usize>(), 7);
    source.add(rows(7..10));
    query.process_all_available().await.unwrap();
    let progress = query.last_progress().unwrap();
    assert_eq!((progress.batch_id, progress.num_input_rows), (BatchId(1), 3));
    assert_eq!(query.recent_progress().len(), 2);
    let json: serde_json::Value = serde_json::from_str(&progress.json()).unwrap();
    for field in ["id", "runId", "name", "timestamp", "batchId", "numInputRows", "durationMs", "sources", "sink"] {
        assert!(!json[field].is_null(), "{field}: {json}");
    }
    assert_eq!(json["sink"]["numOutputRows"], 3);
    assert!(query.is_active() && query.exception().is_none());
    query.stop().await.unwrap();
    assert!(!query.is_active());
    assert_eq!(query.status().message, "Stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_without_checkpoint_location_is_refused_unless_its_sink_needs_none() {
    let session = session();
    let frame = session.stream(tidemill::MemorySource::new(schema())).await.unwrap();
    let table = tempfile::tempdir().unwrap();
    let refused = session.query("lost").sink("table", frame.clone(), Parquet::table(table.path().to_string_lossy()));
    assert_eq!(refused.start().await.expect_err("refused").code(), code::MISSING_OPTION);
    let query = session.query("fine").sink("table", frame, MemorySink::new()).trigger(Trigger::available_now());
    query.start().await.unwrap().await_termination().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_of_two_drivers_ends_with_75_and_names_the_newer() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..10);
    let (session, at) = (session(), |name: &str| root.path().join(name).to_string_lossy().into_owned());
    let start = async || {
        let frame = session.stream(source.clone()).await?;
        let query =
            session.query("twice").sink("table", frame, Parquet::table(at("table"))).checkpoint(at("checkpoint"));
        query.trigger(Trigger::processing_time(Duration::from_millis(20))).start().await
    };
    let older = start().await.unwrap();
    older.process_all_available().await.unwrap();
    let newer = start().await.unwrap();
    // Idle: nothing arrives, and still the older one ends soon.
    let ended = tokio::time::timeout(Duration::from_secs(10), older.await_termination()).await.expect("within 10 s");
    let error = ended.expect_err("fenced");
    assert_eq!((error.code(), error.exit_code()), (code::FENCED, 75));
    assert!(error.to_string().contains(newer.run_id().as_str()), "{error}");
    source.add(rows(10..20));
    newer.process_all_available().await.unwrap();
    newer.stop().await.unwrap();
    assert_eq!(table_numbers(&root.path().join("table")), (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn old_batches_are_purged_and_the_rest_is_still_a_whole_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let source = source(0..1);
    for n in 1..12 {
        let session = session();
        let frame = session.stream(source.clone()).await.unwrap();
        let query = session
            .query("purged")
            .sink("table", frame, Parquet::table(root.path().join("table").to_string_lossy()))
            .checkpoint(root.path().join("checkpoint").to_string_lossy())
            .retention(tidemill::Retention { batches_min: 3, age: Duration::ZERO, batches_max: 5 })
            .trigger(Trigger::available_now());
        query.start().await.unwrap().await_termination().await.unwrap();
        source.add(rows(n..n + 1));
        if n == 6 {
            // What a driver stages that slept past the commit of batch 1.
            let own = std::fs::read_dir(root.path().join("table/_tidemill")).unwrap().next().unwrap().unwrap().path();
            let stage = own.join("table/staging/00000000000000000001/slept");
            std::fs::create_dir_all(&stage).unwrap();
            std::fs::write(stage.join("part.parquet.staged"), "nobody's").unwrap();
        }
    }
    let found = crate::support::pipeline::files(&root.path().join("table"));
    let within = |folder: &str| found.iter().filter(|path| path.to_string_lossy().contains(folder)).count();
    assert_eq!(within("staging"), 0, "{found:?}");
    assert_eq!(within("manifest"), 11, "what a table shows is remembered for ever: {found:?}");
    for log in ["offsets", "acks", "commits"] {
        let kept = crate::support::pipeline::files(&root.path().join("checkpoint").join(log)).len();
        assert!((3..=5).contains(&kept), "{log}: {kept}");
    }
    assert_eq!(table_numbers(&root.path().join("table")), (0..11).collect::<Vec<_>>());
}

/// What a console was given to print on.
#[derive(Clone, Default)]
struct Page(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_beside_a_table_waits_until_the_attempt_has_won_and_keeps_one_batch() {
    let root = tempfile::tempdir().unwrap();
    let (source, session, table, page) = (source(0..6), session(), MemorySink::new(), Page::default());
    source.fail_at(4, 1);
    let output: tidemill_sinks::console::Output = std::sync::Arc::new(std::sync::Mutex::new(page.clone()));
    let run = async || {
        let frame = session.stream(source.clone()).await?;
        let query = session
            .query("beside")
            .sink("screen", frame.clone(), tidemill::Console::new().to(output.clone()))
            .sink("table", frame, table.clone())
            .checkpoint(root.path().to_string_lossy())
            .trigger(Trigger::available_now());
        query.start().await?.await_termination().await
    };
    run().await.unwrap();
    assert_eq!(source.reads(), [(0, 6), (0, 6)], "the first attempt failed in its middle");
    assert_eq!(numbers(&table.rows()), (0..6).collect::<Vec<_>>());
    let shown = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    assert_eq!(shown.matches("Batch: 0").count(), 1, "{shown}");
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(lines, ["|  n|", "|  0|", "|  1|", "|  2|", "|  3|", "|  4|", "|  5|"]);
    let spool = || crate::support::pipeline::files(&root.path().join("spool"));
    assert_eq!(spool().len(), 1, "what the lost attempt wrote is gone: {:?}", spool());

    // A torn commit is published again: the rows are still there to be shown.
    let commit = root.path().join(format!("commits/{:020}", 0));
    std::fs::write(&commit, "torn").unwrap();
    source.add(rows(6..8));
    run().await.unwrap();
    assert!(commit.with_extension("r1").exists());
    assert_eq!(numbers(&table.rows()), (0..8).collect::<Vec<_>>());
    let shown = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    assert_eq!(shown.matches("Batch: 0").count(), 2, "at least once: {shown}");
    assert_eq!(shown.matches("Batch: 1").count(), 1, "{shown}");
    let left = spool();
    assert!(left.len() == 1 && left[0].to_string_lossy().contains(&format!("{:020}-", 1)), "{left:?}");
}
