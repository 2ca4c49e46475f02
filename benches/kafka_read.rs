//! Reading a topic into record batches and writing them nowhere, against a bare consume loop of the same run.
//!
//! As `kafka_to_parquet`, with the sink `noop`: what a source costs alone, and what decoding JSON adds to it.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::time::Instant;

use tidemill::prelude::*;

#[path = "../tests/support/broker.rs"]
mod broker;
#[path = "../tests/support/loader.rs"]
mod loader;
#[path = "../tests/support/service.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod service;
mod support;

const PARTITIONS: i32 = 8;
const TURNS: usize = 3;
const COLUMNS: &str = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["bare", brokers, topic] => support::bare(brokers, topic, PARTITIONS),
        ["land", case, brokers, topic] => read(case, brokers, topic),
        [] => compare(false),
        ["--json"] => compare(true),
        _ => panic!("usage: kafka_read [--json]"),
    }
}

fn compare(as_json: bool) {
    let rows = std::env::var("TIDEMILL_BENCH_ROWS").map_or(5_000_000, |text| text.parse().expect("a number of rows"));
    let broker = broker::Broker::start();
    let topic = broker::unique_topic("bench");
    broker.create_topic(&topic, PARTITIONS, &[]);
    eprintln!("loading {rows} rows");
    loader::load(broker.bootstrap(), &topic, PARTITIONS, 0..rows);
    support::compare_with_bare(as_json, "kafka_read", &["raw", "json"], TURNS, &[broker.bootstrap(), &topic], rows);
}

fn read(case: &str, brokers: &str, topic: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let since = Instant::now();
    let rows: tidemill::Result<u64> = runtime.block_on(async {
        let session = Session::builder().build()?;
        let messages = session.stream(Kafka::brokers(brokers).topic(topic).start(Start::Earliest)).await?;
        let rows = match case {
            "raw" => messages.select(["value", "partition", "offset"]),
            _ => messages.decode(Json::ddl(COLUMNS)),
        };
        let query = session.query("bench").sink("nowhere", rows, tidemill::Noop::new());
        let checkpoint = folder.path().join("checkpoint").to_string_lossy().into_owned();
        let query = query.checkpoint(checkpoint).trigger(Trigger::available_now()).start().await?;
        query.await_termination().await?;
        Ok(query.recent_progress().iter().map(|progress| progress.num_input_rows).sum())
    });
    support::say_measured(since.elapsed().as_secs_f64(), rows.expect("the read succeeds"));
}
