//! A simulated world: the real engine, driven by two or three drivers at once that die, sleep and wake, over stores whose
//! calls are slow, lost, applied and lost, or late, with clocks that disagree. Time is simulated, everything happens on
//! one thread in an order that the seed decides, so a seed tells one story, and always the same.
//!
//! What must hold, whatever happened: no number is ever shown twice, nobody reports damage, and a last driver without
//! faults shows every number once.
//!
//! `TIDEMILL_SEEDS=FROM..TO` chooses the seeds, `TIDEMILL_SEED=N` one, whose story is told.

mod clock;
mod driver;
mod store;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill::MemorySource;
use tidemill::prelude::*;
use tidemill_core::Rng;
use tidemill_core::rng::SeededRng;

use crate::support::pipeline::{numbers, rows, schema};
use clock::{DriverClock, Time};
use driver::Gate;
use store::Naming;

/// All that a seed decides, and what came of it.
pub struct World {
    time: Arc<Time>,
    rng: SeededRng,
    /// How likely a call is to fail…
    weather: f64,
    /// …until the end.
    calm: AtomicBool,
    naming: Naming,
    two_sinks: bool,
    /// How many batches are kept.
    kept: u64,
    source: MemorySource,
    rows: i64,
    checkpoint: Arc<InMemory>,
    all: Arc<InMemory>,
    odd: Arc<InMemory>,
    gates: Mutex<Vec<Arc<Gate>>>,
    story: Mutex<Vec<String>>,
    wrongs: Mutex<Vec<String>>,
}

impl World {
    fn new(seed: u64) -> Arc<World> {
        let rng = SeededRng::new(seed);
        let one_of = |choices: u64| rng.next_u64() % choices;
        Arc::new(World {
            time: Arc::default(),
            calm: AtomicBool::new(false),
            weather: [0.0, 0.02, 0.05, 0.15][one_of(4) as usize],
            naming: [Naming::Link, Naming::Rename, Naming::Copy][one_of(3) as usize],
            two_sinks: one_of(2) == 1,
            kept: 2 + one_of(4),
            source: MemorySource::new(schema()),
            rows: 20 + one_of(60) as i64,
            rng,
            checkpoint: Arc::default(),
            all: Arc::default(),
            odd: Arc::default(),
            gates: Mutex::default(),
            story: Mutex::default(),
            wrongs: Mutex::default(),
        })
    }

    fn random(&self) -> u64 {
        self.rng.next_u64()
    }

    fn below(&self, end: u64) -> u64 {
        self.random() % end
    }

    fn chance(&self, likely: f64) -> bool {
        (self.random() >> 11) as f64 / ((1_u64 << 53) as f64) < likely
    }

    /// A span of so many milliseconds, short ones more likely.
    fn between(&self, from_ms: u64, to_ms: u64) -> Duration {
        let span = (to_ms - from_ms) >> self.below(5);
        Duration::from_millis(from_ms + self.below(span.max(1)))
    }

    /// How long a call is on its way, in one direction.
    fn latency(&self) -> Duration {
        match self.below(20) {
            0 => self.between(100, 3_000),
            _ => Duration::from_micros(self.below(20_000)),
        }
    }

    fn log(&self, event: String) {
        let now = self.time.now();
        self.story.lock().unwrap().push(format!("{:>12.6} {event}", now.as_secs_f64()));
    }

    fn wrong(&self, what: String) {
        self.log(format!("WRONG: {what}"));
        self.wrongs.lock().unwrap().push(what);
    }

    /// Whether drivers are no longer replaced.
    fn is_over(&self) -> bool {
        self.source.row_count() as i64 == self.rows && self.time.now() > Duration::from_secs(120)
    }

    fn tables(&self) -> Vec<(&'static str, &Arc<InMemory>, &'static str)> {
        [("sim://all", &self.all, "all"), ("sim://odd", &self.odd, "odd")]
            .into_iter()
            .take(1 + usize::from(self.two_sinks))
            .collect()
    }

    /// What the tables must show in the end.
    fn expected(&self, table: &str) -> Vec<i64> {
        (0..self.rows).filter(|n| table == "all" || n % 2 == 1).collect()
    }

    /// What any reader of a table sees now.
    async fn shown(&self, table: &InMemory) -> Vec<i64> {
        let mut batches = Vec::new();
        let listed: Vec<_> = table.list(None).try_collect().await.unwrap();
        for meta in listed.into_iter().filter(|meta| meta.location.as_ref().ends_with(".parquet")) {
            let file = table.get(&meta.location).await.unwrap().bytes().await.unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
            batches.extend(reader.map(|rows| rows.unwrap()));
        }
        numbers(&batches)
    }

    /// No number may be there twice, not for a moment.
    async fn audit(&self) {
        for (_, table, name) in self.tables() {
            let shown = self.shown(table).await;
            if let Some(pair) = shown.windows(2).find(|pair| pair[0] == pair[1]) {
                self.wrong(format!("{} is twice in \"{name}\"", pair[0]));
            }
        }
    }

    async fn add_rows(self: Arc<Self>) {
        let mut next = 0;
        while next < self.rows {
            self.time.sleep(self.between(0, 6_000)).await;
            let end = (next + 1 + self.below(6) as i64).min(self.rows);
            self.source.add(rows(next..end));
            next = end;
        }
    }
}

/// Lives through one seed. Gives its story, and what went wrong.
fn simulate(seed: u64) -> (Vec<String>, Vec<String>) {
    let world = World::new(seed);
    let time = Arc::clone(&world.time);
    let runtime = tokio::runtime::Builder::new_current_thread().on_thread_park(move || time.jump()).build().unwrap();
    runtime.block_on(tell(Arc::clone(&world)));
    drop(runtime);
    let story = std::mem::take(&mut *world.story.lock().unwrap());
    let wrongs = std::mem::take(&mut *world.wrongs.lock().unwrap());
    (story, wrongs)
}

async fn tell(world: Arc<World>) {
    let drivers = 2 + world.below(2) as usize;
    world.log(format!(
        "{drivers} drivers, {} rows, {} sinks, {:?}, faults {}, {} batches kept",
        world.rows,
        world.tables().len(),
        world.naming,
        world.weather,
        world.kept
    ));
    tokio::spawn(Arc::clone(&world.time).look());
    tokio::spawn(Arc::clone(&world).add_rows());
    let lives: Vec<_> = (0..drivers).map(|number| tokio::spawn(driver::lives(Arc::clone(&world), number))).collect();
    for life in lives {
        life.await.unwrap();
        world.audit().await;
    }
    // Sleepers wake and what is late lands, while others go on; then all is quiet.
    world.time.sleep(Duration::from_secs(400)).await;
    world.audit().await;
    driver::end_all(&world);

    let gate = Gate::new("last".to_owned());
    world.calm.store(true, Ordering::Relaxed);
    let clock = DriverClock { time: Arc::clone(&world.time), gate: Arc::clone(&gate), skew_ms: Arc::default() };
    match driver::start(&world, &gate, clock, Trigger::available_now()).await {
        Ok(query) => {
            if let Err(error) = query.await_termination().await {
                world.wrong(format!("the last driver ended with {}", error.report()));
            }
        }
        Err(error) => world.wrong(format!("the last driver did not start: {}", error.report())),
    }
    for (_, table, name) in world.tables() {
        let shown = world.shown(table).await;
        if shown != world.expected(name) {
            world.wrong(format!("\"{name}\" shows {shown:?}"));
        }
    }
}

/// Which seeds to live through: `FROM..TO`, a count, or the default.
fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("TIDEMILL_SEED") {
        let seed = seed.parse().expect("TIDEMILL_SEED is a number");
        return seed..seed + 1;
    }
    let text = std::env::var("TIDEMILL_SEEDS").unwrap_or_else(|_| "100".to_owned());
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().expect("TIDEMILL_SEEDS is a count, or FROM..TO");
    number(from)..number(to)
}

#[test]
fn every_seed_ends_with_each_row_once_and_tells_the_same_story_twice() {
    let seeds = seeds();
    let (next, calls, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !failed.lock().unwrap().is_empty() {
                        return;
                    }
                    if let Err(why) = live_through(seed, &calls) {
                        println!("seed {seed}: {why}");
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    // Each thread took one more than it lived through; after a failure the rest is left out.
    let lived = next.into_inner() - threads as u64 - seeds.start;
    println!("{lived} seeds of {seeds:?}, {} calls of stores", calls.into_inner());
    assert!(failed.is_empty(), "seeds that went wrong: {failed:?}; TIDEMILL_SEED=N tells one's story");
}

fn live_through(seed: u64, calls: &AtomicU64) -> Result<(), String> {
    let (story, wrongs) = std::panic::catch_unwind(|| simulate(seed)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        format!(
            "panicked: {}",
            text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
        )
    })?;
    calls.fetch_add(story.len() as u64, Ordering::Relaxed);
    if std::env::var_os("TIDEMILL_SEED").is_some() {
        println!("{}", story.join("\n"));
    }
    if !wrongs.is_empty() {
        return Err(wrongs.join("; "));
    }
    if seed.is_multiple_of(50) {
        let (again, _) = simulate(seed);
        if let Some(at) = (0..story.len().max(again.len())).find(|at| story.get(*at) != again.get(*at)) {
            return Err(format!("event {at} is {:?}, then {:?}", story.get(at), again.get(at)));
        }
    }
    Ok(())
}
