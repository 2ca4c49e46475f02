//! The shape of a Kafka source's offsets.
//!
//! A position of the source names every partition that was ever known, with the next offset to read:
//!
//! ```json
//! {"v":1,"topics":{"sensor-data":{"id":"sQ1Jw7dXQxyzL0BCSbYjyA","partitions":{"0":{"next":450,"epoch":3},"1":{"next":0}}}}}
//! ```
//!
//! `id` is the topic's id and is absent when the broker has none; `epoch` is the leader epoch with which the position was
//! seen. A position, once known, is carried on for ever: a partition that is missing from one reply is not a new one.
//! `"gone":[1]` beside the partitions names those that are not there any more, of which a loss was logged.
//!
//! A split names one partition, and how its rows are interpreted:
//!
//! ```json
//! {"v":1,"topic":"sensor-data","id":"sQ1Jw7dXQxyzL0BCSbYjyA","partition":0,"next":450,"epoch":3,"isolation":"read_committed"}
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidemill_core::{Error, Offsets, Result, code};

use super::config::Isolation;
use super::plan::{PartitionState, TopicState};

/// The version of both shapes.
const VERSION: u32 = 1;

/// A position of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KafkaOffsets {
    v: u32,
    pub(super) topics: BTreeMap<String, TopicOffsets>,
}

/// What is known of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TopicOffsets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) partitions: BTreeMap<i32, Position>,
    /// Those of them that are gone, of which that was said: the batch that comes to this position has the loss in its entry.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) gone: BTreeSet<i32>,
}

impl TopicOffsets {
    /// Whether nothing is left of it.
    pub(super) fn is_gone(&self) -> bool {
        self.partitions.keys().all(|partition| self.gone.contains(partition))
    }

    /// The first row of every partition that is there and read.
    pub(super) fn first_of(state: &TopicState, takes: impl Fn(i32) -> bool) -> Self {
        let read = state.partitions.iter().filter(|(partition, _)| takes(**partition));
        let first = |state: &PartitionState| Position { next: state.earliest, epoch: None };
        let partitions = read.map(|(partition, state)| (*partition, first(state))).collect();
        TopicOffsets { id: state.id.clone(), partitions, gone: BTreeSet::new() }
    }
}

/// A position in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The next offset to read.
    pub(super) next: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<i32>,
}

impl KafkaOffsets {
    pub(super) fn new() -> Self {
        KafkaOffsets { v: VERSION, topics: BTreeMap::new() }
    }

    pub(super) fn decode(offsets: &Offsets) -> Result<Self> {
        let decoded: KafkaOffsets = offsets.decode()?;
        check_version(decoded.v)?;
        Ok(decoded)
    }

    pub(super) fn encode(&self) -> Offsets {
        Offsets::encode(self)
    }

    /// The position in one partition.
    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<Position> {
        self.topics.get(topic)?.partitions.get(&partition).copied()
    }

    /// Whether it was said of a partition that it is gone.
    pub(super) fn is_gone(&self, topic: &str, partition: i32) -> bool {
        self.topics.get(topic).is_some_and(|known| known.gone.contains(&partition))
    }

    /// Sets the position in one partition.
    pub(super) fn set(&mut self, topic: &str, partition: i32, position: Position) {
        let topic = self.topics.entry(topic.to_owned()).or_default();
        topic.partitions.insert(partition, position);
    }

    /// All positions, by topic and partition.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, i32, Position)> {
        self.topics.iter().flat_map(|(topic, known)| {
            known.partitions.iter().map(move |(partition, position)| (topic.as_str(), *partition, *position))
        })
    }
}

/// One end of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SplitOffsets {
    v: u32,
    pub(super) topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) partition: i32,
    pub(super) next: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<i32>,
    pub(super) isolation: Isolation,
}

impl SplitOffsets {
    pub(super) fn new(
        topic: &str,
        id: Option<&String>,
        partition: i32,
        position: Position,
        isolation: Isolation,
    ) -> Self {
        let Position { next, epoch } = position;
        SplitOffsets { v: VERSION, topic: topic.to_owned(), id: id.cloned(), partition, next, epoch, isolation }
    }

    /// The same partition at another offset, of which no epoch is known.
    pub(super) fn moved(&self, next: i64) -> Self {
        SplitOffsets { next, epoch: None, ..self.clone() }
    }

    pub(super) fn decode(offsets: &Offsets) -> Result<Self> {
        let decoded: SplitOffsets = offsets.decode()?;
        check_version(decoded.v)?;
        Ok(decoded)
    }

    pub(super) fn encode(&self) -> Offsets {
        Offsets::encode(self)
    }
}

fn check_version(version: u32) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(Error::new(code::BAD_OFFSET, format!("offsets of kafka have version {version}, this program knows {VERSION}")))
}
