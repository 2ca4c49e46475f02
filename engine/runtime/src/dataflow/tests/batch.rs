//! Batches from SQL to acks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_core::clock::{Clock, SystemClock};
use tidemill_core::error::{Code, code};
use tidemill_core::source::Receipt;
use tokio_util::sync::CancellationToken;

use super::super::executor::{BatchExecutor, BatchOutcome};
use super::super::plan_batch::BatchRequest;
use super::super::testing::{Fault, Kit, Numbers, SinkFault, lines_of, split};

async fn run(kit: &Kit, request: BatchRequest) -> tidemill_core::Result<BatchOutcome> {
    let job = kit.engine.plan_batch(request).await?;
    kit.engine.executor().execute(job, CancellationToken::new()).await
}

fn numbers(part: &str, range: std::ops::Range<i64>) -> Vec<String> {
    let mut lines: Vec<String> = range.map(|n| format!("{part} {n}")).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_all_splits_are_written_once_and_acknowledged() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..15_000), split("numbers", "b", 0..10_000), split("numbers", "c", 5..5)];
    let request = kit.request(splits.clone(), &["SELECT part, n FROM numbers"]).await;
    let outcome = run(&kit, request).await.unwrap();

    let mut expected = [numbers("a", 0..15_000), numbers("b", 0..10_000)].concat();
    expected.sort();
    assert_eq!(kit.lines("s0"), expected);
    Receipt::check(&splits, &outcome.receipts).unwrap();
    let acks = &outcome.acks["s0"];
    assert_eq!(acks.iter().map(|ack| ack.task).collect::<Vec<_>>(), [0, 1], "one task for each of two cores");
    assert_eq!(acks.iter().map(|ack| ack.rows).sum::<u64>(), 25_000);
    assert_eq!((outcome.input_rows["numbers"], outcome.output_rows["s0"]), (25_000, 25_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_share_one_read_each_with_its_own_columns() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..1_000), split("numbers", "b", 0..30_000)];
    let queries =
        ["SELECT n FROM numbers WHERE n < 2", "SELECT part FROM numbers WHERE n = 999", "SELECT 1 FROM numbers"];
    let mut request = kit.request(splits.clone(), &queries).await;
    request.sinks[2] = kit.sink("s2", (*request.sinks[2].plan).clone(), 1);
    let outcome = run(&kit, request).await.unwrap();

    assert_eq!(kit.lines("s0"), ["0", "0", "1", "1"]);
    assert_eq!(kit.lines("s1"), ["a", "b"]);
    assert_eq!(kit.lines("s2").len(), 31_000);
    assert_eq!(outcome.acks["s2"].len(), 1, "a sink that takes one task gets one");
    let mut reads = kit.memory.reads.lock().unwrap().clone();
    reads.sort();
    assert_eq!(reads, [("a".into(), Some(vec![0, 1])), ("b".into(), Some(vec![0, 1]))]);
    Receipt::check(&splits, &outcome.receipts).unwrap();
}

// On one thread: nothing may wait for a task that cannot run meanwhile.
#[tokio::test]
async fn union_of_a_stream_with_itself_reads_once_and_writes_twice() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..12_000), split("numbers", "b", 0..12_000)];
    let union = "SELECT part, n FROM numbers UNION ALL SELECT part, n + 12000 FROM numbers";
    let outcome = run(&kit, kit.request(splits.clone(), &[union]).await).await.unwrap();
    let mut expected = [numbers("a", 0..24_000), numbers("b", 0..24_000)].concat();
    expected.sort();
    assert_eq!(kit.lines("s0"), expected);
    assert_eq!(kit.memory.reads.lock().unwrap().len(), 2);
    assert_eq!(outcome.acks["s0"].len(), 2, "four partitions, two tasks");
    Receipt::check(&splits, &outcome.receipts).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sink_of_one_task_sees_split_after_split() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "b", 0..20_000), split("numbers", "a", 0..20_000)];
    let mut request = kit.request(splits, &["SELECT part, n FROM numbers"]).await;
    request.sinks[0] = kit.sink("s0", (*request.sinks[0].plan).clone(), 1);
    run(&kit, request).await.unwrap();
    let in_order = |part: &str| (0..20_000).map(|n| format!("{part} {n}")).collect::<Vec<_>>();
    assert_eq!(kit.lines_in_order("s0"), [in_order("b"), in_order("a")].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rows_are_written_by_one_task_and_no_rows_by_none() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..10), split("numbers", "b", 0..10)];
    let queries = ["SELECT n FROM numbers", "SELECT n FROM numbers WHERE n > 10"];
    let outcome = run(&kit, kit.request(splits, &queries).await).await.unwrap();
    assert_eq!((outcome.acks["s0"].len(), outcome.acks["s1"].len()), (1, 0));
    assert_eq!(outcome.output_rows["s1"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_without_splits_has_no_rows_and_union_goes_on() {
    let kit = Kit::new();
    kit.table("one", Fault::None);
    kit.table("two", Fault::None);
    let union = "SELECT n FROM one UNION ALL SELECT n FROM two";
    let splits = vec![split("two", "t", 0..3)];
    let outcome = run(&kit, kit.request(splits.clone(), &[union]).await).await.unwrap();
    assert_eq!(kit.lines("s0"), ["0", "1", "2"]);
    Receipt::check(&splits, &outcome.receipts).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn split_that_no_sink_looks_at_is_read_all_the_same() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..300), split("numbers", "b", 0..3)];
    let outcome = run(&kit, kit.request(splits.clone(), &["SELECT n FROM numbers WHERE false"]).await).await.unwrap();
    Receipt::check(&splits, &outcome.receipts).unwrap();
    assert_eq!((outcome.input_rows["numbers"], outcome.output_rows["s0"]), (303, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_read_fails_the_attempt_with_its_own_error() {
    async fn check(fault: Fault, code: Code, text: &str) {
        let kit = Kit::new();
        kit.table("numbers", fault);
        let splits = vec![split("numbers", "a", 0..30_000), split("numbers", "b", 40_000..70_000)];
        let queries = ["SELECT part, n FROM numbers", "SELECT n FROM numbers"];
        for count in [1, 2] {
            let request = kit.request(splits.clone(), &queries[..count]).await;
            let error = run(&kit, request).await.expect_err(text);
            assert_eq!(error.code(), code, "{error:?}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    check(Fault::Fail(50_500), code::SOURCE_UNAVAILABLE, "TM0201 no answer (n 50500, source numbers)").await;
    check(Fault::Panic(50_500), code::TASK_PANICKED, "TM0011 a task panicked: number 50500 is cursed").await;
    check(Fault::NoReceipt, code::BUG, "ended without a receipt").await;
    check(Fault::WrongReceipt, code::RECEIPT_MISMATCH, "gave 30000 rows and a receipt for 30001").await;
    check(Fault::OtherColumns, code::BUG, "other columns").await;
    check(Fault::LateFail, code::SOURCE_UNAVAILABLE, "TM0201 no answer at the end (source numbers)").await;
    check(Fault::EndsTooEarly, code::BUG, "gave rows after their end").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipt_may_come_when_the_rows_are_long_written() {
    let queries = ["SELECT part, n FROM numbers", "SELECT n FROM numbers"];
    for count in [1, 2] {
        let kit = Kit::new();
        kit.table("numbers", Fault::LateReceipt);
        let splits = vec![split("numbers", "a", 0..300), split("numbers", "b", 400..700)];
        let outcome = run(&kit, kit.request(splits.clone(), &queries[..count]).await).await.unwrap();
        Receipt::check(&splits, &outcome.receipts).unwrap();
        assert_eq!(outcome.output_rows["s0"], 600);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_writer_fails_the_attempt_with_its_own_error() {
    async fn check(fault: SinkFault, code: Code, text: &str, aborted: usize) {
        let kit = Kit::new();
        kit.table("numbers", Fault::None);
        let splits = vec![split("numbers", "a", 0..300)];
        let mut request = kit.request(splits, &["SELECT n FROM numbers"]).await;
        request.sinks[0] = kit.faulty_sink("s0", (*request.sinks[0].plan).clone(), 1, fault);
        let error = run(&kit, request).await.expect_err(text);
        assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        assert_eq!(kit.memory.aborted.load(Ordering::SeqCst), aborted, "{text}");
    }
    check(SinkFault::FailWrite, code::SINK_UNAVAILABLE, "TM0301 no room (sink s0)", 1).await;
    check(SinkFault::PanicWrite, code::TASK_PANICKED, "TM0011 a task panicked: the writer is cursed", 1).await;
    check(SinkFault::FailFinish, code::SINK_UNAVAILABLE, "TM0301 no room at the end (sink s0)", 0).await;
    let wrong = "TM0010 a writer acknowledged 299 rows of task 0, not 300 of task 0 (sink s0)";
    check(SinkFault::WrongAck, code::BUG, wrong, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_writers_are_aborted_when_another_read_fails() {
    let kit = Kit::new();
    kit.table("numbers", Fault::Fail(50_500));
    // One task, whose first split is long written when the second fails.
    let splits = vec![split("numbers", "a", 0..300), split("numbers", "b", 50_000..50_600)];
    run(&kit, kit.request(splits, &["SELECT n FROM numbers"]).await).await.expect_err("fails");
    assert_eq!(kit.memory.aborted.load(Ordering::SeqCst), 1);
    assert!(kit.memory.finished.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_attempt_ends_at_once_even_while_a_read_or_a_write_hangs() {
    for (fault, sink_fault) in [(Fault::Hang(250), SinkFault::None), (Fault::None, SinkFault::HangWrite)] {
        let kit = Kit::new();
        kit.table("numbers", fault);
        let mut request = kit.request(vec![split("numbers", "a", 0..1_000)], &["SELECT n FROM numbers"]).await;
        request.sinks[0] = kit.faulty_sink("s0", (*request.sinks[0].plan).clone(), 1, sink_fault);
        let job = kit.engine.plan_batch(request).await.unwrap();
        let cancel = CancellationToken::new();
        let executor = kit.engine.executor();
        let running = tokio::spawn({
            let cancel = cancel.clone();
            async move { executor.execute(job, cancel).await }
        });
        let clock = SystemClock::default();
        clock.sleep(Duration::from_millis(50)).await;
        cancel.cancel();
        let error = running.await.unwrap().expect_err("stopped");
        assert_eq!(error.code(), code::STOPPED);
        assert!(clock.elapsed() < Duration::from_secs(5), "{fault:?} {sink_fault:?}");
        assert_eq!(kit.memory.aborted.load(Ordering::SeqCst), 1, "{fault:?} {sink_fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_kept_from_batch_to_batch() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    for _ in 0..3 {
        let splits = vec![split("numbers", "a", 0..10)];
        run(&kit, kit.request(splits, &["SELECT n FROM numbers"]).await).await.unwrap();
    }
    assert_eq!(kit.memory.built.load(Ordering::SeqCst), 2, "one reader and one sink");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn now_is_the_time_of_the_batch() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let sql = "SELECT now(), current_date(), to_timestamp('2024-01-01T00:00:00') FROM numbers";
    let mut request = kit.request(vec![split("numbers", "a", 0..1)], &[sql]).await;
    run(&kit, request.clone()).await.unwrap();
    request.timestamp_ms += 86_400_000;
    run(&kit, request).await.unwrap();
    assert_eq!(
        kit.lines("s0"),
        [
            "2023-11-14T22:13:20Z 2023-11-14 2024-01-01T00:00:00Z",
            "2023-11-15T22:13:20Z 2023-11-15 2024-01-01T00:00:00Z",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_range_come_in_the_same_order_every_time() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let plan = kit.sql("SELECT part, n FROM numbers WHERE n % 2 = 0").await.unwrap();
    let splits = vec![split("numbers", "b", 0..400), split("numbers", "a", 0..400)];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let rows = kit.engine.plan_rows(&plan, &splits, 0).await.unwrap();
        let executor = kit.engine.executor();
        let read = executor.read(rows, tidemill_core::BatchId(7), 2, CancellationToken::new());
        let (rows, receipts) = read.await.unwrap();
        Receipt::check(&splits, &receipts).unwrap();
        seen.push(lines_of(&rows));
    }
    assert_eq!(seen[0].len(), 400);
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn expression_that_fails_on_a_value_says_so() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..10)];
    let error = run(&kit, kit.request(splits, &["SELECT 10 / (n - 5) FROM numbers"]).await).await.expect_err("fails");
    assert_eq!(error.code(), code::EXPRESSION, "{error:?}");
    assert_eq!(
        error.to_string(),
        "TM0404 divide by zero error; fix: guard it, by CASE or NULLIF or try_cast, or filter such rows out before it"
    );
}

#[tokio::test]
async fn two_sources_of_one_name_are_refused_and_one_source_twice_is_not() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let twice = kit.sql("SELECT n FROM numbers UNION ALL SELECT n FROM numbers").await.unwrap();
    assert_eq!(super::super::sources_of(&twice).unwrap().len(), 1);
    assert!(super::super::is_streaming(&twice));

    let table = |fault| super::super::StreamTable { name: "same".into(), source: Numbers::with(fault) };
    let left = table(Fault::None).into_plan().unwrap();
    let right = table(Fault::None).into_plan().unwrap();
    let both = datafusion::logical_expr::LogicalPlanBuilder::from(left).union(right).unwrap().build().unwrap();
    let error = super::super::sources_of(&both).expect_err("refused");
    assert_eq!(error.code(), code::BAD_PLAN);
    assert!(!super::super::is_streaming(&kit.sql("SELECT 1").await.unwrap()));
}
