//! What a Kafka source is told: the typed builder, the options in string form, and the spec that both make.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use serde::{Deserialize, Serialize};
use tidemill_core::registry::Vault;
use tidemill_core::{Context, Error, Options, Result, Secret, Source, SourceBuilder, SourceSpec, code};
use tracing::warn;

use super::properties::{self, Redactor};
use super::source::KafkaSource;

/// The name under which the source is registered.
pub(super) const FORMAT: &str = "kafka";

/// `assign()` demands a group id. It is never joined, and nothing is committed to it or read from it.
const PLACEHOLDER_GROUP: &str = "tidemill";

/// Options of Spark's that are known and not supported yet.
const LATER: &[&str] = &[
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
];

/// Options of Spark's that a stream cannot have.
const BATCH_ONLY: &[&str] = &["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"];

/// Where a query without a checkpoint starts. Partitions that appear later are always read from their first row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At the first row that the broker still has.
    Earliest,
    /// After the last row that is readable now (as in Spark, the default of a stream).
    #[default]
    Latest,
    /// At these offsets, by topic and partition: every partition must be named. [`Start::FIRST`] and [`Start::END`] may
    /// stand in the place of an offset.
    Offsets(BTreeMap<String, BTreeMap<i32, i64>>),
}

impl Start {
    /// In the place of an offset: the first row that the broker still has.
    pub const FIRST: i64 = -2;
    /// In the place of an offset: after the last row that is readable now.
    pub const END: i64 = -1;
}

/// Which rows of a topic with transactions are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Isolation {
    /// Those of committed transactions, and those without one, up to the first open transaction.
    #[default]
    ReadCommitted,
    /// All, also those of open and aborted transactions.
    ReadUncommitted,
}

impl Isolation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read_committed",
            Isolation::ReadUncommitted => "read_uncommitted",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        match text.trim().to_lowercase().as_str() {
            "read_committed" => Ok(Isolation::ReadCommitted),
            "read_uncommitted" => Ok(Isolation::ReadUncommitted),
            _ => Err(Error::new(code::INVALID_OPTION, format!("\"kafka.isolation.level\" is \"{text}\""))
                .fix("it takes read_committed (the default) or read_uncommitted")),
        }
    }
}

/// What is read: whole topics, with partitions that appear later, or fixed partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subscription {
    Subscribe(BTreeSet<String>),
    Assign(BTreeMap<String, BTreeSet<i32>>),
}

impl Subscription {
    pub(super) fn topics(&self) -> Vec<&str> {
        match self {
            Subscription::Subscribe(topics) => topics.iter().map(String::as_str).collect(),
            Subscription::Assign(partitions) => partitions.keys().map(String::as_str).collect(),
        }
    }

    /// Whether this partition is among what is read.
    pub(super) fn takes(&self, topic: &str, partition: i32) -> bool {
        match self {
            Subscription::Subscribe(topics) => topics.contains(topic),
            Subscription::Assign(all) => all.get(topic).is_some_and(|partitions| partitions.contains(&partition)),
        }
    }
}

/// Bounds and retries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bounds {
    /// How long one request to the broker may take.
    pub(super) call_ms: u64,
    /// How long a range may make no progress.
    pub(super) stuck_ms: u64,
    /// How often a reply that contradicts what is known is asked for again.
    pub(super) retries: u32,
    /// How long to wait before asking again.
    pub(super) retry_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { call_ms: 30_000, stuck_ms: 60_000, retries: 5, retry_ms: 300 }
    }
}

/// The config of the spec: plain data, secrets by their names in the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KafkaConfig {
    pub(super) subscription: Subscription,
    pub(super) start: Start,
    pub(super) max_offsets_per_trigger: Option<u64>,
    pub(super) include_headers: bool,
    pub(super) isolation: Isolation,
    /// Properties whose values are harmless.
    pub(super) properties: BTreeMap<String, String>,
    /// All other properties, with the names of their values in the vault.
    pub(super) vault: BTreeMap<String, String>,
    pub(super) bounds: Bounds,
}

impl KafkaConfig {
    pub(super) fn from_spec(spec: &SourceSpec) -> Result<Self> {
        KafkaConfig::deserialize(&spec.config)
            .map_err(|error| Error::new(code::INVALID_OPTION, "the spec of a kafka source is not one").because(error))
    }

    pub(super) fn spec(&self) -> SourceSpec {
        let config = serde_json::to_value(self).expect("a config is plain data");
        SourceSpec { format: FORMAT.to_owned(), config }
    }

    /// The address, for people.
    pub(super) fn servers(&self) -> &str {
        self.properties.get("bootstrap.servers").map_or("", String::as_str)
    }

    /// What a client of the library is made with, and what takes its secrets out of texts.
    pub(super) fn client(&self, vault: &Vault) -> Result<(ClientConfig, Redactor)> {
        let mut config = ClientConfig::new();
        let mut redactor = Redactor::default();
        // Once a broker is back, half a minute of waiting for the next try would be ours, not its.
        config.set("reconnect.backoff.max.ms", "1000");
        config.set("allow.auto.create.topics", "false");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, kept) in &self.vault {
            let secret = vault.get(kept)?;
            redactor.learn(name, secret.expose());
            config.set(name, secret.expose());
        }
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "error");
        config.set("enable.partition.eof", "true");
        config.set_log_level(RDKafkaLogLevel::Info);
        Ok((config, redactor))
    }

    /// The group id that a fetching client is made with.
    pub(super) fn group(&self) -> &str {
        self.properties.get("group.id").map_or(PLACEHOLDER_GROUP, String::as_str)
    }
}

/// Refuses addresses that the library would read as something else, or wait for in vain: it takes 99999 for port 34463.
fn check_servers(servers: &str) -> Result<()> {
    const FIX: &str = "name the brokers, as \"host:port,host:port\"";
    if servers.trim().is_empty() {
        return Err(Error::new(code::MISSING_OPTION, "\"kafka.bootstrap.servers\" is empty").fix(FIX));
    }
    for server in servers.split(',').map(str::trim) {
        let address = match server.split_once("://") {
            Some((protocol, address)) => {
                let known = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];
                known.contains(&protocol.to_lowercase().as_str()).then_some(address)
            }
            None => Some(server),
        };
        let port = |address: &str| match address.rsplit_once(':') {
            // An IPv6 address without a port ends in a bracket.
            Some((host, port)) if !address.ends_with(']') => {
                !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0)
            }
            _ => !address.is_empty(),
        };
        if !address.is_some_and(port) {
            return Err(Error::new(code::INVALID_OPTION, format!("\"{server}\" is no address of a broker"))
                .at("option", "kafka.bootstrap.servers")
                .fix(FIX));
        }
    }
    Ok(())
}

/// A Kafka source, in typed form. The string form (`format("kafka")` with options) makes the same spec.
///
/// ```
/// use tidemill_connectors::{Kafka, Start};
///
/// let source = Kafka::brokers("broker1:9092").topic("sensor-data").start(Start::Earliest).max_offsets_per_trigger(10_000);
/// # let _ = source;
/// ```
#[derive(Clone)]
pub struct Kafka {
    topics: BTreeSet<String>,
    assigned: BTreeMap<String, BTreeSet<i32>>,
    start: Start,
    max_offsets_per_trigger: Option<u64>,
    include_headers: bool,
    /// By name; whether the caller said that the value is secret stands beside it.
    properties: BTreeMap<String, (Secret, bool)>,
    bounds: Bounds,
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of properties are secrets until they are known to be none.
        f.debug_struct("Kafka").field("topics", &self.topics).field("assigned", &self.assigned).finish_non_exhaustive()
    }
}

impl Kafka {
    /// A source that reads from these brokers: `host:port`, several with commas between.
    pub fn brokers(servers: impl Into<String>) -> Self {
        let empty = Kafka {
            topics: BTreeSet::new(),
            assigned: BTreeMap::new(),
            start: Start::default(),
            max_offsets_per_trigger: None,
            include_headers: false,
            properties: BTreeMap::new(),
            bounds: Bounds::default(),
        };
        empty.property("bootstrap.servers", servers)
    }

    /// Reads this topic too, with the partitions that it has and will have.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.insert(topic.into());
        self
    }

    /// Reads these topics too.
    #[must_use]
    pub fn topics(mut self, topics: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.topics.extend(topics.into_iter().map(Into::into));
        self
    }

    /// Reads these partitions of a topic, and only these. Not together with [`Kafka::topic`].
    #[must_use]
    pub fn assign(mut self, topic: impl Into<String>, partitions: impl IntoIterator<Item = i32>) -> Self {
        self.assigned.entry(topic.into()).or_default().extend(partitions);
        self
    }

    /// Where a query without a checkpoint starts; [`Start::Latest`] by default.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// About how many rows one batch reads at most, shared between partitions in proportion to what each has waiting.
    #[must_use]
    pub fn max_offsets_per_trigger(mut self, rows: u64) -> Self {
        self.max_offsets_per_trigger = Some(rows);
        self
    }

    /// Adds the column `headers`.
    #[must_use]
    pub fn include_headers(mut self, include: bool) -> Self {
        self.include_headers = include;
        self
    }

    /// Sets a property of librdkafka, without the prefix `kafka.`; see its CONFIGURATION.md.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into().to_lowercase(), (Secret::new(value), false));
        self
    }

    /// Sets a property to a secret value.
    #[must_use]
    pub fn secret_property(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.properties.insert(name.into().to_lowercase(), (value, true));
        self
    }

    /// How long one request to the broker may take: 30 s by default.
    #[must_use]
    pub fn call_timeout_ms(mut self, bound: u64) -> Self {
        self.bounds.call_ms = bound;
        self
    }

    /// How long a range may make no progress, say because its broker is down: 60 s by default.
    #[must_use]
    pub fn stuck_timeout_ms(mut self, bound: u64) -> Self {
        self.bounds.stuck_ms = bound;
        self
    }

    /// The same, from options in string form.
    pub(super) fn from_options(mut options: Options) -> Result<Self> {
        for name in LATER {
            if options.contains(name) {
                return Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is not supported yet"))
                    .fix("leave it out; a later version has it"));
            }
        }
        for name in BATCH_ONLY {
            if options.contains(name) {
                return Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is not for a stream"))
                    .fix("a stream ends with the trigger available_now, or when it is stopped"));
            }
        }
        let servers = options.require("kafka.bootstrap.servers", "the brokers, as \"host:port,host:port\"")?;
        let mut kafka = Kafka::brokers(servers);
        if let Some(list) = options.take("subscribe") {
            kafka = kafka.topics(list.split(',').map(str::trim).filter(|topic| !topic.is_empty()));
        }
        let form = "partitions as JSON, such as {\"sensor-data\":[0,1]}";
        let assigned = options.parse_with("assign", form, |text| serde_json::from_str(text).ok())?;
        kafka.assigned = assigned.unwrap_or_default();
        let form = "earliest, latest, or offsets as JSON, such as {\"sensor-data\":{\"0\":450,\"1\":-2}}";
        kafka.start = options.parse_with("startingOffsets", form, parse_start)?.unwrap_or_default();
        kafka.max_offsets_per_trigger = options.parse("maxOffsetsPerTrigger", "a positive whole number")?;
        kafka.include_headers = options.parse_bool("includeHeaders")?.unwrap_or(false);
        if options.parse_bool("failOnDataLoss")? == Some(false) {
            return Err(Error::new(code::INVALID_OPTION, "option \"failOnDataLoss\" is false, which comes later")
                .fix("leave it out: rows that are gone are an error"));
        }
        if options.take("groupIdPrefix").is_some() {
            // Spark only names its groups by it; nothing is read or written otherwise.
            warn!("option \"groupIdPrefix\" has no effect: no group is joined, and nothing is committed to one");
        }
        let default = Bounds::default();
        let ms = "a number of milliseconds";
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

    /// Checks everything that can be checked without a broker. Values that are not known to be harmless go to the
    /// vault.
    pub(super) fn resolve(self, vault: &Vault) -> Result<KafkaConfig> {
        let subscription = match (self.topics.is_empty(), self.assigned.values().all(BTreeSet::is_empty)) {
            _ if self.topics.iter().chain(self.assigned.keys()).any(|topic| topic.trim().is_empty()) => {
                return Err(Error::new(code::INVALID_OPTION, "a topic's name is empty").fix("name the topic"));
            }
            (false, true) => Subscription::Subscribe(self.topics),
            (true, false) => Subscription::Assign(self.assigned),
            (true, true) => {
                return Err(Error::new(code::MISSING_OPTION, "no topic is named")
                    .fix("set .option(\"subscribe\", \"topic\") or .option(\"assign\", \"{\\\"topic\\\":[0]}\")"));
            }
            (false, false) => {
                return Err(Error::new(code::INVALID_OPTION, "both \"subscribe\" and \"assign\" are set")
                    .fix("use one of them"));
            }
        };
        if self.max_offsets_per_trigger == Some(0) {
            return Err(Error::new(code::INVALID_OPTION, "option \"maxOffsetsPerTrigger\" is \"0\"")
                .fix("it takes a positive whole number"));
        }
        if let Start::Offsets(topics) = &self.start {
            check_start(&subscription, topics)?;
        }
        let mut isolation = Isolation::default();
        let (mut open, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (name, (value, secret)) in self.properties {
            properties::check_name(&name)?;
            properties::check_value(&name, value.expose())?;
            if name == "bootstrap.servers" {
                check_servers(value.expose())?;
            }
            match name.as_str() {
                "isolation.level" => isolation = Isolation::parse(value.expose())?,
                _ if properties::printable(&name) && !secret => drop(open.insert(name, value.expose().to_owned())),
                _ => {
                    let label = vault.keep(&format!("kafka.{name}"), value);
                    kept.insert(name, label);
                }
            }
        }
        let config = KafkaConfig {
            subscription,
            start: self.start,
            max_offsets_per_trigger: self.max_offsets_per_trigger,
            include_headers: self.include_headers,
            isolation,
            properties: open,
            vault: kept,
            bounds: self.bounds,
        };
        Ok(config)
    }
}

#[async_trait]
impl SourceBuilder for Kafka {
    async fn build(self, context: &Context) -> Result<Arc<dyn Source>> {
        let config = self.resolve(&context.vault)?;
        Ok(Arc::new(KafkaSource::open(config, context).await?))
    }
}

fn parse_start(text: &str) -> Option<Start> {
    match text.trim().to_lowercase().as_str() {
        "earliest" => Some(Start::Earliest),
        "latest" => Some(Start::Latest),
        _ => serde_json::from_str(text).ok().map(Start::Offsets),
    }
}

/// Offsets must be offsets, and of topics that are read.
fn check_start(subscription: &Subscription, topics: &BTreeMap<String, BTreeMap<i32, i64>>) -> Result<()> {
    for (topic, partitions) in topics {
        for (partition, offset) in partitions {
            let wrong = if *offset < Start::FIRST {
                "is below -2"
            } else if !subscription.takes(topic, *partition) {
                "is of a partition that is not read"
            } else {
                continue;
            };
            let what = format!("starting offset {offset} of \"{topic}\", partition {partition}, {wrong}");
            return Err(Error::new(code::INVALID_OPTION, what)
                .fix("give an offset, -2 (earliest) or -1 (latest) for each partition that is read"));
        }
    }
    Ok(())
}
