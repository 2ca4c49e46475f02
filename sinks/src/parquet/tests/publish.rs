//! Publishing, schedule by schedule. The promises that all sinks share are run in the parent.

use std::sync::{Mutex, mpsc};

use serde_json::json;
use tidemill_core::store::faulty::{Fault, Op, OpKind};
use tidemill_core::testing::sink_promises::{SinkHarness, Story, visible_ids};
use tidemill_core::{BatchId, ErrorKind, Sink, code};

use super::super::Compression;
use super::Table;

#[tokio::test]
async fn nothing_ends_in_parquet_before_it_is_published() {
    let (table, story) = (Table::with(|table| table.compression(Compression::None)), Story::new());
    let sink = table.open();
    let mut writer = sink.writer(story.task(0, "a", 0)).await.unwrap();
    // Enough that parts of the file leave for the disk.
    for start in 0..14 {
        writer.write(story.rows(start * 100_000..(start + 1) * 100_000)).await.unwrap();
        assert_eq!(table.parquet_files(), [] as [&str; 0]);
    }
    assert!(!table.files().is_empty(), "the file is on its way, under a hidden name");
    let ack = writer.finish().await.unwrap();
    assert_eq!((ack.rows, ack.files), (1_400_000, 1));
    assert_eq!(table.parquet_files(), [] as [&str; 0]);
    let staged: Vec<_> = table.files();
    assert!(staged.iter().all(|file| file.extension().is_some_and(|end| end == "staged")), "{staged:?}");

    sink.publish(&story.acked(0, "a", vec![ack])).await.unwrap();
    let names = table.parquet_files();
    assert_eq!(names, ["part-00000000000000000000-00000-00000-a-hot.parquet"]);
    let rows: usize = table.read(&names[0]).iter().map(|rows| rows.num_rows()).sum();
    assert_eq!(rows, 1_400_000);
}

#[tokio::test]
async fn manifest_says_what_the_batch_is() {
    let (table, story) = (Table::new(), Story::new());
    let sink = table.open();
    let acked = story.land(&sink, 3, "a", 0..10).await;
    let manifest = sink.manifest(&story.key, BatchId(3)).await.unwrap().expect("published");
    assert_eq!((manifest.batch_id, &manifest.attempt), (BatchId(3), &acked.attempt));
    assert_eq!((&manifest.acks_nonce, &manifest.offsets_nonce), (&acked.acks_nonce, &acked.offsets_nonce));
    assert_eq!((&manifest.query_id, &manifest.sink), (&story.key.query_id, &story.key.sink));
    assert_eq!((manifest.rows, &manifest.ranges), (10, &json!({"rate-0": [0, 10]})));
    assert_eq!(manifest.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), table.parquet_files());
    for file in &manifest.files {
        assert_eq!(file.bytes, table.root().join(&file.path).metadata().unwrap().len());
        assert_eq!(file.rows, 5);
    }
    assert_eq!(sink.manifest(&story.key, BatchId(4)).await.unwrap(), None);
}

#[tokio::test]
async fn every_name_is_given_before_a_stage_goes_and_the_manifest_is_last() {
    let (table, story) = (Table::new(), Story::new());
    let acked = story.staged(&table.open(), 0, "a", 0..10).await;
    let (sink, store) = table.scripted(|_| Fault::None);
    sink.publish(&acked).await.unwrap();
    let log = store.log();
    let at = |kind: OpKind| log.iter().filter(move |op| op.kind == kind).map(|op| op.number);
    assert_eq!(at(OpKind::Copy).count(), 2);
    assert_eq!(at(OpKind::Delete).count(), 2);
    assert!(at(OpKind::Copy).max() < at(OpKind::Delete).min(), "{log:?}");
    // The first thing written is the claim, the last the manifest.
    assert!(at(OpKind::Put).min() < at(OpKind::Copy).min(), "{log:?}");
    assert!(at(OpKind::Delete).max() < at(OpKind::Put).max(), "{log:?}");
    assert_eq!(at(OpKind::Put).count(), 2);
    assert_eq!(at(OpKind::List).count(), 0, "no list on the way of a batch");
    assert!(log[0].path.as_ref().ends_with("manifest/00000000000000000000.json"), "the manifest is looked at first");
}

#[tokio::test]
async fn file_that_another_driver_named_is_made_durable() {
    let (table, story) = (Table::new(), Story::new());
    let acked = story.staged(&table.open(), 0, "a", 0..10).await;
    // The other dies when both files have their names and no stage is left.
    let manifest = |op: &Op| op.kind == OpKind::Put && op.path.as_ref().contains("/manifest/");
    let (dying, _) = table.scripted_to_die(move |op| if manifest(op) { Fault::DiesBefore } else { Fault::None });
    dying.publish(&acked).await.expect_err("dead");
    let (sink, store) = table.scripted(|_| Fault::None);
    sink.publish(&acked).await.unwrap();
    let mut durable: Vec<String> =
        (store.log().iter()).filter(|op| op.kind == OpKind::MakeDurable).map(|op| op.path.to_string()).collect();
    durable.retain(|path| path.ends_with(".parquet"));
    durable.sort();
    assert_eq!(durable, table.parquet_files());
}

#[tokio::test]
async fn manifest_that_another_driver_wrote_is_made_durable() {
    let (table, story) = (Table::new(), Story::new());
    let acked = story.land(&table.open(), 0, "a", 0..10).await;
    let (sink, store) = table.scripted(|_| Fault::None);
    sink.publish(&acked).await.unwrap();
    assert!(store.log().iter().any(|op| op.kind == OpKind::MakeDurable && op.path.as_ref().ends_with(".json")));
}

#[tokio::test]
async fn name_that_could_not_be_synced_ends_the_publication() {
    let (table, story) = (Table::new(), Story::new());
    let acked = story.staged(&table.open(), 0, "a", 0..10).await;
    let (sink, _) = table.scripted(|op| if op.kind == OpKind::Copy { Fault::NotDurable } else { Fault::None });
    let error = sink.publish(&acked).await.expect_err("not durable");
    assert_eq!(error.code(), code::NOT_DURABLE, "{error}");
    assert_eq!(table.staged().await, 2, "the stages are still there");
}

/// What somebody does while the sleeper sleeps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Published,
    PublishedAndCompacted,
    NamedOnly,
}

/// A publisher sleeps before each of its operations in turn; another driver acts meanwhile; the sleeper wakes.
async fn sleeper_wakes(meanwhile: Meanwhile) {
    for at in 0.. {
        let (table, story) = (Table::new(), Story::new());
        let acked = story.staged(&table.open(), 0, "a", 0..10).await;
        let (asleep, is_asleep) = mpsc::channel::<()>();
        let (wake, woken) = mpsc::channel::<()>();
        let (asleep, woken) = (Mutex::new(asleep), Mutex::new(woken));
        let (sleeper, _) = table.scripted(move |op| {
            if op.number == at {
                let _ = asleep.lock().unwrap().send(());
                let _ = woken.lock().unwrap().recv();
            }
            Fault::None
        });
        let batch = acked.clone();
        let sleeping = tokio::spawn(async move { sleeper.publish(&batch).await });
        let reached = tokio::task::spawn_blocking(move || is_asleep.recv().is_ok()).await.unwrap();
        if !reached {
            sleeping.await.unwrap().unwrap();
            assert!(at > 5, "publishing has more operations");
            return;
        }
        let when = format!("{meanwhile:?}, asleep before operation {at}");
        match meanwhile {
            Meanwhile::NamedOnly => {
                let (dying, _) =
                    table.scripted_to_die(|op| if op.kind == OpKind::Delete { Fault::DiesBefore } else { Fault::None });
                let _ = dying.publish(&acked).await;
            }
            _ => {
                table.open().publish(&acked).await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
            }
        }
        if meanwhile == Meanwhile::PublishedAndCompacted {
            for name in table.parquet_files() {
                std::fs::remove_file(table.root().join(name)).unwrap();
            }
        }
        wake.send(()).unwrap();
        let answer = sleeping.await.unwrap();
        if let Err(error) = &answer {
            assert_eq!(error.kind(), ErrorKind::Retry, "{when}: {error:?}");
        }
        table.open().publish(&acked).await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
        let expected: Vec<i64> = if meanwhile == Meanwhile::PublishedAndCompacted { vec![] } else { (0..10).collect() };
        assert_eq!(visible_ids(&table).await, expected, "{when}");
        assert_eq!(table.staged().await, 0, "{when}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sleeper_that_wakes_after_publication_shows_no_row_twice() {
    sleeper_wakes(Meanwhile::Published).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sleeper_that_wakes_after_compaction_brings_nothing_back() {
    sleeper_wakes(Meanwhile::PublishedAndCompacted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sleeper_that_wakes_after_another_died_half_way_finishes() {
    sleeper_wakes(Meanwhile::NamedOnly).await;
}

/// Two faults in one publication, then a third driver that meets none.
#[tokio::test]
async fn publish_survives_any_two_faults() {
    for at in 0..14 {
        for second in at + 1..18 {
            let (table, story) = (Table::new(), Story::new());
            let acked = story.staged(&table.open(), 0, "a", 0..10).await;
            let script = move |op: &Op| match op.number {
                n if n == at => Fault::AppliedThenFails,
                n if n == second => Fault::DiesAfter,
                _ => Fault::None,
            };
            let (sink, _) = table.scripted_to_die(script);
            if sink.publish(&acked).await.is_err() {
                let _ = sink.publish(&acked).await;
            }
            table.open().publish(&acked).await.unwrap_or_else(|error| panic!("{at} and {second}: {error:?}"));
            assert_eq!(visible_ids(&table).await, (0..10).collect::<Vec<_>>(), "{at} and {second}");
            assert_eq!(table.staged().await, 0, "{at} and {second}");
        }
    }
}

#[tokio::test]
async fn changed_files_are_refused_and_nothing_is_recorded() {
    for name in ["staged", "parquet"] {
        let (table, story) = (Table::new(), Story::new());
        let sink = table.open();
        let acked = story.staged(&sink, 0, "a", 0..10).await;
        if name == "parquet" {
            // Both names are there; one shows other bytes than were written.
            let (dying, _) =
                table.scripted_to_die(|op| if op.kind == OpKind::Delete { Fault::DiesBefore } else { Fault::None });
            dying.publish(&acked).await.expect_err("dead");
        }
        let file = table.files().into_iter().find(|file| file.extension().is_some_and(|end| end == name)).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        let error = sink.publish(&acked).await.expect_err("refused");
        assert_eq!(error.code(), code::STAGE_LOST, "{error}");
        assert!(error.to_string().contains(".parquet"), "names the file: {error}");
        assert_eq!(sink.last_published(&story.key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn damaged_manifest_is_refused_naming_the_file() {
    let (table, story) = (Table::new(), Story::new());
    let sink = table.open();
    let acked = story.land(&sink, 0, "a", 0..10).await;
    let file = table.own_folder(&story.key, "manifest").join("00000000000000000000.json");
    let whole = std::fs::read(&file).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&file, &whole[..length]).unwrap();
        for error in [
            sink.publish(&acked).await.expect_err("refused"),
            sink.last_published(&story.key).await.expect_err("refused"),
        ] {
            assert_eq!(error.code(), code::CHECKPOINT_DAMAGED, "length {length}: {error}");
            assert!(error.to_string().contains("00000000000000000000.json"), "{error}");
        }
    }
    std::fs::write(&file, &whole).unwrap();
    sink.publish(&acked).await.unwrap();
}

#[tokio::test]
async fn manifest_of_another_query_is_refused() {
    let (table, story, other) = (Table::new(), Story::new(), Story::of("other"));
    let sink = table.open();
    story.land(&sink, 0, "a", 0..10).await;
    let acked = other.land(&sink, 0, "a", 10..20).await;
    let name = "00000000000000000000.json";
    std::fs::copy(
        table.own_folder(&story.key, "manifest").join(name),
        table.own_folder(&other.key, "manifest").join(name),
    )
    .unwrap();
    assert_eq!(sink.publish(&acked).await.expect_err("refused").code(), code::SINK_FOREIGN);
    assert_eq!(sink.last_published(&other.key).await.expect_err("refused").code(), code::SINK_FOREIGN);
}

#[tokio::test]
async fn discarding_leaves_no_folder_and_no_file_of_dead_processes() {
    let (table, story) = (Table::new(), Story::new());
    let sink = table.open();
    story.staged(&sink, 0, "loser", 0..10).await;
    let acked = story.land(&sink, 0, "winner", 0..10).await;
    story.staged(&sink, 1, "next", 10..20).await;
    let staging = table.own_folder(&story.key, "staging");
    std::fs::write(staging.join("00000000000000000000/loser/.x.parquet.staged.1-2.tmp"), "torn").unwrap();
    sink.discard(&story.key, BatchId(0), &acked.attempt).await.unwrap();
    assert!(!staging.join("00000000000000000000").exists());
    assert!(staging.join("00000000000000000001/next").exists());
    assert_eq!(visible_ids(&table).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn sweeping_leaves_no_folder_of_batches_that_are_finished() {
    let (table, story) = (Table::new(), Story::new());
    let sink = table.open();
    story.land(&sink, 0, "a", 0..10).await;
    story.staged(&sink, 0, "slept", 0..10).await;
    story.staged(&sink, 1, "next", 10..20).await;
    let staging = table.own_folder(&story.key, "staging");
    std::fs::write(staging.join("00000000000000000000/slept/.x.parquet.staged.1-2.tmp"), "torn").unwrap();
    sink.sweep(&story.key, BatchId(0)).await.unwrap();
    assert!(!staging.join("00000000000000000000").exists());
    assert!(staging.join("00000000000000000001/next").exists());
}

#[tokio::test]
async fn store_that_is_down_is_an_error_that_may_pass() {
    let (table, story) = (Table::new(), Story::new());
    let acked = story.staged(&table.open(), 0, "a", 0..10).await;
    let (sink, _) = table.scripted(|_| Fault::Fails);
    for error in
        [sink.publish(&acked).await.expect_err("down"), sink.last_published(&story.key).await.expect_err("down")]
    {
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
}

#[tokio::test]
async fn attempt_of_another_checkpoint_is_refused_before_it_shows_a_row() {
    for (mine, theirs) in [(0..10, 0..10), (0..10, 0..0), (0..0, 0..10)] {
        let (table, story) = (Table::new(), Story::new());
        let sink = table.open();
        let acked = story.staged(&sink, 0, "a", mine.clone()).await;
        let other = story.staged(&sink, 0, "b", theirs).await;
        assert_ne!(acked.acks_nonce, other.acks_nonce);
        let manifest = |op: &Op| op.kind == OpKind::Put && op.path.as_ref().contains("/manifest/");
        let (dying, _) = table.scripted_to_die(move |op| if manifest(op) { Fault::DiesBefore } else { Fault::None });
        dying.publish(&acked).await.expect_err("dead");
        assert_eq!(sink.publish(&other).await.expect_err("foreign").code(), code::SINK_FOREIGN);
        assert_eq!(visible_ids(&table).await, mine.clone().collect::<Vec<_>>());
        sink.publish(&acked).await.unwrap();
        // Its claim is swept: the manifest says what it said.
        sink.sweep(&story.key, BatchId(0)).await.unwrap();
        assert_eq!(sink.publish(&other).await.expect_err("foreign").code(), code::SINK_FOREIGN);
        assert_eq!(visible_ids(&table).await, mine.collect::<Vec<_>>());
    }
}
