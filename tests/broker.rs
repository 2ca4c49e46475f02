//! The real broker goes away, comes back, lies about nothing, and is asked for topics that it does not have.

use std::time::{Duration, Instant};

use tidemill::prelude::*;

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::Landing;
use crate::support::{loader, table, topic_that_ends_in_markers};

fn landed(landing: &Landing) -> usize {
    let found = table::offsets(landing.table());
    let mut once = found.clone();
    once.dedup();
    assert_eq!(once.len(), found.len(), "doubled");
    found.len()
}

#[test]
fn a_broker_that_stops_in_mid_batch_and_comes_back_after_20_seconds_completes_the_same_batch() {
    let mut broker = Broker::start();
    let topic = unique_topic("away");
    broker.create_topic(&topic, 2, &[]);
    loader::load(broker.bootstrap(), &topic, 2, 0..200_000);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &[]);
    let mut child = landing.start("available-now", &[("TIDEMILL_STOP_AT", "mid-read:0")]);
    child.wait_for("stop point mid-read:0 reached", Duration::from_secs(60));
    broker.kill();
    child.signal("CONT");
    std::thread::sleep(Duration::from_secs(20));
    broker.restart();
    let ended = child.wait(Duration::from_secs(120));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(landed(&landing), 200_000);
    assert_eq!(landing.newest("offsets"), Some(0), "one batch, as it was logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_stays_away_ends_a_running_query_with_69_and_the_next_start_goes_on() {
    let mut broker = Broker::start();
    let topic = unique_topic("gone");
    broker.create_topic(&topic, 2, &[]);
    loader::load(broker.bootstrap(), &topic, 2, 0..1_000);
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let address = broker.bootstrap().to_owned();
    let session = Session::builder().retry_running(Duration::from_secs(2)).build().unwrap();
    let run = async |trigger: Trigger| {
        let kafka = Kafka::brokers(&address).topic(&topic).start(Start::Earliest);
        let rows = session.stream(kafka.call_timeout_ms(2_000).stuck_timeout_ms(3_000)).await?;
        let rows = rows.select(["partition", "offset"]);
        let query = session.query("gone").sink("table", rows, Parquet::table(at("table")));
        query.checkpoint(at("checkpoint")).trigger(trigger).start().await
    };
    let query = run(Trigger::processing_time(Duration::ZERO)).await.unwrap();
    query.process_all_available().await.unwrap();
    broker.kill();
    let ended = tokio::time::timeout(Duration::from_secs(60), query.await_termination()).await.expect("a bound");
    let error = ended.expect_err("it gave up");
    assert_eq!((error.code(), error.exit_code()), (tidemill::code::SOURCE_UNAVAILABLE, 69), "{error:?}");
    assert!(error.to_string().contains("gave up after"), "{error}");
    broker.restart();
    loader::load(broker.bootstrap(), &topic, 2, 1_000..1_500);
    run(Trigger::available_now()).await.unwrap().await_termination().await.unwrap();
    let found = table::offsets(root.path().join("table"));
    let expected: Vec<_> = (0..2).flat_map(|partition| (0..750).map(move |offset| (partition, offset))).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_wrong_address_and_a_misspelt_topic_are_clear_errors_within_the_bound() {
    let broker = Broker::shared();
    broker.create_topic("sensor-data-spelt", 1, &[]);
    for (brokers, topic, code, texts) in [
        // With the library's own reason.
        ("127.0.0.1:1", "sensor-data-spelt", 69, ["TM0201", "Connection refused"]),
        (broker.bootstrap(), "sensor-data-spellt", 78, ["TM0202", "did you mean \"sensor-data-spelt\"?"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let landing = Landing::new(brokers, topic, root.path(), &[]);
        let since = Instant::now();
        let ended = landing.start("available-now", &[]).wait(Duration::from_secs(60));
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(texts.iter().all(|text| ended.stderr.contains(text)), "{}", ended.stderr);
        assert!(since.elapsed() < Duration::from_secs(45), "{:?}", since.elapsed());
    }
}

#[test]
fn a_topic_that_ends_in_aborted_rows_and_markers_ends_under_available_now() {
    let broker = Broker::shared();
    let (topic, writer) = topic_that_ends_in_markers(broker);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &[]);
    landing.finish();
    assert_eq!(table::offsets(landing.table()), [(0, 0), (0, 1)]);
    // Nothing new: it ends again, and the next committed row is read once.
    landing.finish();
    writer.begin();
    writer.write(&topic, 0, 3..4);
    writer.commit();
    landing.finish();
    assert_eq!(table::offsets(landing.table()).len(), 3);
}

#[test]
fn a_trimmed_range_and_a_recreated_topic_stop_the_query_with_both_numbers() {
    let broker = Broker::shared();
    let topic = unique_topic("trimmed");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..100);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &["--max-offsets", "20"]);
    let child = landing.start("default", &[("TIDEMILL_CRASH_AT", "commit:0")]);
    child.wait(Duration::from_secs(60));
    broker.delete_records(&topic, 0, 60);
    let ended = landing.start("available-now", &[]).wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(65), "{}", ended.stderr);
    for text in ["TM0205", "20", "60"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert_eq!(landed(&landing), 20);

    broker.delete_topic(&topic);
    std::thread::sleep(Duration::from_secs(1));
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..150);
    let ended = landing.start("available-now", &[]).wait(Duration::from_secs(60));
    assert_eq!(ended.status.code(), Some(65), "{}", ended.stderr);
    assert!(ended.stderr.contains("TM0207"), "{}", ended.stderr);
}

#[test]
fn typed_columns_and_a_filter_land_what_they_say() {
    let broker = Broker::shared();
    let topic = unique_topic("typed");
    broker.create_topic(&topic, 2, &[]);
    loader::load(broker.bootstrap(), &topic, 2, 0..1_000);
    let root = tempfile::tempdir().unwrap();
    let mut landing = Landing::new(broker.bootstrap(), &topic, root.path(), &["--filter", "seq < 10"]);
    landing.columns = "json";
    landing.finish();
    let glob = format!("{}/**/*.parquet", landing.table());
    let sql = format!("SELECT seq, temperature, sensor_id FROM '{glob}' ORDER BY seq");
    let found = table::query(&sql);
    for seq in 0..10 {
        let row = loader::Sensor::new(seq);
        assert!(found.contains(&row.temperature().to_string()), "{seq}: {found}");
    }
    assert_eq!(landed(&landing), 10);
}

#[test]
fn a_sink_that_is_added_later_says_what_is_not_in_it() {
    let broker = Broker::shared();
    let topic = unique_topic("added");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..100);
    let root = tempfile::tempdir().unwrap();
    let mut landing = Landing::new(broker.bootstrap(), &topic, root.path(), &[]);
    landing.finish();
    landing.flags = vec!["--copy".to_owned(), root.path().join("copy").display().to_string()];
    let ended = landing.start("available-now", &[]).wait(Duration::from_secs(60));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stderr.contains("is new: what was read up to batch 0 is not in it"), "{}", ended.stderr);
    loader::load(broker.bootstrap(), &topic, 1, 100..150);
    landing.finish();
    assert_eq!(table::offsets(root.path().join("copy")).len(), 50);
    assert_eq!(landed(&landing), 150);
}
