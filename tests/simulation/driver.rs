//! Drivers: each starts the real engine, lives for a while, and is killed, put to sleep, or stopped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill::prelude::*;
use tidemill::{Retention, code};
use tidemill_core::rng::SeededRng;
use tokio::sync::Notify;

use super::World;
use super::clock::DriverClock;
use super::store::SimStore;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Awake,
    Asleep,
    Dead,
}

/// What everything that a driver does passes through.
#[derive(Debug)]
pub struct Gate {
    pub name: String,
    state: Mutex<State>,
    /// It wakes in the order in which they began to wait; a `watch` channel wakes in a random one.
    changed: Notify,
}

impl Gate {
    pub fn new(name: String) -> Arc<Gate> {
        Arc::new(Gate { name, state: Mutex::new(State::Awake), changed: Notify::new() })
    }

    /// Waits while the driver sleeps; for ever once it is dead.
    pub async fn pass(&self) {
        loop {
            let changed = self.changed.notified();
            if *self.state.lock().unwrap() == State::Awake {
                return;
            }
            changed.await;
        }
    }

    fn is(&self, state: State) {
        let mut now = self.state.lock().unwrap();
        if *now != State::Dead && *now != state {
            *now = state;
            self.changed.notify_waiters();
        }
    }
}

/// One driver after another on the world's checkpoint, until the world ends.
pub async fn lives(world: Arc<World>, number: usize) {
    for life in 0.. {
        world.time.sleep(world.between(0, 4_000)).await;
        if world.is_over() {
            return;
        }
        let gate = Gate::new(format!("{number}.{life}"));
        world.gates.lock().unwrap().push(Arc::clone(&gate));
        live(&world, gate).await;
    }
}

/// Ends all drivers at once.
pub fn end_all(world: &World) {
    for gate in world.gates.lock().unwrap().iter() {
        gate.is(State::Dead);
    }
}

async fn live(world: &Arc<World>, gate: Arc<Gate>) {
    let skew_ms = Arc::new(AtomicI64::new(world.below(7_200_000) as i64 - 3_600_000));
    let clock = DriverClock { time: Arc::clone(&world.time), gate: Arc::clone(&gate), skew_ms: Arc::clone(&skew_ms) };
    let trigger = Trigger::processing_time(world.between(0, 1_500));
    let span = world.between(0, 20_000);
    let mut life: Life = Box::pin({
        let (world, gate) = (Arc::clone(world), Arc::clone(&gate));
        async move { start(&world, &gate, clock, trigger).await?.await_termination().await }
    });
    let ended = tokio::select! {
        biased;
        ended = &mut life => Some(ended),
        () = world.time.sleep(span) => None,
    };
    match ended {
        Some(ended) => check(world, &gate, ended),
        None => end_of_span(world, gate, &skew_ms, life),
    }
}

/// A driver at work: from its start to its end.
type Life = std::pin::Pin<Box<dyn Future<Output = tidemill::Result<()>> + Send>>;

/// What happens to a driver that runs when its span is over.
fn end_of_span(world: &Arc<World>, gate: Arc<Gate>, skew_ms: &AtomicI64, life: Life) {
    let nap = match world.below(10) {
        0..5 => {
            world.log(format!("{} is killed", gate.name));
            // Its tasks hang for ever at their next call; what was under way may land.
            gate.is(State::Dead);
            return;
        }
        5..9 => world.between(1_000, 200_000),
        _ => Duration::ZERO,
    };
    if !nap.is_zero() {
        world.log(format!("{} sleeps for {} ms", gate.name, nap.as_millis()));
        skew_ms.fetch_add(world.below(2_000_000) as i64 - 1_000_000, Ordering::Relaxed);
        gate.is(State::Asleep);
    }
    let world = Arc::clone(world);
    tokio::spawn(async move {
        world.time.sleep(nap).await;
        world.log(format!("{} goes on", gate.name));
        gate.is(State::Awake);
        check(&world, &gate, life.await);
    });
}

/// Starts the real engine as this driver.
pub async fn start(
    world: &Arc<World>,
    gate: &Arc<Gate>,
    clock: DriverClock,
    trigger: Trigger,
) -> tidemill::Result<StreamingQuery> {
    let store = |inner, name| -> Arc<dyn tidemill::store::Store> { SimStore::new(world, gate, inner, name) };
    let mut session = Session::builder()
        .clock(Arc::new(clock))
        .rng(Arc::new(SeededRng::new(world.random())))
        .parallelism(2)
        .memory_budget(64 << 20)
        .retry_start(Duration::from_secs(20))
        .retry_running(Duration::from_secs(20))
        .mount("sim://checkpoint", store(&world.checkpoint, "checkpoint"));
    for (url, inner, name) in world.tables() {
        session = session.mount(url, store(inner, name));
    }
    let session = session.build()?;
    let frame = session.stream(world.source.clone()).await?;
    let mut query = session.query("simulated").sink("all", frame.clone(), Parquet::table("sim://all"));
    if world.two_sinks {
        query = query.sink("odd", frame.filter("n % 2 = 1"), Parquet::table("sim://odd"));
    }
    query
        .checkpoint("sim://checkpoint")
        .retention(Retention { batches_min: world.kept, age: Duration::ZERO, batches_max: world.kept })
        .write_patience(Duration::from_secs(8))
        .trigger(trigger)
        .start()
        .await
}

/// A driver may end because of faults, or because a newer one is there. It must never say that anything is damaged.
fn check(world: &World, gate: &Gate, ended: tidemill::Result<()>) {
    let Err(error) = ended else { return world.log(format!("{} ends", gate.name)) };
    world.log(format!("{} ends: {error}", gate.name));
    let codes = [code::STORE_UNAVAILABLE, code::WRITE_UNKNOWN, code::FENCED];
    if !codes.contains(&error.code()) {
        world.wrong(format!("{} ended with {}", gate.name, error.report()));
    }
}
