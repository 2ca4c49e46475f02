//! One partition as a task reads it: a client that fetches ahead, a queue, and what was taken from it and is not handed
//! out yet. Lanes are kept between batches, so the next range usually begins with rows that are already here.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_core::{Error, Result, code};

use super::client::{Client, stopped};
use super::config::Isolation;
use super::ffi::{self, Code, Messages, Queue};
use super::offset::SplitOffsets;
use super::token::ClientSettings;

/// Clients that fetch, at most. Beyond it partitions share clients, and one that waits for new rows can hold up
/// another for as long as [`FETCH_WAIT_MS`].
const CLIENTS_MAX: usize = 16;

/// Bytes that lanes nobody reads may have fetched ahead, in all. Beyond it the one that was idle longest is closed.
const IDLE_BYTES_MAX: usize = 64 << 20;

/// A lane serves ranges that may hold up to so many times more or fewer bytes than its own.
const BYTES_APART: usize = 4;

/// … and that want up to so many times more or fewer messages: a batch that is larger for once must not cost a new lane, and
/// the next small one another.
const MESSAGES_APART: usize = 8;

/// How long a broker may sit on a fetch when there is nothing to fetch.
const FETCH_WAIT_MS: &str = "100";

/// No end of the partition was reported.
const NOT_SEEN: i64 = i64::MIN;

/// How long a seek may take to be taken notice of (it only has to reach the library's own thread).
const SEEK_BOUND: Duration = Duration::from_secs(10);

/// How often a seek is tried that comes too early, and the pause between two tries.
const SEEK_TRIES: u32 = 1_000;
const SEEK_PAUSE: Duration = Duration::from_millis(10);

/// How much the library may fetch ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FetchSizes {
    /// Bytes that one partition gives to one fetch.
    partition_bytes: usize,
    /// Messages that wait in a partition's queue before fetching pauses.
    queue_messages: usize,
    /// Bytes that wait there before fetching pauses.
    queue_bytes: usize,
}

impl FetchSizes {
    /// Sizes for a read that may hold `budget` bytes and that expects `rows` rows.
    ///
    /// A queued message costs the library about 400 bytes more than its payload, and the pause comes only after the
    /// fetch that is under way: the sizes leave room for both.
    pub(super) fn new(budget: usize, rows: u64) -> Self {
        // Powers of two, so that a batch with one split more does not want other sizes.
        let budget = 1 << budget.clamp(1 << 20, 1 << 28).ilog2();
        let messages = (budget / 1024).clamp(1_000, 50_000);
        // Small ranges: the rows of the next few are enough. In coarse steps, so that a lane is not too small for the next
        // range because that has a few rows more.
        let wanted = match rows {
            0..500 => 2_000,
            500..4_000 => 16_000,
            _ => usize::MAX,
        };
        let small = wanted < messages;
        // A broker answers few large questions with less work than many small ones.
        let partition_bytes = (budget / 8).clamp(64 << 10, 2 << 20);
        FetchSizes {
            partition_bytes: if small { partition_bytes.min(256 << 10) } else { partition_bytes },
            queue_messages: messages.min(wanted),
            queue_bytes: budget / 4,
        }
    }

    /// Whether a lane of these sizes may serve a range that wants those.
    pub(super) fn serves(self, wanted: FetchSizes) -> bool {
        let near = |one: usize, other: usize, apart: usize| one <= other * apart && other <= one * apart;
        near(self.queue_bytes, wanted.queue_bytes, BYTES_APART)
            && near(self.queue_messages, wanted.queue_messages, MESSAGES_APART)
    }

    /// Sets them, where the user has not set anything else.
    pub(super) fn apply(self, config: &mut ClientConfig) {
        // The library wants it to be no smaller than the largest message, for which it has this default.
        let message = config.get("message.max.bytes").and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
        let mut default = |name: &str, value: String| {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        };
        default("fetch.max.bytes", (4 * self.partition_bytes).max(message).to_string());
        default("fetch.message.max.bytes", self.partition_bytes.to_string());
        default("queued.min.messages", self.queue_messages.to_string());
        default("queued.max.messages.kbytes", (self.queue_bytes / 1024).max(1).to_string());
        // When the queue is full, look again soon: the library's own second would be a second without rows.
        default("fetch.queue.backoff.ms", "5".to_owned());
        default("fetch.wait.max.ms", FETCH_WAIT_MS.to_owned());
        default("fetch.error.backoff.ms", "200".to_owned());
    }
}

/// One partition, with its fetched rows.
#[derive(Debug)]
pub(super) struct Lane {
    /// Taken from the queue and not handed out. Before the queue, so that messages go first.
    pub(super) held: Messages,
    pub(super) queue: Queue,
    pub(super) client: Arc<Client>,
    pub(super) topic: String,
    pub(super) partition: i32,
    isolation: Isolation,
    id: Option<String>,
    /// Every row below it was handed out, or is none.
    pub(super) next: i64,
    /// Where the library last reported the end of the partition: no row below it is left to come, apart from those in
    /// `held`. [`NOT_SEEN`] if it has not yet.
    pub(super) seen: i64,
    /// The highest offset at which the library reported an error. It counts its own position as if that had been a row.
    failed: i64,
    sizes: FetchSizes,
}

impl Lane {
    fn open(client: Arc<Client>, at: &SplitOffsets, sizes: FetchSizes, stop: &dyn Fn() -> bool) -> Result<Self> {
        let queue = Queue::of_partition(&client, &at.topic, at.partition)?;
        ffi::assign(&client, &at.topic, at.partition, at.next)?;
        let mut lane = Lane {
            held: Messages::new(&client),
            queue,
            client,
            topic: at.topic.clone(),
            partition: at.partition,
            isolation: at.isolation,
            id: at.id.clone(),
            next: at.next,
            seen: NOT_SEEN,
            failed: NOT_SEEN,
            sizes,
        };
        // Only a seek asks the broker whether its log still is the one of that epoch.
        if at.epoch.is_some() && at.next > 0 {
            let mut tries = SEEK_TRIES;
            // While the client takes another partition off, it does not begin with this one.
            while let Err((code, text)) = lane.seek(at) {
                tries -= 1;
                if code != Code::STATE || tries == 0 {
                    let what = format!("no seek to {}: {}", at.next, lane.client.clean(&text));
                    return Err(Error::new(code::SOURCE_UNAVAILABLE, what));
                }
                if stop() {
                    return Err(stopped());
                }
                lane.client.pause(SEEK_PAUSE);
            }
        }
        Ok(lane)
    }

    fn seek(&mut self, at: &SplitOffsets) -> Result<(), (Code, String)> {
        self.held = Messages::new(&self.client);
        ffi::seek(&self.client, &self.topic, self.partition, at.next, at.epoch, SEEK_BOUND)?;
        (self.next, self.seen, self.failed) = (at.next, NOT_SEEN, NOT_SEEN);
        Ok(())
    }

    /// Takes note of something that the library reported at an offset, in the place of a row.
    pub(super) fn reported(&mut self, offset: i64) {
        self.failed = self.failed.max(offset);
    }

    /// Where the partition has been read up to: behind the last row, or the last marker that was taken from the queue.
    pub(super) fn position(&self) -> i64 {
        let passed = ffi::position(&self.client, &self.topic, self.partition);
        // The library also counts what is no row: the end of the partition, and errors in the place of a row.
        let no_row = |position: &i64| [self.seen, self.failed].contains(&position.wrapping_sub(1));
        passed.filter(|position| !no_row(position)).map_or(self.next, |passed| passed.max(self.next))
    }

    fn serves(&self, start: &SplitOffsets) -> bool {
        (&self.topic, self.partition, self.isolation) == (&start.topic, start.partition, start.isolation)
    }
}

/// The lanes of one reader that nobody reads at the moment.
#[derive(Debug)]
pub(super) struct Pool {
    client: ClientSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Those that were idle longest come first.
    idle: VecDeque<Lane>,
    clients: Vec<Fetching>,
}

/// A client that fetches. It is kept alive by its lanes alone.
#[derive(Debug)]
struct Fetching {
    client: Weak<Client>,
    isolation: Isolation,
    sizes: FetchSizes,
    /// What it is assigned, since a client can have a partition only once, and what it must not be assigned again.
    partitions: BTreeSet<(String, i32)>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Taking partitions off clients waits for the library's thread: not here.
        let state = std::mem::take(&mut *self.state());
        if !state.idle.is_empty() {
            let _ = std::thread::Builder::new().name("kafka-close".to_owned()).spawn(move || drop(state));
        }
    }
}

impl Pool {
    pub(super) fn new(client: ClientSettings) -> Self {
        Pool { client, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane whose next row is the first of the range: a kept one, moved if need be, or a new one. May block.
    pub(super) fn take(&self, start: &SplitOffsets, sizes: FetchSizes, stop: &dyn Fn() -> bool) -> Result<Lane> {
        while let Some(mut lane) = self.kept(start) {
            if lane.id != start.id {
                // Of a topic that was made again.
                self.give_up(lane);
            } else if !lane.sizes.serves(sizes) {
                self.close(lane);
            } else if lane.next == start.next || lane.seek(start).is_ok() {
                return Ok(lane);
            } else {
                // The library stopped it at an error that nobody has read.
                self.give_up(lane);
            }
        }
        let client = self.client(start, sizes)?;
        Lane::open(Arc::clone(&client), start, sizes, stop).inspect_err(|_| {
            self.release(&client, &start.topic, start.partition);
        })
    }

    /// Opens a lane anew at another place: after an error of its partition the library has stopped, and does not seek.
    pub(super) fn reopen(&self, lane: &mut Lane, at: &SplitOffsets, stop: &dyn Fn() -> bool) -> Result<()> {
        let fresh = self.take(at, lane.sizes, stop)?;
        self.give_up(std::mem::replace(lane, fresh));
        Ok(())
    }

    /// An idle lane of the partition, taken out: best one that stands where the range starts.
    fn kept(&self, start: &SplitOffsets) -> Option<Lane> {
        let mut state = self.state();
        let fit = || state.idle.iter().enumerate().filter(|(_, lane)| lane.serves(start));
        let at = fit().find(|(_, lane)| lane.next == start.next).or_else(|| fit().next())?.0;
        state.idle.remove(at)
    }

    /// Keeps a lane for the next range.
    pub(super) fn put(&self, lane: Lane) {
        let mut surplus = Vec::new();
        {
            let mut state = self.state();
            state.idle.push_back(lane);
            let mut bytes: usize = state.idle.iter().map(|lane| lane.sizes.queue_bytes).sum();
            while bytes > IDLE_BYTES_MAX
                && let Some(lane) = state.idle.pop_front()
            {
                bytes -= lane.sizes.queue_bytes;
                surplus.push(lane);
            }
        }
        surplus.into_iter().for_each(|lane| self.close(lane));
    }

    /// Ends a lane from which nothing more is read.
    fn close(&self, lane: Lane) {
        self.release(&lane.client, &lane.topic, lane.partition);
    }

    /// Ends a lane that failed, or may have. What the library reported of the partition can still wait in the client: that is
    /// never assigned it again.
    pub(super) fn give_up(&self, lane: Lane) {
        ffi::unassign(&lane.client, &lane.topic, lane.partition);
    }

    /// Takes a partition off its client.
    fn release(&self, client: &Arc<Client>, topic: &str, partition: i32) {
        ffi::unassign(client, topic, partition);
        let mut state = self.state();
        if let Some(known) = state.clients.iter_mut().find(|known| known.client.as_ptr() == Arc::as_ptr(client)) {
            known.partitions.remove(&(topic.to_owned(), partition));
        }
    }

    /// The client for a new lane, which is noted as assigned: a new one, or above the bound the one with the fewest
    /// lanes, best of these sizes.
    fn client(&self, at: &SplitOffsets, sizes: FetchSizes) -> Result<Arc<Client>> {
        let partition = (at.topic.clone(), at.partition);
        let mut state = self.state();
        state.clients.retain(|known| known.client.strong_count() > 0);
        if state.clients.len() >= CLIENTS_MAX {
            let fit = state.clients.iter_mut();
            let fit = fit.filter(|known| known.isolation == at.isolation && !known.partitions.contains(&partition));
            let least = fit.min_by_key(|known| (known.sizes != sizes, known.partitions.len()));
            if let Some(known) = least
                && let Some(client) = known.client.upgrade()
            {
                known.partitions.insert(partition);
                return Ok(client);
            }
        }
        let ClientSettings { mut config, login } = self.client.clone();
        config.set("isolation.level", at.isolation.as_str());
        sizes.apply(&mut config);
        let client = Client::new(&config, &login)?;
        let (isolation, partitions) = (at.isolation, [partition].into());
        state.clients.push(Fetching { client: Arc::downgrade(&client), isolation, sizes, partitions });
        Ok(client)
    }

    /// How many clients fetch, and how many bytes idle lanes may have fetched ahead.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.state();
        let clients = state.clients.iter().filter(|known| known.client.strong_count() > 0).count();
        (clients, state.idle.iter().map(|lane| lane.sizes.queue_bytes).sum())
    }
}
