//! Where a read starts or ends, decided from what the user said and what the broker says. Nothing here does I/O.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{Error, Result, code};

use super::config::{Start, Subscription, WithoutMatch};
use super::offset::{KafkaOffsets, Position};
use super::plan::{Doubt, PartitionState, Snapshot, missing_partition, missing_topic};

/// A place that the user named.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) at: &'a Start,
    /// Whether it is where a read ends.
    pub(super) is_end: bool,
    /// Whether the read is a static one, which waits for nothing.
    pub(super) is_static: bool,
}

/// A partition whose place is a time.
pub(super) struct Timed {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) time_ms: i64,
    /// Where the partition ends.
    end: Position,
}

impl Place<'_> {
    /// The place in every partition, if the reply holds every partition. Times and groups are looked up afterwards: until
    /// then they are at the end, and at the first row.
    pub(super) fn in_all(self, subscription: &Subscription, snapshot: Snapshot) -> Result<KafkaOffsets, Doubt> {
        let passing = |error| Doubt { error, passing: true };
        if let Some(error) = snapshot.without_offsets {
            return Err(passing(error));
        }
        let partitions = |topic: &str| snapshot.topics.get(topic).map(|state| &state.partitions);
        for topic in subscription.topics() {
            if partitions(topic).is_none_or(BTreeMap::is_empty) {
                return Err(passing(missing_topic(topic)));
            }
        }
        if let Subscription::Assign(assigned) = subscription {
            let mut assigned = pairs(assigned, BTreeSet::iter);
            if let Some((topic, at)) =
                assigned.find(|(topic, at)| !partitions(topic).is_some_and(|p| p.contains_key(at)))
            {
                return Err(passing(missing_partition(topic, *at, 0)));
            }
        }
        let mut offsets = KafkaOffsets::new();
        for (topic, state) in &snapshot.topics {
            for (partition, state) in state.partitions.iter().filter(|(at, _)| subscription.takes(topic, **at)) {
                if let Some(position) = self.in_one(topic, *partition, state)? {
                    offsets.set(topic, *partition, position);
                }
            }
            if let Some(known) = offsets.topics.get_mut(topic) {
                known.id = state.id.clone();
            }
        }
        if let Some(named) = self.at.by_partition()
            && let Some((topic, at)) =
                pairs(named, BTreeMap::keys).find(|(topic, at)| offsets.get(topic, **at).is_none())
        {
            let what = format!("{topic}-{at} is named, and is not there or not read");
            return Err(passing(self.refused(what).fix("name the partitions that are read, and no others")));
        }
        Ok(offsets)
    }

    /// The place in one partition; nowhere if the partition is left out.
    fn in_one(self, topic: &str, partition: i32, state: &PartitionState) -> Result<Option<Position>> {
        let end = Position { next: state.readable, epoch: state.epoch };
        let first = Position { next: state.earliest, epoch: None };
        let offsets = match self.at {
            Start::Earliest | Start::Group(_) => return Ok(Some(first)),
            Start::Latest | Start::Timestamp(_) | Start::Timestamps(_) => return Ok(Some(end)),
            Start::Offsets(offsets) => offsets,
        };
        let position = match offsets.get(topic).and_then(|partitions| partitions.get(&partition)).copied() {
            Some(Start::FIRST) => first,
            Some(Start::END) => end,
            Some(next) => Position { next, epoch: None },
            None if self.may_leave_out() => return Ok(None),
            None => {
                let what = format!("the offsets by partition do not name {topic}-{partition}");
                return Err(self.refused(what).fix(format!("name every partition: {}", self.takes())));
            }
        };
        // A stream may start at rows of an open transaction, and end where nothing is yet.
        let limit = match (self.is_static, self.is_end) {
            (true, _) => state.readable,
            (false, false) => state.high_watermark,
            (false, true) => i64::MAX,
        };
        if position.next <= limit {
            return Ok(Some(position));
        }
        let what = format!("offset {} of {topic}-{partition} is beyond its end", position.next);
        let why = if limit < state.high_watermark { ": there, a transaction is open" } else { "" };
        Err(self.refused(what).fix(format!("the last row that can be read is before {limit}{why}")))
    }

    /// The partitions whose times are to be looked up. `ends` has every partition, with its end.
    pub(super) fn times(self, ends: &KafkaOffsets) -> Result<Vec<Timed>> {
        let mut wanted = Vec::new();
        for (topic, partition, end) in ends.iter() {
            let time_ms = match self.at {
                Start::Timestamps(times) => times.get(topic).and_then(|times| times.get(&partition)).copied(),
                Start::Timestamp(time_ms) => Some(*time_ms),
                _ => None,
            };
            match time_ms {
                Some(time_ms) => wanted.push(Timed { topic: topic.to_owned(), partition, time_ms, end }),
                None if self.may_leave_out() => {}
                None => {
                    let what = format!("the times by partition do not name {topic}-{partition}");
                    return Err(self.refused(what).fix("name every partition, with a time"));
                }
            }
        }
        Ok(wanted)
    }

    /// Where a partition's time is. `found`: its first row that is as late, if there is one.
    pub(super) fn at_time(self, timed: &Timed, found: Option<Position>, without: WithoutMatch) -> Result<Position> {
        // The broker finds rows of open transactions too, for which a static read does not wait.
        let found = found.filter(|found| !self.is_static || found.next <= timed.end.next);
        // In a stream the end moves: where it was at the first look says nothing at the next.
        let may_be_end = without == WithoutMatch::Latest || (self.is_end && self.is_static);
        if let Some(position) = found.or(may_be_end.then_some(timed.end)) {
            return Ok(position);
        }
        let Timed { topic, partition, time_ms, .. } = timed;
        let what = format!("{topic}-{partition} has no row as late as {time_ms} ms since 1970");
        Err(self.refused(what).fix(match self.is_end {
            true => "end at an earlier time, or at offsets: a stream's own end moves",
            false => {
                "give an earlier time, or set \"startingOffsetsByTimestampStrategy\" to \"latest\" to start at its end"
            }
        }))
    }

    /// Whether a partition need not be named: a backfill that goes on knows its own, and one that was added since is none of
    /// them. Its first start sees that both ends name the same.
    fn may_leave_out(self) -> bool {
        self.is_end && !self.is_static
    }

    /// What may stand in the place of an offset.
    fn takes(self) -> &'static str {
        if self.is_end { "an offset, or -1 (latest)" } else { "an offset, -2 (earliest) or, in a stream, -1 (latest)" }
    }

    /// The error for a place that cannot be.
    fn refused(self, what: String) -> Error {
        Error::new(code::INVALID_OPTION, what).at("option", self.at.option(self.is_end))
    }
}

/// Topics and partitions, out of what is known by topic and partition.
fn pairs<'a, T, I: Iterator<Item = &'a i32>>(
    all: &'a BTreeMap<String, T>,
    of: impl Fn(&'a T) -> I,
) -> impl Iterator<Item = (&'a str, &'a i32)> {
    all.iter().flat_map(move |(topic, known)| of(known).map(move |partition| (topic.as_str(), partition)))
}
