//! Reading from librdkafka's mock cluster.
#![expect(clippy::disallowed_methods, reason = "waits for the library's own threads, which live in real time")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Int64Type, TimestampMicrosecondType};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tidemill_core::testing::source_promises::{self, context, offer, read, splits};
use tidemill_core::{
    Context, Offsets, ReadContext, ReadLimit, Result, Source, SourceBuilder, SourceFormat, SourceReader, code,
};

use crate::kafka::config::KafkaConfig;
use crate::kafka::lane::{FetchSizes, Pool};
use crate::kafka::offset::SplitOffsets;
use crate::kafka::token::ClientSettings;
use crate::kafka::{Kafka, KafkaFormat, Start};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(topics: &[(&str, i32)]) -> Cluster {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    for (topic, partitions) in topics {
        cluster.create_topic(topic, *partitions, 1).expect("a topic is made");
    }
    cluster
}

fn producer(cluster: &Cluster) -> BaseProducer<Delivered> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", cluster.bootstrap_servers());
    config.create_with_context(Delivered).expect("a producer starts")
}

/// A producer's context that insists on delivery.
struct Delivered;
impl rdkafka::ClientContext for Delivered {}
impl rdkafka::producer::ProducerContext for Delivered {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &rdkafka::producer::DeliveryResult<'_>, (): ()) {
        assert!(result.is_ok(), "not delivered");
    }
}

fn fill(cluster: &Cluster, topic: &str, partitions: i32, rows: std::ops::Range<usize>) {
    let producer = producer(cluster);
    for row in rows {
        let (key, value) = (format!("key {row}"), format!("value {row}"));
        let record = BaseRecord::to(topic)
            .partition(row as i32 % partitions)
            .key(&key)
            .payload(&value)
            .timestamp(1000 + row as i64);
        producer.send(record).map_err(|(error, _)| error).expect("queued");
    }
    producer.flush(Duration::from_secs(10)).expect("flushed");
}

fn kafka(cluster: &Cluster, topic: &str) -> Kafka {
    Kafka::brokers(cluster.bootstrap_servers()).topic(topic).start(Start::Earliest)
}

async fn open(kafka: Kafka) -> Result<(Arc<dyn Source>, Arc<dyn SourceReader>)> {
    let context = Context::default();
    let source = kafka.build(&context).await?;
    let reader = KafkaFormat.reader(source.spec(), &context)?;
    Ok((source, reader))
}

async fn rows(source: &dyn Source, reader: &dyn SourceReader, context: ReadContext) -> RecordBatch {
    let mut rows = Vec::new();
    for split in splits(source, &offer(source).await.range) {
        rows.extend(read(reader, &split, context.clone()).await.unwrap().0);
    }
    concat_batches(&source.schema(), &rows).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_source_keeps_every_promise() {
    let cluster = cluster(&[("t", 3)]);
    fill(&cluster, "t", 3, 0..2000);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    source_promises::all(source.as_ref(), reader.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_hold_what_was_produced() {
    let cluster = cluster(&[("t", 1)]);
    let producer = producer(&cluster);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "a", value: Some("1") })
        .insert(Header { key: "b", value: None::<&str> });
    let sent: [BaseRecord<'_, str, str>; 5] = [
        BaseRecord::to("t").partition(0).key("k1").timestamp(5),
        BaseRecord::to("t").partition(0).payload("{\"a\":1}").timestamp(6),
        BaseRecord::to("t").partition(0).timestamp(7),
        BaseRecord::to("t").partition(0).key("k2").payload("").timestamp(8),
        BaseRecord::to("t").partition(0).key("").payload("x").headers(headers).timestamp(9),
    ];
    for record in sent {
        producer.send(record).map_err(|(error, _)| error).expect("queued");
        producer.flush(Duration::from_secs(10)).expect("flushed");
    }
    let (source, reader) = open(kafka(&cluster, "t").include_headers(true)).await.unwrap();
    let rows = rows(source.as_ref(), reader.as_ref(), context()).await;
    let bytes = |column: usize| -> Vec<Option<Vec<u8>>> {
        rows.column(column).as_binary::<i32>().iter().map(|value| value.map(<[u8]>::to_vec)).collect()
    };
    let some = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(bytes(0), [some("k1"), None, None, some("k2"), some("")]);
    assert_eq!(bytes(1), [None, some("{\"a\":1}"), None, some(""), some("x")]);
    assert!(rows.column(2).as_string::<i32>().iter().all(|topic| topic == Some("t")));
    assert_eq!(rows.column(3).as_primitive::<Int32Type>().values(), &[0; 5]);
    assert_eq!(rows.column(4).as_primitive::<Int64Type>().values(), &[0, 1, 2, 3, 4]);
    let times = rows.column(5).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(times.values(), &[5000, 6000, 7000, 8000, 9000]);
    assert_eq!(rows.column(6).as_primitive::<Int32Type>().values(), &[0; 5]);
    let headers = rows.column(7).as_list::<i32>();
    assert_eq!(headers.iter().map(|some| some.is_some()).collect::<Vec<_>>(), [false, false, false, false, true]);
    let last = headers.value(4);
    let last = last.as_struct();
    assert_eq!(last.column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("b")]);
    assert_eq!(last.column(1).as_binary::<i32>().iter().collect::<Vec<_>>(), [Some(&b"1"[..]), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_about_all_topics_may_take_seconds() {
    let cluster = cluster(&[("t", 1)]);
    cluster.broker_round_trip_time(1, Duration::from_millis(1200)).expect("a slow link");
    let slow = Kafka::brokers(cluster.bootstrap_servers()).topic_pattern("t.*").call_timeout_ms(12_000);
    let (source, _) = open(slow).await.expect("it opens");
    assert!(source.initial().await.expect("a start").as_json()["topics"]["t"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn next_range_goes_on_from_rows_that_were_fetched_ahead() {
    let cluster = cluster(&[("t", 1)]);
    fill(&cluster, "t", 1, 0..1000);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    let mut at = source.initial().await.unwrap();
    let limit = ReadLimit { rows: Some(7), ..ReadLimit::default() };
    let mut seen = Vec::new();
    while let Some(offer) = source.next(&at, &limit).await.unwrap() {
        for split in splits(source.as_ref(), &offer.range) {
            let (rows, receipt) = read(reader.as_ref(), &split, context()).await.unwrap();
            source.check_receipt(&split, &receipt).unwrap();
            for rows in rows {
                seen.extend_from_slice(rows.column(4).as_primitive::<Int64Type>().values());
            }
        }
        at = offer.range.end;
    }
    assert_eq!(seen, (0..1000).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn start_is_where_it_was_asked_for() {
    let cluster = cluster(&[("t", 2)]);
    fill(&cluster, "t", 2, 0..20);
    let offsets = |first, second| {
        let partitions = [(0, first), (1, second)].into();
        Start::Offsets([("t".to_owned(), partitions)].into())
    };
    let cases = [
        (Start::Earliest, [0, 0]),
        (Start::Latest, [10, 10]),
        (offsets(3, Start::END), [3, 10]),
        (offsets(Start::FIRST, 10), [0, 10]),
    ];
    for (start, expected) in cases {
        let (source, _) = open(kafka(&cluster, "t").start(start.clone())).await.unwrap();
        let initial = source.initial().await.unwrap();
        let next = |partition: &str| initial.as_json()["topics"]["t"]["partitions"][partition]["next"].as_i64();
        assert_eq!([next("0"), next("1")], expected.map(Some), "{start:?}");
    }
    let half = Start::Offsets([("t".to_owned(), [(0, 3)].into())].into());
    for start in [half, offsets(3, 11)] {
        let (source, _) = open(kafka(&cluster, "t").start(start)).await.unwrap();
        assert_eq!(source.initial().await.unwrap_err().code(), code::INVALID_OPTION);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_partitions_alone_are_read() {
    let cluster = cluster(&[("t", 3)]);
    fill(&cluster, "t", 3, 0..30);
    let assigned = Kafka::brokers(cluster.bootstrap_servers()).assign("t", [0, 2]).start(Start::Earliest);
    let (source, reader) = open(assigned).await.unwrap();
    let rows = rows(source.as_ref(), reader.as_ref(), context()).await;
    assert_eq!(rows.num_rows(), 20);
    assert!(rows.column(3).as_primitive::<Int32Type>().values().iter().all(|partition| *partition != 1));
    let error = open(Kafka::brokers(cluster.bootstrap_servers()).assign("t", [3])).await.unwrap_err();
    assert_eq!(error.code(), code::SOURCE_NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn broker_that_goes_away_and_comes_back_is_waited_for() {
    let cluster = cluster(&[("t", 1)]);
    fill(&cluster, "t", 1, 0..100);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
    cluster.broker_down(1).unwrap();
    let reading = tokio::spawn(async move { read(reader.as_ref(), &split, context()).await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!reading.is_finished(), "a broker that is away is no error");
    cluster.broker_up(1).unwrap();
    assert_eq!(reading.await.unwrap().unwrap().1.rows, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn range_that_gets_stuck_says_where() {
    let cluster = cluster(&[("t", 1)]);
    fill(&cluster, "t", 1, 0..10);
    let (source, reader) = open(kafka(&cluster, "t").stuck_timeout_ms(1000)).await.unwrap();
    let range = offer(source.as_ref()).await.range;
    // A range beyond the end, as a broker that took rows back would leave it.
    let text = serde_json::to_string(&range.end).unwrap().replace("\"next\":10", "\"next\":12");
    let range = tidemill_core::Range { end: serde_json::from_str(&text).unwrap(), ..range };
    let error = read(reader.as_ref(), &splits(source.as_ref(), &range)[0], context()).await.unwrap_err();
    assert_eq!(error.code(), code::RANGE_STUCK, "{error:?}");
    for words in ["position 10", "ends at 12", "last stable offset 10", "high watermark 10"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_read_ends_while_the_broker_is_away() {
    let cluster = cluster(&[("t", 1)]);
    fill(&cluster, "t", 1, 0..10);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
    cluster.broker_down(1).unwrap();
    let context = context();
    let cancel = context.cancel.clone();
    let reading = tokio::spawn(async move { read(reader.as_ref(), &split, context).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    cancel.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(10), reading).await.expect("a cancelled read ends soon");
    assert_eq!(ended.unwrap().unwrap_err().code(), code::STOPPED);
}

#[tokio::test(flavor = "multi_thread")]
async fn position_that_is_not_there_is_an_error_and_not_a_jump_unless_the_broker_has_it_after_all() {
    for (times, expected) in [(1, None), (2, Some(code::SOURCE_TRUNCATED))] {
        let cluster = cluster(&[("t", 1)]);
        fill(&cluster, "t", 1, 0..10);
        let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
        let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
        // The broker has the row. Said once, this may be of the past, and have waited in the library.
        let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE; 2];
        cluster.request_errors(RDKafkaApiKey::Fetch, &errors[..times]);
        let read = async || read(reader.as_ref(), &split, context()).await.map(|(_, receipt)| receipt.rows);
        match expected {
            None => assert_eq!(read().await.unwrap(), 10),
            Some(code) => assert_eq!(read().await.unwrap_err().code(), code),
        }
        // What was wrong with the connection stays with it.
        assert_eq!(read().await.unwrap(), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_in_the_place_of_a_row_is_no_row() {
    for error in [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN, RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG] {
        let cluster = cluster(&[("t", 1)]);
        fill(&cluster, "t", 1, 0..1);
        let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
        let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
        cluster.request_errors(RDKafkaApiKey::Fetch, &[error]);
        // The range is [0, 1): an error that counted as the row at 0 would end it.
        let read = read(reader.as_ref(), &split, context()).await.unwrap();
        assert_eq!((read.1.rows, read.1.first), (1, Some(0)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_partitions_share_few_clients_and_a_bounded_part_of_the_memory() {
    const PARTITIONS: i32 = 40;
    let cluster = cluster(&[("t", PARTITIONS)]);
    let (source, pool) = {
        fill(&cluster, "t", PARTITIONS, 0..4 * PARTITIONS as usize);
        let context = Context::default();
        let source = kafka(&cluster, "t").build(&context).await.unwrap();
        let (config, login) = KafkaConfig::from_spec(source.spec()).unwrap().client(&context.vault).unwrap();
        let mut config = config;
        config.set("group.id", "test");
        (source, Pool::new(ClientSettings { config, login }))
    };
    let range = offer(source.as_ref()).await.range;
    let starts: Vec<_> =
        splits(source.as_ref(), &range).iter().map(|s| SplitOffsets::decode(&s.start).unwrap()).collect();
    tokio::task::spawn_blocking(move || {
        // Batches with ever fewer splits, each of which may then hold more; and two readers of everything at once.
        for count in [40, 40, 20, 7, 1, 40] {
            let lanes: Vec<_> = (0..2)
                .flat_map(|_| &starts[..count])
                .map(|start| {
                    pool.take(start, FetchSizes::new((64 << 20) / count, 1_000_000), &|| false).expect("a lane")
                })
                .collect();
            lanes.into_iter().for_each(|lane| pool.put(lane));
            let (clients, bytes) = pool.held();
            assert!(clients <= 16, "{clients} clients after a batch of {count} splits");
            assert!(bytes <= 64 << 20, "{bytes} bytes after a batch of {count} splits");
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_many_partitions_are_seen_and_an_idle_query_looks_the_less_often() {
    // More than one request for offsets names.
    const PARTITIONS: i32 = 300;
    let cluster = cluster(&[("t", PARTITIONS)]);
    fill(&cluster, "t", PARTITIONS, 0..PARTITIONS as usize);
    let source = kafka(&cluster, "t").build(&Context::default()).await.unwrap();
    assert_eq!(source.idle_pause(), Duration::ZERO, "nothing was looked at yet");
    let range = offer(source.as_ref()).await.range;
    assert_eq!(splits(source.as_ref(), &range).len(), PARTITIONS as usize);
    assert_eq!(source.rows_between(&range.start, &range.end), Some(PARTITIONS as u64));
    assert_eq!(source.idle_pause(), Duration::from_millis(300));
}

#[test]
fn lane_serves_batches_that_are_larger_or_smaller_for_once() {
    let wants = |rows| FetchSizes::new(8 << 20, rows);
    assert!(wants(100).serves(wants(600)) && wants(600).serves(wants(100)));
    assert!(!FetchSizes::new(1 << 20, 100).serves(FetchSizes::new(64 << 20, 100)), "memory is another matter");
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_topic_is_an_error_with_the_name_that_was_meant() {
    let cluster = cluster(&[("sensor-data", 1)]);
    cluster.topic_error("sensor-dta", RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART).unwrap();
    let error = open(kafka(&cluster, "sensor-dta")).await.unwrap_err();
    assert_eq!((error.code(), error.exit_code()), (code::SOURCE_NOT_FOUND, 78));
    assert!(error.to_string().contains("did you mean \"sensor-data\"?"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_from_the_past_is_asked_for_again() {
    let cluster = cluster(&[("t", 1)]);
    fill(&cluster, "t", 1, 0..10);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    let range = offer(source.as_ref()).await.range;
    // As after a change of the leader that the client has not heard of.
    let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH; 2];
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &errors);
    assert_eq!(source.next(&range.end, &ReadLimit::default()).await.unwrap(), None);
    fill(&cluster, "t", 1, 10..20);
    cluster.request_errors(RDKafkaApiKey::ListOffsets, &errors);
    let next = source.next(&range.end, &ReadLimit::default()).await.unwrap().expect("rows wait").range;
    let (_, receipt) = read(reader.as_ref(), &splits(source.as_ref(), &next)[0], context()).await.unwrap();
    assert_eq!((receipt.first, receipt.last), (Some(10), Some(19)));
}

/// Reads all that is there from a position on, and notes the offsets of each partition.
async fn read_on(source: &dyn Source, reader: &dyn SourceReader, at: &mut Offsets, seen: &mut BTreeMap<i32, Vec<i64>>) {
    while let Some(offer) = source.next(at, &ReadLimit::default()).await.unwrap() {
        for split in splits(source, &offer.range) {
            for rows in read(reader, &split, context()).await.unwrap().0 {
                let partitions = rows.column(3).as_primitive::<Int32Type>().values().iter();
                for (partition, offset) in partitions.zip(rows.column(4).as_primitive::<Int64Type>().values()) {
                    seen.entry(*partition).or_default().push(*offset);
                }
            }
        }
        *at = offer.range.end;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_restart_one_after_the_other_cost_no_row_and_fail_no_question() {
    const BROKERS: i32 = 3;
    let cluster = MockCluster::new(BROKERS).expect("a mock cluster starts");
    cluster.create_topic("t", 3, BROKERS).expect("a topic is made");
    fill(&cluster, "t", 3, 0..300);
    let (source, reader) = open(kafka(&cluster, "t")).await.unwrap();
    let (mut at, mut seen) = (source.initial().await.unwrap(), BTreeMap::new());
    read_on(source.as_ref(), reader.as_ref(), &mut at, &mut seen).await;
    for (step, broker) in (1..=BROKERS).enumerate() {
        // Its partitions get another leader, it goes, and it comes back without any.
        for partition in 0..3 {
            cluster.partition_leader("t", partition, Some(broker % BROKERS + 1)).unwrap();
        }
        cluster.broker_down(broker).unwrap();
        let rows = 300 + 600 * step;
        fill(&cluster, "t", 3, rows..rows + 300);
        read_on(source.as_ref(), reader.as_ref(), &mut at, &mut seen).await;
        cluster.broker_up(broker).unwrap();
        fill(&cluster, "t", 3, rows + 300..rows + 600);
        read_on(source.as_ref(), reader.as_ref(), &mut at, &mut seen).await;
    }
    let all: Vec<i64> = (0..700).collect();
    assert_eq!(seen, (0..3).map(|partition| (partition, all.clone())).collect());
}
