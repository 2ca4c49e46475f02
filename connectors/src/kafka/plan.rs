//! What to read next, decided from what is known and what the broker says. Nothing here does I/O.
//!
//! The end of a range is the last readable offset, and never below its start. What contradicts a known position is an
//! error; if one stale reply could be the cause, the error is [`Doubt::passing`] and the caller asks again first.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{Error, Loss, Offer, Range, ReadLimit, Result, Split, code};

use super::config::{Isolation, Portions, Subscription};
use super::offset::{KafkaOffsets, Position, SplitOffsets, TopicOffsets};

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

/// What decides beside the positions.
#[derive(Clone, Debug)]
pub(super) struct Rules<'a> {
    /// What is read.
    pub(super) subscription: &'a Subscription,
    /// Where the source ends, if it has an end.
    pub(super) end: Option<&'a KafkaOffsets>,
    /// Whether the query goes on after a loss.
    pub(super) tolerant: bool,
    /// Whether it was asked often enough that a reply is believed.
    pub(super) certain: bool,
}

impl Rules<'_> {
    /// Whether the query goes on in spite of a doubt.
    fn accept(&self, doubt: Doubt) -> Result<Error, Doubt> {
        if self.tolerant && (self.certain || !doubt.passing) { Ok(doubt.error) } else { Err(doubt) }
    }
}

/// The next range from `known` on; none if nothing waits.
pub(super) fn offer(
    known: &KafkaOffsets,
    snapshot: Snapshot,
    rules: &Rules<'_>,
    limit: &ReadLimit,
) -> Result<Option<Offer>, Doubt> {
    let subscription = rules.subscription;
    let up_to = limit.up_to.as_ref().map(KafkaOffsets::decode).transpose()?;
    // What is no longer read is carried on, and not held against anything.
    let read = || known.iter().filter(|(topic, at, _)| subscription.takes(topic, *at));
    if read().next().is_none()
        && let Some((topic, _, _)) = known.iter().next()
    {
        return Err(another_source(topic).into());
    }
    if let Some(up_to) = &up_to {
        check_bound(up_to, &snapshot, rules)?;
    }
    let (mut start, mut loss) = (known.clone(), Loss::default());
    let read_topics: BTreeSet<&str> = read().map(|(topic, _, _)| topic).collect();
    for topic in &read_topics {
        let Err(doubt) = check_topic(topic, known.topics[*topic].id.as_deref(), &snapshot) else { continue };
        if known.topics[*topic].is_gone() && doubt.error.code() == code::SOURCE_NOT_FOUND {
            continue;
        }
        let error = rules.accept(doubt)?;
        loss.add(0, error.what());
        match snapshot.topics.get(*topic) {
            // Made again: it is a new topic, with partitions of its own.
            Some(state) => {
                let first = TopicOffsets::first_of(state, |at| subscription.takes(topic, at));
                start.topics.insert((*topic).to_owned(), first);
            }
            None => {
                let lost = start.topics.entry((*topic).to_owned()).or_default();
                lost.gone = lost.partitions.keys().copied().collect();
            }
        }
    }
    if let Some(error) = snapshot.without_offsets {
        return Err(passing(error));
    }
    for (topic, partition, position) in read() {
        let Some(state) = snapshot.topics.get(topic) else { continue };
        if start.topics[topic].id != known.topics[topic].id {
            continue;
        }
        let Err(doubt) = check_partition(topic, partition, position, &snapshot) else { continue };
        let Some(found) = state.partitions.get(&partition) else {
            if !known.is_gone(topic, partition) {
                loss.add(0, rules.accept(doubt)?.what());
                start.topics.entry(topic.to_owned()).or_default().gone.insert(partition);
            }
            continue;
        };
        let error = rules.accept(doubt)?;
        let next = match error.code() {
            code::DATA_LOSS => found.earliest,
            // The same topic has fewer rows: those that it has were read.
            _ if state.id.is_some() => found.high_watermark,
            _ => found.earliest,
        };
        loss.add(u64::try_from(next.saturating_sub(position.next)).unwrap_or(0), error.what());
        start.set(topic, partition, Position { next, epoch: None });
    }
    let mut latest = start.clone();
    for (topic, state) in &snapshot.topics {
        for (partition, state) in state.partitions.iter().filter(|(at, _)| subscription.takes(topic, **at)) {
            let begin = match start.get(topic, *partition) {
                Some(position) => position,
                // What `available_now` saw did not have it: a later query starts it, at its first row.
                None if up_to.as_ref().is_some_and(|up_to| up_to.get(topic, *partition).is_none()) => continue,
                None => new_partition(topic, *partition, state, rules, &mut loss)?,
            };
            start.set(topic, *partition, begin);
            let readable = state.readable.max(begin.next);
            latest.set(topic, *partition, Position { next: readable, epoch: state.epoch.or(begin.epoch) });
        }
    }
    for (topic, state) in &snapshot.topics {
        for offsets in [&mut start, &mut latest] {
            let Some(known) = offsets.topics.get_mut(topic) else { continue };
            // What is there again was not gone.
            known.gone.retain(|partition| !state.partitions.contains_key(partition));
            if let Some(id) = &state.id {
                known.id.get_or_insert_with(|| id.clone());
            }
        }
    }
    if let Some(end) = rules.end {
        clamp(&mut latest, &start, end);
    }
    let mut end = latest.clone();
    if let Some(up_to) = &up_to {
        clamp(&mut end, &start, up_to);
    }
    if let Some(rows) = limit.rows {
        end = share(&start, &end, rows);
    }
    let nothing =
        end.iter().all(|(topic, partition, position)| Some(position.next) == next_of(&start, topic, partition));
    Ok((!nothing || !loss.is_none()).then(|| {
        let range = Range { start: start.encode(), end: end.encode() };
        Offer { range, latest: latest.encode(), loss }
    }))
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
        return Err(passing(missing_partition(topic, partition, position.next)));
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
fn new_partition(
    topic: &str,
    partition: i32,
    state: &PartitionState,
    rules: &Rules<'_>,
    loss: &mut Loss,
) -> Result<Position, Doubt> {
    if state.earliest > 0 {
        let error = rules.accept(lost(&format!("{topic}-{partition}"), 0, state.earliest).into())?;
        loss.add(state.earliest.unsigned_abs(), error.what());
    }
    Ok(Position { next: state.earliest, epoch: None })
}

/// Holds what `available_now` saw against what there is now. Whatever is lost of it is an error, also where the query goes
/// on after losses: it was promised (as in Spark).
fn check_bound(up_to: &KafkaOffsets, snapshot: &Snapshot, rules: &Rules<'_>) -> Result<(), Doubt> {
    for (topic, partition, bound) in up_to.iter().filter(|(topic, at, _)| rules.subscription.takes(topic, *at)) {
        if up_to.is_gone(topic, partition) {
            continue;
        }
        let at = format!("{topic}-{partition}");
        check_topic(topic, up_to.topics[topic].id.as_deref(), snapshot)?;
        match snapshot.topics.get(topic).and_then(|topic| topic.partitions.get(&partition)) {
            Some(state) if state.high_watermark < bound.next => {
                return Err(passing(truncated(&at, bound.next, state.high_watermark)));
            }
            Some(_) => {}
            None if snapshot.without_offsets.is_some() => {}
            None => return Err(passing(missing_partition(topic, partition, bound.next))),
        }
    }
    Ok(())
}

pub(super) fn missing_partition(topic: &str, partition: i32, position: i64) -> Error {
    Error::new(code::SOURCE_NOT_FOUND, format!("partition {partition} of topic \"{topic}\" is gone"))
        .at("position", format!("{topic}-{partition}@{position}"))
        .fix("a partition cannot be taken away from a topic: look at the broker")
}

/// Keeps `end` at or below `up_to`.
fn clamp(end: &mut KafkaOffsets, start: &KafkaOffsets, up_to: &KafkaOffsets) {
    for (topic, partition, bound) in up_to.iter() {
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

/// One split a partition with rows, or several where `portions` says so.
pub(super) fn splits(name: &str, range: &Range, isolation: Isolation, portions: &Portions) -> Result<Vec<Split>> {
    let (start, end) = (KafkaOffsets::decode(&range.start)?, KafkaOffsets::decode(&range.end)?);
    let mut pieces = Vec::new();
    for (topic, partition, stop) in end.iter() {
        let Some(begin) = start.get(topic, partition) else {
            let what = format!("the range has an end and no start for {topic}-{partition}");
            return Err(Error::new(code::BAD_OFFSET, what));
        };
        if stop.next.checked_sub(begin.next).is_none_or(|rows| rows < 0) {
            let what = format!("the range of {topic}-{partition} ends at {} and starts at {}", stop.next, begin.next);
            return Err(Error::new(code::BAD_OFFSET, what));
        }
        if stop.next > begin.next {
            pieces.push(Piece { topic, partition, whole: (begin, stop), start: begin.next, end: stop.next });
        }
    }
    let pieces = cut(pieces, portions);
    let splits = pieces.into_iter().map(|piece| {
        let Piece { topic, partition, whole: (begin, stop), start, end: next } = piece;
        let id = end.topics[topic].id.as_ref();
        let point = |position| SplitOffsets::new(topic, id, partition, position, isolation).encode();
        // In the midst of a partition no epoch is known.
        let first = Position { next: start, epoch: begin.epoch.filter(|_| start == begin.next) };
        let is_whole = (start, next) == (begin.next, stop.next);
        Split {
            source: name.to_owned(),
            id: if is_whole { format!("{topic}-{partition}") } else { format!("{topic}-{partition}[{start},{next})") },
            start: point(first),
            end: point(Position { next, epoch: stop.epoch }),
            estimated_rows: piece.rows(),
        }
    });
    Ok(splits.collect())
}

/// What becomes a split: a partition's range, or a piece of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Piece<'a> {
    topic: &'a str,
    partition: i32,
    whole: (Position, Position),
    start: i64,
    end: i64,
}

impl Piece<'_> {
    fn rows(&self) -> u64 {
        self.end.abs_diff(self.start)
    }

    /// Cuts it into so many pieces, as equal as can be, but none without rows.
    fn cut(self, count: u64) -> impl Iterator<Item = Self> {
        let (rows, count) = (self.rows(), count.clamp(1, self.rows()));
        // Where the piece of this number begins; the sum stays below the end, so nothing overflows.
        let begin = move |at: u64| self.start + (u128::from(rows) * u128::from(at) / u128::from(count)) as i64;
        (0..count).map(move |at| Piece { start: begin(at), end: begin(at + 1), ..self })
    }
}

/// Spark's rules: first `maxRecordsPerPartition`, then `minPartitions`. For the latter each piece gets its share of the
/// wanted number by its rows, rounded, and at least one; those whose share is one stay whole, and the others share the rest.
fn cut<'a>(pieces: Vec<Piece<'a>>, portions: &Portions) -> Vec<Piece<'a>> {
    let pieces: Vec<Piece<'_>> = match portions.max_records_per_partition {
        Some(most) => pieces.into_iter().flat_map(|piece| piece.cut(piece.rows().div_ceil(most))).collect(),
        None => pieces,
    };
    let Some(wanted) = portions.min_partitions.filter(|wanted| *wanted > pieces.len() as u64) else { return pieces };
    let total = |pieces: &[Piece<'_>]| pieces.iter().map(|piece| piece.rows() as f64).sum::<f64>();
    let share = |piece: &Piece<'_>, total: f64, wanted: u64| {
        ((piece.rows() as f64 / total * wanted as f64).round() as u64).max(1)
    };
    let all = total(&pieces);
    let stays = |piece: &Piece<'_>| share(piece, all, wanted) == 1;
    let large: Vec<Piece<'_>> = pieces.iter().copied().filter(|piece| !stays(piece)).collect();
    let whole = (pieces.len() - large.len()) as u64;
    let (rest, rows) = (wanted.saturating_sub(whole).max(1), total(&large));
    let count = |piece: &Piece<'_>| if stays(piece) { 1 } else { share(piece, rows, rest) };
    pieces.into_iter().flat_map(|piece| piece.cut(count(&piece))).collect()
}

/// What has an end must not end before it starts, nor have a partition at one end alone.
pub(super) fn check_bounds(start: &KafkaOffsets, end: &KafkaOffsets) -> Result<()> {
    let partitions = |offsets: &KafkaOffsets| offsets.iter().map(|(topic, at, _)| (topic.to_owned(), at)).collect();
    let (begun, ended): (BTreeSet<_>, BTreeSet<_>) = (partitions(start), partitions(end));
    if let Some((topic, partition)) = begun.symmetric_difference(&ended).next() {
        let what = format!("the read of {topic}-{partition} has only one end");
        return Err(Error::new(code::INVALID_OPTION, what)
            .at("partition", format!("{topic}-{partition}"))
            .fix("name every partition at both ends; if it was added just now, try again"));
    }
    for (topic, partition, stop) in end.iter() {
        let begin = start.get(topic, partition).map_or(stop.next, |begin| begin.next);
        if begin > stop.next {
            let what = format!("the read of {topic}-{partition} starts at {begin} and ends at {}", stop.next);
            return Err(Error::new(code::INVALID_OPTION, what)
                .at("partition", format!("{topic}-{partition}"))
                .fix("let it end where it starts, or behind it"));
        }
    }
    Ok(())
}

/// Rows between two positions. What has no start counts nothing.
pub(super) fn rows_between(start: &KafkaOffsets, end: &KafkaOffsets) -> u64 {
    let rows = end.iter().map(|(topic, partition, stop)| {
        let begin = start.get(topic, partition).map_or(stop.next, |begin| begin.next);
        u64::try_from(stop.next.saturating_sub(begin)).unwrap_or(0)
    });
    rows.sum()
}

/// Spark's figures of lag, over the partitions that are read: the least, the most and the mean.
pub(super) fn behind(
    end: &KafkaOffsets,
    latest: &KafkaOffsets,
    subscription: &Subscription,
) -> BTreeMap<String, String> {
    let read = latest.iter().filter(|(topic, partition, _)| subscription.takes(topic, *partition));
    let behind: Vec<u64> = read
        .map(|(topic, partition, latest)| {
            let next = end.get(topic, partition).map_or(latest.next, |end| end.next);
            u64::try_from(latest.next.saturating_sub(next)).unwrap_or(0)
        })
        .collect();
    let mean = behind.iter().map(|rows| *rows as f64).sum::<f64>() / behind.len().max(1) as f64;
    let bound = |bound: Option<&u64>| bound.copied().unwrap_or(0).to_string();
    BTreeMap::from([
        ("minOffsetsBehindLatest".to_owned(), bound(behind.iter().min())),
        ("maxOffsetsBehindLatest".to_owned(), bound(behind.iter().max())),
        ("avgOffsetsBehindLatest".to_owned(), mean.to_string()),
    ])
}

/// The error for rows that are no longer there.
pub(super) fn lost(at: &str, wanted: i64, earliest: i64) -> Error {
    let count = earliest - wanted;
    let what =
        format!("{count} rows are lost: {at} is wanted from {wanted}, and the first that is there is {earliest}");
    Error::new(code::DATA_LOSS, what)
        .at("position", format!("{at}@{wanted}"))
        .fix(
            "the topic's retention was shorter than the pause: \"failOnDataLoss\" false goes on behind what is gone, and counts \
             it; a new checkpoint, with a new table, starts where the topic starts",
        )
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
    Error::new(code::SOURCE_NOT_FOUND, format!("topic \"{topic}\" does not exist")).at("topic", topic).fix(
        "check its name, and whether it was deleted; \"failOnDataLoss\" false lets a running query go on without it",
    )
}
