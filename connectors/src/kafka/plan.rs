//! What to read next, decided from what is known and what the broker says. Nothing here does I/O.
//!
//! The end of a range is the last readable offset, and never below its start. What contradicts a known position is an
//! error; if one stale reply could be the cause, the error is [`Doubt::passing`] and the caller asks again first.

use std::collections::BTreeMap;

use tidemill_core::{Error, Offer, Range, ReadLimit, Result, Split, code};

use super::config::{Isolation, Subscription};
use super::offset::{KafkaOffsets, Position, SplitOffsets};

/// What the broker said, at one moment. A topic or partition that it did not name is not in it.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) topics: BTreeMap<String, TopicState>,
    /// Why there are no offsets, if the broker named the topics and gave none: with a topic that has just been made
    /// again, its new id says more.
    pub(super) without_offsets: Option<Error>,
}

/// What the broker said of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TopicState {
    pub(super) id: Option<String>,
    pub(super) partitions: BTreeMap<i32, PartitionState>,
}

/// What the broker said of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionState {
    /// The first offset that is there.
    pub(super) earliest: i64,
    /// The end of what is readable: the last stable offset or the high watermark, by the isolation level.
    pub(super) readable: i64,
    /// The end of what is there.
    pub(super) high_watermark: i64,
    /// The leader epoch of the end.
    pub(super) epoch: Option<i32>,
}

/// Why no range was planned.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) error: Error,
    /// A stale reply can look like this: ask again before believing it.
    pub(super) passing: bool,
}

impl From<Error> for Doubt {
    fn from(error: Error) -> Self {
        Doubt { error, passing: false }
    }
}

fn passing(error: Error) -> Doubt {
    Doubt { error, passing: true }
}

/// The next range from `known` on; none if nothing waits.
pub(super) fn offer(
    known: &KafkaOffsets,
    snapshot: Snapshot,
    subscription: &Subscription,
    limit: &ReadLimit,
) -> Result<Option<Offer>, Doubt> {
    let up_to = limit.up_to.as_ref().map(KafkaOffsets::decode).transpose()?;
    let mut start = known.clone();
    let mut latest = known.clone();
    // What is no longer read is carried on, and not held against anything.
    let read = || known.iter().filter(|(topic, at, _)| subscription.takes(topic, *at));
    if read().next().is_none()
        && let Some((topic, _, _)) = known.iter().next()
    {
        return Err(another_source(topic).into());
    }
    for (topic, _, _) in read() {
        check_topic(topic, known.topics[topic].id.as_deref(), &snapshot)?;
    }
    if let Some(error) = snapshot.without_offsets {
        return Err(passing(error));
    }
    for (topic, partition, position) in read() {
        check_partition(topic, partition, position, &snapshot)?;
    }
    for (topic, state) in &snapshot.topics {
        for (partition, state) in state.partitions.iter().filter(|(at, _)| subscription.takes(topic, **at)) {
            let begin = match known.get(topic, *partition) {
                Some(position) => position,
                // What `available_now` saw did not have it: a later query starts it, at its first row.
                None if up_to.as_ref().is_some_and(|up_to| up_to.get(topic, *partition).is_none()) => continue,
                None => new_partition(topic, *partition, state)?,
            };
            start.set(topic, *partition, begin);
            let readable = state.readable.max(begin.next);
            latest.set(topic, *partition, Position { next: readable, epoch: state.epoch.or(begin.epoch) });
        }
    }
    for (topic, state) in &snapshot.topics {
        for offsets in [&mut start, &mut latest] {
            if let (Some(known), Some(id)) = (offsets.topics.get_mut(topic), &state.id) {
                known.id.get_or_insert_with(|| id.clone());
            }
        }
    }
    let mut end = latest.clone();
    if let Some(up_to) = &up_to {
        clamp(&mut end, &start, up_to, &snapshot)?;
    }
    if let Some(rows) = limit.rows {
        end = share(&start, &end, rows);
    }
    if end.iter().all(|(topic, partition, position)| Some(position.next) == next_of(&start, topic, partition)) {
        return Ok(None);
    }
    Ok(Some(Offer { range: Range { start: start.encode(), end: end.encode() }, latest: latest.encode() }))
}

fn next_of(offsets: &KafkaOffsets, topic: &str, partition: i32) -> Option<i64> {
    offsets.get(topic, partition).map(|position| position.next)
}

/// Holds a known topic against what the broker says.
fn check_topic(topic: &str, id: Option<&str>, snapshot: &Snapshot) -> Result<(), Doubt> {
    let state = snapshot.topics.get(topic).ok_or_else(|| passing(missing_topic(topic)))?;
    match (id, state.id.as_deref()) {
        (Some(known), Some(found)) if known != found => Err(recreated(topic, known, found).into()),
        _ => Ok(()),
    }
}

/// Holds a known position against what the broker says.
fn check_partition(topic: &str, partition: i32, position: Position, snapshot: &Snapshot) -> Result<(), Doubt> {
    let at = format!("{topic}-{partition}");
    let Some(state) = snapshot.topics.get(topic).and_then(|topic| topic.partitions.get(&partition)) else {
        let error = Error::new(code::SOURCE_NOT_FOUND, format!("partition {partition} of topic \"{topic}\" is gone"))
            .at("position", format!("{at}@{}", position.next))
            .fix("a partition cannot be taken away from a topic: look at the broker");
        return Err(passing(error));
    };
    if position.next > state.high_watermark {
        return Err(passing(truncated(&at, position.next, state.high_watermark)));
    }
    if position.next < state.earliest {
        return Err(lost(&at, position.next, state.earliest).into());
    }
    Ok(())
}

/// Where a partition that nobody knew starts: at its first row, which must be its very first.
fn new_partition(topic: &str, partition: i32, state: &PartitionState) -> Result<Position, Doubt> {
    if state.earliest > 0 {
        return Err(lost(&format!("{topic}-{partition}"), 0, state.earliest).into());
    }
    Ok(Position { next: state.earliest, epoch: None })
}

/// Keeps `end` at or below `up_to`, which lies below the broker's end unless rows were taken back.
fn clamp(end: &mut KafkaOffsets, start: &KafkaOffsets, up_to: &KafkaOffsets, snapshot: &Snapshot) -> Result<(), Doubt> {
    for (topic, partition, bound) in up_to.iter() {
        let state = snapshot.topics.get(topic).and_then(|topic| topic.partitions.get(&partition));
        if let Some(state) = state.filter(|state| state.high_watermark < bound.next) {
            return Err(passing(truncated(&format!("{topic}-{partition}"), bound.next, state.high_watermark)));
        }
        if let (Some(begin), Some(stop)) = (start.get(topic, partition), end.get(topic, partition))
            && stop.next > bound.next
        {
            let next = bound.next.max(begin.next);
            end.set(topic, partition, Position { next, epoch: stop.epoch });
        }
    }
    // A partition outside `up_to` that was known before has nothing to read.
    for (topic, partition, begin) in start.iter() {
        if up_to.get(topic, partition).is_none() {
            end.set(topic, partition, begin);
        }
    }
    Ok(())
}

/// Spark's rule for `maxOffsetsPerTrigger`: each partition gets its share of the limit in proportion to what it has
/// waiting, rounded down, but at least one row where anything waits (a share below one is rounded up). So a batch may
/// hold a little more than the limit, when many partitions have little, or a little less.
pub(super) fn share(start: &KafkaOffsets, end: &KafkaOffsets, rows: u64) -> KafkaOffsets {
    let waiting = |topic: &str, partition: i32, stop: Position| {
        start.get(topic, partition).map_or(0, |begin| stop.next.saturating_sub(begin.next).max(0))
    };
    let total: f64 = end.iter().map(|(topic, partition, stop)| waiting(topic, partition, stop) as f64).sum();
    let mut limited = end.clone();
    if total < 1.0 {
        return limited;
    }
    for (topic, partition, stop) in end.iter() {
        let Some(begin) = start.get(topic, partition) else { continue };
        let size = waiting(topic, partition, stop);
        let part = rows as f64 * (size as f64 / total);
        let part = if part < 1.0 { part.ceil() } else { part.floor() };
        // A cast from a float saturates, and so does the sum.
        let next = begin.next.saturating_add(part as i64).min(stop.next).max(begin.next);
        limited.set(topic, partition, Position { next, epoch: stop.epoch });
    }
    limited
}

/// One split a partition with rows.
pub(super) fn splits(name: &str, range: &Range, isolation: Isolation) -> Result<Vec<Split>> {
    let (start, end) = (KafkaOffsets::decode(&range.start)?, KafkaOffsets::decode(&range.end)?);
    let mut splits = Vec::new();
    for (topic, partition, stop) in end.iter() {
        let id = format!("{topic}-{partition}");
        let Some(begin) = start.get(topic, partition) else {
            return Err(Error::new(code::BAD_OFFSET, format!("the range has an end and no start for {id}")));
        };
        let rows = stop.next.checked_sub(begin.next).and_then(|rows| u64::try_from(rows).ok());
        let Some(rows) = rows else {
            let what = format!("the range of {id} ends at {} and starts at {}", stop.next, begin.next);
            return Err(Error::new(code::BAD_OFFSET, what));
        };
        if rows == 0 {
            continue;
        }
        let point =
            |position| SplitOffsets::new(topic, end.topics[topic].id.as_ref(), partition, position, isolation).encode();
        let (start, end) = (point(begin), point(stop));
        splits.push(Split { source: name.to_owned(), id, start, end, estimated_rows: rows });
    }
    Ok(splits)
}

/// Rows between two positions. What has no start counts nothing.
pub(super) fn rows_between(start: &KafkaOffsets, end: &KafkaOffsets) -> u64 {
    let rows = end.iter().map(|(topic, partition, stop)| {
        let begin = start.get(topic, partition).map_or(stop.next, |begin| begin.next);
        u64::try_from(stop.next.saturating_sub(begin)).unwrap_or(0)
    });
    rows.sum()
}

/// The error for rows that are no longer there.
pub(super) fn lost(at: &str, wanted: i64, earliest: i64) -> Error {
    let count = earliest - wanted;
    let what =
        format!("{count} rows are lost: {at} is wanted from {wanted}, and the first that is there is {earliest}");
    Error::new(code::DATA_LOSS, what)
        .at("position", format!("{at}@{wanted}"))
        .fix("the topic's retention was shorter than the pause; a new checkpoint, with a new table, starts where the topic starts")
}

/// The error for an end below a known one.
pub(super) fn truncated(at: &str, known: i64, found: i64) -> Error {
    let what = format!("{at} ends at {found}, below the known position {known}: rows were taken back");
    Error::new(code::SOURCE_TRUNCATED, what)
        .at("position", format!("{at}@{known}"))
        .fix("the broker lost rows that were already read (unclean election, restored disk, or a topic made again)")
}

/// The error for a topic that was deleted and made again.
pub(super) fn recreated(topic: &str, known: &str, found: &str) -> Error {
    let what = format!("topic \"{topic}\" was deleted and made again: its id was {known} and is {found}");
    Error::new(code::TOPIC_RECREATED, what)
        .at("topic", topic)
        .fix("known offsets mean nothing in the new topic: start with a new checkpoint and a new table")
}

/// The error for positions that are those of another source: sources without names are counted, and were swapped.
pub(super) fn another_source(topic: &str) -> Error {
    Error::new(code::QUERY_CHANGED, "the checkpoint's positions of this source are all of other topics")
        .at("topic", topic)
        .fix("give each source of the query a name, with .name(…); for other topics, start with a new checkpoint")
}

/// The error for a topic that does not exist.
pub(super) fn missing_topic(topic: &str) -> Error {
    Error::new(code::SOURCE_NOT_FOUND, format!("topic \"{topic}\" does not exist")).at("topic", topic)
}
