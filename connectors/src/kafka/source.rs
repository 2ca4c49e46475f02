//! The driver's side: where a topic begins and ends, and how a range is cut into splits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use rdkafka::ClientConfig;
use serde_json::{Value, json};
use tidemill_core::{
    Clock, Context, Error, Offer, Offsets, Owner, Pace, Range, ReadLimit, Receipt, Result, Source, SourceSpec, Split,
    code,
};
use tokio::sync::OnceCell;

use super::client::Client;
use super::cluster::Cluster;
use super::columns;
use super::config::{Isolation, KafkaConfig, Start, Subscription, WithoutMatch};
use super::ffi::TopicInfo;
use super::lag::Lag;
use super::offset::{KafkaOffsets, Position, SplitOffsets};
use super::plan::{self, Doubt, PartitionState, Rules, Snapshot};
use super::token::Login;

/// After a reply that took this long nothing is asked again: the caller has a bound of its own.
const SLOW_REPLY: Duration = Duration::from_secs(5);

/// How long a query that ends waits until its last position is told.
const SETTLE_BOUND: Duration = Duration::from_secs(2);

/// How long an idle query leaves the brokers alone, for each partition that it looks at: a look costs some microseconds of
/// it, here and there.
const PAUSE_A_PARTITION: Duration = Duration::from_millis(1);

/// A Kafka source, in the driver.
#[derive(Debug)]
pub(super) struct KafkaSource {
    config: KafkaConfig,
    spec: SourceSpec,
    schema: SchemaRef,
    description: String,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    /// Partitions that the last look was about.
    partitions: AtomicU32,
    /// Where it ends, once that was found out.
    end: OnceCell<KafkaOffsets>,
    /// Topics and partitions that are gone, and of which that was said: not to say it with every look.
    gone: Mutex<BTreeSet<String>>,
    /// What makes the client that tells of lag …
    client: (ClientConfig, Login),
    /// … once there is something to tell, and to whom.
    lag: OnceLock<Option<(String, Arc<Lag>)>>,
}

impl KafkaSource {
    /// Connects, and checks that every topic is there.
    pub(super) async fn open(config: KafkaConfig, context: &Context) -> Result<Self> {
        let (client, login) = config.client(&context.vault)?;
        let cluster = Cluster::new(&client, &login, config.bounds.call_ms)?;
        if let Subscription::Pattern(_) = &config.subscription {
            // What matches now says nothing about later; that the brokers answer does.
            cluster.all_topics().await?;
        }
        let wanted: Vec<String> = config.subscription.topics().into_iter().map(str::to_owned).collect();
        let is_there = |found: &[TopicInfo], topic: &String| found.iter().any(|info| info.name == *topic);
        let mut found = cluster.topics(wanted.clone()).await?;
        // A broker that lags behind does not know a topic yet.
        for _ in 0..config.bounds.retries {
            if wanted.iter().all(|topic| is_there(&found, topic)) {
                break;
            }
            context.clock.sleep(Duration::from_millis(config.bounds.retry_ms)).await;
            found = cluster.topics(wanted.clone()).await?;
        }
        for topic in &wanted {
            let Some(info) = found.iter().find(|info| info.name == *topic) else {
                return Err(cluster.missing(topic).await);
            };
            if let Subscription::Assign(assigned) = &config.subscription
                && let Some(partition) = assigned[topic].iter().find(|at| !info.partitions.contains(at))
            {
                let count = info.partitions.len();
                let what = format!("topic \"{topic}\" has no partition {partition}: it has {count} partitions");
                return Err(Error::new(code::SOURCE_NOT_FOUND, what).fix("check the option \"assign\""));
            }
        }
        let read = match &config.subscription {
            Subscription::Pattern(pattern) => format!("topics like {}", pattern.as_str()),
            _ => wanted.join(", "),
        };
        let mut description = format!(
            "kafka {read} at {}, {}, a new query starts at {}",
            config.servers(),
            config.isolation.as_str(),
            match &config.start {
                Start::Earliest => "the earliest row",
                Start::Latest => "the latest row (rows from before are not read)",
                Start::Offsets(_) => "given offsets",
                Start::Timestamp(_) | Start::Timestamps(_) => "given times",
                Start::Group(_) => "where a consumer group stands",
            }
        );
        if found.iter().any(|info| info.id.is_none()) {
            description.push_str(", without topic ids: a topic that is deleted and made again may go unnoticed");
        }
        if !config.fail_on_data_loss {
            description.push_str(", rows that are gone are counted and left out");
        }
        let (spec, schema) = (config.spec(), columns::schema(config.include_headers));
        let clock = Arc::clone(&context.clock);
        let (gone, lag, client, end) = (Mutex::default(), OnceLock::new(), (client, login), OnceCell::new());
        let partitions = AtomicU32::new(0);
        Ok(KafkaSource { config, spec, schema, description, cluster, clock, partitions, end, gone, client, lag })
    }

    /// One look at the broker. `known` are the partitions that are likely there.
    async fn look(&self, known: &KafkaOffsets) -> Result<Snapshot> {
        let subscription = &self.config.subscription;
        let topics = match subscription {
            Subscription::Pattern(pattern) => {
                // One that was known and is not named any more is asked for as well: perhaps the reply was incomplete.
                let all = self.cluster.all_topics().await?;
                let named = all.iter().chain(known.topics.keys()).filter(|topic| pattern.matches(topic));
                named.cloned().collect::<BTreeSet<_>>().into_iter().collect()
            }
            _ => subscription.topics().into_iter().map(str::to_owned).collect(),
        };
        let known = known.iter().filter(|(topic, partition, _)| subscription.takes(topic, *partition));
        let guess = known.map(|(topic, partition, _)| (topic.to_owned(), partition)).collect();
        let snapshot = self.cluster.snapshot(topics, guess, self.config.isolation).await?;
        let partitions: usize = snapshot.topics.values().map(|topic| topic.partitions.len()).sum();
        self.partitions.store(u32::try_from(partitions).unwrap_or(u32::MAX), Ordering::Relaxed);
        Ok(snapshot)
    }

    /// Asks again while a stale reply could be the cause. `decide` is told when nothing will be asked again.
    async fn until_certain<T>(
        &self,
        known: &KafkaOffsets,
        decide: impl Fn(Snapshot, bool) -> Result<T, Doubt>,
    ) -> Result<T> {
        let mut again = self.config.bounds.retries;
        loop {
            let asked = self.clock.elapsed();
            let snapshot = self.look(known).await?;
            // A reply that took long is no hasty one.
            let certain = again == 0 || self.clock.elapsed().saturating_sub(asked) > SLOW_REPLY;
            let doubt = match decide(snapshot, certain) {
                Ok(decided) => return Ok(decided),
                Err(doubt) => doubt,
            };
            if !doubt.passing || certain {
                return Err(doubt.error);
            }
            again -= 1;
            tracing::debug!(error = %doubt.error, "a reply of kafka contradicts what is known, asking again");
            self.clock.sleep(Duration::from_millis(self.config.bounds.retry_ms)).await;
        }
    }

    /// Where a place is in one partition.
    fn place_in(&self, place: &Start, topic: &str, partition: i32, state: &PartitionState) -> Result<Position> {
        let end = Position { next: state.readable, epoch: state.epoch };
        let first = Position { next: state.earliest, epoch: None };
        let offsets = match place {
            Start::Earliest => return Ok(first),
            // Times were looked up before.
            Start::Latest | Start::Timestamp(_) | Start::Timestamps(_) => return Ok(end),
            // And so is the group: what it does not have starts here.
            Start::Group(_) => return Ok(first),
            Start::Offsets(offsets) => offsets,
        };
        let fix = "name every partition: an offset, -2 (earliest) or -1 (latest)";
        match offsets.get(topic).and_then(|partitions| partitions.get(&partition)).copied() {
            Some(Start::FIRST) => Ok(first),
            Some(Start::END) => Ok(end),
            // A stream may end where nothing is yet.
            Some(next) if next > state.high_watermark && (self.config.is_static || self.config.end.is_none()) => {
                let what = format!("offset {next} of {topic}-{partition} is beyond its end");
                let fix = format!("its last row is before {}", state.high_watermark);
                Err(Error::new(code::INVALID_OPTION, what).fix(fix))
            }
            Some(next) => Ok(Position { next, epoch: None }),
            None => {
                let what = format!("the offsets by partition do not name {topic}-{partition}");
                Err(Error::new(code::INVALID_OPTION, what).fix(fix))
            }
        }
    }

    /// What tells of lag, made when it is first needed.
    fn lag(&self, owner: Owner<'_>) -> Result<Option<&Lag>> {
        let made = match self.lag.get() {
            Some(made) => made,
            None => {
                let (client, login) = &self.client;
                let group = self.config.lag_group(owner);
                let made = group.map(|group| {
                    let lag = Lag::new(client, login, group.clone(), owner.query_id.to_string())?;
                    Ok::<_, Error>((group, Arc::new(lag)))
                });
                let made = made.transpose()?;
                self.lag.get_or_init(|| made)
            }
        };
        Ok(made.as_ref().map(|(_, lag)| &**lag))
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first rows that are as late as given times. `ends` has every partition, with its end, where a partition without
    /// such a row may stay.
    async fn at_times(&self, place: &Start, ends: KafkaOffsets, may_stay: bool) -> Result<KafkaOffsets> {
        let mut wanted = Vec::new();
        for (topic, partition, _) in ends.iter() {
            let time_ms = match place {
                Start::Timestamps(times) => times.get(topic).and_then(|times| times.get(&partition)).copied(),
                Start::Timestamp(time_ms) => Some(*time_ms),
                _ => None,
            };
            let Some(time_ms) = time_ms else {
                let what = format!("the times by partition do not name {topic}-{partition}");
                return Err(Error::new(code::INVALID_OPTION, what).fix("name every partition, with a time"));
            };
            wanted.push((topic.to_owned(), partition, time_ms));
        }
        let found = self.cluster.offsets_at(wanted.clone()).await?;
        let mut start = ends;
        for (topic, partition, time_ms) in wanted {
            match found.get(&(topic.clone(), partition)) {
                Some(position) => start.set(&topic, partition, *position),
                None if may_stay => {}
                None => {
                    let what = format!("{topic}-{partition} has no row as late as {time_ms} ms since 1970");
                    return Err(Error::new(code::INVALID_OPTION, what).fix(
                        "give an earlier time, or set \"startingOffsetsByTimestampStrategy\" to \"latest\" to start at its end",
                    ));
                }
            }
        }
        Ok(start)
    }

    /// Where a consumer group stands; a partition in which it has no position stays where it is.
    async fn at_group(&self, group: &str, mut start: KafkaOffsets) -> Result<KafkaOffsets> {
        let (config, login) = &self.client;
        let mut config = config.clone();
        config.set("group.id", group);
        let (client, bound) = (Client::new(&config, login)?, Duration::from_millis(self.config.bounds.call_ms));
        let asked = start.clone();
        let found = tokio::task::spawn_blocking(move || {
            client.committed(asked.iter().map(|(topic, partition, _)| (topic, partition)), bound)
        });
        let found = found.await.map_err(|_| Error::new(code::TASK_PANICKED, "a question to kafka panicked"))?;
        let found = found.map_err(|error| {
            let what = format!("the consumer group \"{group}\" does not say where it stands: {}", error.what());
            Error::new(error.code(), what).fix("check its name, and that the user may describe it")
        })?;
        if found.is_empty() {
            return Err(Error::new(code::INVALID_OPTION, format!("the consumer group \"{group}\" has no positions"))
                .fix("check its name, or start at earliest"));
        }
        for committed in found {
            start.set(&committed.topic, committed.partition, Position { next: committed.next, epoch: None });
        }
        Ok(start)
    }

    /// Where the source ends, found out once.
    async fn end(&self) -> Result<Option<&KafkaOffsets>> {
        let Some(place) = &self.config.end else { return Ok(None) };
        let end = self.end.get_or_try_init(|| async {
            let nowhere = KafkaOffsets::new();
            let ends = self.until_certain(&nowhere, |snapshot, _| self.decide(&Start::Latest, snapshot)).await?;
            match place {
                Start::Timestamp(_) | Start::Timestamps(_) => self.at_times(place, ends, self.ends_at_latest()).await,
                _ => self.until_certain(&nowhere, |snapshot, _| self.decide(place, snapshot)).await,
            }
        });
        Ok(Some(end.await?))
    }

    /// Whether a partition without a row as late as the end ends where it ends now: not in a stream, where that moves.
    fn ends_at_latest(&self) -> bool {
        self.config.is_static || self.config.without_match == WithoutMatch::Latest
    }

    /// A place in every partition, if the reply holds every partition. Times are not looked up: they are at the end.
    fn decide(&self, place: &Start, snapshot: Snapshot) -> Result<KafkaOffsets, Doubt> {
        let passing = |error| Doubt { error, passing: true };
        if let Some(error) = snapshot.without_offsets {
            return Err(passing(error));
        }
        let mut offsets = KafkaOffsets::new();
        for topic in self.config.subscription.topics() {
            if snapshot.topics.get(topic).is_none_or(|state| state.partitions.is_empty()) {
                return Err(passing(plan::missing_topic(topic)));
            }
        }
        for (topic, state) in &snapshot.topics {
            for (partition, state) in &state.partitions {
                if self.config.subscription.takes(topic, *partition) {
                    offsets.set(topic, *partition, self.place_in(place, topic, *partition, state)?);
                }
            }
            if let Some(known) = offsets.topics.get_mut(topic) {
                known.id = state.id.clone();
            }
        }
        Ok(offsets)
    }
}

#[async_trait]
impl Source for KafkaSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn pace(&self) -> Pace {
        self.config.portions.pace()
    }

    fn interpretation(&self) -> Value {
        json!({ "isolation": self.config.isolation })
    }

    async fn initial(&self) -> Result<Offsets> {
        let place = &self.config.start;
        let start = self.until_certain(&KafkaOffsets::new(), |snapshot, _| self.decide(place, snapshot)).await?;
        let start = match place {
            Start::Timestamp(_) | Start::Timestamps(_) => {
                self.at_times(place, start, self.config.without_match == WithoutMatch::Latest).await?
            }
            Start::Group(group) => self.at_group(group, start).await?,
            _ => start,
        };
        Ok(start.encode())
    }

    async fn bounds(&self) -> Result<Range> {
        let start = self.initial().await?;
        let end = match self.end().await? {
            Some(end) => end.encode(),
            None => {
                let ends = |snapshot, _| self.decide(&Start::Latest, snapshot);
                self.until_certain(&KafkaOffsets::new(), ends).await?.encode()
            }
        };
        plan::check_bounds(&KafkaOffsets::decode(&start)?, &KafkaOffsets::decode(&end)?)?;
        Ok(Range { start, end })
    }

    fn start_moves(&self) -> bool {
        let start = &self.config.start;
        // Without a row as late, a time is where the topic ends now; and a group may go on.
        start.is_at_end() || matches!(start, Start::Timestamp(_) | Start::Timestamps(_) | Start::Group(_))
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>> {
        let known = KafkaOffsets::decode(from)?;
        let subscription = &self.config.subscription;
        let tolerant = !self.config.fail_on_data_loss;
        let gone = self.gone().clone();
        let end = self.end().await?;
        let rules = |certain| Rules { subscription, end, tolerant, certain, gone: gone.clone() };
        let decide = |snapshot, certain| plan::offer(&known, snapshot, &rules(certain), limit);
        let decided = self.until_certain(&known, decide).await?;
        for gone in &decided.gone {
            tracing::warn!(gone, "a part of a kafka source is gone, and the query goes on without it");
        }
        self.gone().extend(decided.gone);
        Ok(decided.offer)
    }

    fn idle_pause(&self) -> Duration {
        PAUSE_A_PARTITION.saturating_mul(self.partitions.load(Ordering::Relaxed))
    }

    fn plan(&self, name: &str, range: &Range, interpretation: &Value) -> Result<Vec<Split>> {
        let isolation = match interpretation.get("isolation") {
            None | Some(Value::Null) => self.config.isolation,
            Some(logged) => serde_json::from_value::<Isolation>(logged.clone()).map_err(|error| {
                Error::new(code::BAD_OFFSET, format!("isolation level not understood: {logged}")).because(error)
            })?,
        };
        let splits = plan::splits(name, range, isolation, &self.config.portions)?;
        // Of another topic altogether: a replay on a frame that reads something else, or sources that were swapped.
        let offsets = splits.iter().map(|split| SplitOffsets::decode(&split.start)).collect::<Result<Vec<_>>>()?;
        match offsets.first() {
            Some(first) if !offsets.iter().any(|at| self.config.subscription.takes(&at.topic, at.partition)) => {
                Err(plan::another_source(&first.topic))
            }
            _ => Ok(splits),
        }
    }

    fn check_receipt(&self, split: &Split, receipt: &Receipt) -> Result<()> {
        let (start, end) = (SplitOffsets::decode(&split.start)?, SplitOffsets::decode(&split.end)?);
        // Of a topic that is gone or was made again nothing was read, and that was counted.
        let counted = !self.config.fail_on_data_loss && receipt.lost > 0;
        if let Some(known) = &end.id {
            match receipt.identity.get("id").and_then(Value::as_str) {
                Some(found) if found == known => {}
                Some(_) if counted && receipt.rows == 0 => {}
                None if counted => {}
                Some(found) => return Err(plan::recreated(&end.topic, known, found)),
                None => {
                    let what = format!("split \"{}\" was read from a topic without an id", split.id);
                    return Err(Error::new(code::RECEIPT_MISMATCH, what));
                }
            }
        }
        let outside = receipt.first.is_some_and(|first| first < start.next)
            || receipt.last.is_some_and(|last| last >= end.next)
            || receipt.rows.saturating_add(receipt.lost) > u64::try_from(end.next - start.next).unwrap_or(0)
            || (receipt.lost > 0 && !counted)
            || receipt.first.is_some() != (receipt.rows > 0);
        if outside {
            let (first, last) = (receipt.first.unwrap_or(-1), receipt.last.unwrap_or(-1));
            let what = format!(
                "split \"{}\" is [{}, {}), and {} rows from {first} to {last} were read",
                split.id, start.next, end.next, receipt.rows
            );
            return Err(Error::new(code::RECEIPT_MISMATCH, what));
        }
        Ok(())
    }

    async fn committed(&self, up_to: &Offsets, owner: Owner<'_>) -> Result<()> {
        let mut offsets = KafkaOffsets::decode(up_to)?;
        // What is carried on and not read any more has no lag.
        for (topic, known) in &mut offsets.topics {
            known.partitions.retain(|partition, _| self.config.subscription.takes(topic, *partition));
        }
        // Under a pattern there may be no topic yet.
        if offsets.iter().next().is_some()
            && let Some(lag) = self.lag(owner)?
        {
            lag.tell(offsets);
        }
        Ok(())
    }

    async fn ended(&self) {
        if let Some(Some((_, lag))) = self.lag.get() {
            let lag = Arc::clone(lag);
            // A panic there is nothing to the query.
            let _ = tokio::task::spawn_blocking(move || lag.settle(SETTLE_BOUND)).await;
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.lag.get().and_then(Option::as_ref).map_or_else(Vec::new, |(_, lag)| lag.warnings())
    }

    fn metrics(&self, end: &Offsets, latest: &Offsets) -> BTreeMap<String, String> {
        let (Ok(end), Ok(latest)) = (KafkaOffsets::decode(end), KafkaOffsets::decode(latest)) else {
            return BTreeMap::new();
        };
        let mut metrics = plan::behind(&end, &latest, &self.config.subscription);
        if let Some(Some((group, _))) = self.lag.get() {
            metrics.insert("consumerGroup".to_owned(), group.clone());
        }
        metrics
    }

    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        let (start, end) = (KafkaOffsets::decode(start).ok()?, KafkaOffsets::decode(end).ok()?);
        Some(plan::rows_between(&start, &end))
    }
}
