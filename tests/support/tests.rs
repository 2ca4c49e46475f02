//! The harness itself: a check that rests on it is worth as much as these.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::broker::{Broker, unique_topic};
use super::loader::{self, Loader, Record, Transactions, sensor_row};
use super::table;

#[test]
fn sensor_rows_are_the_same_in_every_run_and_about_120_bytes() {
    assert_eq!(
        sensor_row(0),
        "{\"sensor_id\":\"s-0535\",\"ts\":\"2026-01-01T00:00:00.000Z\",\"temperature\":17.05,\
         \"humidity\":33.3,\"status\":\"ok\",\"seq\":0}"
    );
    // 2028 is a leap year: day 790 from the start of 2026 is its 29 February.
    let leap_day = 789 * 8_640_000 + 4_512_345;
    assert!(sensor_row(leap_day).contains("\"ts\":\"2028-02-29T12:32:03.450Z\""), "{}", sensor_row(leap_day));
    let bytes: usize = (0..10_000).map(|i| sensor_row(1_000_000 + i).len()).sum();
    assert!((110..=130).contains(&(bytes / 10_000)), "{} bytes a row", bytes / 10_000);
}

#[test]
fn loaded_rows_are_each_in_the_topic_once_at_the_offset_that_their_number_says() {
    let broker = Broker::shared();
    let topic = unique_topic("load");
    broker.create_topic(&topic, 3, &[]);
    loader::load(broker.bootstrap(), &topic, 3, 0..10_000);
    assert_eq!(loader::watermarks(broker.bootstrap(), &topic), [(0, 0, 3334), (1, 0, 3333), (2, 0, 3333)]);
    let rows = loader::read_back(broker.bootstrap(), &topic);
    assert_eq!(rows.len(), 10_000);
    for (partition, offset, value) in rows {
        let i = offset as u64 * 3 + partition as u64;
        assert_eq!(value, Some(sensor_row(i).into_bytes()), "{partition}@{offset}");
    }
}

#[test]
fn topic_can_be_trimmed_deleted_and_created_anew() {
    let broker = Broker::shared();
    let topic = unique_topic("admin");
    broker.create_topic(&topic, 2, &[("retention.ms", "-1")]);
    loader::load(broker.bootstrap(), &topic, 2, 0..100);
    broker.delete_records(&topic, 1, 20);
    assert_eq!(loader::watermarks(broker.bootstrap(), &topic), [(0, 0, 50), (1, 20, 50)]);
    broker.delete_topic(&topic);
    broker.create_topic(&topic, 1, &[]);
    assert_eq!(loader::watermarks(broker.bootstrap(), &topic), [(0, 0, 0)]);
}

#[test]
fn aborted_rows_and_markers_take_offsets_but_are_not_read_back() {
    let broker = Broker::shared();
    let topic = unique_topic("transactions");
    broker.create_topic(&topic, 1, &[]);
    let transactions = Transactions::new(broker.bootstrap(), &topic);
    transactions.begin();
    transactions.write(&topic, 0, 0..3);
    transactions.commit();
    transactions.begin();
    transactions.write(&topic, 0, 3..5);
    transactions.abort();
    transactions.begin();
    transactions.write(&topic, 0, 5..6);
    transactions.commit();
    assert_eq!(loader::watermarks(broker.bootstrap(), &topic), [(0, 0, 9)]);
    let offsets: Vec<i64> =
        loader::read_back(broker.bootstrap(), &topic).into_iter().map(|(_, offset, _)| offset).collect();
    assert_eq!(offsets, [0, 1, 2, 7]);
}

#[test]
fn record_is_sent_with_key_headers_and_without_a_value() {
    let broker = Broker::shared();
    let topic = unique_topic("records");
    broker.create_topic(&topic, 1, &[("cleanup.policy", "compact")]);
    let headers = [("trace", Some(&b"1"[..])), ("trace", None)];
    let full = Record { key: Some(b"k"), value: Some(b""), headers: &headers, timestamp_ms: Some(5) };
    let offsets = Loader::new(broker.bootstrap()).send(&topic, 0, &[full, Record::tombstone(b"k")]);
    assert_eq!(offsets, [0, 1]);
    let values: Vec<_> = loader::read_back(broker.bootstrap(), &topic).into_iter().map(|row| row.2).collect();
    assert_eq!(values, [Some(Vec::new()), None]);
}

#[test]
fn broker_keeps_its_rows_through_kill_stop_and_pause() {
    let mut broker = Broker::start();
    let topic = unique_topic("outage");
    broker.create_topic(&topic, 2, &[]);
    let loader = Loader::new(broker.bootstrap());
    loader.load(&topic, 2, 0..1000);
    let bootstrap = broker.bootstrap().to_owned();
    broker.kill();
    assert!(TcpStream::connect(&bootstrap).is_err(), "a killed broker still listens");
    // Rows that are written while the broker is away, or is stopped in its tracks, arrive when it is back.
    std::thread::scope(|scope| {
        scope.spawn(|| loader.load(&topic, 2, 1000..2000));
        broker.restart();
    });
    assert_eq!(broker.bootstrap(), bootstrap);
    broker.pause();
    assert!(!answers(&bootstrap), "a paused broker still answers");
    std::thread::scope(|scope| {
        scope.spawn(|| loader.load(&topic, 2, 2000..3000));
        broker.resume();
    });
    broker.stop();
    assert!(TcpStream::connect(&bootstrap).is_err(), "a stopped broker still listens");
    broker.restart();
    assert_eq!(loader::watermarks(broker.bootstrap(), &topic), [(0, 0, 1500), (1, 0, 1500)]);
}

/// Whether the broker tells its topics within two seconds.
fn answers(bootstrap: &str) -> bool {
    let mut config = ClientConfig::new();
    let consumer: BaseConsumer = config.set("bootstrap.servers", bootstrap).create().expect("the setting is valid");
    consumer.fetch_metadata(None, Duration::from_secs(2)).is_ok()
}

#[test]
fn broker_and_its_folder_are_gone_when_the_program_is() {
    let mut supervisor = Command::new("bash")
        .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/kafka.sh"), "serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash runs the script");
    let mut commands = supervisor.stdin.take().expect("stdin is piped");
    let mut answers = BufReader::new(supervisor.stdout.take().expect("stdout is piped")).lines();
    let mut answer = || answers.next().expect("an answer comes").expect("it is text");
    let dir = answer().strip_prefix("dir ").expect("the folder comes first").to_owned();
    writeln!(commands, "start").expect("the script reads");
    let started = answer();
    assert!(started.starts_with("ok 127.0.0.1:"), "{started}");
    let pid = std::fs::read_to_string(format!("{dir}/kafka.pid")).expect("the broker's id is in its folder");
    let process = format!("/proc/{}", pid.trim());
    assert!(Path::new(&process).exists(), "the broker runs");
    // All that a program leaves of itself when it dies by SIGKILL is a closed pipe.
    drop(commands);
    supervisor.wait().expect("the supervisor ends");
    assert!(!Path::new(&process).exists(), "the broker has outlived its program");
    assert!(!Path::new(&dir).exists(), "the folder has outlived its program");
}

#[test]
fn both_readers_tell_repeated_rows_repeatedly_and_find_every_file() {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    assert_eq!(table::offsets(&dir), []);
    assert_eq!(table::offsets_by_pyarrow(&dir), []);
    let write = |file: &str, rows: &str| {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder is writable");
        let copy = format!("COPY ({rows}) TO '{}' (FORMAT parquet)", path.display());
        let python = ["-c", "import duckdb, sys; duckdb.sql(sys.argv[1])", &copy];
        let status = Command::new(table::python()).args(python).status().expect("the fetched python runs");
        assert!(status.success(), "{copy}");
    };
    write("a.parquet", "SELECT 1::INT AS partition, 7::BIGINT AS offset, 1 AS other");
    write("deep/er/b.parquet", "SELECT 0 AS partition, unnest([9, 7, 7])::BIGINT AS offset");
    let expected = [(0, 7), (0, 7), (0, 9), (1, 7)];
    assert_eq!(table::offsets(&dir), expected);
    assert_eq!(table::offsets_by_pyarrow(&dir), expected);
    assert_eq!(table::query(&format!("SELECT count(*), NULL FROM {}", table::files(&dir))), "4,NULL");
}
