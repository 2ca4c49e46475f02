//! Lag, for tools outside: positions are committed to a consumer group, where `kafka-consumer-groups` and the like look.
//!
//! The group is written and never read back: where a query stands is in its checkpoint alone. With each position goes the
//! query's id, so that another query's commits in the same group are noticed. Nothing waits for this: a thread of its own
//! commits what is newest, and what cannot be committed is one warning.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_core::Result;

use super::client::Client;
use super::offset::KafkaOffsets;
use super::token::Login;

/// Commits are no closer together …
const AT_MOST_EVERY: Duration = Duration::from_millis(500);

/// … and, also without news, no further apart: brokers forget a group that is silent, and tools call it stale.
const AT_LEAST_EVERY: Duration = Duration::from_secs(30);

/// How long the question for what is committed may take.
const BOUND: Duration = Duration::from_secs(10);

/// A group that is told where a query stands. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Lag {
    group: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Where the query stands.
    newest: Option<KafkaOffsets>,
    /// Whether that is not committed yet.
    is_news: bool,
    /// Whether somebody waits for it: then nothing pauses.
    is_awaited: bool,
    ended: bool,
    warnings: Vec<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something changes, at most this long.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
    }
}

impl Lag {
    /// Begins to tell a group. Nothing is sent before there is a position.
    pub(super) fn new(config: &ClientConfig, login: &Login, group: String, query_id: String) -> Result<Self> {
        let mut config = config.clone();
        config.set("group.id", &group);
        if config.get("session.timeout.ms").is_none() {
            // As long is a commit tried while the group's broker is away.
            config.set("session.timeout.ms", "10000");
        }
        let client = Client::new(&config, login)?;
        let shared = Arc::new(Shared::default());
        let teller = Teller {
            client,
            group: group.clone(),
            query_id,
            shared: Arc::clone(&shared),
            refused: false,
            foreign: false,
        };
        // Without a thread nothing is told, and nothing else is wrong.
        if let Err(error) = std::thread::Builder::new().name("kafka-lag".to_owned()).spawn(move || teller.run()) {
            shared.state().warnings.push(format!("lag is not told to a consumer group: {error}"));
        }
        Ok(Lag { group, shared })
    }

    /// Takes note of where the query stands. Never waits.
    pub(super) fn tell(&self, offsets: KafkaOffsets) {
        let mut state = self.shared.state();
        (state.newest, state.is_news) = (Some(offsets), true);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until what was told last has been committed, or could not be; at most this long. Then nothing more is told: the
    /// query may go on elsewhere.
    pub(super) fn end(&self, at_most: Duration) {
        let mut state = self.shared.state();
        state.is_awaited = true;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_timeout_while(state, at_most, |state| state.is_news && !state.ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.ended, state.is_news) = (true, false);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.state().ended
    }

    /// The consumer group that is told.
    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// What a person should know, once.
    pub(super) fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().warnings)
    }
}

/// The thread.
struct Teller {
    client: Arc<Client>,
    group: String,
    query_id: String,
    shared: Arc<Shared>,
    /// Whether the last commit was refused, which was said.
    refused: bool,
    /// Whether another query was seen in the group, which was said.
    foreign: bool,
}

impl Teller {
    fn run(mut self) {
        let mut look = true;
        loop {
            let mut state = self.shared.state();
            if !state.is_news && !state.ended {
                state = self.shared.wait(state, AT_LEAST_EVERY);
                // Awake without news: it is time to repeat, and to see who else is here.
                look |= !state.is_news;
            }
            if state.ended && !state.is_news {
                return;
            }
            let Some(offsets) = state.newest.clone() else { continue };
            drop(state);
            let told = match look {
                true => self.look_for_others(&offsets).and_then(|()| self.commit(&offsets)),
                false => self.commit(&offsets),
            };
            // Where something is wrong, what comes next begins with a look, which soon says what it is.
            look = told.is_err();
            self.told(told);
            let mut state = self.shared.state();
            state.is_news &= state.newest.as_ref() != Some(&offsets);
            self.shared.changed.notify_all();
            let pause =
                self.shared.changed.wait_timeout_while(state, AT_MOST_EVERY, |state| !state.ended && !state.is_awaited);
            drop(pause.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn commit(&self, offsets: &KafkaOffsets) -> Result<()> {
        self.client.commit(offsets.iter().map(|(topic, at, position)| (topic, at, position.next)), &self.query_id)
    }

    /// Whether somebody else commits to the group. It is no harm to the query, but tools see the other's positions.
    fn look_for_others(&mut self, offsets: &KafkaOffsets) -> Result<()> {
        let partitions = offsets.iter().map(|(topic, partition, _)| (topic, partition));
        let found = self.client.committed(partitions, BOUND, &|| false)?;
        let other = found.into_iter().map(|committed| committed.text).find(|by| *by != self.query_id);
        if let Some(other) = other.filter(|_| !std::mem::replace(&mut self.foreign, true)) {
            let by = if other.is_empty() { "somebody else".to_owned() } else { format!("\"{other}\"") };
            self.warn(format!(
                "the consumer group \"{}\" has positions of {by}, which this query overwrites: give each query a group of \
                 its own (\"kafka.group.id\")",
                self.group
            ));
        }
        Ok(())
    }

    /// Warns of the first failure in a row.
    fn told(&mut self, told: Result<()>) {
        match told {
            Ok(()) => self.refused = false,
            Err(error) if !std::mem::replace(&mut self.refused, true) => {
                let group = &self.group;
                self.warn(format!("positions cannot be committed to the consumer group \"{group}\": {}", error.what()));
            }
            Err(_) => {}
        }
    }

    fn warn(&self, warning: String) {
        // A group may have been named by a secret.
        self.shared.state().warnings.push(self.client.clean(&warning));
    }
}
