//! A real Kafka broker for tests and benches, started and ended by the program that uses it.
//!
//! Promises: the broker is ready when `start` returns; it keeps its address and its data through `kill` and `restart`;
//! it and its files are gone when the `Broker` is dropped, and also when the program dies by any signal.
//!
//! Everything blocks and panics on failure, so that a test reads as a story; it may be called with or without an async
//! runtime around it. A file of its own, so that a bench can include it by path.
#![allow(dead_code, reason = "each program that includes this uses its part")]
#![allow(clippy::disallowed_methods, reason = "waits for another process, so real time is the right one")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::service::Service;

/// How long an admin request, or its effect, may take on a busy machine.
const ADMIN_BOUND: Duration = Duration::from_secs(30);

/// One running broker, its folder and a client for its topics.
pub struct Broker {
    service: Service,
    address: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Broker {
    /// Starts a broker of the caller's own, which it may harm.
    pub fn start() -> Broker {
        Broker::start_with(&[], None)
    }

    /// Starts a broker with `settings` of the server and, instead of the small default, the JVM flags `jvm`.
    pub fn start_with(settings: &[(&str, &str)], jvm: Option<&str>) -> Broker {
        let env: Vec<(&str, &str)> = jvm.map(|flags| ("TIDEMILL_KAFKA_JVM", flags)).into_iter().collect();
        let service = Service::start("kafka", settings, &env);
        let address = service.address().to_owned();
        Broker::of(service, address)
    }

    /// Starts a broker whose `settings` have listeners of their own, of which `address` is the plain one.
    pub fn start_at(address: &str, settings: &[(&str, &str)]) -> Broker {
        Broker::of(Service::start("kafka", settings, &[]), address.to_owned())
    }

    fn of(service: Service, address: String) -> Broker {
        let admin = ClientConfig::new()
            .set("bootstrap.servers", &address)
            .set("reconnect.backoff.max.ms", "500")
            .create()
            .expect("an admin client needs no more than an address");
        Broker { service, address, admin }
    }

    /// The broker that all tests of this process share. It cannot be harmed: what harms needs `&mut`.
    pub fn shared() -> &'static Broker {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(Broker::start)
    }

    /// The address for `bootstrap.servers`; the same through every restart.
    pub fn bootstrap(&self) -> &str {
        &self.address
    }

    /// The broker's log file, for a message about a failure.
    pub fn log(&self) -> PathBuf {
        self.service.dir().join("kafka.log")
    }

    /// The folder that holds the broker's data, settings and log.
    pub fn dir(&self) -> &Path {
        self.service.dir()
    }

    /// The process id of the broker while it runs, for measuring it.
    pub fn pid(&self) -> u32 {
        self.service.pid("kafka")
    }

    /// Ends the broker by SIGKILL and returns when its ports are free.
    pub fn kill(&mut self) {
        self.service.ask("kill");
    }

    /// Ends the broker by SIGTERM, in order, and returns when it is gone.
    pub fn stop(&mut self) {
        self.service.ask("stop");
    }

    /// Starts a killed or stopped broker on its ports and data, and returns when it is ready.
    pub fn restart(&mut self) {
        self.service.ask("start");
    }

    /// Stops the broker in its tracks (SIGSTOP): connections stay open and nothing answers.
    pub fn pause(&mut self) {
        self.service.ask("pause");
    }

    /// Lets a paused broker go on.
    pub fn resume(&mut self) {
        self.service.ask("resume");
    }

    /// Creates a topic with `config`, such as `("retention.ms", "1000")`, and returns when all partitions have leaders.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let topic = config.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
        let results = wait_for(self.admin.create_topics([&topic], &options())).expect("the broker answers");
        for result in results {
            result.unwrap_or_else(|(name, code)| panic!("cannot create topic \"{name}\": {code}"));
        }
        self.await_topic(name, "all its leaders", |topic| {
            topic.partitions().len() == partitions as usize && topic.partitions().iter().all(|p| p.leader() >= 0)
        });
    }

    /// Adds partitions to a topic, up to so many in all.
    pub fn add_partitions(&self, name: &str, partitions: i32) {
        let wanted = NewPartitions::new(name, partitions as usize);
        let results = wait_for(self.admin.create_partitions([&wanted], &options())).expect("the broker answers");
        for result in results {
            result.unwrap_or_else(|(name, code)| panic!("cannot add partitions to \"{name}\": {code}"));
        }
        self.await_topic(name, "all its leaders", |topic| {
            topic.partitions().len() == partitions as usize && topic.partitions().iter().all(|p| p.leader() >= 0)
        });
    }

    /// Deletes a topic and returns when the broker no longer knows its name, so that it can be created anew.
    pub fn delete_topic(&self, name: &str) {
        let results = wait_for(self.admin.delete_topics(&[name], &options())).expect("the broker answers");
        for result in results {
            result.unwrap_or_else(|(name, code)| panic!("cannot delete topic \"{name}\": {code}"));
        }
        self.await_topic(name, "no partition", |topic| topic.partitions().is_empty());
    }

    /// Trims a partition: rows below `before_offset` are gone, as if retention had removed them.
    pub fn delete_records(&self, name: &str, partition: i32, before_offset: i64) {
        let mut offsets = TopicPartitionList::new();
        offsets
            .add_partition_offset(name, partition, Offset::Offset(before_offset))
            .expect("an offset from 0 on is valid");
        let trimmed = wait_for(self.admin.delete_records(&offsets, &options())).expect("the broker answers");
        for element in trimmed.elements() {
            if let Err(error) = element.error() {
                panic!("cannot trim {name}-{partition} before {before_offset}: {error}");
            }
        }
    }

    fn await_topic(&self, name: &str, what: &str, reached: impl Fn(&MetadataTopic) -> bool) {
        let start = Instant::now();
        loop {
            // A client that has just lost its connection may fail once; only the bound counts.
            if let Ok(metadata) = self.admin.inner().fetch_metadata(Some(name), Duration::from_secs(5))
                && metadata.topics().iter().any(&reached)
            {
                return;
            }
            assert!(start.elapsed() < ADMIN_BOUND, "topic \"{name}\" has not {what} after {ADMIN_BOUND:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A topic name that no other test of any process uses.
pub fn unique_topic(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ADMIN_BOUND)).operation_timeout(Some(ADMIN_BOUND))
}

/// Runs a future of the admin client on this thread. The client has a thread of its own that completes it, so no
/// runtime is needed, and this works inside one too, where `block_on` would panic.
fn wait_for<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
