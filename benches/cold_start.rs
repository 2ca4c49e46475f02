//! A cold start: from the start of a process to the commit of its first batch, 1,000 JSON rows of a real broker's topic into a
//! Parquet table on the local disk. The median of ten processes.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

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

const PROCESSES: usize = 10;
const COLUMNS: &str = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["land", brokers, topic, folder] => land(brokers, topic, folder),
        [] => compare(false),
        ["--json"] => compare(true),
        _ => panic!("usage: cold_start [--json]"),
    }
}

fn compare(as_json: bool) {
    let broker = broker::Broker::start();
    let topic = broker::unique_topic("cold");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..1000);
    let this = std::env::current_exe().expect("a running program has a path");
    let times = (0..=PROCESSES).map(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        let begun = Instant::now();
        let mut child = Command::new(&this)
            .args(["land", broker.bootstrap(), &topic])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let mut said = String::new();
        let out = child.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut said).expect("the child says something");
        let took_ms = begun.elapsed().as_secs_f64() * 1000.0;
        assert_eq!(said.trim(), "committed");
        assert!(child.wait().expect("the child ends").success());
        took_ms
    });
    // The first one finds the program in no cache.
    let times: Vec<f64> = times.skip(1).collect();
    let (median, p99) = (support::median(times.clone()), support::percentile(times, 0.99));
    support::print_case(as_json, &json!({"bench": "cold_start", "case": "", "median_ms": median, "p99_ms": p99}));
}

fn land(brokers: &str, topic: &str, folder: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let landed: tidemill::Result<()> = runtime.block_on(async {
        let session = Session::builder().build()?;
        let rows = session.stream(Kafka::brokers(brokers).topic(topic).start(Start::Earliest)).await?;
        let rows = rows.decode(Json::ddl(COLUMNS)).select(["sensor_id", "ts", "temperature", "seq"]);
        let query = session.query("cold").sink("table", rows, Parquet::table(format!("{folder}/table")));
        let query = query.checkpoint(format!("{folder}/checkpoint")).trigger(Trigger::available_now()).start().await?;
        query.await_batch(tidemill::BatchId(0)).await?;
        println!("committed");
        query.await_termination().await
    });
    landed.expect("the landing succeeds");
}
