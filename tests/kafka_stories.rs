//! Queries on a real broker whose topics grow, are cut, go away and come back, and the options that say what then happens.

use std::time::Duration;

use tidemill::prelude::*;
use tidemill::{Result, StreamingQueryProgress, WithoutMatch, code};

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::Landing;
use crate::support::loader::{self, Loader, Record, Transactions};
use crate::support::{table, tools, topic_that_ends_in_markers};

/// How long a query may take to get anywhere.
const BOUND: Duration = Duration::from_secs(60);

/// A checkpoint and a table, for queries on a topic.
struct Story {
    broker: &'static Broker,
    topic: String,
    root: tempfile::TempDir,
    session: Session,
}

impl Story {
    fn new(name: &str, partitions: i32) -> Story {
        let (broker, topic) = (Broker::shared(), unique_topic(name));
        broker.create_topic(&topic, partitions, &[]);
        let root = tempfile::tempdir().unwrap();
        let session = Session::builder().retry_start(Duration::from_secs(5)).retry_running(Duration::from_secs(5));
        Story { broker, topic, root, session: session.build().unwrap() }
    }

    fn load(&self, partitions: i32, rows: std::ops::Range<u64>) {
        loader::load(self.broker.bootstrap(), &self.topic, partitions, rows);
    }

    /// The story's topic, from its first row.
    fn kafka(&self) -> Kafka {
        self.brokers().topic(&self.topic).start(Start::Earliest)
    }

    fn brokers(&self) -> Kafka {
        Kafka::brokers(self.broker.bootstrap()).stuck_timeout_ms(20_000)
    }

    async fn start(&self, kafka: Kafka, trigger: Trigger) -> Result<StreamingQuery> {
        let at = |name: &str| self.root.path().join(name).to_string_lossy().into_owned();
        let rows = self.session.stream(kafka).await?.select(["topic", "partition", "offset", "key", "value"]);
        let query = self.session.query("story").sink("table", rows, Parquet::table(at("table")));
        query.checkpoint(at("checkpoint")).trigger(trigger).start().await
    }

    /// Reads all that is there; what each batch said of itself.
    async fn finish(&self, kafka: Kafka) -> Result<Vec<StreamingQueryProgress>> {
        let query = self.start(kafka, Trigger::available_now()).await?;
        tokio::time::timeout(BOUND, query.await_termination()).await.expect("the query ends")?;
        Ok(query.recent_progress())
    }

    fn landed(&self) -> Vec<(i32, i64)> {
        table::offsets(self.root.path().join("table"))
    }

    /// The binding entry of a batch in the checkpoint.
    fn entry(&self, log: &str, batch_id: u64) -> serde_json::Value {
        let path = self.root.path().join("checkpoint").join(log).join(format!("{batch_id:020}"));
        tidemill::store::unseal(&std::fs::read(path).unwrap()).unwrap()
    }
}

/// Rows that the batches counted as lost.
fn lost(progress: &[StreamingQueryProgress]) -> u64 {
    let metric = |progress: &StreamingQueryProgress| progress.sources[0].metrics.get("dataLoss").cloned();
    progress.iter().filter_map(metric).map(|rows| rows.parse::<u64>().unwrap()).sum()
}

fn pairs(partition: i32, offsets: impl IntoIterator<Item = i64>) -> Vec<(i32, i64)> {
    offsets.into_iter().map(|offset| (partition, offset)).collect()
}

async fn all_available(query: &StreamingQuery) -> Result<()> {
    tokio::time::timeout(BOUND, query.process_all_available()).await.expect("the query gets on")
}

#[tokio::test(flavor = "multi_thread")]
async fn available_now_reads_fifteen_rows_in_three_batches_of_five() {
    let story = Story::new("fifteen", 5);
    story.load(5, 0..15);
    let progress = story.finish(story.kafka().max_offsets_per_trigger(5)).await.unwrap();
    assert_eq!(progress.iter().map(|batch| batch.num_input_rows).collect::<Vec<_>>(), [5, 5, 5]);
    assert_eq!(story.landed().len(), 15);
    story.load(5, 15..40);
    // The largest limit that can be said overflows nothing.
    let progress = story.finish(story.kafka().max_offsets_per_trigger(i64::MAX as u64)).await.unwrap();
    assert_eq!(progress.iter().map(|batch| batch.num_input_rows).collect::<Vec<_>>(), [25]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trimmed_rows_are_counted_where_the_query_goes_on_after_a_loss() {
    let story = Story::new("trimmed", 1);
    story.load(1, 0..20);
    let tolerant = || story.kafka().fail_on_data_loss(false);
    assert_eq!(lost(&story.finish(tolerant()).await.unwrap()), 0);
    story.load(1, 20..100);
    story.broker.delete_records(&story.topic, 0, 60);
    let error = story.finish(story.kafka()).await.expect_err("rows are gone");
    assert_eq!(error.code(), code::DATA_LOSS, "{error:?}");
    let progress = story.finish(tolerant()).await.unwrap();
    assert_eq!((progress.len(), lost(&progress)), (1, 40), "{progress:?}");
    assert_eq!(story.landed(), pairs(0, (0..20).chain(60..100)));
    let loss = &story.entry("offsets", 1)["sources"]["kafka-0"]["loss"];
    assert_eq!(loss["rows"], 40, "the log has it: {loss}");
    assert!(loss["why"][0].as_str().unwrap().contains("40 rows are lost"), "{loss}");
    assert!(progress[0].line().contains("40 lost"), "{}", progress[0].line());
    // Once counted, it is over.
    story.load(1, 100..110);
    assert_eq!(lost(&story.finish(tolerant()).await.unwrap()), 0);
    assert_eq!(story.landed().len(), 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_made_again_is_read_from_its_first_row_where_losses_are_accepted() {
    for rows in [0, 40, 150] {
        let story = Story::new("again", 2);
        story.load(2, 0..200);
        let tolerant = || story.kafka().fail_on_data_loss(false);
        story.finish(tolerant()).await.unwrap();
        story.broker.delete_topic(&story.topic);
        story.broker.create_topic(&story.topic, 1, &[]);
        story.load(1, 0..rows);
        let error = story.finish(story.kafka()).await.expect_err("the topic is another");
        assert_eq!(error.code(), code::TOPIC_RECREATED, "{error:?}");
        story.finish(tolerant()).await.unwrap();
        let why = story.entry("offsets", 1)["sources"]["kafka-0"]["loss"]["why"][0].clone();
        assert!(why.as_str().unwrap().contains("made again"), "{why}");
        assert_eq!(story.landed().len() as u64, 200 + rows, "the new topic's rows, each once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn query_survives_the_end_of_one_of_its_topics_where_losses_are_accepted() {
    let story = Story::new("stays", 1);
    let other = unique_topic("goes");
    story.broker.create_topic(&other, 1, &[]);
    story.load(1, 0..10);
    loader::load(story.broker.bootstrap(), &other, 1, 0..10);
    let kafka = || story.kafka().topic(&other).fail_on_data_loss(false);
    let query = story.start(kafka(), Trigger::processing_time(Duration::from_millis(50))).await.unwrap();
    all_available(&query).await.unwrap();
    story.broker.delete_topic(&other);
    story.load(1, 10..30);
    all_available(&query).await.unwrap();
    story.load(1, 30..35);
    all_available(&query).await.unwrap();
    assert_eq!(story.landed().len(), 45);
    // It is said once, not with every look.
    let told = |progress: &StreamingQueryProgress| progress.sources[0].metrics.contains_key("dataLoss");
    assert_eq!(query.recent_progress().iter().filter(|progress| told(progress)).count(), 1);
    assert!(query.is_active());
    query.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_partitions_that_appear_under_a_pattern_are_read_from_their_first_row() {
    let story = Story::new("pattern", 1);
    story.load(1, 0..5);
    let second = format!("{}-b", story.topic);
    let kafka = || story.brokers().topic_pattern(format!("{}(-.)?", story.topic));
    // It starts at the end of what is there …
    let query = story.start(kafka(), Trigger::processing_time(Duration::from_millis(50))).await.unwrap();
    all_available(&query).await.unwrap();
    // … and what appears later is read whole.
    story.broker.create_topic(&second, 2, &[]);
    let unlike = format!("{}-unlike", story.topic);
    story.broker.create_topic(&unlike, 1, &[]);
    for topic in [&second, &unlike] {
        loader::load(story.broker.bootstrap(), topic, 1, 0..7);
    }
    story.load(1, 5..8);
    all_available(&query).await.unwrap();
    query.stop().await.unwrap();
    let mut expected = pairs(0, (0..7).chain(5..8));
    expected.sort_unstable();
    assert_eq!(story.landed(), expected);
    // A restart goes on, and no topic at all is no error.
    loader::load(story.broker.bootstrap(), &second, 2, 7..9);
    story.finish(kafka()).await.unwrap();
    assert_eq!(story.landed().len(), 12);
    let nothing = Story::new("nothing", 1);
    nothing.finish(nothing.brokers().topic_pattern("no-such-topic-.*")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_gone_from_a_pattern_is_a_logged_loss_also_for_available_now() {
    let story = Story::new("leaves", 1);
    let second = format!("{}-b", story.topic);
    story.broker.create_topic(&second, 1, &[]);
    for topic in [&story.topic, &second] {
        loader::load(story.broker.bootstrap(), topic, 1, 0..5);
    }
    let pattern = format!("{}(-.)?", story.topic);
    let kafka = || story.brokers().topic_pattern(&pattern).start(Start::Earliest).fail_on_data_loss(false);
    story.finish(kafka()).await.unwrap();
    story.broker.delete_topic(&second);
    // Nothing else is new, and the loss is a batch all the same; then it is told.
    for expected in [1, 0] {
        let progress = story.finish(kafka()).await.unwrap();
        let told = |progress: &StreamingQueryProgress| progress.sources[0].metrics.contains_key("dataLoss");
        assert_eq!(progress.iter().filter(|progress| told(progress)).count(), expected, "{progress:?}");
    }
    let why = story.entry("offsets", 1)["sources"]["kafka-0"]["loss"]["why"][0].clone();
    assert!(why.as_str().unwrap().contains(&second), "{why}");
    // Made anew, it is another topic.
    story.broker.create_topic(&second, 1, &[]);
    loader::load(story.broker.bootstrap(), &second, 1, 0..3);
    story.finish(kafka()).await.unwrap();
    assert_eq!(story.landed().len(), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_start_is_remembered_though_nothing_was_there_to_read() {
    let story = Story::new("remembered", 1);
    let progress = story.finish(story.kafka()).await.unwrap();
    assert_eq!(progress.iter().map(|batch| batch.num_input_rows).collect::<Vec<_>>(), [0]);
    let source = &progress[0].sources[0];
    assert_eq!((&source.latest_offset, &*source.metrics["rowsBehindLatest"]), (&source.end_offset, "0"));
    // Where a new query would start does not matter any more.
    story.load(1, 0..5);
    story.finish(story.brokers().topic(&story.topic)).await.unwrap();
    assert_eq!(story.landed(), pairs(0, 0..5));
    // Rows that came and went before they were read are missed.
    let empty = Story::new("missed", 1);
    empty.finish(empty.kafka()).await.unwrap();
    empty.load(1, 0..10);
    empty.broker.delete_records(&empty.topic, 0, 6);
    assert_eq!(empty.finish(empty.kafka()).await.expect_err("rows are gone").code(), code::DATA_LOSS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_starts_at_a_time() {
    let story = Story::new("times", 2);
    let loader = Loader::new(story.broker.bootstrap());
    for (partition, times) in [(0, [1000, 2000, 3000]), (1, [1500, 1500, 1600])] {
        let records =
            times.map(|time_ms| Record { value: Some(b"x"), timestamp_ms: Some(time_ms), ..Record::default() });
        loader.send(&story.topic, partition, &records);
    }
    let start = async |start: Start, without: WithoutMatch| -> Result<Vec<(i32, i64)>> {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
        let rows =
            story.session.stream(story.brokers().topic(&story.topic).start(start).without_match(without)).await?;
        let rows = rows.select(["partition", "offset"]);
        let query = story.session.query("times").sink("table", rows, Parquet::table(at("table")));
        let query = query.checkpoint(at("checkpoint")).trigger(Trigger::available_now()).start().await?;
        query.await_termination().await?;
        Ok(table::offsets(root.path().join("table")))
    };
    let times = |first, second| Start::Timestamps([(story.topic.clone(), [(0, first), (1, second)].into())].into());
    let error = WithoutMatch::Error;
    for (begin, without, expected) in [
        (Start::Timestamp(0), error, vec![(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        (Start::Timestamp(1500), error, vec![(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        (times(2001, 1501), error, vec![(0, 2), (1, 2)]),
        (Start::Timestamp(2000), WithoutMatch::Latest, vec![(0, 1), (0, 2)]),
    ] {
        assert_eq!(start(begin.clone(), without).await.unwrap(), expected, "{begin:?}");
    }
    let half = Start::Timestamps([(story.topic.clone(), [(0, 5)].into())].into());
    for (begin, words) in [(Start::Timestamp(2000), "no row as late as 2000"), (half, "do not name")] {
        let refused = start(begin, error).await.expect_err("refused");
        assert_eq!(refused.exit_code(), 78, "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_cut_in_pieces_give_every_row_once() {
    let story = Story::new("pieces", 2);
    story.load(2, 0..1000);
    story.finish(story.kafka().min_partitions(7)).await.unwrap();
    let receipts = story.entry("acks", 0)["receipts"].as_array().unwrap().len();
    assert!(receipts >= 7, "{receipts} splits");
    story.load(2, 1000..1500);
    story.finish(story.kafka().max_records_per_partition(100)).await.unwrap();
    assert_eq!(story.entry("acks", 1)["receipts"].as_array().unwrap().len(), 6);
    assert_eq!(story.landed(), [pairs(0, 0..750), pairs(1, 0..750)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_waits_for_enough_rows_but_not_for_ever() {
    let story = Story::new("waits", 1);
    let hold = |delay| story.kafka().min_offsets_per_trigger(100, delay);
    story.load(1, 0..3);
    let every = Trigger::processing_time(Duration::from_millis(20));
    let query = story.start(hold(Duration::from_secs(3600)), every).await.unwrap();
    all_available(&query).await.unwrap();
    assert_eq!(story.landed().len(), 3, "the first batch is not held back");
    story.load(1, 3..50);
    all_available(&query).await.unwrap();
    assert_eq!(story.landed().len(), 3, "47 rows are not enough");
    story.load(1, 50..103);
    all_available(&query).await.unwrap();
    assert_eq!(story.landed().len(), 103);
    query.stop().await.unwrap();
    // The delay is over before a row too few is waited for.
    story.load(1, 103..105);
    let query = story.start(hold(Duration::from_millis(300)), every).await.unwrap();
    all_available(&query).await.unwrap();
    story.load(1, 105..106);
    tokio::time::timeout(BOUND, query.await_batch(tidemill::BatchId(3))).await.expect("it goes on").unwrap();
    query.stop().await.unwrap();
    assert_eq!(story.landed().len(), 106);
    // Whoever reads all that is there does not wait.
    story.load(1, 106..107);
    story.finish(hold(Duration::from_secs(3600))).await.unwrap();
    assert_eq!(story.landed().len(), 107);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_bound_a_batch_once_the_size_of_rows_is_known() {
    let story = Story::new("bytes", 1);
    let value = vec![b'x'; 1000];
    let record = Record { value: Some(&value), ..Record::default() };
    Loader::new(story.broker.bootstrap()).send(&story.topic, 0, &vec![record; 50]);
    let progress = story.finish(story.kafka().max_bytes_per_trigger(10_000)).await.unwrap();
    let rows: Vec<u64> = progress.iter().map(|batch| batch.num_input_rows).collect();
    // A row could have a mebibyte, as far as the first batch knows.
    assert_eq!(rows, [1, 10, 10, 10, 10, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn uncommitted_rows_are_read_on_request_and_markers_never() {
    let story = Story::new("unused", 1);
    let (topic, _writer) = topic_that_ends_in_markers(story.broker);
    let kafka = story.brokers().topic(&topic).start(Start::Earliest);
    story.finish(kafka.property("isolation.level", "read_uncommitted")).await.unwrap();
    assert_eq!(story.landed(), pairs(0, [0, 1, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_an_open_transaction_come_once_it_is_committed() {
    let story = Story::new("open", 1);
    let writer = Transactions::new(story.broker.bootstrap(), &story.topic);
    writer.begin();
    writer.write(&story.topic, 0, 0..1);
    writer.commit();
    writer.begin();
    writer.write(&story.topic, 0, 1..2);
    writer.abort();
    writer.begin();
    writer.write(&story.topic, 0, 2..5);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let within = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis().to_string();
    writer.write(&story.topic, 0, 5..7);
    story.load(1, 7..9);
    // A static read waits for no transaction.
    let read = |name: &str, value: &str| {
        let read = story.session.read().format("kafka").option("kafka.bootstrap.servers", story.broker.bootstrap());
        read.option("subscribe", &story.topic).option(name, value).load()
    };
    for (name, value) in [("endingOffsets", "latest"), ("endingTimestamp", &within)] {
        let rows = read(name, value).await.unwrap().select(["offset"]).collect().await.unwrap();
        assert_eq!(rows.iter().map(|rows| rows.num_rows()).sum::<usize>(), 1, "{name}");
    }
    let beyond = format!(r#"{{"{}":{{"0":6}}}}"#, story.topic);
    for (name, value, words) in [
        ("endingOffsets", &beyond, "a transaction is open"),
        ("startingOffsets", &beyond, "a transaction is open"),
        ("startingTimestamp", &within, "no row as late as"),
    ] {
        let error = read(name, value).await.expect_err("refused");
        assert!(error.to_string().contains(words) && error.to_string().contains(name), "{error}");
    }
    let query = story.start(story.kafka(), Trigger::processing_time(Duration::from_millis(20))).await.unwrap();
    all_available(&query).await.unwrap();
    assert_eq!(story.landed(), pairs(0, [0]), "nothing beyond the open transaction");
    writer.commit();
    let begun = std::time::Instant::now();
    while story.landed().len() < 8 && begun.elapsed() < BOUND {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    query.stop().await.unwrap();
    // Offsets 1, 3 and 11 are markers, and 2 was taken back.
    assert_eq!(story.landed(), pairs(0, std::iter::once(0).chain(4..11)));
}

#[tokio::test(flavor = "multi_thread")]
async fn null_and_empty_keys_and_values_stay_what_they_are() {
    let story = Story::new("nulls", 1);
    let records = [
        Record::tombstone(b"k1"),
        Record { value: Some(b"{\"a\":1}"), ..Record::default() },
        Record::default(),
        Record { key: Some(b"k2"), value: Some(b""), ..Record::default() },
        Record { key: Some(b"k4"), value: Some(b"{\"a\":2}"), headers: &[("h", None)], ..Record::default() },
        Record { key: Some(b"k3"), value: Some(b"null"), ..Record::default() },
    ];
    Loader::new(story.broker.bootstrap()).send(&story.topic, 0, &records);
    story.finish(story.kafka().include_headers(true)).await.unwrap();
    let files = table::files(story.root.path().join("table"));
    let sql = format!("SELECT \"offset\", key IS NULL, octet_length(value) FROM {files} ORDER BY \"offset\"");
    let expected = ["0,false,NULL", "1,true,7", "2,true,NULL", "3,false,0", "4,false,7", "5,false,4"];
    assert_eq!(table::query(&sql).lines().collect::<Vec<_>>(), expected);
    let kafka = story.session.read().format("kafka").option("kafka.bootstrap.servers", story.broker.bootstrap());
    let rows = kafka.option("subscribe", &story.topic).option("includeHeaders", true).load().await.unwrap();
    let with = rows.filter("headers IS NOT NULL");
    let with = with.select_expr(["\"offset\"", "headers[1]['key'] AS name", "headers[1]['value'] IS NULL AS empty"]);
    let with = with.collect().await.unwrap();
    let shown = arrow::util::pretty::pretty_format_batches(&with).unwrap().to_string();
    assert_eq!(with.iter().map(|rows| rows.num_rows()).sum::<usize>(), 1, "{shown}");
    assert!(shown.contains("| 4      | h    | true  |"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timestamp_that_no_column_can_hold_is_an_error_that_names_the_row() {
    let mut story = Story::new("nanoseconds", 1);
    // The broker would not have such a row, unless it is told so.
    let largest = i64::MAX.to_string();
    story.topic = unique_topic("nanoseconds");
    story.broker.create_topic(&story.topic, 1, &[("message.timestamp.after.max.ms", &largest)]);
    let records = [1_700_000_000_000, 1_700_000_000_000_000_000].map(|time| Record {
        value: Some(b"x"),
        timestamp_ms: Some(time),
        ..Record::default()
    });
    Loader::new(story.broker.bootstrap()).send(&story.topic, 0, &records);
    let at = |name: &str| story.root.path().join(name).to_string_lossy().into_owned();
    let rows = story.session.stream(story.kafka()).await.unwrap().select(["offset", "timestamp"]);
    let query = story.session.query("story").sink("table", rows, Parquet::table(at("table")));
    let query = query.checkpoint(at("checkpoint")).trigger(Trigger::available_now()).start().await.unwrap();
    let error = query.await_termination().await.expect_err("refused");
    assert_eq!((error.code(), error.exit_code()), (code::BAD_RECORD, 65), "{error:?}");
    assert!(error.to_string().contains(&format!("{}-0@1", story.topic)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_that_tools_see_is_that_of_progress() {
    let story = Story::new("lag", 2);
    story.load(2, 0..100);
    let kafka = story.kafka().max_offsets_per_trigger(20);
    let query = story.start(kafka, Trigger::processing_time(Duration::from_secs(3600))).await.unwrap();
    tokio::time::timeout(BOUND, query.await_batch(tidemill::BatchId(0))).await.expect("it gets on").unwrap();
    let progress = query.last_progress().expect("a batch");
    let metrics = &progress.sources[0].metrics;
    assert_eq!(metrics["rowsBehindLatest"], "80");
    let offsets = ["minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest"];
    assert_eq!(offsets.map(|name| metrics[name].as_str()), ["40", "40", "40"]);
    let group = &metrics["consumerGroup"];
    assert_eq!(*group, format!("tidemill-{}-kafka-0", query.id()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seen = tools::describe_group(story.broker.bootstrap(), group);
    let seen: Vec<_> = seen.iter().map(|lag| (lag.partition, lag.committed, lag.end, lag.lag)).collect();
    assert_eq!(seen, [(0, 10, 50, 40), (1, 10, 50, 40)]);
    query.stop().await.unwrap();
    // The last word is told before a query ends.
    let named = || story.kafka().property("group.id", format!("{}-named", story.topic));
    story.finish(named()).await.unwrap();
    let seen = tools::describe_group(story.broker.bootstrap(), &format!("{}-named", story.topic));
    assert_eq!(seen.iter().map(|lag| lag.lag).collect::<Vec<_>>(), [0, 0]);
    story.load(2, 100..120);
    story.finish(story.kafka().commit_to_group(false)).await.unwrap();
    let seen = tools::describe_group(story.broker.bootstrap(), group);
    assert_eq!(seen.iter().map(|lag| lag.lag).sum::<u64>(), 100, "nothing was told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_read_gives_the_rows_of_its_range_as_often_as_it_is_read() {
    let story = Story::new("static", 2);
    let loader = Loader::new(story.broker.bootstrap());
    for partition in [0, 1] {
        let record = |at: i64| Record { value: Some(b"x"), timestamp_ms: Some(1000 * at), ..Record::default() };
        let records: Vec<_> = (1..11).map(record).collect();
        loader.send(&story.topic, partition, &records);
    }
    let read = |options: &[(&str, String)]| {
        let read = story.session.read().format("kafka").option("kafka.bootstrap.servers", story.broker.bootstrap());
        let read =
            options.iter().fold(read.option("subscribe", &story.topic), |read, (name, value)| read.option(name, value));
        read.load()
    };
    let count = async |frame: DataFrame| -> u64 {
        frame.select(["partition"]).collect().await.unwrap().iter().map(|rows| rows.num_rows() as u64).sum()
    };
    let whole = read(&[]).await.unwrap();
    assert!(!whole.is_streaming());
    assert_eq!(count(whole.clone()).await, 20);
    // What comes later is not in it, however often it is read.
    loader.send(&story.topic, 0, &[Record { value: Some(b"late"), timestamp_ms: Some(99_000), ..Record::default() }]);
    assert_eq!(count(whole.clone()).await, 20);
    let by_partition = |first: i64, second: i64| format!(r#"{{"{}":{{"0":{first},"1":{second}}}}}"#, story.topic);
    for (options, expected) in [
        (vec![("endingOffsets", by_partition(3, -1))], 13),
        (vec![("startingOffsets", by_partition(5, -2)), ("endingOffsets", by_partition(8, 4))], 7),
        (vec![("startingTimestamp", "4000".to_owned()), ("endingTimestamp", "6000".to_owned())], 4),
        (vec![("endingOffsetsByTimestamp", by_partition(2000, 500_000))], 11),
        (vec![("minPartitions", "5".to_owned()), ("endingOffsets", by_partition(10, 10))], 20),
    ] {
        assert_eq!(count(read(&options).await.unwrap()).await, expected, "{options:?}");
    }
    let sum = whole.select_expr(["\"offset\" * 2 AS double"]).filter(col("double").gt(lit(10)));
    assert_eq!(sum.collect().await.unwrap().iter().map(|rows| rows.num_rows()).sum::<usize>(), 8);
    for (options, words) in [
        (vec![("endingOffsets", by_partition(99, 1))], "beyond its end"),
        (
            vec![("startingOffsets", by_partition(5, 5)), ("endingOffsets", by_partition(4, 9))],
            "starts at 5 and ends at 4",
        ),
        (vec![("endingOffsets", format!(r#"{{"{}":{{"0":1}}}}"#, story.topic))], "do not name"),
        (vec![("endingOffsets", format!(r#"{{"{}":{{"0":1,"1":1,"7":1}}}}"#, story.topic))], "-7 is named"),
        (vec![("startingOffsets", format!(r#"{{"{}":{{"0":1,"1":1}},"u":{{"0":1}}}}"#, story.topic))], "u-0 is named"),
    ] {
        let error = read(&options).await.expect_err("refused");
        assert!(error.to_string().contains(words), "{error}");
    }
    let error = story.session.read().format("rate").load().await.expect_err("a stream alone");
    assert_eq!(error.code(), code::USAGE, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_reads_up_to_its_end_and_resumes() {
    let story = Story::new("backfill", 1);
    story.load(1, 0..100);
    let place = |offset| Start::Offsets([(story.topic.clone(), [(0, offset)].into())].into());
    let kafka = || story.brokers().topic(&story.topic).between(place(10)..place(60)).max_offsets_per_trigger(20);
    // Stopped after its first batch, it goes on where it was.
    let query = story.start(kafka(), Trigger::processing_time(Duration::from_secs(3600))).await.unwrap();
    tokio::time::timeout(BOUND, query.await_batch(tidemill::BatchId(0))).await.expect("it gets on").unwrap();
    assert_eq!(query.last_progress().unwrap().sources[0].metrics["rowsBehindLatest"], "30", "of its range");
    query.stop().await.unwrap();
    assert_eq!(story.landed(), pairs(0, 10..30));
    story.finish(kafka()).await.unwrap();
    assert_eq!(story.landed(), pairs(0, 10..60));
    // Nothing is left, and rows that come later are not its own.
    story.load(1, 100..120);
    assert_eq!(story.finish(kafka()).await.unwrap().len(), 0);
    // An end that is not there yet is waited for.
    let further = || story.brokers().topic(&story.topic).between(place(10)..place(130));
    story.finish(further()).await.unwrap();
    // Nor are partitions that come later.
    story.broker.add_partitions(&story.topic, 2);
    story.load(1, 120..150);
    story.finish(further()).await.unwrap();
    assert_eq!(story.landed(), pairs(0, 10..130));
    let both = |first, second| Start::Offsets([(story.topic.clone(), [(0, first), (1, second)].into())].into());
    for (begin, end, words) in [
        (both(60, 0), both(10, 0), "starts at 60 and ends at 10"),
        (both(160, 0), both(170, 0), "beyond its end"),
        (both(0, 0), place(10), "has only one end"),
    ] {
        let refused = Story { root: tempfile::tempdir().unwrap(), topic: story.topic.clone(), ..Story::new("bad", 1) };
        let subscribed = refused.brokers().topic(&refused.topic).between(begin.clone()..end.clone());
        let assigned = refused.brokers().assign(&refused.topic, [0, 1]).between(begin..end);
        for kafka in [subscribed, assigned] {
            let error = refused.finish(kafka).await.expect_err("refused");
            assert_eq!(error.code(), code::INVALID_OPTION, "{error:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}

/// What librdkafka fetches ahead is bounded for each partition's queue, 64 MB unless told: sixty of them are gigabytes.
#[test]
fn a_backlog_in_many_partitions_is_read_within_a_bound_of_memory() {
    const PARTITIONS: i32 = 60;
    const ROWS: u64 = 1_200;
    let broker = Broker::start();
    let topic = unique_topic("backlog");
    broker.create_topic(&topic, PARTITIONS, &[]);
    Loader::new(broker.bootstrap()).bulk(&topic, PARTITIONS, ROWS, 10_000);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &["--max-offsets", "6000"]);
    let mut running = landing.start("available-now", &[]);
    let mut peak_kib = 0;
    while running.is_running() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak_kib = line.map_or(peak_kib, |line| line.trim().trim_end_matches(" kB").parse().unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = running.wait(Duration::from_secs(1));
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!((1..512 << 10).contains(&peak_kib), "{peak_kib} KiB for a backlog of 720 MB");
    let expected: Vec<(i32, i64)> =
        (0..PARTITIONS).flat_map(|partition| (0..ROWS as i64).map(move |offset| (partition, offset))).collect();
    assert_eq!(table::offsets(landing.table()), expected);
}
