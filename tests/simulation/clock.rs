//! Simulated time: it stands still while anything can run, and then jumps to the next moment that somebody waits for.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use tidemill_core::Clock;

use super::driver::Gate;

/// No simulation takes longer: one that does is stuck.
const END: Duration = Duration::from_secs(30 * 24 * 3600);

/// The time of one world.
#[derive(Debug, Default)]
pub struct Time(Mutex<Timers>);

#[derive(Debug, Default)]
struct Timers {
    now: Duration,
    /// Who waits, by moment, then by the order in which they began.
    waiting: BTreeMap<(Duration, u64), Waker>,
    serial: u64,
    /// Woken at every jump, so that the thread looks again: who was waited for may have been given up meanwhile.
    look: Option<Waker>,
}

impl Time {
    pub fn now(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    /// Jumps to the next moment. Called when nothing can run: if nobody waits either, nothing will ever happen.
    pub fn jump(&self) {
        let mut timers = self.0.lock().unwrap();
        let Some(((moment, _), waker)) = timers.waiting.pop_first() else {
            drop(timers);
            panic!("nothing can happen any more");
        };
        timers.now = timers.now.max(moment);
        assert!(moment < END, "the simulation does not come to its end");
        let look = timers.look.take();
        drop(timers);
        waker.wake();
        if let Some(look) = look {
            look.wake();
        }
    }

    /// To be spawned once: has nothing to do, at every jump.
    pub async fn look(self: Arc<Self>) {
        poll_fn(|context| {
            self.0.lock().unwrap().look = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until a moment.
    pub async fn sleep(self: &Arc<Self>, duration: Duration) {
        let serial = {
            let mut timers = self.0.lock().unwrap();
            timers.serial += 1;
            timers.serial
        };
        let key = (self.now() + duration, serial);
        let _forget = Forget(self, key);
        poll_fn(|context| {
            let mut timers = self.0.lock().unwrap();
            if timers.now >= key.0 {
                return Poll::Ready(());
            }
            timers.waiting.insert(key, context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Takes a waiter out that waits no more.
struct Forget<'a>(&'a Time, (Duration, u64));

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().waiting.remove(&self.1);
    }
}

/// The clock of one driver: the world's time, its own idea of the date, and it stops when the driver does.
#[derive(Clone, Debug)]
pub struct DriverClock {
    pub time: Arc<Time>,
    pub gate: Arc<Gate>,
    /// How far its wall clock is off, in ms. It may step.
    pub skew_ms: Arc<AtomicI64>,
}

impl Clock for DriverClock {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000 + self.time.now().as_millis() as i64 + self.skew_ms.load(Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        self.time.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            this.time.sleep(duration).await;
            this.gate.pass().await;
        })
    }
}
