//! Time, behind one door: the wall clock, the monotonic clock and sleep. Tests move time instead of waiting for it.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;

/// Where time comes from.
pub trait Clock: Send + Sync + Debug {
    /// Wall-clock time: milliseconds since 1970, UTC. It may step in either direction; nothing's safety rests on it.
    fn now_ms(&self) -> i64;

    /// Time since some fixed moment. It never goes back; bounds and durations are measured with it.
    fn elapsed(&self) -> Duration;

    /// Waits for this long. Dropping the future ends the wait.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the monotonic clock")]
    fn default() -> Self {
        SystemClock { origin: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one door to the wall clock")]
    fn now_ms(&self) -> i64 {
        // A clock before 1970 is a broken clock: count from 1970 rather than fail.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "the one door to sleep")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
