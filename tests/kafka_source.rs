//! The Kafka source against a real broker: where ranges end, what is never lost silently, and what is waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::StreamExt;
use tidemill_connectors::{Kafka, Start, register};
use tidemill_core::testing::source_promises::{self, context, read, splits};
use tidemill_core::{
    Context, Error, Offsets, Owner, QueryId, Range, ReadContext, ReadItem, ReadLimit, Receipt, Registry, Result,
    Secret, Source, SourceBuilder, SourceReader, Split, code,
};

use crate::support::broker::{Broker, unique_topic};
use crate::support::loader::{Loader, Record, Transactions, load, watermarks};
use crate::support::{tools, topic_that_ends_in_markers};

struct Opened {
    source: Arc<dyn Source>,
    reader: Arc<dyn SourceReader>,
}

async fn open(kafka: Kafka) -> Result<Opened> {
    let context = Context::default();
    let source = kafka.build(&context).await?;
    let mut registry = Registry::new();
    register(&mut registry);
    let reader = registry.source("kafka")?.reader(source.spec(), &context)?;
    Ok(Opened { source, reader })
}

async fn open_topic(broker: &Broker, topic: &str) -> Opened {
    open(earliest(broker, topic)).await.expect("the topic is there")
}

fn earliest(broker: &Broker, topic: &str) -> Kafka {
    Kafka::brokers(broker.bootstrap()).topic(topic).start(Start::Earliest)
}

impl Opened {
    async fn next(&self, from: &Offsets) -> Result<Option<Range>> {
        Ok(self.source.next(from, &ReadLimit::default()).await?.map(|offer| offer.range))
    }

    /// As `next`, once something waits: a commit is answered before its markers are written.
    async fn awaited(&self, from: &Offsets) -> Range {
        let begun = Instant::now();
        loop {
            if let Some(range) = self.next(from).await.expect("the source can be asked") {
                return range;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing comes");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn first(&self) -> Range {
        let initial = self.source.initial().await.expect("the source has a start");
        self.next(&initial).await.expect("the source can be asked").expect("rows wait")
    }

    /// The offsets of all rows of a range, in the order of its splits; every receipt is checked.
    async fn offsets(&self, range: &Range) -> Result<Vec<i64>> {
        let mut offsets = Vec::new();
        for split in splits(self.source.as_ref(), range) {
            offsets.extend(self.split(&split).await?.0);
        }
        Ok(offsets)
    }

    async fn split(&self, split: &Split) -> Result<(Vec<i64>, Receipt)> {
        let (rows, receipt) = read(self.reader.as_ref(), split, context()).await?;
        Receipt::check(std::slice::from_ref(split), std::slice::from_ref(&receipt))?;
        self.source.check_receipt(split, &receipt)?;
        Ok((
            rows.iter().flat_map(|rows| rows.column(4).as_primitive::<Int64Type>().values().to_vec()).collect(),
            receipt,
        ))
    }
}

/// A position in partition 0, made from another one.
fn moved(like: &Offsets, next: i64) -> Offsets {
    let mut json = like.as_json().clone();
    let topics = json["topics"].as_object_mut().expect("offsets have topics");
    for topic in topics.values_mut() {
        topic["partitions"]["0"] = serde_json::json!({ "next": next });
    }
    serde_json::from_value(json).expect("offsets")
}

fn next_of(offsets: &Offsets, topic: &str) -> i64 {
    offsets.as_json()["topics"][topic]["partitions"]["0"]["next"].as_i64().expect("partition 0 is known")
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_source_keeps_every_promise_with_a_real_broker() {
    let (broker, topic) = (Broker::shared(), unique_topic("promises"));
    broker.create_topic(&topic, 3, &[]);
    load(broker.bootstrap(), &topic, 3, 0..300);
    let opened = open_topic(broker, &topic).await;
    source_promises::all(opened.source.as_ref(), opened.reader.as_ref()).await;
    assert!(!opened.source.description().contains("without topic ids"), "{}", opened.source.description());
    let range = opened.first().await;
    source_promises::plan_obeys_the_logged_interpretation(
        opened.source.as_ref(),
        &range,
        &serde_json::json!({ "isolation": "read_uncommitted" }),
        "read_uncommitted",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn range_that_ends_in_markers_and_aborted_rows_is_done() {
    let broker = Broker::shared();
    let (topic, transactions) = topic_that_ends_in_markers(broker);
    let opened = open_topic(broker, &topic).await;
    let range = opened.first().await;
    assert_eq!((next_of(&range.start, &topic), next_of(&range.end, &topic)), (0, 5));
    for (start, end, expected) in
        [(0, 5, vec![0, 1]), (0, 2, vec![0, 1]), (2, 3, vec![]), (3, 5, vec![]), (0, 5, vec![0, 1]), (1, 4, vec![1])]
    {
        let piece = Range { start: moved(&range.start, start), end: moved(&range.end, end) };
        let begun = Instant::now();
        assert_eq!(opened.offsets(&piece).await.expect("the range can be read"), expected, "[{start}, {end})");
        assert!(begun.elapsed() < Duration::from_secs(3), "[{start}, {end}) took {:?}", begun.elapsed());
    }
    assert_eq!(opened.next(&range.end).await.expect("the source can be asked"), None);
    transactions.begin();
    transactions.write(&topic, 0, 5..7);
    transactions.commit();
    let next = opened.awaited(&range.end).await;
    assert_eq!(opened.offsets(&next).await.expect("the range can be read"), [5, 6]);
}

#[test]
fn readers_that_wait_for_their_consumer_take_no_thread_from_sinks() {
    let (broker, topic) = (Broker::shared(), unique_topic("threads"));
    broker.create_topic(&topic, 8, &[]);
    load(broker.bootstrap(), &topic, 8, 0..8_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let opened = open_topic(broker, &topic).await;
        let range = opened.first().await;
        let mut streams = Vec::new();
        for split in splits(opened.source.as_ref(), &range) {
            let context = ReadContext { batch_rows: 10, ..context() };
            let mut stream = opened.reader.read(split, context);
            assert!(matches!(stream.next().await, Some(Ok(ReadItem::Rows(_)))));
            streams.push(stream);
        }
        let free = tokio::task::spawn_blocking(|| "a sink writes");
        tokio::time::timeout(Duration::from_secs(10), free).await.expect("a thread is free").unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_holds_the_end_back() {
    let (broker, topic) = (Broker::shared(), unique_topic("open"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..3);
    let transactions = Transactions::new(broker.bootstrap(), &topic);
    transactions.begin();
    transactions.write(&topic, 0, 3..5);
    load(broker.bootstrap(), &topic, 1, 5..7);
    let committed = open_topic(broker, &topic).await;
    let range = committed.first().await;
    assert_eq!(next_of(&range.end, &topic), 3);
    assert_eq!(committed.offsets(&range).await.expect("the range can be read"), [0, 1, 2]);
    assert_eq!(committed.next(&range.end).await.expect("it is no error that rows wait"), None);
    // A position above the last stable offset is no loss either.
    assert_eq!(committed.next(&moved(&range.end, 6)).await.expect("no loss"), None);

    let all = open(earliest(broker, &topic).property("isolation.level", "read_uncommitted")).await.expect("it opens");
    let whole = all.first().await;
    assert_eq!(all.offsets(&whole).await.expect("the range can be read"), [0, 1, 2, 3, 4, 5, 6]);
    // The range was planned with all rows: a reader that is told otherwise now still reads what was logged.
    let logged = all.source.interpretation();
    for split in committed.source.plan("k", &whole, &logged).expect("planned") {
        assert_eq!(committed.split(&split).await.expect("the split can be read").0.len(), 7);
    }

    transactions.commit();
    let rest = committed.awaited(&range.end).await;
    assert_eq!(committed.offsets(&rest).await.expect("the range can be read"), [3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn trimmed_rows_are_an_error_with_their_number() {
    let (broker, topic) = (Broker::shared(), unique_topic("trimmed"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open_topic(broker, &topic).await;
    let range = opened.first().await;
    let known = moved(&range.start, 20);
    let planned = opened.next(&known).await.expect("the source can be asked").expect("rows wait");
    broker.delete_records(&topic, 0, 60);
    let expect_loss = |error: Error| {
        assert_eq!((error.code(), error.exit_code()), (code::DATA_LOSS, 65), "{error:?}");
        for words in ["40 rows are lost", "wanted from 20", "is 60"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    expect_loss(opened.next(&known).await.expect_err("rows are gone"));
    let begun = Instant::now();
    expect_loss(opened.offsets(&planned).await.expect_err("rows are gone"));
    assert!(begun.elapsed() < Duration::from_secs(10), "an error, not a time-out: {:?}", begun.elapsed());
    // What is still there can still be read, by the same reader.
    let rest = Range { start: moved(&range.start, 60), end: range.end };
    assert_eq!(opened.offsets(&rest).await.expect("the rest can be read").len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_made_again_is_noticed_before_and_after_the_read() {
    let (broker, topic) = (Broker::shared(), unique_topic("again"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open_topic(broker, &topic).await;
    let range = opened.first().await;
    assert_eq!(opened.offsets(&range).await.expect("the range can be read").len(), 100);
    load(broker.bootstrap(), &topic, 1, 100..200);
    let planned = opened.next(&range.end).await.expect("the source can be asked").expect("rows wait");
    broker.delete_topic(&topic);
    let error = opened.next(&range.end).await.expect_err("the topic is gone");
    assert_eq!(error.code(), code::SOURCE_NOT_FOUND, "{error:?}");
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..300);
    let error = opened.next(&range.end).await.expect_err("the topic is another");
    assert_eq!((error.code(), error.exit_code()), (code::TOPIC_RECREATED, 65), "{error:?}");
    for reader in [&opened, &open_topic(broker, &topic).await] {
        let split = splits(opened.source.as_ref(), &planned).remove(0);
        let read = read(reader.reader.as_ref(), &split, context()).await;
        let error =
            read.and_then(|(_, receipt)| opened.source.check_receipt(&split, &receipt)).expect_err("foreign rows");
        assert_eq!(error.code(), code::TOPIC_RECREATED, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_made_again_with_fewer_rows_is_noticed() {
    let (broker, topic) = (Broker::shared(), unique_topic("fewer"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open_topic(broker, &topic).await;
    let range = opened.first().await;
    broker.delete_topic(&topic);
    broker.create_topic(&topic, 1, &[]);
    let error = opened.next(&range.end).await.expect_err("the topic is another");
    assert_eq!(error.code(), code::TOPIC_RECREATED, "{error:?}");
    let error = opened.offsets(&range).await.expect_err("rows are gone");
    assert!([code::TOPIC_RECREATED, code::SOURCE_TRUNCATED].contains(&error.code()), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_stopped_in_the_middle_of_a_read_is_waited_for() {
    let (mut broker, topic) = (Broker::start(), unique_topic("outage"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..200_000);
    let opened = open_topic(&broker, &topic).await;
    let range = opened.first().await;
    let split = splits(opened.source.as_ref(), &range).remove(0);
    let mut items = opened.reader.read(split.clone(), ReadContext { buffer_bytes: 1 << 20, ..context() });
    let (mut rows, mut receipt, mut stopped) = (0, None, false);
    while let Some(item) = items.next().await {
        match item.expect("an outage is no error") {
            ReadItem::Rows(batch) => rows += batch.num_rows(),
            ReadItem::End => {}
            ReadItem::Receipt(last) => receipt = Some(last),
        }
        if rows > 20_000 && !stopped {
            stopped = true;
            broker.kill();
            std::thread::sleep(Duration::from_secs(20));
            broker.restart();
        }
    }
    assert_eq!(rows, 200_000);
    opened.source.check_receipt(&split, &receipt.expect("a receipt")).expect("the receipt is in order");
    // Planning waits as well, and stays in order.
    broker.stop();
    let planning = tokio::spawn(async move { opened.next(&range.end).await });
    std::thread::sleep(Duration::from_secs(5));
    broker.restart();
    assert_eq!(planning.await.expect("no panic").expect("an outage is no error"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_that_is_frozen_is_waited_for_and_one_that_stays_away_is_an_error() {
    let (mut broker, topic) = (Broker::start(), unique_topic("frozen"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..1000);
    let opened = open(earliest(&broker, &topic).stuck_timeout_ms(8000).call_timeout_ms(4000)).await.expect("it opens");
    let range = opened.first().await;
    broker.pause();
    let reading = async { opened.offsets(&range).await };
    let waking = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        broker.resume();
    };
    let (read, ()) = futures::future::join(reading, waking).await;
    assert_eq!(read.expect("the broker woke").len(), 1000);
    let other = open(earliest(&broker, &topic).stuck_timeout_ms(8000).call_timeout_ms(4000)).await.expect("it opens");
    broker.stop();
    let error = other.offsets(&range).await.expect_err("the broker stays away");
    assert_eq!((error.code(), error.exit_code()), (code::SOURCE_UNAVAILABLE, 69), "{error:?}");
    let error = other.next(&range.end).await.expect_err("the broker stays away");
    assert_eq!(error.code(), code::SOURCE_UNAVAILABLE, "{error:?}");
    let error =
        open(earliest(&broker, &topic).call_timeout_ms(2000)).await.map(drop).expect_err("the broker stays away");
    assert_eq!(error.exit_code(), 69, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_topic_is_an_error_at_the_start() {
    let (broker, topic) = (Broker::shared(), unique_topic("sensor-data"));
    broker.create_topic(&topic, 1, &[]);
    let error = open(earliest(broker, &topic.replace("sensor", "sensr"))).await.map(drop).expect_err("no such topic");
    assert_eq!((error.code(), error.exit_code()), (code::SOURCE_NOT_FOUND, 78));
    assert!(error.to_string().contains("did you mean"), "{error}");
    let error = open(earliest(broker, "no/name")).await.map(drop).expect_err("no name of a topic");
    assert_eq!(error.exit_code(), 78);
}

/// Sends values one by one, each in a request of its own, however large it is.
fn send_each(broker: &Broker, topic: &str, codec: &str, values: &[&[u8]]) {
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
    let producer: BaseProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", broker.bootstrap())
        .set("message.max.bytes", "20000000")
        .set("compression.type", codec)
        .create()
        .expect("a producer");
    for value in values {
        producer.send(BaseRecord::<(), [u8]>::to(topic).partition(0).payload(*value)).expect("queued");
        producer.flush(Duration::from_secs(30)).expect("flushed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_and_every_codec_are_read() {
    let (broker, topic) = (Broker::shared(), unique_topic("codecs"));
    broker.create_topic(&topic, 1, &[("max.message.bytes", "20000000")]);
    let large = vec![7_u8; 12_000_000];
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let middle = if codec == "none" { &large[..] } else { b"x" };
        send_each(broker, &topic, codec, &[b"small", middle, b"small"]);
    }
    let opened = open_topic(broker, &topic).await;
    let range = opened.first().await;
    assert_eq!(opened.offsets(&range).await.expect("all can be read"), (0..15).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_small_ranges_is_read_once() {
    let (broker, topic) = (Broker::shared(), unique_topic("small"));
    broker.create_topic(&topic, 2, &[]);
    let loader = Loader::new(broker.bootstrap());
    loader.load(&topic, 2, 0..100);
    let opened = open_topic(broker, &topic).await;
    let mut at = opened.source.initial().await.expect("a start");
    for round in 0..40_u64 {
        loader.send(&topic, 0, &[Record { value: Some(b"one"), ..Record::default() }]);
        let range = opened.next(&at).await.expect("it can be asked").expect("a row waits");
        let rows = opened.offsets(&range).await.expect("it can be read").len();
        assert_eq!(rows, if round == 0 { 101 } else { 1 });
        at = range.end;
    }
    assert_eq!(watermarks(broker.bootstrap(), &topic).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_go_while_they_are_read_are_counted_in_the_receipt_where_losses_are_accepted() {
    let (broker, topic) = (Broker::shared(), unique_topic("going"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open(earliest(broker, &topic).fail_on_data_loss(false)).await.expect("it opens");
    let range = opened.first().await;
    let piece = |start, end| Range { start: moved(&range.start, start), end: moved(&range.end, end) };
    broker.delete_records(&topic, 0, 60);
    let begun = Instant::now();
    for (start, end, expected, lost) in [
        (20, 100, (60..100).collect::<Vec<i64>>(), 40),
        (20, 60, vec![], 40),
        (0, 61, vec![60], 60),
        (70, 80, (70..80).collect(), 0),
    ] {
        let split = splits(opened.source.as_ref(), &piece(start, end)).remove(0);
        let (rows, receipt) = opened.split(&split).await.expect("what is left is read");
        assert_eq!((rows, receipt.lost), (expected, lost), "[{start}, {end})");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // A reader that is not told so does not accept it, and neither does its driver.
    let strict = open_topic(broker, &topic).await;
    let split = splits(strict.source.as_ref(), &piece(20, 100)).remove(0);
    assert_eq!(strict.split(&split).await.expect_err("rows are gone").code(), code::DATA_LOSS);
    let (_, receipt) = opened.split(&split).await.expect("what is left is read");
    assert_eq!(strict.source.check_receipt(&split, &receipt).expect_err("a loss").code(), code::RECEIPT_MISMATCH);
}

#[tokio::test(flavor = "multi_thread")]
async fn range_of_a_topic_that_was_made_again_or_deleted_gives_nothing_where_losses_are_accepted() {
    let (broker, topic) = (Broker::shared(), unique_topic("forerunner"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open(earliest(broker, &topic).fail_on_data_loss(false)).await.expect("it opens");
    let range = opened.first().await;
    let split = splits(opened.source.as_ref(), &range).remove(0);
    broker.delete_topic(&topic);
    let (rows, receipt) = opened.split(&split).await.expect("nothing is left, and that is said");
    assert_eq!((rows, receipt.lost), (vec![], 100));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..150);
    let (rows, receipt) = opened.split(&split).await.expect("nothing is left, and that is said");
    assert_eq!((rows, receipt.lost), (vec![], 100), "rows of the new topic are not those that were planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_available_now_saw_must_stay_even_where_losses_are_accepted() {
    for (partitions, rows) in [(1, 0..300), (2, 0..30)] {
        let (broker, topic) = (Broker::shared(), unique_topic("promised"));
        broker.create_topic(&topic, 2, &[]);
        load(broker.bootstrap(), &topic, 2, 0..100);
        let opened = open(earliest(broker, &topic).fail_on_data_loss(false)).await.expect("it opens");
        let range = opened.first().await;
        broker.delete_topic(&topic);
        broker.create_topic(&topic, partitions, &[]);
        load(broker.bootstrap(), &topic, partitions, rows);
        let limit = ReadLimit { rows: Some(10), up_to: Some(range.end.clone()) };
        let error = opened.source.next(&range.start, &limit).await.expect_err("what was promised is gone");
        assert_eq!(error.code(), code::TOPIC_RECREATED, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_queries_in_one_group_read_all_rows_each_and_are_warned() {
    let (broker, topic) = (Broker::shared(), unique_topic("shared"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..10);
    let rng = Context::default().rng;
    let queries = [QueryId::random(&*rng), QueryId::random(&*rng)];
    let mut warned = Vec::new();
    for query_id in &queries {
        let opened = open(earliest(broker, &topic).property("group.id", &topic)).await.expect("it opens");
        let range = opened.first().await;
        assert_eq!(opened.offsets(&range).await.expect("the range can be read").len(), 10);
        opened.source.committed(&range.end, Owner { query_id, source: "k" }).await.expect("told");
        let owner = Owner { query_id, source: "k" };
        opened.source.ended(owner).await;
        warned.push(opened.source.warnings(owner));
    }
    assert_eq!(warned[0], Vec::<String>::new());
    assert_eq!(warned[1].len(), 1, "{warned:?}");
    assert!(warned[1][0].contains(&queries[0].to_string()) && warned[1][0].contains(&topic), "{warned:?}");
    // A group that is named by a secret is not named in a warning.
    let secret = earliest(broker, &topic).secret_property("group.id", Secret::new(topic.as_str()));
    let opened = open(secret).await.expect("it opens");
    let end = opened.first().await.end;
    let query_id = QueryId::random(&*rng);
    let owner = Owner { query_id: &query_id, source: "k" };
    opened.source.committed(&end, owner).await.expect("told");
    opened.source.ended(owner).await;
    let warned = opened.source.warnings(owner);
    assert!(warned.len() == 1 && !warned[0].contains(&topic), "{warned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_share_a_source_tell_a_group_each_and_only_while_they_run() {
    let (broker, topic) = (Broker::shared(), unique_topic("one-frame"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..10);
    let opened = open_topic(broker, &topic).await;
    let end = opened.first().await.end;
    let rng = Context::default().rng;
    let queries = [QueryId::random(&*rng), QueryId::random(&*rng)];
    for (query_id, next) in queries.iter().zip([3, 7]) {
        let owner = Owner { query_id, source: "k" };
        opened.source.committed(&moved(&end, next), owner).await.expect("told");
    }
    for (query_id, next) in queries.iter().zip([3, 7]) {
        let owner = Owner { query_id, source: "k" };
        let group = format!("tidemill-{query_id}-k");
        assert_eq!(opened.source.metrics(&end, &end, owner)["consumerGroup"], group);
        opened.source.ended(owner).await;
        let seen = tools::describe_group(broker.bootstrap(), &group);
        assert_eq!(seen.iter().map(|lag| lag.committed).collect::<Vec<_>>(), [next]);
        assert_eq!(opened.source.warnings(owner), Vec::<String>::new());
    }
    // It goes on with the same source.
    let owner = Owner { query_id: &queries[0], source: "k" };
    opened.source.committed(&moved(&end, 5), owner).await.expect("told");
    opened.source.ended(owner).await;
    let seen = tools::describe_group(broker.bootstrap(), &format!("tidemill-{}-k", queries[0]));
    assert_eq!(seen.iter().map(|lag| lag.committed).collect::<Vec<_>>(), [5]);
}

/// As on a broker without topic ids: nothing says that the log is another one, and what was kept has been stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_the_library_has_stopped_fetching_is_begun_anew_at_once() {
    let (broker, topic) = (Broker::shared(), unique_topic("stopped"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..100);
    let opened = open(earliest(broker, &topic).fail_on_data_loss(false)).await.expect("it opens");
    let without_id = |range: &Range, next: i64| {
        let mut range = Range { start: moved(&range.start, 0), end: moved(&range.end, next) };
        for end in [&mut range.start, &mut range.end] {
            let mut json = end.as_json().clone();
            json["topics"][&topic].as_object_mut().expect("a topic").remove("id");
            *end = serde_json::from_value(json).expect("offsets");
        }
        splits(opened.source.as_ref(), &range).remove(0)
    };
    let range = opened.first().await;
    let (rows, _) = opened.split(&without_id(&range, 100)).await.expect("all are read");
    assert_eq!(rows.len(), 100);
    broker.delete_topic(&topic);
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..40);
    // The client still asks for row 100, and is told that there is none.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = Instant::now();
    let (rows, receipt) = opened.split(&without_id(&range, 40)).await.expect("all are read");
    assert_eq!((rows.len(), receipt.lost), (40, 0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn query_takes_over_where_a_consumer_group_stands() {
    let (broker, topic) = (Broker::shared(), unique_topic("migrated"));
    broker.create_topic(&topic, 1, &[]);
    load(broker.bootstrap(), &topic, 1, 0..10);
    let by_group = || open(Kafka::brokers(broker.bootstrap()).topic(&topic).start(Start::Group(topic.clone())));
    let error = by_group().await.expect("it opens").source.initial().await.expect_err("nobody was here");
    assert_eq!(error.exit_code(), 78, "{error:?}");
    assert!(error.to_string().contains("has no positions"), "{error}");
    let before = open(earliest(broker, &topic).property("group.id", &topic)).await.expect("it opens");
    let query_id = QueryId::random(&*Context::default().rng);
    let stood = moved(&before.first().await.end, 6);
    let owner = Owner { query_id: &query_id, source: "k" };
    before.source.committed(&stood, owner).await.expect("told");
    before.source.ended(owner).await;
    let taken = by_group().await.expect("it opens");
    assert_eq!(taken.offsets(&taken.first().await).await.expect("the range can be read"), [6, 7, 8, 9]);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_above_what_may_be_received_is_an_error_that_names_the_setting() {
    let (broker, topic) = (Broker::shared(), unique_topic("too-large"));
    broker.create_topic(&topic, 1, &[("max.message.bytes", "20000000")]);
    send_each(broker, &topic, "none", &[b"first", &[7; 12_000_000], b"last"]);
    let opened = open_topic(broker, &topic).await;
    assert_eq!(opened.offsets(&opened.first().await).await.expect("all can be read"), [0, 1, 2]);
    let limited = earliest(broker, &topic).property("receive.message.max.bytes", "5000000").stuck_timeout_ms(4000);
    let limited = open(limited.property("fetch.max.bytes", "4000000")).await.expect("it opens");
    let begun = Instant::now();
    let error = limited.offsets(&limited.first().await).await.expect_err("it does not fit");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for words in [&format!("{topic}-0"), "position 1", "receive.message.max.bytes"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}
