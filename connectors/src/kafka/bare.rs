//! The limit that benches compare with: a loop that takes messages in batches and touches every byte, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_core::clock::SystemClock;
use tidemill_core::{Clock, Result};

use super::client::Client;
use super::ffi::{self, Code, Messages};
use super::lane::FetchSizes;
use super::token::Login;

/// What a bare loop did.
#[derive(Clone, Copy, Debug, Default)]
pub struct BareLoop {
    /// Messages taken.
    pub rows: u64,
    /// Bytes of keys and values, each of which was touched.
    pub bytes: u64,
    /// How long it took, the first connection included.
    pub seconds: f64,
    /// A sum over all bytes, so that touching them cannot be left out.
    pub sum: u64,
}

/// Reads partitions `0..partitions` of a topic from their beginning to their present end: one client per two partitions,
/// each on a thread of its own, with the engine's fetch settings for reads that may hold `buffer_bytes`.
pub fn bare_consume_loop(brokers: &str, topic: &str, partitions: i32, buffer_bytes: usize) -> Result<BareLoop> {
    let clock = SystemClock::default();
    let start = clock.elapsed();
    let pairs: Vec<Vec<i32>> = (0..partitions).collect::<Vec<_>>().chunks(2).map(<[i32]>::to_vec).collect();
    let loops = std::thread::scope(|scope| {
        let threads: Vec<_> =
            pairs.iter().map(|pair| scope.spawn(|| one_client(brokers, topic, pair, buffer_bytes))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the loop does not panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut total = BareLoop::default();
    for part in loops {
        total.rows += part.rows;
        total.bytes += part.bytes;
        total.sum = total.sum.wrapping_add(part.sum);
    }
    total.seconds = (clock.elapsed() - start).as_secs_f64();
    Ok(total)
}

fn one_client(brokers: &str, topic: &str, partitions: &[i32], buffer_bytes: usize) -> Result<BareLoop> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "tidemill").set("enable.auto.commit", "false");
    config.set("enable.partition.eof", "true").set("auto.offset.reset", "earliest");
    FetchSizes::new(buffer_bytes, u64::MAX).apply(&mut config);
    let client: Arc<Client> = Client::new(&config, &Login::default())?;
    let queue = ffi::common_queue(&client);
    for partition in partitions {
        ffi::assign(&client, topic, *partition, 0)?;
    }
    let mut messages = Messages::new(&client);
    let mut open: BTreeMap<i32, ()> = partitions.iter().map(|partition| (*partition, ())).collect();
    let mut result = BareLoop::default();
    while !open.is_empty() {
        if queue.consume(&mut messages, 4096, Duration::ZERO) == 0 {
            queue.consume(&mut messages, 1, Duration::from_millis(100));
        }
        for at in 0..messages.len() {
            let message = messages.get(at);
            if message.code() == Code::END_OF_PARTITION {
                open.remove(&message.partition());
                continue;
            }
            result.rows += 1;
            for bytes in [message.key(), message.value()].into_iter().flatten() {
                result.bytes += bytes.len() as u64;
                result.sum = result.sum.wrapping_add(bytes.iter().map(|byte| u64::from(*byte)).sum());
            }
        }
        messages.release(messages.len());
    }
    Ok(result)
}
