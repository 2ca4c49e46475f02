//! Damage to a real checkpoint and table, end to end: what is superseded with a warning, and what is refused by name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemill::prelude::*;
use tidemill::{Error, Retention, code};

use crate::support::pipeline::{ended, files, land, parquet_files, rows, session, source, table_numbers};

/// A checkpoint of three batches with its table, in a folder of its own.
struct Story {
    root: tempfile::TempDir,
    source: tidemill::MemorySource,
}

impl Story {
    async fn told() -> Story {
        let story = Story { root: tempfile::tempdir().unwrap(), source: source(0..10) };
        for more in [10..20, 20..30] {
            story.go_on().await.unwrap();
            story.source.add(rows(more));
        }
        story.go_on().await.unwrap();
        story
    }

    async fn go_on(&self) -> Result<(), Error> {
        land(&session(), &self.source, self.root.path()).await
    }

    /// As [`Story::go_on`], and keeps two batches.
    async fn go_on_and_purge(&self) -> Result<(), Error> {
        let session = session();
        let frame = session.stream(self.source.clone()).await?;
        let query = session.query("landing").sink("table", frame, Parquet::table(self.table().to_string_lossy()));
        let query = query.checkpoint(self.root.path().join("checkpoint").to_string_lossy());
        let query = query.retention(Retention { batches_min: 2, age: Duration::ZERO, batches_max: 2 });
        ended(&query.trigger(Trigger::available_now()).start().await?).await
    }

    fn file(&self, log: &str, number: u64) -> PathBuf {
        self.root.path().join("checkpoint").join(log).join(format!("{number:020}"))
    }

    fn table(&self) -> PathBuf {
        self.root.path().join("table")
    }

    /// Takes batch 2 back to where only `offsets/2` was logged: as a crash right after the log.
    fn back_to_logged(&self) {
        std::fs::remove_file(self.file("commits", 2)).unwrap();
        std::fs::remove_file(self.file("acks", 2)).unwrap();
        let of_batch = format!("{:020}.json", 2);
        let own: Vec<PathBuf> =
            files(&self.table()).into_iter().filter(|path| path.to_string_lossy().ends_with(&of_batch)).collect();
        assert_eq!(own.len(), 2, "claim and manifest: {own:?}");
        for file in own {
            std::fs::remove_file(file).unwrap();
        }
        for file in parquet_files(&self.table()) {
            if file.to_string_lossy().contains(&format!("part-{:020}", 2)) {
                std::fs::remove_file(file).unwrap();
            }
        }
        assert_eq!(table_numbers(&self.table()), (0..20).collect::<Vec<_>>());
    }

    async fn is_refused(&self, expected: &[tidemill::Code], file: &Path) {
        let before = files(&self.table());
        self.source.add(rows(30..31));
        let error = self.go_on().await.expect_err("refused");
        assert!(expected.contains(&error.code()), "{error:?}");
        let name = file.file_name().unwrap().to_string_lossy();
        assert!(error.report().contains(&*name), "it names {name}: {}", error.report());
        assert_eq!(error.exit_code(), 65);
        assert_eq!(files(&self.table()), before, "nothing was changed");
    }
}

fn tear(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_newest_plan_is_made_again_with_a_revision() {
    for torn in [b"".as_slice(), b"crc32c=00000000\n", &[0; 400]] {
        let story = Story::told().await;
        story.back_to_logged();
        std::fs::write(story.file("offsets", 2), torn).unwrap();
        story.go_on().await.unwrap();
        assert_eq!(table_numbers(&story.table()), (0..30).collect::<Vec<_>>());
        assert!(story.file("offsets", 2).with_extension("r1").exists());
        assert_eq!(std::fs::read(story.file("offsets", 2)).unwrap(), torn, "nothing is overwritten");
        story.source.add(rows(30..40));
        story.go_on().await.unwrap();
        assert_eq!(table_numbers(&story.table()), (0..40).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_newest_commit_is_made_again_with_a_revision() {
    let story = Story::told().await;
    tear(&story.file("commits", 2));
    story.go_on().await.unwrap();
    assert!(story.file("commits", 2).with_extension("r1").exists());
    story.source.add(rows(30..40));
    story.go_on().await.unwrap();
    assert_eq!(table_numbers(&story.table()), (0..40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_commit_was_torn_is_kept_as_one() {
    let root = tempfile::tempdir().unwrap();
    let commits = root.path().join("checkpoint/commits");
    let source = source(0..1);
    for n in 1..7 {
        let session = session();
        let frame = session.stream(source.clone()).await.unwrap();
        let query = session
            .query("kept")
            .sink("table", frame, Parquet::table(root.path().join("table").to_string_lossy()))
            .checkpoint(root.path().join("checkpoint").to_string_lossy())
            .retention(tidemill::Retention { batches_min: 2, age: std::time::Duration::ZERO, batches_max: 2 })
            .trigger(Trigger::available_now());
        query.start().await.unwrap().await_termination().await.unwrap();
        let mut kept = crate::support::pipeline::files(&commits);
        kept.retain(|path| path.extension().is_none());
        assert!(kept.len() >= n.min(2), "a start needs two whole batches: {kept:?}");
        match n {
            5 => tear(kept.last().unwrap()),
            _ => source.add(rows(n as i64..n as i64 + 1)),
        }
    }
    assert_eq!(table_numbers(&root.path().join("table")), (0..5).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_generation_counts_by_its_name() {
    let story = Story::told().await;
    tear(&story.file("generations", 2));
    story.go_on().await.unwrap();
    assert!(story.file("generations", 3).exists());
}

/// A purge took place, and nobody can say up to where: what lies below the newest unbroken run of entries is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_newest_boundary_counts_by_its_name() {
    for runs in [3, 4, 7] {
        let story = Story { root: tempfile::tempdir().unwrap(), source: source(0..0) };
        let more = async |n: i64| {
            story.source.add(rows(n..n + 1));
            story.go_on_and_purge().await.unwrap();
        };
        for n in 0..runs {
            more(n).await;
        }
        let boundaries = || files(&story.root.path().join("checkpoint/boundary"));
        let before = boundaries();
        let (newest, dead) = (before.last().expect("purges took place"), runs as u64 - 3);
        assert!(!story.file("offsets", dead).exists() && story.file("offsets", dead + 1).exists());
        // A name from below comes back too: what a driver creates that slept.
        std::fs::copy(story.file("offsets", dead + 2), story.file("offsets", dead)).unwrap();
        tear(newest);
        let torn = std::fs::read(newest).unwrap();
        more(runs).await;
        assert_eq!(std::fs::read(newest).unwrap(), torn, "nothing is overwritten");
        assert!(boundaries().len() > before.len(), "the next purge takes the next number: {:?}", boundaries());
        more(runs + 1).await;
        assert_eq!(table_numbers(&story.table()), (0..runs + 2).collect::<Vec<_>>());
        assert!(!story.file("offsets", dead).exists(), "what came back from below is purged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_torn_file_is_refused_by_its_name() {
    for (log, number) in
        [("offsets", 0), ("offsets", 1), ("offsets", 2), ("acks", 0), ("acks", 2), ("commits", 0), ("commits", 1)]
    {
        let story = Story::told().await;
        let file = story.file(log, number);
        tear(&file);
        story.is_refused(&[code::CHECKPOINT_DAMAGED], &file).await;
    }
    let story = Story::told().await;
    let metadata = story.root.path().join("checkpoint/metadata");
    tear(&metadata);
    story.is_refused(&[code::CHECKPOINT_DAMAGED], &metadata).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_acks_are_refused_and_never_run_again() {
    let story = Story::told().await;
    std::fs::remove_file(story.file("commits", 2)).unwrap();
    tear(&story.file("acks", 2));
    let reads = story.source.reads().len();
    story.is_refused(&[code::CHECKPOINT_DAMAGED], &story.file("acks", 2)).await;
    assert_eq!(story.source.reads().len(), reads, "nothing was read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_refused_by_its_name() {
    for (log, number) in [("offsets", 1), ("acks", 1), ("commits", 1), ("offsets", 2), ("acks", 2)] {
        let story = Story::told().await;
        let file = story.file(log, number);
        std::fs::remove_file(&file).unwrap();
        story.is_refused(&[code::CHECKPOINT_HOLE], &file).await;
    }
    let story = Story::told().await;
    let metadata = story.root.path().join("checkpoint/metadata");
    std::fs::remove_file(&metadata).unwrap();
    story.is_refused(&[code::CHECKPOINT_HOLE], &metadata).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_newest_commit_is_made_again_and_no_row_twice() {
    let story = Story::told().await;
    std::fs::remove_file(story.file("commits", 2)).unwrap();
    story.source.add(rows(30..40));
    story.go_on().await.unwrap();
    assert_eq!(table_numbers(&story.table()), (0..40).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_digit_of_the_query_id_is_damage() {
    let story = Story::told().await;
    let metadata = story.root.path().join("checkpoint/metadata");
    let mut bytes = std::fs::read(&metadata).unwrap();
    let at = bytes.windows(8).position(|window| window == b"query_id").unwrap() + 12;
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    std::fs::write(&metadata, bytes).unwrap();
    story.is_refused(&[code::CHECKPOINT_DAMAGED], &metadata).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_of_a_later_version_is_refused_and_not_taken_for_damage() {
    let story = Story::told().await;
    let file = story.file("offsets", 2);
    let text = std::fs::read_to_string(&file).unwrap();
    let body: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    let mut later = body.clone();
    later["format"] = 2.into();
    std::fs::write(&file, tidemill::store::seal(&later)).unwrap();
    story.is_refused(&[code::CHECKPOINT_VERSION], &file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_or_restored_table_is_refused_as_behind() {
    let story = Story::told().await;
    std::fs::remove_dir_all(story.table()).unwrap();
    story.source.add(rows(30..31));
    let error = story.go_on().await.expect_err("refused");
    assert_eq!((error.code(), error.exit_code()), (code::SINK_BEHIND, 65), "{error:?}");
    let table = story.table();
    assert!(error.report().contains(&*table.to_string_lossy()), "it names the table: {}", error.report());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_older_than_its_table_is_refused_as_behind_the_table() {
    let story = Story::told().await;
    for log in ["offsets", "acks", "commits"] {
        std::fs::remove_file(story.file(log, 2)).unwrap();
    }
    let error = story.go_on().await.expect_err("refused");
    assert_eq!((error.code(), error.exit_code()), (code::SINK_AHEAD, 65), "{error:?}");
    let table = story.table();
    assert!(error.report().contains(&*table.to_string_lossy()), "it names the table: {}", error.report());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_staged_file_that_somebody_removed_is_refused_and_never_made_again() {
    let story = Story::told().await;
    // Batch 2 is acknowledged and not published: its file is in neither place.
    std::fs::remove_file(story.file("commits", 2)).unwrap();
    for file in files(&story.table()) {
        let text = file.to_string_lossy().into_owned();
        if text.contains(&format!("part-{:020}", 2))
            || text.contains("manifest") && text.contains(&format!("{:020}", 2))
        {
            std::fs::remove_file(file).unwrap();
        }
    }
    let error = story.go_on().await.expect_err("refused");
    assert_eq!((error.code(), error.exit_code()), (code::STAGE_LOST, 65), "{error:?}");
    assert_eq!(table_numbers(&story.table()), (0..20).collect::<Vec<_>>());
}
