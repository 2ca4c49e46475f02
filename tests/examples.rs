//! Every example, run as a user would run it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::{Landing, example, signal};
use crate::support::loader;

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
fn demo_lands_each_offset_once_across_a_kill() {
    let shown = run("demo", &[]);
    for text in ["killed in the middle", "40000 rows in", "each offset once", "What to try next"] {
        assert!(shown.contains(text), "{text}:\n{shown}");
    }
}

#[test]
fn sensor_data_goes_on_at_the_next_offset() {
    // A broker of its own: the lesson's topic has a fixed name.
    let broker = Broker::start();
    broker.create_topic("sensor-data", 1, &[]);
    let root = tempfile::tempdir().unwrap();
    let checkpoint = root.path().join("checkpoint").to_string_lossy().into_owned();
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
    let checkpoint = landing.checkpoint().to_string_lossy().into_owned();
    let shown = run("replay_batch", &[broker.bootstrap(), &topic, &checkpoint, "1"]);
    for seq in 5..8 {
        assert!(shown.contains(&format!("\"seq\":{seq}")), "{seq}:\n{shown}");
    }
    assert!(!shown.contains("\"seq\":4"), "{shown}");
    let outcome = Command::new(example("replay_batch")).args([broker.bootstrap(), &topic, &checkpoint, "9"]).output();
    let refused = outcome.unwrap();
    assert_eq!(refused.status.code(), Some(78), "{}", String::from_utf8_lossy(&refused.stderr));
}
