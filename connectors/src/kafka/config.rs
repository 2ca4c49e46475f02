//! What a Kafka source is told: the spec, which the typed builder (`builder`) and the options in string form (`options`)
//! both make.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use serde::{Deserialize, Serialize};
use tidemill_core::registry::Vault;
use tidemill_core::secret::TokenSource;
use tidemill_core::{Error, Hold, Owner, Pace, Result, Secret, SourceSpec, code};

use super::properties::{CREDENTIALS, Redactor};
use super::token::{ClientCredentials, Login, Tokens};

mod builder;
pub(super) mod options;
mod pattern;

pub use builder::Kafka;
pub(super) use pattern::TopicPattern;

/// The name under which the source is registered.
pub(super) const FORMAT: &str = "kafka";

/// `assign()` demands a group id: it is never joined. Groups to which positions are committed begin with it.
pub(super) const PLACEHOLDER_GROUP: &str = "tidemill";

/// Where a query without a checkpoint starts, or a static read starts or ends. Partitions that appear later in a stream are
/// always read from their first row.
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
    /// At the first row whose timestamp is this or later, in milliseconds since 1970, in every partition.
    Timestamp(i64),
    /// The same with a time of its own for every partition: every partition must be named.
    Timestamps(BTreeMap<String, BTreeMap<i32, i64>>),
    /// Where this consumer group stands, to take over from another program: its committed offsets are read once, when the
    /// query has no checkpoint yet, and never again. A partition in which it has none starts at the first row.
    Group(String),
}

/// Where a partition starts of which no row is as late as the timestamp that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithoutMatch {
    /// Nowhere: it is an error.
    #[default]
    Error,
    /// After the last row that is readable now.
    Latest,
}

impl Start {
    /// In the place of an offset: the first row that the broker still has.
    pub const FIRST: i64 = -2;
    /// In the place of an offset: after the last row that is readable now.
    pub const END: i64 = -1;

    /// Whether it is, in any partition, after the last row that is readable now.
    pub(super) fn is_at_end(&self) -> bool {
        match self {
            Start::Latest => true,
            Start::Offsets(topics) => topics.values().flat_map(|at| at.values()).any(|at| *at == Start::END),
            _ => false,
        }
    }

    /// What it says of single partitions, if it does.
    pub(super) fn by_partition(&self) -> Option<&BTreeMap<String, BTreeMap<i32, i64>>> {
        match self {
            Start::Offsets(named) | Start::Timestamps(named) => Some(named),
            _ => None,
        }
    }

    /// The option that says it, for an error.
    pub(super) fn option(&self, is_end: bool) -> &'static str {
        match (self, is_end) {
            (Start::Timestamp(_), false) => "startingTimestamp",
            (Start::Timestamps(_), false) => "startingOffsetsByTimestamp",
            (_, false) => "startingOffsets",
            (Start::Timestamp(_), true) => "endingTimestamp",
            (Start::Timestamps(_), true) => "endingOffsetsByTimestamp",
            (_, true) => "endingOffsets",
        }
    }
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

/// What is read: whole topics, with partitions that appear later, or fixed partitions, or the topics that match a pattern,
/// with those that appear later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Subscription {
    Subscribe(BTreeSet<String>),
    Assign(BTreeMap<String, BTreeSet<i32>>),
    Pattern(TopicPattern),
}

impl Subscription {
    /// The topics that are named, all of which must be there. A pattern names none.
    pub(super) fn topics(&self) -> Vec<&str> {
        match self {
            Subscription::Subscribe(topics) => topics.iter().map(String::as_str).collect(),
            Subscription::Assign(partitions) => partitions.keys().map(String::as_str).collect(),
            Subscription::Pattern(_) => Vec::new(),
        }
    }

    /// Whether this partition is among what is read.
    pub(super) fn takes(&self, topic: &str, partition: i32) -> bool {
        match self {
            Subscription::Subscribe(topics) => topics.contains(topic),
            Subscription::Assign(all) => all.get(topic).is_some_and(|partitions| partitions.contains(&partition)),
            Subscription::Pattern(pattern) => pattern.matches(topic),
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
    /// How often a reply that contradicts what is known is asked for again (as in Spark).
    pub(super) retries: u32,
    /// How long to wait before asking again.
    pub(super) retry_ms: u64,
}

impl Bounds {
    /// Refuses bounds that nothing could keep.
    fn check(&self) -> Result<()> {
        let positive = [("kafkaConsumer.pollTimeoutMs", self.stuck_ms), ("callTimeoutMs", self.call_ms)];
        match positive.iter().find(|(_, bound_ms)| *bound_ms == 0) {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is \"0\""))
                .at("option", *name)
                .fix("it takes a positive number of milliseconds")),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { call_ms: 30_000, stuck_ms: 120_000, retries: 3, retry_ms: 1000 }
    }
}

/// How much one batch reads, when, and in how many splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Portions {
    /// Rows a batch.
    pub(super) max_offsets: Option<u64>,
    /// Bytes a batch.
    pub(super) max_bytes: Option<u64>,
    /// Rows for which a batch waits …
    pub(super) min_offsets: Option<u64>,
    /// … and for how long it waits at most.
    pub(super) max_delay_ms: u64,
    /// Splits that a batch has at least, if it has as many rows.
    pub(super) min_partitions: Option<u64>,
    /// Rows a split.
    pub(super) max_records_per_partition: Option<u64>,
}

impl Portions {
    pub(super) fn pace(&self) -> Pace {
        let delay_max = Duration::from_millis(self.max_delay_ms);
        let hold = self.min_offsets.map(|rows| Hold { rows, delay_max });
        Pace { rows_max: self.max_offsets, bytes_max: self.max_bytes, hold }
    }
}

/// The config of the spec: plain data, secrets by their names in the vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KafkaConfig {
    pub(super) subscription: Subscription,
    pub(super) start: Start,
    /// Whether it is read once, and not as a stream.
    pub(super) is_static: bool,
    /// Where it ends: none for a stream without an end, and for a static read of what is there.
    pub(super) end: Option<Start>,
    pub(super) without_match: WithoutMatch,
    pub(super) portions: Portions,
    /// What the group begins with to which positions are committed, unless it is named.
    pub(super) group_id_prefix: Option<String>,
    /// Whether positions are committed to a group, for tools outside.
    pub(super) commit_to_group: bool,
    /// Whether rows that are gone are an error; otherwise they are counted.
    pub(super) fail_on_data_loss: bool,
    pub(super) include_headers: bool,
    pub(super) isolation: Isolation,
    /// Properties whose values are harmless.
    pub(super) properties: BTreeMap<String, String>,
    /// All other properties, with the names of their values in the vault.
    pub(super) vault: BTreeMap<String, String>,
    /// The name in the vault of what gives tokens, where that is the user's own.
    #[serde(default)]
    pub(super) tokens: Option<String>,
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
        self.properties.get("bootstrap.servers").map_or("brokers whose address is kept secret", String::as_str)
    }

    /// What a client of the library is made with, and how it logs in.
    pub(super) fn client(&self, vault: &Vault) -> Result<(ClientConfig, Login)> {
        let mut config = ClientConfig::new();
        let mut redactor = Redactor::default();
        // Once a broker is back, half a minute of waiting for the next try would be ours, not its.
        config.set("reconnect.backoff.max.ms", "1000");
        config.set("allow.auto.create.topics", "false");
        let mut properties = self.properties.clone();
        for (name, kept) in &self.vault {
            let secret = vault.get(kept)?;
            redactor.learn(name, secret.expose());
            properties.insert(name.clone(), secret.expose().to_owned());
        }
        let tokens = self.tokens(vault, &mut properties, &redactor)?.map(|source| Arc::new(Tokens::new(source)));
        for (name, value) in properties {
            config.set(name, value);
        }
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "error");
        config.set("enable.partition.eof", "true");
        config.set_log_level(RDKafkaLogLevel::Info);
        Ok((config, Login { redactor, tokens }))
    }

    /// Where tokens come from, if the login is by OAUTHBEARER. Takes out of the properties what librdkafka would need
    /// libcurl for.
    fn tokens(
        &self,
        vault: &Vault,
        properties: &mut BTreeMap<String, String>,
        redactor: &Redactor,
    ) -> Result<Option<TokenSource>> {
        if let Some(kept) = &self.tokens {
            return vault.tokens(kept).map(Some);
        }
        if !properties.get("sasl.oauthbearer.method").is_some_and(|method| method.eq_ignore_ascii_case("oidc")) {
            return Ok(None);
        }
        let mut take = |name: &str| properties.remove(name);
        take("sasl.oauthbearer.method");
        take("sasl.oauthbearer.grant.type");
        let [endpoint, client_id, client_secret] = CREDENTIALS.map(|names| names.iter().find_map(|name| take(name)));
        let missing = || Error::new(code::MISSING_OPTION, "a part of the client credentials is missing");
        let account = ClientCredentials {
            endpoint: endpoint.ok_or_else(missing)?,
            client_id: client_id.ok_or_else(missing)?,
            client_secret: Secret::new(client_secret.ok_or_else(missing)?),
            scope: take("sasl.oauthbearer.scope"),
            ca_file: take("https.ca.location"),
            redactor: redactor.clone(),
        };
        Ok(Some(TokenSource::new(move || account.ask())))
    }

    /// The group to which positions are committed; none if none are. `named`: what the client's own properties say.
    pub(super) fn lag_group(&self, named: Option<&str>, owner: Owner<'_>) -> Option<String> {
        let prefix = self.group_id_prefix.as_deref().unwrap_or(PLACEHOLDER_GROUP);
        let group = || format!("{prefix}-{}-{}", owner.query_id, owner.source);
        self.commit_to_group.then(|| named.map_or_else(group, str::to_owned))
    }
}
