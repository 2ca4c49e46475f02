//! What the driver asks the broker: which topics and partitions there are, and where they begin and end.
//!
//! The requests of one question are sent together and answered together, so a question costs one round trip. Waiting
//! happens on threads for blocking work; a question that is dropped stops waiting soon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_core::options::nearest;
use tidemill_core::{Error, Result, code};

use super::client::{Client, Committed, denied_right, stopped};
use super::config::Isolation;
use super::ffi::{self, Answer, Code, OffsetInfo, OffsetSpec, TopicInfo};
use super::offset::Position;
use super::plan::{PartitionState, Snapshot, TopicState, missing_topic};
use super::token::Login;

/// Partitions that one request for offsets names. The library looks for each answer among all that were asked for: the
/// time that it takes grows with the square.
const PARTITIONS_A_REQUEST: usize = 64;

/// After so long without an answer another broker is asked for topics, then after twice as long, and so on: one that is being
/// restarted answers nobody, and the library waits for it although others are there.
const SILENCE: Duration = Duration::from_secs(3);

/// The driver's client.
#[derive(Debug)]
pub(super) struct Cluster {
    client: Arc<Client>,
    bound: Duration,
}

/// Ends the blocking part of a question when its future is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Cluster {
    /// A client for questions only; it fetches nothing, so no answer waits behind a fetch.
    pub(super) fn new(config: &ClientConfig, login: &Login, bound_ms: u64) -> Result<Self> {
        Ok(Cluster { client: Client::for_questions(config, login)?, bound: Duration::from_millis(bound_ms) })
    }

    /// Runs a question where it may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Question<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (client, bound) = (Arc::clone(&self.client), self.bound);
        let stop = Arc::new(AtomicBool::new(false));
        let guard = StopOnDrop(Arc::clone(&stop));
        let asked = tokio::task::spawn_blocking(move || {
            question(&Question { client: &client, bound, stop: &|| stop.load(Ordering::Relaxed) })
        });
        let answer = asked.await.map_err(|error| match error.is_panic() {
            true => Error::new(code::TASK_PANICKED, "a question to kafka panicked"),
            false => stopped(),
        })?;
        drop(guard);
        answer
    }

    /// Topics by name, existing or not.
    pub(super) async fn topics(&self, topics: Vec<String>) -> Result<Vec<TopicInfo>> {
        self.ask(move |question| question.topics(&topics)).await
    }

    /// The state of the topics. `guess` are partitions that are likely there: if they are all, one round trip is enough.
    /// A topic or partition that does not exist is not in the answer.
    pub(super) async fn snapshot(
        &self,
        topics: Vec<String>,
        guess: Vec<(String, i32)>,
        isolation: Isolation,
    ) -> Result<Snapshot> {
        self.ask(move |question| question.snapshot(&topics, guess, isolation)).await
    }

    /// The names of all topics that the user may see.
    pub(super) async fn all_topics(&self) -> Result<Vec<String>> {
        self.ask(|question| question.all_topics()).await
    }

    /// For each partition, where its first row is whose timestamp is as late or later; partitions without one are left out.
    pub(super) async fn offsets_at(&self, times: Vec<(String, i32, i64)>) -> Result<BTreeMap<(String, i32), Position>> {
        self.ask(move |question| question.offsets_at(&times)).await
    }

    /// Where a consumer group stands in these partitions: `config` is that of a client with the group's name.
    pub(super) async fn group(
        &self,
        config: ClientConfig,
        login: Login,
        partitions: Vec<(String, i32)>,
    ) -> Result<Vec<Committed>> {
        self.ask(move |question| {
            let partitions = partitions.iter().map(|(topic, partition)| (topic.as_str(), *partition));
            Client::new(&config, &login)?.committed(partitions, question.bound, question.stop)
        })
        .await
    }

    /// The error for a topic that does not exist, with the name that was perhaps meant.
    pub(super) async fn missing(&self, topic: &str) -> Error {
        let error = missing_topic(topic);
        let all = self.all_topics().await.unwrap_or_default();
        match nearest(topic, all.iter().map(String::as_str).filter(|name| *name != topic)) {
            Some(near) => error.fix(format!("did you mean \"{near}\"?")),
            None => error.fix("check the topic's name, and that the user may see it"),
        }
    }
}

/// A question while it is being asked, on a thread that may block.
pub(super) struct Question<'a> {
    pub(super) client: &'a Arc<Client>,
    pub(super) bound: Duration,
    pub(super) stop: &'a dyn Fn() -> bool,
}

impl Question<'_> {
    fn ask_topics(&self, topics: &[String], bound: Duration) -> Result<ffi::Call> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let broker = self.client.target(names[0], bound, self.stop)?;
        ffi::ask_topics(self.client, &names, broker, bound)
    }

    /// The answer about topics, from whoever gives one.
    fn topics_answer(&self, topics: &[String], mut asked: ffi::Call) -> Result<Vec<TopicInfo>> {
        let (mut patience, mut left) = (SILENCE, self.bound);
        while patience < left {
            if let Some(answer) = self.client.answer_within(&asked, "topics", patience, self.stop)? {
                return check_topics(&answer);
            }
            self.client.silent();
            (left, patience) = (left - patience, patience * 2);
            asked = self.ask_topics(topics, left)?;
        }
        check_topics(&self.client.answer(&asked, "topics", self.stop)?)
    }

    fn topics(&self, topics: &[String]) -> Result<Vec<TopicInfo>> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        self.topics_answer(topics, self.ask_topics(topics, self.bound)?)
    }

    /// The topic's id; none if the broker has no ids.
    pub(super) fn topic_id(&self, topic: &str) -> Result<Option<String>> {
        let found = self.topics(&[topic.to_owned()])?.into_iter().find(|info| info.error == Code::NONE);
        found.map(|info| info.id).ok_or_else(|| missing_topic(topic))
    }

    /// Offsets of one partition, for an error message: none where there is no answer.
    pub(super) fn offsets<const N: usize>(
        &self,
        topic: &str,
        partition: i32,
        specs: [OffsetSpec; N],
    ) -> [Option<i64>; N] {
        // All are asked before any is waited for.
        let calls = specs.map(|spec| ffi::ask_offsets(self.client, [(topic, partition)], spec, self.bound).ok());
        calls.map(|call| {
            let offsets = self.client.answer(&call?, "offsets", self.stop).ok()?.offsets();
            offsets.first().filter(|info| info.error == Code::NONE).map(|info| info.offset)
        })
    }

    /// The names of all topics.
    fn all_topics(&self) -> Result<Vec<String>> {
        let metadata = self.client.metadata(None, self.bound, self.stop)?;
        let there = metadata.topics().iter().filter(|topic| topic.error().is_none());
        Ok(there.map(|topic| topic.name().to_owned()).collect())
    }

    fn offsets_at(&self, times: &[(String, i32, i64)]) -> Result<BTreeMap<(String, i32), Position>> {
        if times.is_empty() {
            return Ok(BTreeMap::new());
        }
        let list = times.iter().map(|(topic, partition, time_ms)| (topic.as_str(), *partition, *time_ms));
        let call = ffi::ask_offsets_at(self.client, list, self.bound)?;
        let mut found = BTreeMap::new();
        for info in self.client.answer(&call, "offsets", self.stop)?.offsets() {
            check_offset(&info)?;
            if info.offset >= 0 {
                let position = Position { next: info.offset, epoch: info.epoch };
                found.insert((info.topic, info.partition), position);
            }
        }
        Ok(found)
    }

    fn snapshot(&self, topics: &[String], guess: Vec<(String, i32)>, isolation: Isolation) -> Result<Snapshot> {
        if topics.is_empty() {
            return Ok(Snapshot::default());
        }
        let asked = self.ask_topics(topics, self.bound)?;
        let pending = self.ask_offsets(&guess, isolation)?;
        let infos = self.topics_answer(topics, asked)?;
        let there: BTreeSet<(String, i32)> = infos
            .iter()
            .flat_map(|info| info.partitions.iter().map(|partition| (info.name.clone(), *partition)))
            .collect();
        // A guess that was wrong fails as a whole request; what it was right about is then asked again.
        let right = guess.iter().all(|partition| there.contains(partition));
        let guess: BTreeSet<(String, i32)> = guess.into_iter().collect();
        let rest: Vec<(String, i32)> = match right {
            true => there.difference(&guess).cloned().collect(),
            false => there.iter().cloned().collect(),
        };
        let take = || {
            let mut offsets = Offsets::default();
            if right {
                offsets.take(self, pending)?;
            }
            if !rest.is_empty() {
                offsets.take(self, self.ask_offsets(&rest, isolation)?)?;
            }
            Ok(offsets)
        };
        // Once more with what is now known: the library goes on asking leaders of the past, and such requests do not
        // make it look again.
        let again = |error: Error| {
            if error.code() != code::SOURCE_UNAVAILABLE {
                return Err(error);
            }
            for topic in topics {
                self.client.metadata(Some(topic), self.bound, self.stop)?;
            }
            let mut offsets = Offsets::default();
            let there: Vec<_> = there.iter().cloned().collect();
            offsets.take(self, self.ask_offsets(&there, isolation)?)?;
            Ok(offsets)
        };
        match take().or_else(again) {
            Ok(offsets) => Ok(offsets.into_snapshot(infos, isolation, None)),
            Err(error) if error.code() == code::SOURCE_UNAVAILABLE => {
                Ok(Offsets::default().into_snapshot(infos, isolation, Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    fn ask_offsets(&self, partitions: &[(String, i32)], isolation: Isolation) -> Result<Vec<(OffsetSpec, ffi::Call)>> {
        let specs: &[OffsetSpec] = match isolation {
            _ if partitions.is_empty() => &[],
            Isolation::ReadCommitted => &[OffsetSpec::Earliest, OffsetSpec::HighWatermark, OffsetSpec::LastStable],
            Isolation::ReadUncommitted => &[OffsetSpec::Earliest, OffsetSpec::HighWatermark],
        };
        let mut calls = Vec::new();
        for spec in specs {
            for some in partitions.chunks(PARTITIONS_A_REQUEST) {
                let some = some.iter().map(|(topic, partition)| (topic.as_str(), *partition));
                calls.push((*spec, ffi::ask_offsets(self.client, some, *spec, self.bound)?));
            }
        }
        Ok(calls)
    }
}

fn check_topics(answer: &Answer) -> Result<Vec<TopicInfo>> {
    let infos = answer.topics();
    for info in &infos {
        match info.error {
            Code::NONE | Code::UNKNOWN_TOPIC | Code::UNKNOWN_TOPIC_LOCAL => {}
            Code::TOPIC_DENIED => return Err(denied_right("topics", &info.error.text()).at("topic", &info.name)),
            Code::INVALID_TOPIC => {
                let what = format!("\"{}\" cannot be the name of a topic", info.name);
                return Err(Error::new(code::INVALID_OPTION, what).fix("check the option \"subscribe\""));
            }
            error => {
                let what = format!("topic \"{}\" cannot be described: {}", info.name, error.text());
                return Err(Error::new(code::SOURCE_UNAVAILABLE, what).at("topic", &info.name));
            }
        }
    }
    Ok(infos.into_iter().filter(|info| info.error == Code::NONE).collect())
}

fn check_offset(info: &OffsetInfo) -> Result<()> {
    let at = format!("{}-{}", info.topic, info.partition);
    match info.error {
        Code::NONE => Ok(()),
        Code::TOPIC_DENIED => Err(denied_right("offsets", &info.error.text()).at("partition", at)),
        error => {
            let what = format!("the broker gives no offsets for {at}: {}", error.text());
            Err(Error::new(code::SOURCE_UNAVAILABLE, what).at("partition", at))
        }
    }
}

/// Offsets as they come in, by partition.
#[derive(Default)]
struct Offsets(BTreeMap<(String, i32), Vec<(OffsetSpec, OffsetInfo)>>);

impl Offsets {
    fn take(&mut self, question: &Question<'_>, calls: Vec<(OffsetSpec, ffi::Call)>) -> Result<()> {
        for (spec, call) in calls {
            for info in question.client.answer(&call, "offsets", question.stop)?.offsets() {
                check_offset(&info)?;
                self.0.entry((info.topic.clone(), info.partition)).or_default().push((spec, info));
            }
        }
        Ok(())
    }

    fn into_snapshot(self, infos: Vec<TopicInfo>, isolation: Isolation, without_offsets: Option<Error>) -> Snapshot {
        let mut snapshot = Snapshot { without_offsets, ..Snapshot::default() };
        for info in infos {
            snapshot.topics.insert(info.name, TopicState { id: info.id, partitions: BTreeMap::new() });
        }
        for ((topic, partition), infos) in self.0 {
            let find = |spec| infos.iter().find(|(asked, _)| *asked == spec).map(|(_, info)| info);
            let end = match isolation {
                Isolation::ReadCommitted => OffsetSpec::LastStable,
                Isolation::ReadUncommitted => OffsetSpec::HighWatermark,
            };
            let (Some(earliest), Some(high), Some(end)) =
                (find(OffsetSpec::Earliest), find(OffsetSpec::HighWatermark), find(end))
            else {
                // One reply lacked it: the partition counts as not named, which is asked for again.
                continue;
            };
            let state = PartitionState {
                earliest: earliest.offset,
                readable: end.offset,
                high_watermark: high.offset,
                epoch: end.epoch,
            };
            if let Some(topic) = snapshot.topics.get_mut(&topic) {
                topic.partitions.insert(partition, state);
            }
        }
        snapshot
    }
}
