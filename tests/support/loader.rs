//! Puts rows into Kafka topics for tests and benches, and tells what a topic holds.
//!
//! Promises: rows are a pure function of their number; what `load` and `send` return from is acknowledged by the broker
//! exactly once and in order, also when the broker was down for a while; a row that cannot be delivered is a panic, not
//! a smaller topic. A file of its own, so that a bench can include it by path.
#![allow(dead_code, reason = "each program that includes this uses its part")]

use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// How long a delivery may take: longer than any outage that a test makes.
const DELIVERY_BOUND: Duration = Duration::from_secs(300);
/// How long a question about a topic may take on a busy machine.
const ASK_BOUND: Duration = Duration::from_secs(30);

/// The values of sensor row `i`, as a reader of its JSON should see them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensor {
    pub sensor: u64,
    /// Milliseconds since 1970; rows are 10 ms apart, so event time goes up with `i`.
    pub ts_ms: i64,
    pub temperature_hundredths: u64,
    pub humidity_tenths: u64,
    pub status: &'static str,
    pub seq: u64,
}

impl Sensor {
    /// Row `i`: the same values in every run.
    pub fn new(i: u64) -> Sensor {
        let bits = scramble(i);
        Sensor {
            sensor: bits % 1000,
            ts_ms: 1_767_225_600_000 + (i as i64) * 10,
            temperature_hundredths: 1500 + (bits >> 16) % 2000,
            humidity_tenths: 300 + (bits >> 32) % 600,
            status: ["ok", "ok", "ok", "ok", "ok", "ok", "warn", "fail"][(bits >> 48) as usize % 8],
            seq: i,
        }
    }

    /// The number that JSON's `temperature` stands for.
    pub fn temperature(&self) -> f64 {
        self.temperature_hundredths as f64 / 100.0
    }

    /// The number that JSON's `humidity` stands for.
    pub fn humidity(&self) -> f64 {
        self.humidity_tenths as f64 / 10.0
    }

    fn write_json(&self, to: &mut String) {
        let (temperature, humidity) = (self.temperature_hundredths, self.humidity_tenths);
        write!(to, "{{\"sensor_id\":\"s-{:04}\",\"ts\":\"", self.sensor).expect("a string takes all");
        write_time(self.ts_ms, to);
        write!(
            to,
            "\",\"temperature\":{}.{:02},\"humidity\":{}.{},\"status\":\"{}\",\"seq\":{}}}",
            temperature / 100,
            temperature % 100,
            humidity / 10,
            humidity % 10,
            self.status,
            self.seq
        )
        .expect("a string takes all");
    }
}

/// Sensor row `i` as JSON, about 120 bytes: `{"sensor_id":"s-0435","ts":"2026-01-01T00:00:00.010Z","temperature":32.57,
/// "humidity":41.9,"status":"ok","seq":1}`.
pub fn sensor_row(i: u64) -> String {
    let mut row = String::with_capacity(128);
    Sensor::new(i).write_json(&mut row);
    row
}

/// Mixes the bits of `i` (splitmix64's last step), so that neighbouring rows differ as real ones do.
fn scramble(i: u64) -> u64 {
    let mut bits = i.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Writes a time after 1970 as RFC 3339 with milliseconds. The date is Howard Hinnant's `civil_from_days`.
fn write_time(ms: i64, to: &mut String) {
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    let from_march_0000 = days + 719_468;
    let (era, day_of_era) = (from_march_0000 / 146_097, from_march_0000 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    write!(to, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1000)
        .expect("a string takes all");
}

/// Writes sensor rows `rows` to `topic`, row `i` to partition `i % partitions`. Returns when all are acknowledged.
pub fn load(bootstrap: &str, topic: &str, partitions: i32, rows: Range<u64>) {
    Loader::new(bootstrap).load(topic, partitions, rows);
}

/// A producer that is kept between loads, for a test that writes while a query runs.
pub struct Loader {
    producer: BaseProducer<Deliveries>,
}

impl Loader {
    /// A producer for the broker at `bootstrap`. It may be down: deliveries wait for it.
    pub fn new(bootstrap: &str) -> Loader {
        Loader { producer: producer(&config(bootstrap)) }
    }

    /// A producer that waits no longer for company before it sends a row than the client library does unless told.
    pub fn prompt(bootstrap: &str) -> Loader {
        Loader { producer: producer(config(bootstrap).set("linger.ms", "5")) }
    }

    /// As the function `load`.
    pub fn load(&self, topic: &str, partitions: i32, rows: Range<u64>) {
        let mut row = String::with_capacity(128);
        for i in rows {
            row.clear();
            Sensor::new(i).write_json(&mut row);
            let partition = (i % partitions as u64) as i32;
            enqueue(&self.producer, BaseRecord::<(), str>::to(topic).partition(partition).payload(&row));
        }
        flush(&self.producer);
    }

    /// Writes `rows` rows to each partition, every one `bytes` long and unlike the others, of bytes that do not compress.
    pub fn bulk(&self, topic: &str, partitions: i32, rows: u64, bytes: usize) {
        let mut row: Vec<u8> = (0..bytes as u64 / 8 + 1).flat_map(|i| scramble(i).to_le_bytes()).collect();
        row.truncate(bytes);
        for i in 0..rows {
            for partition in 0..partitions {
                row[..8].copy_from_slice(&(i * partitions as u64 + partition as u64).to_le_bytes());
                enqueue(&self.producer, BaseRecord::<(), [u8]>::to(topic).partition(partition).payload(&row));
            }
        }
        flush(&self.producer);
    }

    /// Hands over row `i` for a partition, to be sent at once; [`Loader::flush`] waits until it is there.
    pub fn queue(&self, topic: &str, partition: i32, i: u64) {
        enqueue(&self.producer, BaseRecord::<(), str>::to(topic).partition(partition).payload(&sensor_row(i)));
        self.producer.poll(Duration::ZERO);
    }

    /// Waits until everything that was handed over is there.
    pub fn flush(&self) {
        flush(&self.producer);
    }

    /// Writes `records` in order and returns their offsets.
    pub fn send(&self, topic: &str, partition: i32, records: &[Record<'_>]) -> Vec<i64> {
        let send = |record: &Record<'_>| {
            enqueue(&self.producer, record.to_kafka(topic, partition));
            flush(&self.producer);
            self.producer.context().last_offset.load(Ordering::SeqCst)
        };
        records.iter().map(send).collect()
    }
}

/// One message in full, for tests of what `load` does not write: keys, tombstones (no value), headers, odd bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// In order, names may repeat, a value may be missing.
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
    pub timestamp_ms: Option<i64>,
}

impl<'a> Record<'a> {
    /// The record that deletes `key` in a compacted topic.
    pub fn tombstone(key: &'a [u8]) -> Record<'a> {
        Record { key: Some(key), ..Record::default() }
    }

    fn to_kafka(self, topic: &'a str, partition: i32) -> BaseRecord<'a, [u8], [u8]> {
        let mut record = BaseRecord::to(topic).partition(partition);
        record.key = self.key;
        record.payload = self.value;
        record.timestamp = self.timestamp_ms;
        if !self.headers.is_empty() {
            let add = |to: OwnedHeaders, &(key, value): &(&str, Option<&[u8]>)| to.insert(Header { key, value });
            record.headers = Some(self.headers.iter().fold(OwnedHeaders::new(), add));
        }
        record
    }
}

/// A producer that writes in transactions: `begin`, `write`, then `commit` or `abort`. Each ended transaction leaves a
/// marker that takes one offset in every partition it wrote to.
pub struct Transactions {
    producer: BaseProducer<Deliveries>,
}

impl Transactions {
    /// Fences any earlier producer of the same `transactional_id`.
    pub fn new(bootstrap: &str, transactional_id: &str) -> Transactions {
        let producer = producer(config(bootstrap).set("transactional.id", transactional_id));
        producer.init_transactions(ASK_BOUND).expect("the broker coordinates transactions");
        Transactions { producer }
    }

    pub fn begin(&self) {
        self.producer.begin_transaction().expect("no other transaction is open");
    }

    /// Writes sensor rows to one partition, within the open transaction; they are in its log when this returns.
    pub fn write(&self, topic: &str, partition: i32, rows: Range<u64>) {
        for i in rows {
            enqueue(&self.producer, BaseRecord::<(), str>::to(topic).partition(partition).payload(&sensor_row(i)));
        }
        flush(&self.producer);
    }

    pub fn commit(&self) {
        self.producer.commit_transaction(ASK_BOUND).expect("the broker commits");
    }

    pub fn abort(&self) {
        self.producer.abort_transaction(ASK_BOUND).expect("the broker aborts");
    }
}

/// For every partition of `topic`, in order: the first offset still there and the next one to be written.
pub fn watermarks(bootstrap: &str, topic: &str) -> Vec<(i32, i64, i64)> {
    let consumer: BaseConsumer = config(bootstrap).create().expect("a consumer needs no more than an address");
    partitions(&consumer, topic)
        .into_iter()
        .map(|partition| {
            let (low, high) = consumer.fetch_watermarks(topic, partition, ASK_BOUND).expect("the broker answers");
            (partition, low, high)
        })
        .collect()
}

/// Every row of `topic` that a `read_committed` consumer other than the engine's sees, up to now: its partition, offset
/// and value, sorted. What a table has to hold, also where transactions, markers or compaction leave gaps.
pub fn read_back(bootstrap: &str, topic: &str) -> Vec<(i32, i64, Option<Vec<u8>>)> {
    let consumer: BaseConsumer = config(bootstrap)
        .set("group.id", "read-back")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()
        .expect("the settings are valid");
    let mut assignment = TopicPartitionList::new();
    for partition in partitions(&consumer, topic) {
        assignment.add_partition_offset(topic, partition, Offset::Beginning).expect("the offset is valid");
    }
    let mut open = assignment.count();
    consumer.assign(&assignment).expect("the partitions exist");
    let mut rows = Vec::new();
    while open > 0 {
        match consumer.poll(ASK_BOUND).expect("rows or the end come within the bound") {
            Ok(message) => {
                rows.push((message.partition(), message.offset(), message.payload().map(<[u8]>::to_vec)));
            }
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => panic!("cannot read topic \"{topic}\" back: {error}"),
        }
    }
    rows.sort();
    rows
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
    let metadata = consumer.fetch_metadata(Some(topic), ASK_BOUND).expect("the broker answers");
    let mut ids: Vec<i32> = metadata.topics()[0].partitions().iter().map(|partition| partition.id()).collect();
    assert!(!ids.is_empty(), "the broker has no topic \"{topic}\"");
    ids.sort_unstable();
    ids
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    // Back soon after an outage: by default the pauses between attempts grow to 10 s.
    config.set("bootstrap.servers", bootstrap).set("reconnect.backoff.max.ms", "500");
    config
}

fn producer(config: &ClientConfig) -> BaseProducer<Deliveries> {
    let mut config = config.clone();
    // Idempotence makes "exactly once and in order" true through retries. Large batches are what makes it fast.
    if config.get("linger.ms").is_none() {
        config.set("linger.ms", "20");
    }
    config
        .set("enable.idempotence", "true")
        .set("batch.size", "1000000")
        .set("batch.num.messages", "10000")
        .set("queue.buffering.max.messages", "200000")
        .set("message.timeout.ms", DELIVERY_BOUND.as_millis().to_string())
        .set("transaction.timeout.ms", DELIVERY_BOUND.as_millis().to_string());
    BaseProducer::from_config_and_context(&config, Deliveries::default()).expect("the settings are valid")
}

/// Counts what the broker has acknowledged; remembers the first failure.
#[derive(Default)]
struct Deliveries {
    enqueued: AtomicU64,
    delivered: AtomicU64,
    last_offset: AtomicI64,
    failure: Mutex<Option<String>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(message) => {
                self.last_offset.store(message.offset(), Ordering::SeqCst);
                self.delivered.fetch_add(1, Ordering::SeqCst);
            }
            Err((error, message)) => {
                let failure = format!("{}-{}: {error}", message.topic(), message.partition());
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            }
        }
    }
}

/// Hands a record to the producer, waiting while its queue is full.
fn enqueue<K, P>(producer: &BaseProducer<Deliveries>, mut record: BaseRecord<'_, K, P>)
where
    K: rdkafka::message::ToBytes + ?Sized,
    P: rdkafka::message::ToBytes + ?Sized,
{
    producer.context().enqueued.fetch_add(1, Ordering::SeqCst);
    while let Err((error, returned)) = producer.send(record) {
        assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "cannot produce: {error}");
        record = returned;
        producer.poll(Duration::from_millis(10));
    }
}

/// Returns when the broker has acknowledged everything that was handed over.
fn flush(producer: &BaseProducer<Deliveries>) {
    let flushed = producer.flush(DELIVERY_BOUND);
    let context = producer.context();
    if let Some(failure) = context.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        panic!("a row was not delivered to {failure}");
    }
    flushed.expect("all rows are delivered within the bound");
    let (enqueued, delivered) = (context.enqueued.load(Ordering::SeqCst), context.delivered.load(Ordering::SeqCst));
    assert_eq!(delivered, enqueued, "rows acknowledged and rows handed over");
}
