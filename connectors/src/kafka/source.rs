//! The driver's side: where a topic begins and ends, and how a range is cut into splits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde_json::{Value, json};
use tidemill_core::{
    Clock, Context, Error, Offer, Offsets, Owner, Pace, Range, ReadLimit, Receipt, Result, Source, SourceSpec, Split,
    code,
};
use tokio::sync::OnceCell;

use super::cluster::Cluster;
use super::columns;
use super::config::{Isolation, KafkaConfig, Start, Subscription};
use super::ffi::TopicInfo;
use super::lag::Lag;
use super::offset::{KafkaOffsets, Position, SplitOffsets};
use super::place::Place;
use super::plan::{self, Doubt, Rules, Snapshot};
use super::token::ClientSettings;

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
    /// What makes other clients.
    client: ClientSettings,
    /// What tells of lag, by query and by the source's name in it: queries of one frame share their sources.
    lags: Mutex<BTreeMap<(String, String), Arc<Lag>>>,
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
        let (lags, client, end) = (Mutex::default(), ClientSettings { config: client, login }, OnceCell::new());
        let partitions = AtomicU32::new(0);
        Ok(KafkaSource { config, spec, schema, description, cluster, clock, partitions, end, client, lags })
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
        let there = |topic: &str, at| subscription.takes(topic, at) && !known.is_gone(topic, at);
        let known = known.iter().filter(|(topic, partition, _)| there(topic, *partition));
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

    fn lags(&self) -> MutexGuard<'_, BTreeMap<(String, String), Arc<Lag>>> {
        self.lags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells of a query's lag, if anything does yet.
    fn lag_of(&self, owner: Owner<'_>) -> Option<Arc<Lag>> {
        self.lags().get(&(owner.query_id.to_string(), owner.source.to_owned())).cloned()
    }

    /// The same, made when it is first needed.
    fn lag(&self, owner: Owner<'_>) -> Result<Option<Arc<Lag>>> {
        let ClientSettings { config, login } = &self.client;
        let Some(group) = self.config.lag_group(config.get("group.id"), owner) else { return Ok(None) };
        if let Some(lag) = self.lag_of(owner).filter(|lag| !lag.has_ended()) {
            return Ok(Some(lag));
        }
        let lag = Arc::new(Lag::new(config, login, group, owner.query_id.to_string())?);
        self.lags().insert((owner.query_id.to_string(), owner.source.to_owned()), Arc::clone(&lag));
        Ok(Some(lag))
    }

    /// A place in every partition, looked up.
    async fn find(&self, at: &Start, is_end: bool) -> Result<KafkaOffsets> {
        let place = Place { at, is_end, is_static: self.config.is_static };
        let decide = |snapshot, _| place.in_all(&self.config.subscription, snapshot);
        let found = self.until_certain(&KafkaOffsets::new(), decide).await?;
        match at {
            Start::Timestamp(_) | Start::Timestamps(_) => self.at_times(place, found).await,
            Start::Group(group) => self.at_group(group, found).await,
            _ => Ok(found),
        }
    }

    /// The first rows that are as late as given times. `ends` has every partition, with its end.
    async fn at_times(&self, place: Place<'_>, mut ends: KafkaOffsets) -> Result<KafkaOffsets> {
        let wanted = place.times(&ends)?;
        let asked = wanted.iter().map(|timed| (timed.topic.clone(), timed.partition, timed.time_ms)).collect();
        let found = self.cluster.offsets_at(asked).await?;
        ends.topics.values_mut().for_each(|known| known.partitions.clear());
        for timed in wanted {
            let found = found.get(&(timed.topic.clone(), timed.partition)).copied();
            ends.set(&timed.topic, timed.partition, place.at_time(&timed, found, self.config.without_match)?);
        }
        Ok(ends)
    }

    /// Where a consumer group stands; a partition in which it has no position stays where it is.
    async fn at_group(&self, group: &str, mut start: KafkaOffsets) -> Result<KafkaOffsets> {
        let ClientSettings { mut config, login } = self.client.clone();
        config.set("group.id", group);
        let asked = start.iter().map(|(topic, partition, _)| (topic.to_owned(), partition)).collect();
        let found = self.cluster.group(config, login, asked).await;
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
        let Some(end) = &self.config.end else { return Ok(None) };
        Ok(Some(self.end.get_or_try_init(|| self.find(end, true)).await?))
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
        let start = self.find(&self.config.start, false).await?;
        if let Some(end) = self.end().await? {
            plan::check_bounds(&start, end)?;
        }
        Ok(start.encode())
    }

    async fn bounds(&self) -> Result<Range> {
        let start = self.find(&self.config.start, false).await?;
        let end = match self.end().await? {
            Some(end) => end.clone(),
            None => self.find(&Start::Latest, true).await?,
        };
        plan::check_bounds(&start, &end)?;
        Ok(Range { start: start.encode(), end: end.encode() })
    }

    fn start_moves(&self) -> bool {
        // Ends move on, first rows go, topics are made again, and what was asked for may be another start next time.
        true
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>> {
        let known = KafkaOffsets::decode(from)?;
        let subscription = &self.config.subscription;
        let tolerant = !self.config.fail_on_data_loss;
        let end = self.end().await?;
        let rules = |certain| Rules { subscription, end, tolerant, certain };
        let decide = |snapshot, certain| plan::offer(&known, snapshot, &rules(certain), limit);
        self.until_certain(&known, decide).await
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
            let read = |at| self.config.subscription.takes(topic, at) && !known.gone.contains(&at);
            known.partitions.retain(|partition, _| read(*partition));
        }
        // Under a pattern there may be no topic yet.
        if offsets.iter().next().is_some()
            && let Some(lag) = self.lag(owner)?
        {
            lag.tell(offsets);
        }
        Ok(())
    }

    async fn ended(&self, owner: Owner<'_>) {
        if let Some(lag) = self.lag_of(owner) {
            // A panic there is nothing to the query.
            let _ = tokio::task::spawn_blocking(move || lag.end(SETTLE_BOUND)).await;
        }
    }

    fn warnings(&self, owner: Owner<'_>) -> Vec<String> {
        self.lag_of(owner).map_or_else(Vec::new, |lag| lag.warnings())
    }

    fn metrics(&self, end: &Offsets, latest: &Offsets, owner: Owner<'_>) -> BTreeMap<String, String> {
        let (Ok(end), Ok(latest)) = (KafkaOffsets::decode(end), KafkaOffsets::decode(latest)) else {
            return BTreeMap::new();
        };
        let mut metrics = plan::behind(&end, &latest, &self.config.subscription);
        if let Some(lag) = self.lag_of(owner) {
            metrics.insert("consumerGroup".to_owned(), self.client.login.clean(lag.group()));
        }
        metrics
    }

    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        let (start, end) = (KafkaOffsets::decode(start).ok()?, KafkaOffsets::decode(end).ok()?);
        Some(plan::rows_between(&start, &end))
    }
}
