//! A clock that is moved by hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::clock::Clock;

/// Time that stands still until a test moves it. Sleepers wake when it passes their moment.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<State>);

#[derive(Debug)]
struct State {
    /// (wall clock in ms since 1970, monotonic time)
    now: Mutex<(i64, Duration)>,
    moved: Notify,
}

impl ManualClock {
    /// A clock whose wall time is `now_ms`.
    pub fn at(now_ms: i64) -> Self {
        ManualClock(Arc::new(State { now: Mutex::new((now_ms, Duration::ZERO)), moved: Notify::new() }))
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.0 += by.as_millis() as i64;
        now.1 += by;
        drop(now);
        self.0.moved.notify_waiters();
    }

    /// Steps the wall clock alone, in either direction, as an operator or NTP does.
    pub fn step_wall(&self, by_ms: i64) {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner).0 += by_ms;
        self.0.moved.notify_waiters();
    }

    fn now(&self) -> (i64, Duration) {
        *self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now().0
    }

    fn elapsed(&self) -> Duration {
        self.now().1
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let this = self.clone();
        let until = this.elapsed() + duration;
        Box::pin(async move {
            loop {
                // Registered before the look, so that a move in between is not missed.
                let moved = this.0.moved.notified();
                if this.elapsed() >= until {
                    return;
                }
                moved.await;
            }
        })
    }
}
