//! One partition as a task reads it: a client that fetches ahead, a queue, and what was taken from it and is not handed
//! out yet. Lanes are kept between batches, so the next range usually begins with rows that are already here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_core::Result;

use super::client::Client;
use super::config::Isolation;
use super::ffi::{self, Messages, Queue};
use super::offset::SplitOffsets;
use super::properties::Redactor;

/// Clients that fetch, at most. Beyond it partitions share clients, and one that waits for new rows can hold up
/// another for as long as [`FETCH_WAIT_MS`].
const CLIENTS_MAX: usize = 16;

/// How long a broker may sit on a fetch when there is nothing to fetch.
const FETCH_WAIT_MS: &str = "100";

/// No end of the partition was reported.
const NOT_SEEN: i64 = i64::MIN;

/// How long a seek may take to be taken notice of (it only has to reach the library's own thread).
const SEEK_BOUND: Duration = Duration::from_secs(10);

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
        let budget = budget.clamp(1 << 20, 1 << 28);
        let messages = (budget / 1024).clamp(1_000, 50_000);
        // Small ranges: the rows of the next few are enough. In coarse steps, so that a lane is not too small for the next
        // range because that has a few rows more.
        let wanted = match rows {
            0..500 => 2_000,
            500..4_000 => 16_000,
            _ => usize::MAX,
        };
        let small = wanted < messages;
        let partition_bytes = (budget / 16).clamp(64 << 10, 1 << 20);
        FetchSizes {
            partition_bytes: if small { partition_bytes.min(256 << 10) } else { partition_bytes },
            queue_messages: messages.min(wanted),
            queue_bytes: budget / 4,
        }
    }

    /// Sets them, where the user has not set anything else.
    pub(super) fn apply(self, config: &mut ClientConfig) {
        // The library wants it to be no smaller than the largest message, for which it has this default.
        let message = config.get("message.max.bytes").and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
        let has_alias = config.get("max.partition.fetch.bytes").is_some();
        let mut default = |name: &str, value: String| {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        };
        default("fetch.max.bytes", (4 * self.partition_bytes).max(message).to_string());
        if !has_alias {
            default("fetch.message.max.bytes", self.partition_bytes.to_string());
        }
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
    id: Option<String>,
    /// Every row below it was handed out, or is none.
    pub(super) next: i64,
    /// Where the library last reported the end of the partition: no row below it is left to come, apart from those in
    /// `held`. [`NOT_SEEN`] if it has not yet.
    pub(super) seen: i64,
    sizes: FetchSizes,
}

impl Lane {
    fn open(client: Arc<Client>, at: &SplitOffsets, sizes: FetchSizes) -> Result<Self> {
        let queue = Queue::of_partition(&client, &at.topic, at.partition)?;
        ffi::assign(&client, &at.topic, at.partition, at.next)?;
        let mut lane = Lane {
            held: Messages::new(&client),
            queue,
            client,
            topic: at.topic.clone(),
            partition: at.partition,
            id: at.id.clone(),
            next: at.next,
            seen: NOT_SEEN,
            sizes,
        };
        // Only a seek asks the broker whether its log still is the one of that epoch.
        if at.epoch.is_some() && at.next > 0 {
            lane.seek(at)?;
        }
        Ok(lane)
    }

    fn seek(&mut self, at: &SplitOffsets) -> Result<()> {
        self.held = Messages::new(&self.client);
        ffi::seek(&self.client, &self.topic, self.partition, at.next, at.epoch, SEEK_BOUND)?;
        (self.next, self.seen) = (at.next, NOT_SEEN);
        Ok(())
    }

    /// The library's own position: behind the last message or marker that was taken from the queue.
    pub(super) fn position(&self) -> Option<i64> {
        ffi::position(&self.client, &self.topic, self.partition)
    }
}

/// Takes the lane's partition off its client, when both are not kept.
fn close(lane: Lane) {
    ffi::unassign(&lane.client, &lane.topic, lane.partition);
}

/// What a lane is kept under.
type Key = (String, i32, &'static str);

/// The lanes of one reader that nobody reads at the moment.
#[derive(Debug)]
pub(super) struct Pool {
    config: ClientConfig,
    redactor: Redactor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: BTreeMap<Key, Lane>,
    /// Clients by isolation level and sizes. Each is kept alive by its lanes alone.
    clients: Vec<(Isolation, FetchSizes, std::sync::Weak<Client>)>,
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
    pub(super) fn new(config: ClientConfig, redactor: Redactor) -> Self {
        Pool { config, redactor, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane whose next row is the first of the range: the kept one, moved if need be, or a new one. May block.
    pub(super) fn take(&self, start: &SplitOffsets, sizes: FetchSizes) -> Result<Lane> {
        let kept = self.state().idle.remove(&key(start));
        if let Some(mut lane) = kept {
            // A lane of a topic that was made again, or one too small for what comes now, is of no use.
            if lane.id == start.id && lane.sizes >= sizes {
                if lane.next != start.next {
                    lane.seek(start)?;
                }
                return Ok(lane);
            }
            close(lane);
        }
        Lane::open(self.client(start.isolation, sizes)?, start, sizes)
    }

    /// Keeps a lane for the next range.
    pub(super) fn put(&self, lane: Lane, at: &SplitOffsets) {
        let surplus = self.state().idle.insert(key(at), lane);
        if let Some(lane) = surplus {
            close(lane);
        }
    }

    /// Gives up a lane that failed: what is wrong with it stays with it.
    pub(super) fn discard(&self, lane: Lane) {
        close(lane);
    }

    /// The client for a new lane: a new one, or above the bound the one with the fewest lanes.
    fn client(&self, isolation: Isolation, sizes: FetchSizes) -> Result<Arc<Client>> {
        let mut state = self.state();
        state.clients.retain(|(_, _, client)| client.strong_count() > 0);
        if state.clients.len() >= CLIENTS_MAX {
            let fit = state.clients.iter().filter(|(level, fetch, _)| (*level, *fetch) == (isolation, sizes));
            let least = fit.min_by_key(|(_, _, client)| client.strong_count());
            if let Some(client) = least.and_then(|(_, _, client)| client.upgrade()) {
                return Ok(client);
            }
        }
        let mut config = self.config.clone();
        config.set("isolation.level", isolation.as_str());
        sizes.apply(&mut config);
        let client = Client::new(&config, &self.redactor)?;
        state.clients.push((isolation, sizes, Arc::downgrade(&client)));
        Ok(client)
    }
}

fn key(at: &SplitOffsets) -> Key {
    (at.topic.clone(), at.partition, at.isolation.as_str())
}
