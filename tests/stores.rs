//! Checkpoints and tables on S3 and HDFS: the stores keep the protocol's promises, and their faults lose nothing.

use std::time::Duration;

use object_store::ObjectStoreExt;
use serde_json::json;
use tidemill::prelude::*;
use tidemill::store::{Created, Path, create};
use tidemill::{MemorySource, code};
use tidemill_core::clock::SystemClock;

use crate::support::hdfs::Hdfs;
use crate::support::pipeline::{ended, rows, schema, source, table_numbers};
use crate::support::place::Place;
use crate::support::s3::S3;

/// A session that reaches a place.
fn session(place: &Place) -> Session {
    let mut builder = Session::builder().retry_start(Duration::from_secs(60)).retry_running(Duration::from_secs(60));
    for (name, value) in &place.env {
        builder = builder.store_option(name, value);
    }
    builder.build().unwrap()
}

/// Starts landing a memory source in a place.
async fn start(place: &Place, source: &MemorySource, trigger: Trigger) -> tidemill::Result<StreamingQuery> {
    let session = session(place);
    let frame = session.stream(source.clone()).await?;
    let query = session.query("stores").sink("table", frame, Parquet::table(place.at("table")));
    query.checkpoint(place.at("checkpoint")).trigger(trigger).start().await
}

/// Lands all that is there now.
async fn land(place: &Place, source: &MemorySource) -> tidemill::Result<()> {
    start(place, source, Trigger::available_now()).await?.await_termination().await
}

/// Every number that a reader of the table finds, sorted, doubles kept.
async fn shown(place: &Place) -> Vec<i64> {
    tokio::task::block_in_place(|| table_numbers(&place.copy_of("table").folder))
}

async fn store_promises(place: &Place) {
    let session = session(place);
    let examined = session.examine(place.at("examined")).await.unwrap();
    println!("{}", examined.lines.join("\n"));
    let location = place.open("promises");
    let (one, two) = (Path::from("a/one"), Path::from("a/b/two"));
    let clock = SystemClock::default();
    let patience = Duration::from_secs(10);
    for (body, outcome) in [("1", Created::Written), ("1", Created::Written), ("2", Created::Lost("1".into()))] {
        assert_eq!(create(&location, &clock, &one, body.into(), patience).await.unwrap(), outcome);
    }
    location.store.give_name(&one, &two).await.unwrap();
    assert_eq!(location.read(&two).await.unwrap().as_deref(), Some(&b"1"[..]));
    let large = vec![7; 20 << 20];
    location.store.put(&one, large.clone().into()).await.unwrap();
    assert!(location.read(&one).await.unwrap().as_deref() == Some(&large[..]));
    let mut upload = tidemill::store::Upload::start(&location, &Path::from("a/parts"));
    for part in large.chunks(8 << 20) {
        upload.write(part.to_vec().into()).await.unwrap();
    }
    assert_eq!(location.read(&Path::from("a/parts")).await.unwrap(), None, "invisible until it is whole");
    upload.finish().await.unwrap();
    assert!(location.read(&Path::from("a/parts")).await.unwrap().as_deref() == Some(&large[..]));
    let mut names = location.paths(&Path::from("a")).await.unwrap();
    names.sort();
    assert_eq!(names, [two.clone(), one.clone(), Path::from("a/parts")]);
    assert_eq!(location.folders(&Path::from("a")).await.unwrap(), [Path::from("a/b")]);
    create::delete(&location, &one).await.unwrap();
    create::delete(&location, &one).await.unwrap();
    location.remove_folder(&Path::from("a")).await.unwrap();
    assert_eq!(location.paths(&Path::default()).await.unwrap(), []);
    assert_eq!(location.paths(&Path::from("nothing")).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_keeps_the_promises_of_a_store() {
    let s3 = S3::start();
    store_promises(&Place::s3(&s3)).await;
    emptied_files_are_damage(&Place::s3(&s3)).await;
    // A console leaves objects of the folders' own names: they are no files of the checkpoint.
    let place = Place::s3(&s3);
    for folder in ["checkpoint", "checkpoint/offsets", "checkpoint/commits", "checkpoint/generations", "table"] {
        s3.mark_folder(&place.at(folder));
    }
    land(&place, &source(0..10)).await.unwrap();
    assert_eq!(shown(&place).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_keeps_the_promises_of_a_store() {
    let place = Place::hdfs(&Hdfs::shared());
    store_promises(&place).await;
    let emptied = Place::hdfs(&Hdfs::shared());
    emptied_files_are_damage(&emptied).await;
    // What it never takes it is not asked for again and again.
    let location = place.open("promises");
    for name in ["a:b".to_owned(), "n".repeat(300)] {
        let (begun, patience) = (std::time::Instant::now(), Duration::from_secs(60));
        let path = Path::from(format!("{name}/one"));
        let created = create(&location, &SystemClock::default(), &path, "1".into(), patience).await;
        let error = created.expect_err("no such name");
        assert_eq!(error.code(), code::STORE_REFUSED, "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

/// A file of no bytes is torn like any other: the newest commit is made again, the identity is refused.
async fn emptied_files_are_damage(place: &Place) {
    let source = source(0..10);
    land(place, &source).await.unwrap();
    let location = place.open("checkpoint");
    let newest = location.names(&Path::from("commits")).await.unwrap().into_iter().max().unwrap();
    let empty = async |path: Path| location.store.put(&path, Vec::new().into()).await.unwrap();
    empty(Path::from(format!("commits/{newest}"))).await;
    assert_eq!(location.read(&Path::from(format!("commits/{newest}"))).await.unwrap().as_deref(), Some(&b""[..]));
    source.add(rows(10..20));
    land(place, &source).await.unwrap();
    assert_eq!(shown(place).await, (0..20).collect::<Vec<_>>());
    empty(Path::from("metadata")).await;
    let error = land(place, &source).await.expect_err("refused");
    assert_eq!(error.code(), code::CHECKPOINT_DAMAGED, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_that_ignores_conditions_is_refused_before_anything_is_written() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    s3.fail(json!([{"fault": "unconditional", "method": "PUT"}]));
    let error = land(&place, &source(0..3)).await.expect_err("refused");
    assert!(error.code() == code::STORE_UNFIT && error.exit_code() == 78, "{error}");
    let error = session(&place).examine(place.at("examined")).await.expect_err("refused");
    assert!(error.code() == code::STORE_UNFIT && error.to_string().contains("8 writers"), "{error}");
    assert_eq!(place.open("checkpoint").paths(&Path::default()).await.unwrap(), []);
}

/// The table is on another store than the checkpoint, and that one is in order.
#[tokio::test(flavor = "multi_thread")]
async fn s3_table_that_cannot_be_used_is_refused_before_a_batch_is_planned() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    let bad = [
        (json!([{"fault": "unconditional", "method": "PUT"}]), place.at("table"), code::STORE_UNFIT),
        (json!([{"fault": "403", "method": "PUT"}]), place.at("table"), code::STORE_REFUSED),
        (json!([]), "s3://no-such-bucket/table".to_owned(), code::UNKNOWN_LOCATION),
    ];
    for (faults, table, code) in bad {
        s3.fail(faults);
        let folder = Place::local();
        let session = session(&place);
        let frame = session.stream(source(0..3)).await.unwrap();
        let query = session.query("stores").sink("landed", frame, Parquet::table(table));
        let error = query.checkpoint(folder.at("checkpoint")).start().await.expect_err("refused");
        assert!(error.code() == code && error.to_string().contains("landed"), "{error}");
        assert_eq!(folder.open("checkpoint").paths(&Path::from("offsets")).await.unwrap(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_answers_that_lie_lose_nothing() {
    let s3 = S3::start();
    for fault in ["applied-500", "applied-reset", "409"] {
        for (method, contains) in [
            ("PUT", "offsets/"),
            ("PUT", "acks/"),
            ("PUT", "commits/"),
            ("PUT", "part-"),
            ("PUT", "manifest/"),
            ("POST", ""),
            ("GET", ""),
            ("HEAD", ""),
        ] {
            let place = Place::s3(&s3);
            let source = source(0..10);
            s3.fail(json!([{"fault": fault, "method": method, "contains": contains, "times": 2}]));
            let landed = land(&place, &source).await;
            s3.fail(json!([]));
            if let Err(error) = landed {
                assert!(error.exit_code() == 74, "{fault} {method} {contains}: {error}");
                land(&place, &source).await.unwrap();
            }
            source.add(rows(10..20));
            land(&place, &source).await.unwrap();
            assert_eq!(shown(&place).await, (0..20).collect::<Vec<_>>(), "{fault} {method} {contains}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_storm_of_faults_loses_nothing() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    s3.fail(json!([
        {"fault": "503", "ratio": 0.2},
        {"fault": "applied-500", "ratio": 0.05},
        {"fault": "applied-reset", "ratio": 0.05},
        {"fault": "409", "method": "PUT", "ratio": 0.05},
        {"fault": "slow", "seconds": 0.2, "ratio": 0.05},
    ]));
    let source = source(0..0);
    for batch in 0..8 {
        source.add(rows(batch * 10..batch * 10 + 10));
        let since = std::time::Instant::now();
        while let Err(error) = land(&place, &source).await {
            assert!(error.exit_code() == 74, "{error}");
            assert!(since.elapsed() < Duration::from_secs(60), "{error}");
        }
    }
    s3.fail(json!([]));
    assert_eq!(shown(&place).await, (0..80).collect::<Vec<_>>());
}

/// S2: a write that lands after its writer gave up. The next start finds out.
#[tokio::test(flavor = "multi_thread")]
async fn s3_write_that_lands_late_is_found_out() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    let source = source(0..10);
    land(&place, &source).await.unwrap();
    source.add(rows(10..20));
    s3.fail(json!([{"fault": "late", "seconds": 8, "method": "PUT", "contains": "acks/"}]));
    let session = session(&place);
    let frame = session.stream(source.clone()).await.unwrap();
    let query = session
        .query("stores")
        .sink("table", frame, Parquet::table(place.at("table")))
        .checkpoint(place.at("checkpoint"))
        .write_patience(Duration::from_secs(2))
        .trigger(Trigger::available_now());
    let error = query.start().await.unwrap().await_termination().await.expect_err("undecided");
    assert!(error.code() == code::WRITE_UNKNOWN && error.exit_code() == 74, "{error}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    s3.fail(json!([]));
    land(&place, &source).await.unwrap();
    assert_eq!(shown(&place).await, (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_that_refuses_or_is_not_there_is_a_clear_error() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    s3.fail(json!([{"fault": "403", "method": "PUT"}]));
    let error = land(&place, &source(0..3)).await.expect_err("refused");
    assert!(error.code() == code::STORE_REFUSED && error.exit_code() == 74, "{error}");
    s3.fail(json!([]));
    let nowhere = Place { url: "s3://no-such-bucket/x".to_owned(), ..Place::s3(&s3) };
    let error = land(&nowhere, &source(0..3)).await.expect_err("no such bucket");
    assert!(error.code() == code::UNKNOWN_LOCATION && error.exit_code() == 78, "{error}");
    drop(s3);
    let session = Session::builder().retry_start(Duration::from_secs(2));
    let session = place.env.iter().fold(session, |session, (name, value)| session.store_option(name, value));
    let session = session.build().unwrap();
    let frame = session.stream(source(0..3)).await.unwrap();
    let query = session.query("stores").sink("table", frame, Parquet::table(place.at("table")));
    let error = query.checkpoint(place.at("checkpoint")).start().await.expect_err("nobody listens");
    assert!(error.code() == code::STORE_UNAVAILABLE && error.exit_code() == 74, "{error}");
}

/// The answer to the end of an upload is 200, and an error: it must not be taken for done. Uploads that died are nobody's.
#[tokio::test(flavor = "multi_thread")]
async fn s3_upload_whose_end_is_answered_with_an_error_is_not_taken_for_done() {
    let s3 = S3::start();
    let place = Place::s3(&s3);
    let location = place.open("parts");
    let path = Path::from("large");
    let upload = async || {
        let mut upload = tidemill::store::Upload::start(&location, &path);
        for part in 0..3 {
            upload.write(vec![part; 6 << 20].into()).await?;
        }
        upload.finish().await
    };
    // POST begins an upload and ends it: the second one is the end.
    s3.fail(json!([
        {"fault": "slow", "seconds": 0, "method": "POST", "times": 1},
        {"fault": "error-body", "method": "POST", "times": 100},
    ]));
    upload().await.expect_err("the answer holds an error");
    assert_eq!(location.read(&path).await.unwrap(), None);
    s3.fail(json!([]));
    upload().await.unwrap();
    assert_eq!(location.read(&path).await.unwrap().map(|bytes| bytes.len()), Some(18 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_batch_needs_few_requests_and_no_list() {
    const BATCHES: i64 = 10;
    let s3 = S3::start();
    let place = Place::s3(&s3);
    let source = source(0..1);
    let query = start(&place, &source, Trigger::processing_time(Duration::ZERO)).await.unwrap();
    query.process_all_available().await.unwrap();
    s3.requests();
    for batch in 1..=BATCHES {
        source.add(rows(batch..batch + 1));
        query.process_all_available().await.unwrap();
    }
    let requests = s3.requests();
    query.stop().await.unwrap();
    println!("requests of {BATCHES} batches: {requests}");
    assert_eq!(requests.get("LIST"), None, "{requests}");
    let writes: i64 = ["PUT", "COPY", "DELETE", "POST"].iter().filter_map(|kind| requests[kind].as_i64()).sum();
    assert_eq!(
        writes,
        BATCHES * 8,
        "offsets, acks, commits; claim, manifest; a file staged, copied, deleted: {requests}"
    );
    assert_eq!(shown(&place).await, (0..=BATCHES).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_quota_permission_and_safe_mode_are_told_apart() {
    let mut hdfs = Hdfs::start(&[("dfs.permissions.enabled", "true")]);
    let place = Place::hdfs(&hdfs);
    let source = source(0..10);
    land(&place, &source).await.unwrap();
    source.add(rows(10..20));

    let folder = place.url.trim_start_matches(hdfs.url()).to_owned();
    hdfs.ask(&format!("admin -setQuota 5 {folder}"));
    let error = land(&place, &source).await.expect_err("the quota is used up");
    assert!(error.code() == code::STORE_REFUSED && error.to_string().contains("quota"), "{error}");
    hdfs.ask(&format!("admin -clrQuota {folder}"));

    hdfs.ask("admin -safemode enter");
    let session = Session::builder().retry_start(Duration::from_secs(2)).build().unwrap();
    let frame = session.stream(source.clone()).await.unwrap();
    let query = session.query("stores").sink("table", frame, Parquet::table(place.at("table")));
    let error = query.checkpoint(place.at("checkpoint")).start().await.expect_err("nothing can be written");
    assert_eq!(error.code(), code::STORE_UNAVAILABLE, "nothing was written, for certain: {error}");
    let report = error.report().to_string();
    assert!(report.contains("is in safe mode") && report.lines().count() < 8, "{report}");
    hdfs.ask("admin -safemode leave");

    land(&place, &source).await.unwrap();
    assert_eq!(shown(&place).await, (0..20).collect::<Vec<_>>());
}

/// The name node dies and comes back, the data node dies and comes back: the query goes on.
#[tokio::test(flavor = "multi_thread")]
async fn hdfs_daemons_that_die_and_come_back_lose_nothing() {
    let mut hdfs = Hdfs::start(&[]);
    let place = Place::hdfs(&hdfs);
    let source = MemorySource::new(schema());
    let query = start(&place, &source, Trigger::processing_time(Duration::ZERO)).await.unwrap();
    let mut next = 0;
    for daemon in ["namenode", "datanode", "namenode"] {
        for _ in 0..3 {
            source.add(rows(next..next + 10));
            next += 10;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        tokio::task::block_in_place(|| hdfs.ask(&format!("kill {daemon}")));
        source.add(rows(next..next + 10));
        next += 10;
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| hdfs.ask(&format!("start {daemon}")));
    }
    let done = tokio::time::timeout(Duration::from_secs(120), query.process_all_available());
    done.await.expect("it goes on").unwrap();
    query.stop().await.unwrap();
    ended(&query).await.unwrap();
    assert_eq!(shown(&place).await, (0..next).collect::<Vec<_>>());
}
