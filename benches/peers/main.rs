//! The same topic landed by Tidemill, by Spark and by Flink, on this machine, one after the other.
//!
//! 4,000,000 rows of about 120 bytes in 2 partitions. Of Spark and Flink the third run of one process counts, when their
//! virtual machines are warm; each run of ours is a process of its own, and the median of three counts. What each of them
//! wrote is counted in the Parquet files. `fetch.sh` brings both, which is some hundred megabytes.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use tidemill::prelude::*;

#[path = "../../tests/support/broker.rs"]
mod broker;
#[path = "../../tests/support/loader.rs"]
mod loader;
#[path = "../../tests/support/service.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod service;
#[path = "../support/mod.rs"]
mod support;

const PARTITIONS: i32 = 2;
const RUNS: usize = 3;
const COLUMNS: &str = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long";

/// What Flink's machine must be told to open to it.
const OPENED: [&str; 6] = ["java.util", "java.lang", "java.lang.reflect", "java.nio", "java.net", "sun.nio.ch"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["land", case, brokers, topic, folder] => land(case, brokers, topic, Path::new(folder)),
        [] => compare(false),
        ["--json"] => compare(true),
        _ => panic!("usage: peers [--json]"),
    }
}

fn compare(as_json: bool) {
    let rows = std::env::var("TIDEMILL_BENCH_ROWS").map_or(4_000_000, |text| text.parse().expect("a number of rows"));
    let (spark, flink) = (fetched("spark"), fetched("flink"));
    let broker = broker::Broker::start();
    let topic = broker::unique_topic("peers");
    broker.create_topic(&topic, PARTITIONS, &[]);
    eprintln!("loading {rows} rows");
    loader::load(broker.bootstrap(), &topic, PARTITIONS, 0..rows);
    for case in ["raw", "json"] {
        let land = |engine: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let at = folder.path().to_string_lossy().into_owned();
            let args = [broker.bootstrap(), &topic, &at, case];
            let (version, seconds) = match engine {
                "tidemill" => own(case, broker.bootstrap(), &topic, folder.path(), rows),
                "spark" => theirs(by_spark(&spark).args(args), rows),
                _ => theirs(by_flink(&flink).args(args), rows),
            };
            let line = json!({
                "bench": "peers", "case": case, "engine": engine, "version": version, "rows_per_s": rows as f64 / seconds,
            });
            support::print_case(as_json, &line);
            rows as f64 / seconds
        };
        // Ours last: the broker is warm for all but the first runs of the first, which do not count.
        let [spark, flink, ours] = ["spark", "flink", "tidemill"].map(land);
        let line = json!({"bench": "peers", "case": format!("{case}, ratio"), "to_spark": ours / spark, "to_flink": ours / flink});
        support::print_case(as_json, &line);
    }
}

fn fetched(engine: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/fetch.sh");
    let output = Command::new(script).arg(engine).stderr(Stdio::inherit()).output().expect("the script runs");
    assert!(output.status.success(), "{engine} cannot be fetched");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}

fn by_spark(place: &Path) -> Command {
    let mut command = Command::new(place.join("bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/spark/land.py"));
    command
}

fn by_flink(place: &Path) -> Command {
    let mut command = Command::new("java");
    command.args(OPENED.map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")));
    command.arg("-Xmx4g").arg("-cp").arg(format!("{0}:{0}/*", place.display())).arg("Land");
    command
}

/// Runs another engine: its version, and how long its last run took.
fn theirs(command: &mut Command, rows: u64) -> (String, f64) {
    let output = command.arg(RUNS.to_string()).stderr(Stdio::inherit()).output().expect("it can be started");
    assert!(output.status.success(), "it ended with {}", output.status);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let runs: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(runs.len(), RUNS, "{text}");
    let last = &runs[RUNS - 1];
    check(Path::new(last["table"].as_str().expect("a path")), rows);
    (last["version"].as_str().expect("a text").to_owned(), last["seconds"].as_f64().expect("a number"))
}

fn own(case: &str, brokers: &str, topic: &str, folder: &Path, rows: u64) -> (String, f64) {
    let run = |run: usize| {
        let folder = folder.join(run.to_string());
        let measured = support::measure(&["land", case, brokers, topic, &folder.to_string_lossy()]);
        check(&folder.join("table"), rows);
        measured["seconds"].as_f64().expect("a number")
    };
    (env!("CARGO_PKG_VERSION").to_owned(), support::median((0..RUNS).map(run).collect()))
}

/// Whether the files of a table have so many rows.
fn check(table: &Path, expected: u64) {
    fn rows_below(folder: &Path) -> i64 {
        let entries = std::fs::read_dir(folder).expect("a table").map(|entry| entry.expect("an entry").path());
        // Names that begin so are hidden from readers.
        let shown = entries.filter(|path| !path.file_name().expect("a name").to_string_lossy().starts_with(['_', '.']));
        shown
            .map(|path| match path.is_dir() {
                true => rows_below(&path),
                false => {
                    let file = std::fs::File::open(&path).expect("a file");
                    SerializedFileReader::new(file).expect("Parquet").metadata().file_metadata().num_rows()
                }
            })
            .sum()
    }
    assert_eq!(rows_below(table), expected as i64, "a run that loses rows is no measurement");
}

fn land(case: &str, brokers: &str, topic: &str, folder: &Path) {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let since = Instant::now();
    let rows: tidemill::Result<u64> = runtime.block_on(async {
        let session = Session::builder().build()?;
        let messages = session.stream(Kafka::brokers(brokers).topic(topic).start(Start::Earliest)).await?;
        let rows = match case {
            "raw" => messages.select(["value", "partition", "offset"]),
            _ => messages.decode(Json::ddl(COLUMNS)).select([
                "sensor_id",
                "ts",
                "temperature",
                "humidity",
                "status",
                "seq",
            ]),
        };
        let query = session.query("bench").sink("table", rows, Parquet::table(at("table")));
        let query = query.checkpoint(at("checkpoint")).trigger(Trigger::available_now()).start().await?;
        query.await_termination().await?;
        Ok(query.recent_progress().iter().map(|progress| progress.sinks["table"].num_output_rows).sum())
    });
    support::say_measured(since.elapsed().as_secs_f64(), rows.expect("the landing succeeds"));
}
