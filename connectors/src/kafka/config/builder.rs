//! The typed form: [`Kafka`], and the checks that both forms go through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_core::registry::Vault;
use tidemill_core::secret::TokenSource;
use tidemill_core::{BearerToken, Context, Error, Result, Secret, Source, SourceBuilder, code};

use super::{Bounds, Isolation, KafkaConfig, Portions, Start, Subscription, TopicPattern, WithoutMatch};
use crate::kafka::properties;
use crate::kafka::source::KafkaSource;

/// How long a batch is held back at most, unless something else is said (as in Spark).
pub(super) const MAX_DELAY: Duration = Duration::from_secs(15 * 60);

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
    pub(super) assigned: BTreeMap<String, BTreeSet<i32>>,
    pub(super) pattern: Option<String>,
    /// None: where a stream, or a static read, starts by default.
    pub(super) start: Option<Start>,
    pub(super) end: Option<Start>,
    pub(super) without_match: WithoutMatch,
    pub(super) portions: Portions,
    pub(super) fail_on_data_loss: bool,
    pub(super) group_id_prefix: Option<String>,
    pub(super) commit_to_group: bool,
    pub(super) include_headers: bool,
    /// By name; whether the caller said that the value is secret stands beside it.
    properties: BTreeMap<String, (Secret, bool)>,
    tokens: Option<TokenSource>,
    pub(super) bounds: Bounds,
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
            pattern: None,
            start: None,
            end: None,
            without_match: WithoutMatch::default(),
            portions: Portions { max_delay_ms: MAX_DELAY.as_millis() as u64, ..Portions::default() },
            fail_on_data_loss: true,
            group_id_prefix: None,
            commit_to_group: true,
            include_headers: false,
            properties: BTreeMap::new(),
            tokens: None,
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

    /// Reads the topics whose whole name matches this regular expression, also those that appear later. Not together with
    /// [`Kafka::topic`] or [`Kafka::assign`].
    #[must_use]
    pub fn topic_pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Where a query without a checkpoint starts; [`Start::Latest`] by default, [`Start::Earliest`] for a static read.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = Some(start);
        self
    }

    /// Reads from where the range starts up to where it ends, and nothing beyond. A stream of it is a backfill: a query of
    /// its own that resumes where it was, gives each row once and, with the trigger `available_now`, ends. As a stream must
    /// know its end at every start, it is given by offsets or by times.
    ///
    /// ```
    /// use tidemill_connectors::{Kafka, Start};
    ///
    /// let one_day = Start::Timestamp(1_764_460_800_000)..Start::Timestamp(1_764_547_200_000);
    /// let backfill = Kafka::brokers("broker1:9092").topic("sensor-data").between(one_day);
    /// # let _ = backfill;
    /// ```
    #[must_use]
    pub fn between(mut self, range: std::ops::Range<Start>) -> Self {
        (self.start, self.end) = (Some(range.start), Some(range.end));
        self
    }

    /// What happens to a partition without a row as late as the timestamp to start at: an error by default.
    #[must_use]
    pub fn without_match(mut self, strategy: WithoutMatch) -> Self {
        self.without_match = strategy;
        self
    }

    /// About how many rows one batch reads at most, shared between partitions in proportion to what each has waiting.
    #[must_use]
    pub fn max_offsets_per_trigger(mut self, rows: u64) -> Self {
        self.portions.max_offsets = Some(rows);
        self
    }

    /// About how many bytes of keys and values one batch reads at most, by the size that rows had in the batch before. The
    /// first batch of a run takes every row for a mebibyte.
    #[must_use]
    pub fn max_bytes_per_trigger(mut self, bytes: u64) -> Self {
        self.portions.max_bytes = Some(bytes);
        self
    }

    /// Holds a batch back until so many rows wait, or `delay_max` has passed since the one before. The first batch of a run
    /// is not held back, and none with the trigger `available_now`.
    #[must_use]
    pub fn min_offsets_per_trigger(mut self, rows: u64, delay_max: Duration) -> Self {
        self.portions.min_offsets = Some(rows);
        self.portions.max_delay_ms = u64::try_from(delay_max.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Cuts a batch into at least so many splits, which are read at once: large partitions are cut in pieces, in proportion
    /// to what each has. One split a partition otherwise.
    #[must_use]
    pub fn min_partitions(mut self, splits: u64) -> Self {
        self.portions.min_partitions = Some(splits);
        self
    }

    /// Cuts partitions so that no split has more rows.
    #[must_use]
    pub fn max_records_per_partition(mut self, rows: u64) -> Self {
        self.portions.max_records_per_partition = Some(rows);
        self
    }

    /// Whether rows that are gone before they were read (by retention, or with a topic that was made again) end the query:
    /// so it is by default. With `false` it goes on behind them; how many there were is in the batch's log entry and in its
    /// progress.
    #[must_use]
    pub fn fail_on_data_loss(mut self, fail: bool) -> Self {
        self.fail_on_data_loss = fail;
        self
    }

    /// What the name of the consumer group begins with to which positions are committed for tools outside; `tidemill` by
    /// default. The query's id and the source's name follow. `property("group.id", …)` names the whole group instead.
    #[must_use]
    pub fn group_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.group_id_prefix = Some(prefix.into());
        self
    }

    /// Whether positions are committed to a consumer group after each batch, so that tools outside see the query's lag: so
    /// it is by default. They are never read back.
    #[must_use]
    pub fn commit_to_group(mut self, commit: bool) -> Self {
        self.commit_to_group = commit;
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

    /// Logs in by OAUTHBEARER, with tokens that a function gives: it is called when one is needed, and again before that
    /// one ends. It may block. For authorities that know more than client credentials, such as MSK's IAM; for those, set
    /// librdkafka's properties `sasl.oauthbearer.*` with the method `oidc`.
    #[must_use]
    pub fn bearer_tokens(
        self,
        token: impl Fn() -> Result<BearerToken, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        let source = TokenSource::new(move || {
            token().map_err(|error| {
                let what = format!("the program's own function gave no token: {error}");
                Error::new(code::SOURCE_UNAVAILABLE, what).because(error)
            })
        });
        Kafka { tokens: Some(source), ..self.property("sasl.mechanisms", "OAUTHBEARER") }
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

    fn subscription(&self) -> Result<Subscription> {
        if self.topics.iter().chain(self.assigned.keys()).any(|topic| topic.trim().is_empty()) {
            return Err(Error::new(code::INVALID_OPTION, "a topic's name is empty").fix("name the topic"));
        }
        let mut said = Vec::new();
        if !self.topics.is_empty() {
            said.push(Subscription::Subscribe(self.topics.clone()));
        }
        if let Some((topic, _)) = self.assigned.iter().find(|(_, partitions)| partitions.is_empty()) {
            return Err(Error::new(code::INVALID_OPTION, format!("no partition of \"{topic}\" is assigned"))
                .at("option", "assign")
                .fix("name its partitions, or leave the topic out"));
        }
        if !self.assigned.is_empty() {
            said.push(Subscription::Assign(self.assigned.clone()));
        }
        if let Some(pattern) = &self.pattern {
            said.push(Subscription::Pattern(TopicPattern::new(pattern)?));
        }
        match (said.pop(), said.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(_), false) => {
                let what = "more than one of \"subscribe\", \"assign\" and \"subscribePattern\" is set";
                Err(Error::new(code::INVALID_OPTION, what).fix("use one of them"))
            }
            (None, _) => Err(Error::new(code::MISSING_OPTION, "no topic is named")
                .fix("set .option(\"subscribe\", \"topic\") or .option(\"assign\", \"{\\\"topic\\\":[0]}\")")),
        }
    }

    /// Checks everything that can be checked without a broker. Values that are not known to be harmless go to the
    /// vault.
    pub(in crate::kafka) fn resolve(self, vault: &Vault, is_static: bool) -> Result<KafkaConfig> {
        let subscription = self.subscription()?;
        self.portions.check()?;
        self.bounds.check()?;
        let default = || if is_static { Start::Earliest } else { Start::Latest };
        let start = self.start.unwrap_or_else(default);
        check_place(&start, "starting", Start::FIRST)?;
        if let Some(end) = &self.end {
            check_place(end, "ending", Start::END)?;
        }
        if is_static && start.is_at_end() {
            return Err(Error::new(code::INVALID_OPTION, "a static read cannot start at the latest row")
                .fix("start it at earliest, at offsets or at a time"));
        }
        if !is_static && self.end.as_ref().is_some_and(Start::is_at_end) {
            return Err(Error::new(code::INVALID_OPTION, "a stream cannot end at the latest row, which moves")
                .fix("end it at offsets or at a time, or use the trigger available_now without an end"));
        }
        let mut given = BTreeMap::new();
        for (name, (value, secret)) in self.properties {
            properties::check_name(&name)?;
            let found = value.resolve().map_err(|error| error.at("option", format!("kafka.{name}")))?;
            let main = properties::main_name(&name);
            let value = found.map_or((value, secret), |found| (found, true));
            let before = given.insert(main.to_owned(), value.clone());
            if before.is_some_and(|(before, _)| before.expose() != value.0.expose()) {
                let what = format!("\"kafka.{main}\" is set twice: it has a second name");
                let error = Error::new(code::INVALID_OPTION, what).at("option", format!("kafka.{name}"));
                return Err(error.fix("set it once"));
            }
        }
        if self.group_id_prefix.as_deref().is_some_and(|prefix| prefix.trim().is_empty()) {
            return Err(empty("groupIdPrefix"));
        }
        properties::check_login(&given, self.tokens.is_some())?;
        let mut isolation = Isolation::default();
        let (mut open, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (name, (value, secret)) in given {
            if name == "bootstrap.servers" {
                check_servers(value.expose())?;
            }
            match name.as_str() {
                "group.id" if value.expose().trim().is_empty() => return Err(empty("kafka.group.id")),
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
            start,
            is_static,
            end: self.end,
            without_match: self.without_match,
            portions: self.portions,
            fail_on_data_loss: self.fail_on_data_loss,
            group_id_prefix: self.group_id_prefix,
            commit_to_group: self.commit_to_group,
            include_headers: self.include_headers,
            isolation,
            properties: open,
            vault: kept,
            tokens: self.tokens.map(|source| vault.keep_tokens("kafka.tokens", source)),
            bounds: self.bounds,
        };
        Ok(config)
    }
}

#[async_trait]
impl SourceBuilder for Kafka {
    async fn build(self, context: &Context) -> Result<Arc<dyn Source>> {
        let config = self.resolve(&context.vault, false)?;
        Ok(Arc::new(KafkaSource::open(config, context).await?))
    }

    async fn build_static(self, context: &Context) -> Result<Arc<dyn Source>> {
        let config = self.resolve(&context.vault, true)?;
        Ok(Arc::new(KafkaSource::open(config, context).await?))
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

/// The error for a name that is empty.
fn empty(option: &str) -> Error {
    Error::new(code::INVALID_OPTION, format!("\"{option}\" is empty"))
        .at("option", option)
        .fix("name it, or leave it out")
}

/// A place must be one: `least` is the least number that stands for an offset.
fn check_place(place: &Start, word: &str, least: i64) -> Result<()> {
    match place {
        Start::Offsets(topics) => check_numbers(topics, &format!("{word} offset"), least),
        Start::Timestamps(topics) => check_numbers(topics, &format!("{word} timestamp"), 0),
        Start::Timestamp(time) if *time < 0 => {
            Err(Error::new(code::INVALID_OPTION, format!("option \"{word}Timestamp\" is \"{time}\""))
                .fix("it takes milliseconds since 1970"))
        }
        Start::Group(_) if word == "ending" => {
            Err(Error::new(code::INVALID_OPTION, "a read cannot end where a group stands, which moves")
                .fix("end it at latest, at offsets or at a time"))
        }
        Start::Group(group) if group.is_empty() => {
            Err(Error::new(code::INVALID_OPTION, "the consumer group to start at has no name").fix("name it"))
        }
        Start::Earliest if least == Start::END => {
            Err(Error::new(code::INVALID_OPTION, "a read cannot end at the earliest row")
                .fix("end it at latest, at offsets or at a time"))
        }
        _ => Ok(()),
    }
}

/// Numbers by partition must not be below the least that there may be. Whether the partitions are there and read is seen
/// when a query starts for the first time: one that goes on starts where it was.
fn check_numbers(topics: &BTreeMap<String, BTreeMap<i32, i64>>, what: &str, least: i64) -> Result<()> {
    for (topic, partitions) in topics {
        if let Some((partition, number)) = partitions.iter().find(|(_, number)| **number < least) {
            let what = format!("{what} {number} of \"{topic}\", partition {partition}, is below {least}");
            return Err(Error::new(code::INVALID_OPTION, what).fix(match least {
                Start::FIRST => "give an offset, -2 (earliest) or -1 (latest)",
                Start::END => "give an offset, or -1 (latest)",
                _ => "give milliseconds since 1970",
            }));
        }
    }
    Ok(())
}

impl Portions {
    fn check(&self) -> Result<()> {
        let positive = [
            ("maxOffsetsPerTrigger", self.max_offsets),
            ("minOffsetsPerTrigger", self.min_offsets),
            ("maxBytesPerTrigger", self.max_bytes),
            ("minPartitions", self.min_partitions),
            ("maxRecordsPerPartition", self.max_records_per_partition),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == Some(0)) {
            return Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is \"0\""))
                .fix("it takes a positive whole number"));
        }
        if let (Some(least), Some(most)) = (self.min_offsets, self.max_offsets)
            && least > most
        {
            let what = format!("\"minOffsetsPerTrigger\" ({least}) is above \"maxOffsetsPerTrigger\" ({most})");
            return Err(Error::new(code::INVALID_OPTION, what).fix("lower the one or raise the other"));
        }
        Ok(())
    }
}
