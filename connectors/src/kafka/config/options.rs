//! The string form: options as Spark's users know them, and what each of them is.

use std::collections::BTreeMap;
use std::fmt::Formatter;
use std::marker::PhantomData;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tidemill_core::options::Applies;
use tidemill_core::{Error, OptionDoc, Options, Result, code};
use tracing::warn;

use super::{Bounds, Kafka, Portions, Start, WithoutMatch, builder};

/// Options that a stream cannot have.
const STATIC_ONLY: &[&str] = &["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"];

/// Options that say nothing to a static read.
const STREAM_ONLY: &[&str] = &[
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitToGroup",
    "groupIdPrefix",
];

const COUNT: &str = "a positive whole number";
const MILLIS: &str = "a number of milliseconds";

/// Every option of the source.
pub(in crate::kafka) const OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: "kafka.bootstrap.servers",
        takes: "host:port, several with commas between",
        default: "",
        applies: Applies::Both,
        spark: "kafka.bootstrap.servers",
        meaning: "The brokers to begin with. Required.",
    },
    OptionDoc {
        name: "subscribe",
        takes: "names of topics with commas between",
        default: "",
        applies: Applies::Both,
        spark: "subscribe",
        meaning: "Reads these topics, with partitions that appear later. Exactly one of `subscribe`, `assign` and \
                  `subscribePattern` is required.",
    },
    OptionDoc {
        name: "assign",
        takes: "JSON: {\"topic\":[0,1]}",
        default: "",
        applies: Applies::Both,
        spark: "assign",
        meaning: "Reads these partitions, and no others.",
    },
    OptionDoc {
        name: "subscribePattern",
        takes: "a regular expression",
        default: "",
        applies: Applies::Both,
        spark: "subscribePattern",
        meaning: "Reads the topics whose whole name matches, also those that appear later, but not Kafka's internal ones.",
    },
    OptionDoc {
        name: "startingOffsets",
        takes: "earliest, latest, or JSON: {\"topic\":{\"0\":450,\"1\":-2}} (-2 earliest, -1 latest)",
        default: "latest (stream), earliest (batch)",
        applies: Applies::Both,
        spark: "startingOffsets",
        meaning: "Where a query without a checkpoint starts. In JSON every partition must be named, and none that is not \
                  there; an offset beyond the end is an error. Partitions that appear later are read from their first row.",
    },
    OptionDoc {
        name: "startingTimestamp",
        takes: "milliseconds since 1970",
        default: "",
        applies: Applies::Both,
        spark: "startingTimestamp",
        meaning: "Starts at the first row that is as late, in every partition. Goes before `startingOffsetsByTimestamp`, \
                  which goes before `startingOffsets`.",
    },
    OptionDoc {
        name: "startingOffsetsByTimestamp",
        takes: "JSON: {\"topic\":{\"0\":1700000000000}}",
        default: "",
        applies: Applies::Both,
        spark: "startingOffsetsByTimestamp",
        meaning: "The same with a time for each partition, all of which must be named.",
    },
    OptionDoc {
        name: "startingOffsetsByTimestampStrategy",
        takes: "error or latest",
        default: "error",
        applies: Applies::Both,
        spark: "startingOffsetsByTimestampStrategy",
        meaning: "What happens to a partition without a row as late as its timestamp: an error, or it starts at its end.",
    },
    OptionDoc {
        name: "endingOffsets",
        takes: "latest, or JSON: {\"topic\":{\"0\":450,\"1\":-1}} (-1 latest)",
        default: "latest",
        applies: Applies::Batch,
        spark: "endingOffsets",
        meaning: "Where a static read ends: before this offset.",
    },
    OptionDoc {
        name: "endingTimestamp",
        takes: "milliseconds since 1970",
        default: "",
        applies: Applies::Batch,
        spark: "endingTimestamp",
        meaning: "Ends before the first row that is as late, in every partition; at its end in one without such a row. Goes \
                  before `endingOffsetsByTimestamp`, which goes before `endingOffsets`.",
    },
    OptionDoc {
        name: "endingOffsetsByTimestamp",
        takes: "JSON: {\"topic\":{\"0\":1700000000000}}",
        default: "",
        applies: Applies::Batch,
        spark: "endingOffsetsByTimestamp",
        meaning: "The same with a time for each partition, all of which must be named.",
    },
    OptionDoc {
        name: "maxOffsetsPerTrigger",
        takes: COUNT,
        default: "",
        applies: Applies::Stream,
        spark: "maxOffsetsPerTrigger",
        meaning: "About how many rows a batch has at most, shared between partitions in proportion to what waits in each.",
    },
    OptionDoc {
        name: "maxBytesPerTrigger",
        takes: COUNT,
        default: "",
        applies: Applies::Stream,
        spark: "",
        meaning: "About how many bytes of keys and values a batch has at most, by the size of rows in the batch before. The \
                  first batch of a run takes every row for 1 MiB.",
    },
    OptionDoc {
        name: "minOffsetsPerTrigger",
        takes: COUNT,
        default: "",
        applies: Applies::Stream,
        spark: "minOffsetsPerTrigger",
        meaning: "A batch is held back until so many rows wait, or `maxTriggerDelay` is over. Not the first of a run, and \
                  not with the trigger available_now. Not above `maxOffsetsPerTrigger`.",
    },
    OptionDoc {
        name: "maxTriggerDelay",
        takes: "a length of time: 500ms, 30s, 15m, 1h",
        default: "15m",
        applies: Applies::Stream,
        spark: "maxTriggerDelay",
        meaning: "How long after the one before it a batch is held back at most. Only with `minOffsetsPerTrigger`.",
    },
    OptionDoc {
        name: "minPartitions",
        takes: COUNT,
        default: "",
        applies: Applies::Both,
        spark: "minPartitions",
        meaning: "Cuts large partitions so that a batch has at least so many splits, which are read at once. Otherwise there \
                  is one split a partition.",
    },
    OptionDoc {
        name: "maxRecordsPerPartition",
        takes: COUNT,
        default: "",
        applies: Applies::Both,
        spark: "maxRecordsPerPartition",
        meaning: "Cuts partitions so that no split has more rows. Goes before `minPartitions`.",
    },
    OptionDoc {
        name: "failOnDataLoss",
        takes: "true or false",
        default: "true",
        applies: Applies::Both,
        spark: "failOnDataLoss",
        meaning: "Whether rows that are gone before they were read end the query. With false it goes on behind them, and \
                  they are counted in the batch's log entry and in its progress (`dataLoss`).",
    },
    OptionDoc {
        name: "includeHeaders",
        takes: "true or false",
        default: "false",
        applies: Applies::Both,
        spark: "includeHeaders",
        meaning: "Adds the column `headers`: null in a row without any.",
    },
    OptionDoc {
        name: "groupIdPrefix",
        takes: "a text",
        default: "tidemill",
        applies: Applies::Stream,
        spark: "groupIdPrefix (spark-kafka-source)",
        meaning: "What the name of the consumer group begins with to which positions are committed. The query's id and the \
                  source's name follow.",
    },
    OptionDoc {
        name: "commitToGroup",
        takes: "true or false",
        default: "true",
        applies: Applies::Stream,
        spark: "",
        meaning: "Whether positions are committed to a consumer group after each batch and at least every 30 s, with the \
                  query's id beside them, so that tools outside see the lag. They are never read back, and no group is joined; \
                  a group that may not be written is one warning.",
    },
    OptionDoc {
        name: "kafka.group.id",
        takes: "a text",
        default: "",
        applies: Applies::Both,
        spark: "kafka.group.id",
        meaning: "Names the whole group to which positions are committed. It is not joined and not read, so queries that share \
                  it each read all rows; but tools see the positions of only one of them, which is a warning.",
    },
    OptionDoc {
        name: "kafka.isolation.level",
        takes: "read_committed or read_uncommitted",
        default: "read_committed",
        applies: Applies::Both,
        spark: "kafka.isolation.level (read_uncommitted unless set)",
        meaning: "Whether rows of open and aborted transactions are read.",
    },
    OptionDoc {
        name: "fetchOffset.numRetries",
        takes: "a whole number",
        default: "3",
        applies: Applies::Both,
        spark: "fetchOffset.numRetries (counts the first try too)",
        meaning: "How often a reply that contradicts what is known is asked for again before it is believed.",
    },
    OptionDoc {
        name: "fetchOffset.retryIntervalMs",
        takes: MILLIS,
        default: "1000",
        applies: Applies::Both,
        spark: "fetchOffset.retryIntervalMs (10 in its guide, 1000 in its code)",
        meaning: "How long to wait before asking again.",
    },
    OptionDoc {
        name: "kafkaConsumer.pollTimeoutMs",
        takes: MILLIS,
        default: "120000",
        applies: Applies::Both,
        spark: "kafkaConsumer.pollTimeoutMs",
        meaning: "How long a range may make no progress before its read fails.",
    },
    OptionDoc {
        name: "callTimeoutMs",
        takes: MILLIS,
        default: "30000",
        applies: Applies::Both,
        spark: "",
        meaning: "How long one request to a broker may take.",
    },
    OptionDoc {
        name: "kafka.*",
        takes: "what librdkafka's CONFIGURATION.md says",
        default: "",
        applies: Applies::Both,
        spark: "kafka.* (of the Java client)",
        meaning: "Passed on to librdkafka without the prefix. Names that the engine decides, and names of the Java client, \
                  are refused with what to use instead. `${env:NAME}` and `${file:PATH}` in a value are looked up, and the \
                  result is kept secret. OAUTHBEARER takes client credentials (`kafka.sasl.oauthbearer.method` oidc, \
                  `token.endpoint.url`, `client.id`, `client.secret`, `scope`) or, in the typed form, tokens of one's own.",
    },
];

impl Kafka {
    /// The same, from options in string form.
    pub(in crate::kafka) fn from_options(mut options: Options, is_static: bool) -> Result<Self> {
        for name in STREAM_ONLY {
            if is_static && options.contains(name) {
                // As in Spark: what fits a stream is no error in a read of the same topic.
                warn!("option \"{name}\" has no effect on a static read");
            }
        }
        for name in STATIC_ONLY {
            if !is_static && options.contains(name) {
                return Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is not for a stream"))
                    .fix("a stream ends with the trigger available_now, or when it is stopped; read() takes it"));
            }
        }
        let servers = options.require("kafka.bootstrap.servers", "the brokers, as \"host:port,host:port\"")?;
        let mut kafka = Kafka::brokers(servers);
        if let Some(list) = options.take("subscribe") {
            let topics: Vec<&str> = list.split(',').map(str::trim).filter(|topic| !topic.is_empty()).collect();
            if topics.is_empty() {
                return Err(nothing("subscribe"));
            }
            kafka = kafka.topics(topics);
        }
        let form = "partitions as JSON, such as {\"sensor-data\":[0,1]}, each topic once";
        let assigned: Option<Unique<_, _>> =
            options.parse_with("assign", form, |text| serde_json::from_str(text).ok())?;
        if assigned.as_ref().is_some_and(|assigned| assigned.0.is_empty()) {
            return Err(nothing("assign"));
        }
        kafka.assigned = assigned.map(|assigned| assigned.0).unwrap_or_default();
        kafka.pattern = options.take("subscribePattern");
        kafka.start = place(&mut options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")?;
        if is_static {
            kafka.end = place(&mut options, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")?;
        }
        let strategy = options.parse_with("startingOffsetsByTimestampStrategy", "error or latest", parse_strategy)?;
        kafka.without_match = strategy.unwrap_or_default();
        let (min_offsets, max_delay) =
            (options.parse("minOffsetsPerTrigger", COUNT)?, options.parse_duration("maxTriggerDelay")?);
        kafka.portions = Portions {
            max_offsets: options.parse("maxOffsetsPerTrigger", COUNT)?,
            max_bytes: options.parse("maxBytesPerTrigger", COUNT)?,
            min_offsets,
            max_delay_ms: u64::try_from(max_delay.unwrap_or(builder::MAX_DELAY).as_millis()).unwrap_or(u64::MAX),
            min_partitions: options.parse("minPartitions", COUNT)?,
            max_records_per_partition: options.parse("maxRecordsPerPartition", COUNT)?,
        };
        if is_static {
            // They were read, so that none is wrong unseen.
            let Portions { min_partitions, max_records_per_partition, max_delay_ms, .. } = kafka.portions;
            kafka.portions =
                Portions { min_partitions, max_records_per_partition, max_delay_ms, ..Portions::default() };
        }
        kafka.include_headers = options.parse_bool("includeHeaders")?.unwrap_or(false);
        kafka.fail_on_data_loss = options.parse_bool("failOnDataLoss")?.unwrap_or(true);
        kafka.group_id_prefix = options.take("groupIdPrefix");
        kafka.commit_to_group = options.parse_bool("commitToGroup")?.unwrap_or(true);
        let default = Bounds::default();
        let ms = MILLIS;
        kafka.bounds = Bounds {
            call_ms: options.parse("callTimeoutMs", ms)?.unwrap_or(default.call_ms),
            stuck_ms: options.parse("kafkaConsumer.pollTimeoutMs", ms)?.unwrap_or(default.stuck_ms),
            retries: options.parse("fetchOffset.numRetries", "a whole number")?.unwrap_or(default.retries),
            retry_ms: options.parse("fetchOffset.retryIntervalMs", ms)?.unwrap_or(default.retry_ms),
        };
        for (name, value) in options.take_prefixed("kafka.") {
            kafka = kafka.property(name, value);
        }
        options.finish("the kafka source")?;
        Ok(kafka)
    }
}

/// The error for an option that names topics and names none.
fn nothing(option: &str) -> Error {
    Error::new(code::INVALID_OPTION, format!("\"{option}\" names nothing"))
        .at("option", option)
        .fix("name what is read")
}

/// A place to start or to end, said in one of three ways. All are read, so that none of them passes unseen; the first that
/// is there counts.
fn place(options: &mut Options, time: &str, times: &str, offsets: &str) -> Result<Option<Start>> {
    let time = options.parse(time, "milliseconds since 1970")?.map(Start::Timestamp);
    let form = "times as JSON, such as {\"sensor-data\":{\"0\":1700000000000}}, each partition once";
    let times = options.parse_with(times, form, |text| by_partition(text).map(Start::Timestamps))?;
    let form =
        "earliest, latest, or offsets as JSON, such as {\"sensor-data\":{\"0\":450,\"1\":-1}}, each partition once";
    let offsets = options.parse_with(offsets, form, parse_start)?;
    Ok(time.or(times).or(offsets))
}

fn parse_start(text: &str) -> Option<Start> {
    match text.trim().to_lowercase().as_str() {
        "earliest" => Some(Start::Earliest),
        "latest" => Some(Start::Latest),
        _ => by_partition(text).map(Start::Offsets),
    }
}

/// Numbers by topic and partition, out of JSON.
fn by_partition(text: &str) -> Option<BTreeMap<String, BTreeMap<i32, i64>>> {
    let read: Unique<String, Unique<i32, i64>> = serde_json::from_str(text).ok()?;
    Some(read.0.into_iter().map(|(topic, partitions)| (topic, partitions.0)).collect())
}

/// A map out of JSON in which no key comes twice: one of the two would be dropped.
struct Unique<K, V>(BTreeMap<K, V>);

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Unique<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = Unique<K, V>;

            fn expecting(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Self::Value, A::Error> {
                let mut unique = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    if unique.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key comes twice"));
                    }
                }
                Ok(Unique(unique))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

fn parse_strategy(text: &str) -> Option<WithoutMatch> {
    match text.trim().to_lowercase().as_str() {
        "error" => Some(WithoutMatch::Error),
        "latest" => Some(WithoutMatch::Latest),
        _ => None,
    }
}
