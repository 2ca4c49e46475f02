//! The pipeline dies by SIGKILL, at every point and at any moment, while a loader writes. What counts is the multiset of
//! `(partition, offset)` that an independent reader finds in the end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_core::Rng;
use tidemill_core::crash::POINTS;
use tidemill_core::rng::SeededRng;

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::Landing;
use crate::support::hdfs::Hdfs;
use crate::support::pipeline::files;
use crate::support::place::Place;
use crate::support::s3::S3;
use crate::support::{loader, table};

const PARTITIONS: i32 = 4;

/// How long a child may take to come to a point.
const BOUND: Duration = Duration::from_secs(60);

/// How long a kill waits for a batch to be in the middle.
const AIM: Duration = Duration::from_millis(300);

struct Story {
    place: Place,
    two_sinks: bool,
    rows: u64,
    random_kills: u32,
    seed: u64,
}

/// Sets its flag when a test fails around it: who waits for kills that do not come is to end.
struct OnPanic<'a>(&'a AtomicBool);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Each point once and 20 random kills over 100,000 rows; `TIDEMILL_KILLS` and `TIDEMILL_KILL_ROWS` make it a longer one.
#[test]
fn each_offset_lands_once_whenever_the_pipeline_is_killed() {
    let seed = setting("TIDEMILL_SEED", u64::from(std::process::id()));
    println!("seed {seed}: set TIDEMILL_SEED to it for the same moments");
    let story = Story {
        place: Place::local(),
        two_sinks: false,
        rows: setting("TIDEMILL_KILL_ROWS", 100_000),
        random_kills: setting("TIDEMILL_KILLS", 20) as u32,
        seed,
    };
    story.tell();
}

/// Whether this is a longer run than the suite's.
fn is_long() -> bool {
    std::env::var_os("TIDEMILL_KILLS").is_some()
}

/// Two sinks; in a longer run one, too.
fn sinks() -> &'static [bool] {
    if is_long() { &[false, true] } else { &[true] }
}

/// Where drivers are put to sleep.
const NAPS: &[&str] = &["log", "write", "acks", "mid-publish", "publish", "manifest", "commit"];

/// Those of a store elsewhere.
fn naps() -> &'static [&'static str] {
    if is_long() { NAPS } else { &["write", "mid-publish", "commit"] }
}

/// A short story of the same kind elsewhere.
fn short(place: Place, two_sinks: bool) {
    let seed = setting("TIDEMILL_SEED", u64::from(std::process::id()));
    println!("seed {seed}: set TIDEMILL_SEED to it for the same moments");
    let kills = setting("TIDEMILL_KILLS", 20) / 10;
    let rows = setting("TIDEMILL_KILL_ROWS", 100_000) / 5;
    Story { place, two_sinks, rows, random_kills: kills as u32, seed }.tell();
}

#[test]
fn each_offset_lands_once_in_both_sinks_whenever_the_pipeline_is_killed() {
    short(Place::local(), true);
}

#[test]
fn each_offset_lands_once_on_s3_whenever_the_pipeline_is_killed() {
    let s3 = S3::start();
    for two_sinks in sinks() {
        short(Place::s3(&s3), *two_sinks);
    }
}

#[test]
fn each_offset_lands_once_on_hdfs_whenever_the_pipeline_is_killed() {
    let hdfs = Hdfs::shared();
    for two_sinks in sinks() {
        short(Place::hdfs(&hdfs), *two_sinks);
    }
}

impl Story {
    fn tell(&self) {
        let broker = Broker::shared();
        let topic = unique_topic("killed");
        broker.create_topic(&topic, PARTITIONS, &[]);
        let limit = (self.rows / 100).to_string();
        let mut landing =
            Landing::at(broker.bootstrap(), &topic, &self.place, &["--max-offsets", &limit, "--keep-batches", "5"]);
        if self.two_sinks {
            landing.flags.extend(["--copy".to_owned(), self.place.at("copy")]);
        }
        let (kills, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| self.load(broker.bootstrap(), &topic, &kills, &failed));
            let _end_the_loader = OnPanic(&failed);
            self.kill_at_every_point(&landing, &kills);
            self.kill_at_random_moments(&landing, &kills);
        });
        landing.finish();
        self.check(broker.bootstrap(), &topic);
    }

    /// Writes all the rows in small portions, a share for every kill, so that each child finds something to do.
    fn load(&self, brokers: &str, topic: &str, kills: &AtomicU64, failed: &AtomicBool) {
        let loader = loader::Loader::new(brokers);
        let all = POINTS.len() as u64 + u64::from(self.random_kills);
        let (mut next, portion) = (0, (self.rows / 400).max(1));
        while next < self.rows && !failed.load(Ordering::SeqCst) {
            let share = self.rows / 10 + self.rows * 9 / 10 * (kills.load(Ordering::SeqCst) + 1) / all;
            let end = (next + portion).min(share).min(self.rows);
            if next < end {
                loader.load(topic, PARTITIONS, next..end);
                next = end;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill_at_every_point(&self, landing: &Landing, kills: &AtomicU64) {
        for point in POINTS {
            let ended = landing.start("default", &[("TIDEMILL_CRASH_AT", point)]).wait(BOUND);
            let reached = ended.stderr.contains(&format!("crash point {point}:"));
            assert!(reached && ended.status.code().is_none(), "{point} was not reached:\n{}", ended.stderr);
            kills.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn kill_at_random_moments(&self, landing: &Landing, kills: &AtomicU64) {
        let rng = SeededRng::new(self.seed);
        let mut in_the_middle = 0;
        for round in 0..self.random_kills {
            let before = landing.newest("commits");
            let mut child = landing.start("default", &[]);
            // Past the start, so that batches are under way; then any moment.
            child.wait_for("batch ", BOUND);
            std::thread::sleep(Duration::from_micros(rng.next_u64() % 150_000));
            // Most moments between two batches are alike: three of four kills are aimed between log and commit.
            let aim = Instant::now();
            while round % 4 != 0 && !landing.is_in_the_middle() && aim.elapsed() < AIM {
                std::thread::sleep(Duration::from_micros(300));
            }
            let ended = child.kill();
            assert!(ended.status.code().is_none(), "it ended by itself:\n{}", ended.stderr);
            in_the_middle += u32::from(landing.is_in_the_middle());
            assert!(landing.newest("commits") >= before);
            kills.fetch_add(1, Ordering::SeqCst);
        }
        println!("{in_the_middle} of {} random kills fell between log and commit", self.random_kills);
        let aimed_well = self.random_kills < 20 || in_the_middle * 2 >= self.random_kills;
        assert!(aimed_well, "only {in_the_middle} of {} kills fell between log and commit", self.random_kills);
    }

    fn check(&self, brokers: &str, topic: &str) {
        let ends = loader::watermarks(brokers, topic);
        let mut expected: Vec<(i32, i64)> = ends
            .iter()
            .flat_map(|(partition, low, high)| (*low..*high).map(move |offset| (*partition, offset)))
            .collect();
        expected.sort_unstable();
        assert_eq!(expected.len() as u64, self.rows, "the loader wrote all of its rows");
        for table in ["table", "copy"].into_iter().take(1 + usize::from(self.two_sinks)) {
            let copy = self.place.copy_of(table);
            let files = &copy.folder;
            for (reader, found) in [("duckdb", table::offsets(files)), ("pyarrow", table::offsets_by_pyarrow(files))] {
                assert_eq!(found.len(), expected.len(), "{table}, {reader}: lost or doubled rows");
                assert!(found == expected, "{table}, {reader}: other offsets");
            }
        }
        let kills = POINTS.len() as u32 + self.random_kills;
        println!("chaos: {kills} kills {} rows", expected.len() * (1 + usize::from(self.two_sinks)));
    }
}

/// A driver sleeps between staging and acks while another takes over; it wakes, and ends with 75.
#[test]
fn a_driver_that_slept_between_staging_and_acks_ends_with_75_and_rows_land_once() {
    sleeps_and_wakes(Place::local, NAPS);
}

#[test]
fn a_driver_that_slept_ends_with_75_and_rows_land_once_on_s3() {
    let s3 = S3::start();
    sleeps_and_wakes(|| Place::s3(&s3), naps());
}

#[test]
fn a_driver_that_slept_ends_with_75_and_rows_land_once_on_hdfs() {
    let hdfs = Hdfs::shared();
    sleeps_and_wakes(|| Place::hdfs(&hdfs), naps());
}

/// At each point a driver is put to sleep, in a place of its own; another takes over and finishes; the first wakes.
fn sleeps_and_wakes(place: impl Fn() -> Place, points: &[&str]) {
    let broker = Broker::shared();
    let topic = unique_topic("zombie");
    broker.create_topic(&topic, PARTITIONS, &[]);
    let rows = 20_000;
    loader::load(broker.bootstrap(), &topic, PARTITIONS, 0..rows);
    for point in points {
        let place = place();
        let landing = Landing::at(broker.bootstrap(), &topic, &place, &["--max-offsets", "5000"]);
        let mut older = landing.start("default", &[("TIDEMILL_STOP_AT", &format!("{point}:1"))]);
        older.wait_for(&format!("stop point {point}:1 reached"), BOUND);
        landing.finish();
        older.signal("CONT");
        let woken = Instant::now();
        let ended = older.wait(Duration::from_secs(10));
        assert_eq!(ended.status.code(), Some(75), "{point}: {}", ended.stderr);
        assert!(ended.stderr.contains("TM0110") && ended.stderr.contains("run "), "{point}: {}", ended.stderr);
        assert!(woken.elapsed() < Duration::from_secs(10), "{point}");
        let found = table::offsets(&place.copy_of("table").folder);
        assert_eq!(found.len() as u64, rows, "{point}");
        let mut once = found.clone();
        once.dedup();
        assert_eq!(once, found, "{point}: doubled");
    }
    println!("chaos: {} zombies {} rows", points.len(), points.len() as u64 * rows);
}

/// Rows of a topic with one partition, landed in batches of 10 by a child that dies in the middle of publishing the last.
fn half_published(name: &str) -> (Place, Landing) {
    let broker = Broker::shared();
    let topic = unique_topic(name);
    broker.create_topic(&topic, 1, &[]);
    let place = Place::local();
    let landing = Landing::at(broker.bootstrap(), &topic, &place, &["--max-offsets", "10"]);
    loader::load(broker.bootstrap(), &topic, 1, 0..10);
    landing.finish();
    copy_folder(Path::new(&landing.checkpoint()), Path::new(&place.at("backup")));
    loader::load(broker.bootstrap(), &topic, 1, 10..20);
    let ended = landing.start("available-now", &[("TIDEMILL_CRASH_AT", "mid-publish:1")]).wait(BOUND);
    assert!(ended.stderr.contains("crash point mid-publish:1"), "{}", ended.stderr);
    assert_eq!(table::offsets(landing.table()).len(), 20, "the batch is visible, and has no manifest");
    (place, landing)
}

fn copy_folder(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(file, target).unwrap();
    }
}

#[test]
fn a_checkpoint_from_before_a_half_published_batch_is_refused_before_it_shows_a_row() {
    let (place, landing) = half_published("restored");
    std::fs::remove_dir_all(landing.checkpoint()).unwrap();
    copy_folder(Path::new(&place.at("backup")), Path::new(&landing.checkpoint()));
    let ended = landing.start("available-now", &[]).wait(BOUND);
    assert!(ended.status.code() == Some(65) && ended.stderr.contains("TM0304"), "{}", ended.stderr);
    assert_eq!(table::offsets(landing.table()).len(), 20);
}

#[test]
fn acks_that_somebody_deleted_in_the_middle_of_publishing_are_not_made_again() {
    let (_place, landing) = half_published("deleted");
    std::fs::remove_file(format!("{}/acks/{:020}", landing.checkpoint(), 1)).unwrap();
    let ended = landing.start("available-now", &[]).wait(BOUND);
    assert!(ended.status.code() == Some(65) && ended.stderr.contains("TM0304"), "{}", ended.stderr);
    assert_eq!(table::offsets(landing.table()).len(), 20);
}

#[test]
fn warnings_are_told_on_stderr() {
    let (place, mut landing) = half_published("warned");
    landing.finish();
    let commit = format!("{}/commits/{:020}", landing.checkpoint(), 1);
    std::fs::OpenOptions::new().write(true).open(&commit).unwrap().set_len(50).unwrap();
    let told = landing.finish().stderr;
    assert!(told.contains("warning: ") && told.contains(&format!("{:020} is torn", 1)), "{told}");
    // Another checkpoint on the same table.
    landing.flags.extend(["--copy".to_owned(), landing.table()]);
    landing.root = place.at("other");
    let told = landing.finish().stderr;
    assert!(told.contains("holds rows of 1 other query"), "{told}");
    // Both of one query on one table.
    landing.root = place.at("doubled");
    *landing.flags.last_mut().unwrap() = landing.table();
    let told = landing.finish().stderr;
    assert!(told.contains(&format!("sinks \"copy\" and \"table\" both write to {}", landing.table())), "{told}");
}
