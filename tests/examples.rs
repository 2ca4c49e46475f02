//! Every example, run as a user would run it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::{Landing, example, signal};
use crate::support::hdfs::Hdfs;
use crate::support::loader;
use crate::support::place::Place;
use crate::support::s3::S3;
use crate::support::table;

/// Runs an example to its end and gives what it printed.
fn run(name: &str, args: &[&str]) -> String {
    let output = Command::new(example(name)).args(args).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {args:?}: {}\n{text}", output.status);
    text
}

#[test]
fn quickstart_shows_a_table_for_every_batch() {
    let shown = run("quickstart", &["1"]);
    for text in ["Batch: 0", "Batch: 1", "|value|lane|", "query \"\"", "batch 1:"] {
        assert!(shown.contains(text), "{text}:\n{shown}");
    }
}

#[test]
fn an_error_that_nobody_can_read_keeps_its_exit_code() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args =
        ["--brokers", "127.0.0.1:99999", "--topic", "t", "--table", "t", "--checkpoint", "c", "--columns", "raw"];
    let outcome = Command::new(example("kafka_to_parquet")).args(args).stderr(full).status().unwrap();
    assert_eq!(outcome.code(), Some(78));
}

#[test]
fn demo_lands_each_offset_once_across_a_kill() {
    let shown = run("demo", &[]);
    for text in ["killed in the middle", "40000 rows in", "each offset once", "What to try next"] {
        assert!(shown.contains(text), "{text}:\n{shown}");
    }
}

#[test]
fn sensor_data_goes_on_at_the_next_offset() {
    sensor_data_resumes(&Place::local());
}

#[test]
fn sensor_data_goes_on_at_the_next_offset_from_a_checkpoint_on_hdfs() {
    let place = Place::hdfs(&Hdfs::shared());
    sensor_data_resumes(&place);
    assert!(place.url.starts_with("hdfs://"), "{}", place.url);
}

/// The lesson, with its checkpoint in a place.
fn sensor_data_resumes(place: &Place) {
    // A broker of its own: the lesson's topic has a fixed name.
    let broker = Broker::start();
    broker.create_topic("sensor-data", 1, &[]);
    let checkpoint = place.at("checkpoint");
    let shown_until = |text: &str| {
        let out = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(example("sensor_data"))
            .args([broker.bootstrap(), &checkpoint])
            .stdout(out.reopen().unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        let shown = loop {
            let shown = std::fs::read_to_string(out.path()).unwrap();
            if shown.contains(text) {
                break shown;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "no \"{text}\":\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        };
        // SIGTERM ends it in order.
        signal(&child, "TERM");
        assert!(child.wait().unwrap().success());
        shown
    };
    loader::load(broker.bootstrap(), "sensor-data", 1, 0..3);
    let first = shown_until("\"seq\":2");
    assert!(first.contains("Batch: 0") && first.contains("\"seq\":0"), "{first}");
    loader::load(broker.bootstrap(), "sensor-data", 1, 3..5);
    let second = shown_until("\"seq\":4");
    assert!(second.contains("Batch: 1") && second.contains("\"seq\":3"), "{second}");
    assert!(!second.contains("\"seq\":2"), "it goes on where it was:\n{second}");
}

#[test]
fn replay_batch_shows_the_rows_of_one_batch() {
    let broker = Broker::shared();
    let topic = unique_topic("replayed");
    broker.create_topic(&topic, 1, &[]);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &[]);
    for rows in [0..5, 5..8] {
        loader::load(broker.bootstrap(), &topic, 1, rows);
        landing.finish();
    }
    let checkpoint = landing.checkpoint();
    let shown = run("replay_batch", &[broker.bootstrap(), &topic, &checkpoint, "1"]);
    for seq in 5..8 {
        assert!(shown.contains(&format!("\"seq\":{seq}")), "{seq}:\n{shown}");
    }
    assert!(!shown.contains("\"seq\":4"), "{shown}");
    let outcome = Command::new(example("replay_batch")).args([broker.bootstrap(), &topic, &checkpoint, "9"]).output();
    let refused = outcome.unwrap();
    assert_eq!(refused.status.code(), Some(78), "{}", String::from_utf8_lossy(&refused.stderr));
    // Of another topic the logged offsets say nothing.
    let other = unique_topic("other");
    broker.create_topic(&other, 1, &[]);
    let outcome = Command::new(example("replay_batch")).args([broker.bootstrap(), &other, &checkpoint, "1"]).output();
    let refused = outcome.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(78) && told.contains("TM0124"), "{told}");
    // Nobody reads what it prints: an error like any other.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = [broker.bootstrap(), &topic, &checkpoint, "1"];
    let outcome = Command::new(example("replay_batch")).args(args).stdout(full).output().unwrap();
    assert_eq!(outcome.status.code(), Some(74), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn kafka_to_parquet_lands_on_s3_and_goes_on_there() {
    let broker = Broker::shared();
    let topic = unique_topic("to-s3");
    broker.create_topic(&topic, 2, &[]);
    let s3 = S3::start();
    let place = Place::s3(&s3);
    let landing = Landing::at(broker.bootstrap(), &topic, &place, &[]);
    for rows in [0..50, 50..80] {
        loader::load(broker.bootstrap(), &topic, 2, rows);
        landing.finish();
    }
    let found = table::offsets(&place.copy_of("table").folder);
    let expected: Vec<(i32, i64)> =
        (0..2).flat_map(|partition| (0..40).map(move |offset| (partition, offset))).collect();
    assert_eq!(found, expected);
}

#[test]
fn doctor_finds_a_disk_fit_and_a_careless_store_unfit() {
    let root = tempfile::tempdir().unwrap();
    let shown = run("doctor", &[&root.path().join("checkpoint").to_string_lossy()]);
    assert!(shown.contains("one winner each") && shown.contains("can hold checkpoints"), "{shown}");
    let s3 = S3::start();
    s3.fail(serde_json::json!([{"fault": "unconditional", "method": "PUT"}]));
    let refused = Command::new(example("doctor")).arg("s3://tidemill/x").envs(s3.env()).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(78) && told.contains("TM0105"), "{told}");
}
