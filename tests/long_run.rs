//! Many batches in one run: memory and the checkpoint's files stay where they were.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::Landing;
use crate::support::pipeline::files;
use crate::support::{loader, table};

/// Rows a batch.
const ROWS: u64 = 5;
/// Batches that are kept.
const KEPT: usize = 20;

/// `TIDEMILL_BATCHES` makes it longer than 600 batches.
#[test]
fn memory_and_files_stay_bounded() {
    let batches: u64 = std::env::var("TIDEMILL_BATCHES").map_or(600, |text| text.parse().expect("a number"));
    let broker = Broker::shared();
    let topic = unique_topic("long");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..batches * ROWS);
    let root = tempfile::tempdir().unwrap();
    let flags = ["--max-offsets", &ROWS.to_string(), "--keep-batches", &KEPT.to_string()];
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &flags);
    let mut child = landing.start("available-now", &[]);
    let since = Instant::now();
    // (newest batch, resident KiB, files of the checkpoint), a third of the way and at the end.
    let mut seen: Vec<(u64, u64, usize)> = Vec::new();
    while child.is_running() {
        if let (Some(newest), Some(kib)) = (landing.newest("commits"), resident_kib(child.id())) {
            seen.push((newest, kib, files(Path::new(&landing.checkpoint())).len()));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(since.elapsed() < Duration::from_secs(60 + batches / 5), "too slow: {:?}", seen.last());
    }
    let ended = child.wait(Duration::from_secs(10));
    assert!(ended.status.success(), "{}", ended.stderr);
    let early = seen.iter().find(|(newest, ..)| *newest > batches / 3).expect("it was watched");
    let late = seen.last().expect("it was watched");
    println!("{batches} batches in {:?}; early {early:?}, late {late:?}", since.elapsed());
    assert!(late.0 > batches * 9 / 10, "it was watched to its end: {late:?}");
    assert!(late.1 < early.1 + 16 * 1024, "resident memory grows: {early:?}, {late:?}");
    let most = seen.iter().map(|(.., files)| *files).max().unwrap();
    // Three files a batch, where a purge may lag behind by a few; 102 boundaries, and one file a hundred of them.
    assert!(most < 3 * (KEPT + 40) + 40 + 102 + batches as usize / 100, "{most} files");
    assert_eq!(table::offsets(landing.table()).len() as u64, batches * ROWS);
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
