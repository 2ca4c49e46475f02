//! The driver's side: where a topic begins and ends, and how a range is cut into splits.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;
use tidemill_core::{
    Clock, Context, Error, Offer, Offsets, Range, ReadLimit, Receipt, Result, Source, SourceSpec, Split, code,
};

use super::cluster::Cluster;
use super::columns;
use super::config::{Isolation, KafkaConfig, Start, Subscription};
use super::ffi::TopicInfo;
use super::offset::{KafkaOffsets, Position, SplitOffsets};
use super::plan::{self, Doubt, PartitionState, Snapshot};

/// After a reply that took this long nothing is asked again: the caller has a bound of its own.
const SLOW_REPLY: Duration = Duration::from_secs(5);

/// A Kafka source, in the driver.
#[derive(Debug)]
pub(super) struct KafkaSource {
    config: KafkaConfig,
    spec: SourceSpec,
    schema: SchemaRef,
    description: String,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
}

impl KafkaSource {
    /// Connects, and checks that every topic is there.
    pub(super) async fn open(config: KafkaConfig, context: &Context) -> Result<Self> {
        let (client, redactor) = config.client(&context.vault)?;
        let cluster = Cluster::new(&client, &redactor, config.bounds.call_ms)?;
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
        let mut description = format!(
            "kafka {} at {}, {}, a new query starts at {}",
            wanted.join(", "),
            config.servers(),
            config.isolation.as_str(),
            match &config.start {
                Start::Earliest => "the earliest row",
                Start::Latest => "the latest row (rows from before are not read)",
                Start::Offsets(_) => "given offsets",
            }
        );
        if found.iter().any(|info| info.id.is_none()) {
            description.push_str(", without topic ids: a topic that is deleted and made again may go unnoticed");
        }
        let (spec, schema) = (config.spec(), columns::schema(config.include_headers));
        Ok(KafkaSource { config, spec, schema, description, cluster, clock: Arc::clone(&context.clock) })
    }

    /// One look at the broker. `known` are the partitions that are likely there.
    async fn look(&self, known: &KafkaOffsets) -> Result<Snapshot> {
        let subscription = &self.config.subscription;
        let topics = subscription.topics().into_iter().map(str::to_owned).collect();
        let known = known.iter().filter(|(topic, partition, _)| subscription.takes(topic, *partition));
        let guess = known.map(|(topic, partition, _)| (topic.to_owned(), partition)).collect();
        self.cluster.snapshot(topics, guess, self.config.isolation).await
    }

    /// Asks again while a stale reply could be the cause.
    async fn until_certain<T>(&self, known: &KafkaOffsets, decide: impl Fn(Snapshot) -> Result<T, Doubt>) -> Result<T> {
        let mut again = self.config.bounds.retries;
        loop {
            let asked = self.clock.elapsed();
            let doubt = match decide(self.look(known).await?) {
                Ok(decided) => return Ok(decided),
                Err(doubt) => doubt,
            };
            // A reply that took long is no hasty one.
            if !doubt.passing || again == 0 || self.clock.elapsed() - asked > SLOW_REPLY {
                return Err(doubt.error);
            }
            again -= 1;
            tracing::debug!(error = %doubt.error, "a reply of kafka contradicts what is known, asking again");
            self.clock.sleep(Duration::from_millis(self.config.bounds.retry_ms)).await;
        }
    }

    /// Where a new query starts in one partition.
    fn start_of(&self, topic: &str, partition: i32, state: &PartitionState) -> Result<Position> {
        let end = Position { next: state.readable, epoch: state.epoch };
        let first = Position { next: state.earliest, epoch: None };
        let offsets = match &self.config.start {
            Start::Earliest => return Ok(first),
            Start::Latest => return Ok(end),
            Start::Offsets(offsets) => offsets,
        };
        let fix = "name every partition: an offset, -2 (earliest) or -1 (latest)";
        match offsets.get(topic).and_then(|partitions| partitions.get(&partition)).copied() {
            Some(Start::FIRST) => Ok(first),
            Some(Start::END) => Ok(end),
            Some(next) if next > state.high_watermark => {
                let what = format!("\"startingOffsets\" has {next} for {topic}-{partition}");
                let fix = format!("its last row is before {}", state.high_watermark);
                Err(Error::new(code::INVALID_OPTION, what).fix(fix))
            }
            Some(next) => Ok(Position { next, epoch: None }),
            None => {
                let what = format!("\"startingOffsets\" does not name {topic}-{partition}");
                Err(Error::new(code::INVALID_OPTION, what).fix(fix))
            }
        }
    }

    /// The start of a new query, if the reply holds every partition.
    fn decide_start(&self, snapshot: Snapshot) -> Result<Offsets, Doubt> {
        let passing = |error| Doubt { error, passing: true };
        if let Some(error) = snapshot.without_offsets {
            return Err(passing(error));
        }
        let mut offsets = KafkaOffsets::new();
        for topic in self.config.subscription.topics() {
            let state = snapshot.topics.get(topic).filter(|state| !state.partitions.is_empty());
            let state = state.ok_or_else(|| passing(plan::missing_topic(topic)))?;
            for (partition, state) in &state.partitions {
                if self.config.subscription.takes(topic, *partition) {
                    offsets.set(topic, *partition, self.start_of(topic, *partition, state)?);
                }
            }
            if let Some(known) = offsets.topics.get_mut(topic) {
                known.id = state.id.clone();
            }
        }
        Ok(offsets.encode())
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

    fn limit(&self) -> ReadLimit {
        ReadLimit { rows: self.config.max_offsets_per_trigger, up_to: None }
    }

    fn interpretation(&self) -> Value {
        json!({ "isolation": self.config.isolation })
    }

    async fn initial(&self) -> Result<Offsets> {
        self.until_certain(&KafkaOffsets::new(), |snapshot| self.decide_start(snapshot)).await
    }

    fn start_moves(&self) -> bool {
        match &self.config.start {
            Start::Earliest => false,
            Start::Latest => true,
            Start::Offsets(topics) => topics.values().flat_map(|at| at.values()).any(|at| *at == Start::END),
        }
    }

    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>> {
        let known = KafkaOffsets::decode(from)?;
        let subscription = &self.config.subscription;
        self.until_certain(&known, |snapshot| plan::offer(&known, snapshot, subscription, limit)).await
    }

    fn plan(&self, name: &str, range: &Range, interpretation: &Value) -> Result<Vec<Split>> {
        let isolation = match interpretation.get("isolation") {
            None | Some(Value::Null) => self.config.isolation,
            Some(logged) => serde_json::from_value::<Isolation>(logged.clone()).map_err(|error| {
                Error::new(code::BAD_OFFSET, format!("isolation level not understood: {logged}")).because(error)
            })?,
        };
        let splits = plan::splits(name, range, isolation)?;
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
        if let Some(known) = &end.id {
            match receipt.identity.get("id").and_then(Value::as_str) {
                Some(found) if found == known => {}
                Some(found) => return Err(plan::recreated(&end.topic, known, found)),
                None => {
                    let what = format!("split \"{}\" was read from a topic without an id", split.id);
                    return Err(Error::new(code::RECEIPT_MISMATCH, what));
                }
            }
        }
        let outside = receipt.first.is_some_and(|first| first < start.next)
            || receipt.last.is_some_and(|last| last >= end.next)
            || receipt.rows > u64::try_from(end.next - start.next).unwrap_or(0)
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

    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        let (start, end) = (KafkaOffsets::decode(start).ok()?, KafkaOffsets::decode(end).ok()?);
        Some(plan::rows_between(&start, &end))
    }
}
