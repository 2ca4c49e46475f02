//! Small batches: what one costs, and how old a row is when it counts.
//!
//! First, 200 batches of 1,000 JSON rows of a real broker's topic, decoded, into a Parquet table on the local disk, one
//! right after the other: the time from commit to commit. Then a topic that gets 1,000 rows a second, with
//! `processing_time(0)`: the time from producing a row to the commit of its batch, by the clock of this machine. A broker
//! that has just started spends a whole core on compiling itself, so another table is landed before, uncounted.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

const BATCHES: u64 = 200;
const ROWS: u64 = 1000;
/// Batches before those that count, while the broker compiles what it needs.
const WARM_UP: u64 = 500;
/// Seconds that count, and those before: the broker compiles anew, for many small requests.
const SECONDS: u64 = 20;
const WARM_UP_SECONDS: u64 = 20;
const ROWS_IN_TIME: u64 = (WARM_UP_SECONDS + SECONDS) * 1000;
const COLUMNS: &str = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long";

fn main() {
    let as_json = std::env::args().any(|arg| arg == "--json");
    let broker = broker::Broker::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // What was written before, by a compiler perhaps, must not be on its way to the disk while this writes.
    let _ = std::process::Command::new("sync").status();
    // Kept to the end: for minutes after files were deleted, some file systems are slow to make new ones.
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    runtime.block_on(batches(&broker, folders[0].path(), WARM_UP)).expect("the query runs");
    let took = runtime.block_on(batches(&broker, folders[1].path(), BATCHES)).expect("the query runs");
    report(as_json, "", took);
    let ages = runtime.block_on(latency(&broker, folders[2].path())).expect("the query runs");
    report(as_json, "produced to committed", ages);
}

fn report(as_json: bool, case: &str, times: Vec<f64>) {
    let (median, p99) = (support::median(times.clone()), support::percentile(times, 0.99));
    support::print_case(as_json, &json!({"bench": "small_batches", "case": case, "median_ms": median, "p99_ms": p99}));
}

/// Starts landing a topic.
async fn start(broker: &broker::Broker, topic: &str, folder: &Path, limit: u64) -> tidemill::Result<StreamingQuery> {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let session = Session::builder().build()?;
    let kafka = Kafka::brokers(broker.bootstrap()).topic(topic).start(Start::Earliest).max_offsets_per_trigger(limit);
    let rows = session.stream(kafka).await?.decode(Json::ddl(COLUMNS));
    let rows = rows.select(["sensor_id", "ts", "temperature", "humidity", "status", "seq"]);
    let query = session.query("small").sink("table", rows, Parquet::table(at("table")));
    query.checkpoint(at("checkpoint")).trigger(Trigger::processing_time(Duration::ZERO)).start().await
}

/// The times of all batches but the first, which opens the connections.
async fn batches(broker: &broker::Broker, folder: &Path, count: u64) -> tidemill::Result<Vec<f64>> {
    let topic = broker::unique_topic("small");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..count * ROWS);
    let query = start(broker, &topic, folder, ROWS).await?;
    let took = support::batches_ms(&query, count).await?;
    query.stop().await?;
    support::say_phases(&query.recent_progress());
    Ok(took)
}

/// The age of every row that counts when its batch was committed.
async fn latency(broker: &broker::Broker, folder: &Path) -> tidemill::Result<Vec<f64>> {
    let topic = broker::unique_topic("latency");
    broker.create_topic(&topic, 1, &[]);
    let query = start(broker, &topic, folder, u64::MAX).await?;
    let address = broker.bootstrap().to_owned();
    let produced = std::thread::spawn(move || {
        let loader = loader::Loader::prompt(&address);
        let begun = Instant::now();
        let mut produced = Vec::new();
        for row in 0..ROWS_IN_TIME {
            let due = Duration::from_millis(row);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            produced.push(now_ms());
            loader.queue(&topic, 0, row);
        }
        loader.flush();
        produced
    });
    let (mut batch, mut counted, mut committed) = (0, 0_usize, Vec::new());
    while counted < ROWS_IN_TIME as usize {
        query.await_batch(tidemill::BatchId(batch)).await?;
        let now = now_ms();
        let progress = query.recent_progress();
        let this = progress.iter().find(|progress| progress.batch_id.0 == batch).expect("it is recent");
        counted += this.num_input_rows as usize;
        committed.resize(counted, now);
        batch += 1;
    }
    query.stop().await?;
    support::say_phases(&query.recent_progress());
    let produced = produced.join().expect("the rows are produced");
    Ok(committed
        .iter()
        .zip(&produced)
        .skip(WARM_UP_SECONDS as usize * 1000)
        .map(|(committed, produced)| committed - produced)
        .collect())
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1000.0
}
