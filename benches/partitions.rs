//! What the number of partitions does: to the speed of landing a topic (1 to 64 partitions), to the memory that a backlog
//! takes (60 partitions of 50 MB each, 6,000 rows a batch), and to the cost of waiting (1,000 partitions in which
//! nothing happens, looked at as often as `processing_time(0)` does).

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::time::{Duration, Instant};

use serde_json::json;
use tidemill::prelude::*;

#[path = "../tests/support/broker.rs"]
mod broker;
#[path = "../tests/support/loader.rs"]
mod loader;
#[path = "../tests/support/service.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod service;
mod support;

const ROWS: u64 = 2_000_000;
const IDLE: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bare", brokers, topic, partitions] => support::bare(brokers, topic, partitions.parse().expect("a number")),
        ["land", _, brokers, topic, _] => land(brokers, topic, u64::MAX),
        ["backlog", brokers, topic] => land(brokers, topic, 6_000),
        ["idle", brokers, topic] => idle(brokers, topic),
        [] => all(false),
        ["--json"] => all(true),
        _ => panic!("usage: partitions [--json]"),
    }
}

fn all(as_json: bool) {
    let broker = broker::Broker::start();
    let report = |case: &str, measured: &serde_json::Value, more: serde_json::Value| {
        let mut line = json!({"bench": "partitions", "case": case, "peak_rss_mb": measured["peak_rss_mb"]});
        line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        support::print_case(as_json, &line);
    };
    let topic = broker::unique_topic("idle");
    broker.create_topic(&topic, 1_000, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..1_000);
    let measured = support::measure(&["idle", broker.bootstrap(), &topic]);
    let cores = measured["cpu_s"].as_f64().expect("a number") / IDLE.as_secs_f64();
    report("1000 idle", &measured, json!({"cores": cores}));

    let topic = broker::unique_topic("backlog");
    broker.create_topic(&topic, 60, &[]);
    loader::Loader::new(broker.bootstrap()).bulk(&topic, 60, 5_000, 10_000);
    let measured = support::measure(&["backlog", broker.bootstrap(), &topic]);
    assert_eq!(measured["rows"], 300_000, "a run that loses rows is no measurement");
    let seconds = measured["seconds"].as_f64().expect("a number");
    report("60 of 50 MB", &measured, json!({"mb_per_s": 3_000.0 / seconds, "median_ms": seconds * 1000.0}));

    for partitions in [1, 2, 4, 8, 16, 32, 64] {
        let (topic, count) = (broker::unique_topic("bench"), partitions.to_string());
        broker.create_topic(&topic, partitions, &[]);
        loader::load(broker.bootstrap(), &topic, partitions, 0..ROWS);
        let at = [broker.bootstrap(), &topic, &count];
        support::compare_with_bare(as_json, "partitions", &[&count], 1, &at, ROWS);
    }
}

/// Starts landing a topic in a folder.
async fn start(kafka: Kafka, trigger: Trigger, folder: &std::path::Path) -> tidemill::Result<StreamingQuery> {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let session = Session::builder().build()?;
    let rows = session.stream(kafka.start(Start::Earliest)).await?.select(["value", "partition", "offset"]);
    let query = session.query("bench").sink("table", rows, Parquet::table(at("table")));
    query.checkpoint(at("checkpoint")).trigger(trigger).start().await
}

fn land(brokers: &str, topic: &str, rows_a_batch: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let since = Instant::now();
    let rows: tidemill::Result<u64> = runtime.block_on(async {
        let kafka = Kafka::brokers(brokers).topic(topic).max_offsets_per_trigger(rows_a_batch);
        let query = start(kafka, Trigger::available_now(), folder.path()).await?;
        query.await_termination().await?;
        Ok(query.recent_progress().iter().map(|progress| progress.sinks["table"].num_output_rows).sum())
    });
    support::say_measured(since.elapsed().as_secs_f64(), rows.expect("the landing succeeds"));
}

/// Lands the few rows that are there, then waits; says what the waiting costs.
fn idle(brokers: &str, topic: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let kafka = Kafka::brokers(brokers).topic(topic);
        let query = start(kafka, Trigger::processing_time(Duration::ZERO), folder.path()).await.expect("it starts");
        query.process_all_available().await.expect("it runs");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = support::cpu_seconds();
        tokio::time::sleep(IDLE).await;
        let (cpu_s, peak_rss_mb) = (support::cpu_seconds() - before, support::peak_rss_mb());
        println!("{}", json!({"cpu_s": cpu_s, "peak_rss_mb": peak_rss_mb}));
        query.stop().await.expect("it stops");
    });
}
