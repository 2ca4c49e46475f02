//! One client of librdkafka: how it is made, what it says, and how it ends.
//!
//! What the library says (its log, its errors) is kept, cleaned of secrets, to be the reason in an error of ours. A
//! client is closed on a thread of its own, so dropping one never blocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::bindings::rd_kafka_t;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidemill_core::{Error, Result, code};

use super::ffi::{self, Answer, Call, Code};
use super::properties::printable;
use super::token::Login;

/// How long one blocking wait takes at most: a cancelled reader ends within two of them.
pub(super) const SLICE: Duration = Duration::from_millis(100);

/// How long the first try to reach any broker may take, and how long a later one at most.
const PIECES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// How many tries a refused login is given to come right.
const DENIED_PIECES: u32 = 4;

/// How many slices a refused login is given to come right: brokers refuse in passing, too.
const DENIED_SLICES: u32 = 20;

/// What the library says when it has got no token.
const NO_TOKEN: &str = "Failed to acquire SASL OAUTHBEARER token";

/// A client and what it said.
pub(super) struct Client {
    /// None only while it is being dropped.
    consumer: Option<BaseConsumer<Events>>,
    target: Mutex<Target>,
}

/// Who is asked for topics.
#[derive(Default)]
struct Target {
    /// What [`Client::target`] found; none before, and after a request that failed or had no answer.
    found: Option<Option<i32>>,
    /// The broker that gave no answer last.
    silent: Option<i32>,
}

/// A position that is committed to a group.
pub(super) struct Committed {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) next: i64,
    /// What was put beside it.
    pub(super) text: String,
}

/// The tries of a call that cannot be ended from outside: together as long as the bound, and each twice as long as the one
/// before, since the library asks anew with every try and forgets the answer that comes too late.
fn pieces(bound: Duration) -> impl Iterator<Item = Duration> {
    let (mut left, mut next) = (bound, PIECES.0);
    std::iter::from_fn(move || {
        let piece = next.min(left);
        (left, next) = (left - piece, (next * 2).min(PIECES.1));
        (!piece.is_zero()).then_some(piece)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closing waits for the library's threads. Without a thread (none can be started) it is done here.
        if let Some(consumer) = self.consumer.take() {
            let _ = std::thread::Builder::new().name("kafka-close".to_owned()).spawn(move || drop(consumer));
        }
    }
}

impl Client {
    /// Makes a client; it connects when it is first used.
    pub(super) fn new(config: &ClientConfig, login: &Login) -> Result<Arc<Self>> {
        let events = Events { login: login.clone(), said: Mutex::default(), group_denied: Mutex::default() };
        let consumer = config.create_with_context(events).map_err(|error| refused(&error, login))?;
        Ok(Arc::new(Client { consumer: Some(consumer), target: Mutex::default() }))
    }

    /// Makes a client for questions. While a broker is away, the library would try to reach it without a pause for every
    /// question that waits, unless it keeps its connections open.
    pub(super) fn for_questions(config: &ClientConfig, login: &Login) -> Result<Arc<Self>> {
        let mut config = config.clone();
        config.set("enable.sparse.connections", "false");
        if config.get("socket.nagle.disable").is_none() {
            // Questions go out together: none should wait for the answer to the one before.
            config.set("socket.nagle.disable", "true");
        }
        Client::new(&config, login)
    }

    fn consumer(&self) -> &BaseConsumer<Events> {
        self.consumer.as_ref().expect("only a dropped client has none")
    }

    /// The library's own handle, valid as long as this client.
    pub(super) fn raw(&self) -> *mut rd_kafka_t {
        self.consumer().client().native_ptr()
    }

    /// Takes in what the library has to say. Never waits.
    pub(super) fn serve(&self) {
        for _ in 0..16 {
            // Errors have gone through `Events::error`; messages do not come this way.
            let _ = self.consumer().poll(Duration::ZERO);
        }
    }

    /// Waits inside the library, at most this long: it ends early when the library has something to say.
    pub(super) fn pause(&self, at_most: Duration) {
        let _ = self.consumer().poll(at_most);
    }

    /// The last reason that the library gave, if it is not over.
    pub(super) fn reason(&self) -> Option<String> {
        self.consumer().context().said().reason.clone()
    }

    /// The library's last word on why the broker refused us, if it did.
    pub(super) fn denied(&self) -> Option<String> {
        self.consumer().context().said().denied.clone()
    }

    /// Forgets what was said: the client has just been seen to work.
    pub(super) fn works(&self) {
        *self.consumer().context().said() = Said::default();
    }

    /// The brokers of the cluster, and one topic or all. Waits up to the bound for a broker that answers. What the
    /// library knew before of these topics and their leaders is replaced.
    pub(super) fn metadata(&self, topic: Option<&str>, bound: Duration, stop: &dyn Fn() -> bool) -> Result<Metadata> {
        self.serve();
        let mut denied = 0;
        // The library's call cannot be ended from outside, so it is made in pieces.
        for piece in pieces(bound) {
            let error = match self.consumer().fetch_metadata(topic, piece) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error,
            };
            self.serve();
            if stop() {
                return Err(stopped());
            }
            denied += u32::from(self.denied().is_some());
            if denied > DENIED_PIECES {
                return Err(self.failed(Code::NONE, &error.to_string(), "brokers"));
            }
        }
        let text = format!("no answer in {} s", bound.as_secs_f64());
        Err(self.failed(Code::NONE, &text, "brokers"))
    }

    /// Which broker to ask for topics: the controller (none), or another where that is not among the brokers or was silent.
    pub(super) fn target(&self, topic: &str, bound: Duration, stop: &dyn Fn() -> bool) -> Result<Option<i32>> {
        if let Some(found) = lock(&self.target).found {
            return Ok(found);
        }
        let metadata = self.metadata(Some(topic), bound, stop)?;
        let (controller, mut brokers) = (ffi::controller(self), Vec::new());
        brokers.extend(metadata.brokers().iter().map(|broker| broker.id()));
        brokers.sort_unstable();
        let mut target = lock(&self.target);
        let found = match target.silent {
            silent if silent != Some(controller) && brokers.contains(&controller) => None,
            // One after the other: several may be away.
            Some(silent) => brokers.iter().find(|id| **id > silent).or(brokers.first()).copied(),
            None => brokers.first().copied(),
        };
        target.found = Some(found);
        Ok(found)
    }

    /// Whoever was asked for topics gives no answer: next time another is asked.
    pub(super) fn silent(&self) {
        let mut target = lock(&self.target);
        // None if another question has noticed before.
        if let Some(found) = target.found.take() {
            target.silent = Some(found.unwrap_or_else(|| ffi::controller(self)));
        }
    }

    /// Commits positions to the client's group, for outside tools, each with a text beside it. Blocks until the broker has
    /// answered, or the library gives up: it looks for the group's broker as long as `session.timeout.ms`.
    pub(super) fn commit<'a>(&self, positions: impl Iterator<Item = (&'a str, i32, i64)>, text: &str) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, next) in positions {
            list.add_partition(topic, partition).set_metadata(text);
            // An offset below 0 is none, and no position is.
            let _ = list.set_partition_offset(topic, partition, Offset::Offset(next));
        }
        self.serve();
        self.consumer().commit(&list, CommitMode::Sync).map_err(|error| self.no_group(&error.to_string()))
    }

    /// What is committed to the client's group for these partitions, where anything is. An error soon if the right to ask is
    /// denied, for which the library itself would wait.
    pub(super) fn committed<'a>(
        &self,
        partitions: impl Iterator<Item = (&'a str, i32)>,
        bound: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Committed>> {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in partitions {
            list.add_partition(topic, partition);
        }
        self.serve();
        for piece in pieces(bound) {
            if let Ok(found) = self.consumer().committed_offsets(list.clone(), piece) {
                let elements = found.elements();
                let there = elements.iter().filter_map(|element| {
                    let Offset::Offset(next) = element.offset() else { return None };
                    let (topic, partition) = (element.topic().to_owned(), element.partition());
                    Some(Committed { topic, partition, next, text: element.metadata().to_owned() })
                });
                return Ok(there.collect());
            }
            self.serve();
            if stop() {
                return Err(stopped());
            }
            if let Some(reason) = lock(&self.consumer().context().group_denied).take() {
                return Err(self.no_group(&reason));
            }
        }
        Err(self.no_group(&self.reason().unwrap_or_else(|| format!("no answer in {} s", bound.as_secs()))))
    }

    fn no_group(&self, text: &str) -> Error {
        Error::new(code::SOURCE_UNAVAILABLE, self.clean(text))
    }

    /// Takes known secrets out of a text of the library.
    pub(super) fn clean(&self, text: &str) -> String {
        self.consumer().context().login.clean(text)
    }

    /// Waits for the answer to a request, which comes within the request's bound. `stop` is asked every now and then.
    pub(super) fn answer(&self, call: &Call, what: &str, stop: &dyn Fn() -> bool) -> Result<Answer> {
        loop {
            if let Some(answer) = self.answer_within(call, what, Duration::MAX, stop)? {
                return Ok(answer);
            }
        }
    }

    /// [`answer`](Self::answer), if it comes in time.
    pub(super) fn answer_within(
        &self,
        call: &Call,
        what: &str,
        patience: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Answer>> {
        // Perhaps it waits for a token.
        self.serve();
        let (mut denied, mut slices) = (0, patience.as_millis() / SLICE.as_millis());
        let answer = loop {
            if let Some(answer) = call.wait(SLICE) {
                break answer;
            }
            self.serve();
            if stop() {
                return Err(stopped());
            }
            if let Some(reason) = self.denied() {
                denied += 1;
                if denied > DENIED_SLICES {
                    return Err(refused_login(&reason));
                }
            }
            slices = slices.saturating_sub(1);
            if slices == 0 {
                return Ok(None);
            }
        };
        self.serve();
        match answer.error() {
            None => {
                self.works();
                Ok(Some(answer))
            }
            Some((code, text)) => {
                lock(&self.target).found = None;
                Err(self.failed(code, &text, what))
            }
        }
    }

    /// The error for a request that failed as a whole.
    fn failed(&self, code: Code, text: &str, what: &str) -> Error {
        if let Some(reason) = self.denied() {
            return refused_login(&reason);
        }
        let text = self.clean(text);
        match code {
            Code::TOPIC_DENIED | Code::CLUSTER_DENIED => denied_right(what, &text),
            _ => {
                let reason = self.reason().unwrap_or(text);
                Error::new(code::SOURCE_UNAVAILABLE, format!("kafka does not answer ({what}): {reason}"))
                    .fix("check \"kafka.bootstrap.servers\", and that the broker is up and can be reached from here")
            }
        }
    }
}

/// The error for a reader or request that was told to stop.
pub(super) fn stopped() -> Error {
    Error::new(code::STOPPED, "stopped while waiting for kafka")
}

/// The error for a login or a handshake that the broker refused.
pub(super) fn refused_login(reason: &str) -> Error {
    Error::new(code::SOURCE_DENIED, format!("kafka refused the connection: {reason}"))
        .fix("check \"kafka.security.protocol\", the credentials and the certificates")
}

/// The error for a right that is missing.
pub(super) fn denied_right(what: &str, text: &str) -> Error {
    Error::new(code::SOURCE_DENIED, format!("kafka denied access ({what}): {text}"))
        .fix("the user needs the rights Read and Describe on the topic")
}

/// The error for a configuration that the library does not take. A value that may be secret is not in it.
fn refused(error: &KafkaError, login: &Login) -> Error {
    match error {
        KafkaError::ClientConfig(_, text, name, _) => {
            let why = if printable(name) { login.clean(text) } else { "the value does not fit".to_owned() };
            Error::new(code::INVALID_OPTION, format!("librdkafka does not take \"kafka.{name}\": {why}"))
                .fix("see librdkafka's CONFIGURATION.md for what it takes")
        }
        other => {
            let why = login.clean(&other.to_string());
            Error::new(code::INVALID_OPTION, format!("librdkafka cannot make a client: {why}"))
                .fix("check the \"kafka.*\" options")
        }
    }
}

/// What the library said since the client last worked.
#[derive(Default)]
struct Said {
    reason: Option<String>,
    denied: Option<String>,
}

/// Listens to the library.
struct Events {
    login: Login,
    said: Mutex<Said>,
    /// Why the client's group may not be used, which matters to nobody who does not ask.
    group_denied: Mutex<Option<String>>,
}

impl Events {
    fn said(&self) -> MutexGuard<'_, Said> {
        lock(&self.said)
    }
}

impl ClientContext for Events {
    /// For clients that log in by OAUTHBEARER; others are never asked.
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> std::result::Result<OAuthToken, Box<dyn std::error::Error>> {
        let Some(tokens) = &self.login.tokens else { return Err("no tokens are configured".into()) };
        let token = tokens.token().map_err(|error| {
            let text = self.login.clean(&error.to_string());
            let mut said = self.said();
            said.denied = (error.code() == code::SOURCE_DENIED).then(|| text.clone());
            said.reason = Some(text.clone());
            text
        })?;
        // One that had ended may have been refused meanwhile; that says nothing about this one.
        *self.said() = Said::default();
        Ok(OAuthToken {
            token: token.value.expose().to_owned(),
            principal_name: token.principal,
            // The library counts in microseconds, and does not see that they overflow.
            lifetime_ms: token.expires_at_ms.min(i64::MAX / 1000),
        })
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // Not our handling: what matters becomes the reason in an error.
        let text = self.login.clean(text);
        tracing::debug!(?level, facility, text, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let reason = self.login.clean(reason);
        tracing::debug!(reason, "librdkafka error");
        let mut said = self.said();
        match error.rdkafka_error_code() {
            // It says no more than the reasons before it.
            Some(RDKafkaErrorCode::AllBrokersDown) if said.reason.is_some() => {}
            // It is no group that anything is read from.
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => *lock(&self.group_denied) = Some(reason),
            // Why there is none was said before.
            _ if reason.contains(NO_TOKEN) && said.reason.is_some() => {}
            Some(
                RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::SSL
                | RDKafkaErrorCode::UnsupportedSASLMechanism,
            ) => {
                said.denied = Some(reason.clone());
                said.reason = Some(reason);
            }
            _ => said.reason = Some(reason),
        }
    }
}

impl ConsumerContext for Events {}
