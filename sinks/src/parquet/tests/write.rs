//! Writing: what the files hold and how they are cut.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    TimestampSecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, IntervalUnit, Schema, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression as Codec, Encoding};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use tidemill_core::store::faulty::{Fault, OpKind};
use tidemill_core::testing::sink_promises::{Story, visible_ids};
use tidemill_core::{Ack, Guarantee, Sink, WriteTask, code};

use super::super::{Compression, memory};
use super::Table;

fn columns(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn task(rows: &RecordBatch) -> WriteTask {
    WriteTask { schema: rows.schema(), ..Story::new().task(0, "a", 0) }
}

/// Writes and publishes batch 0.
async fn land(table: &Table, batches: Vec<RecordBatch>) -> Ack {
    let sink = table.open();
    sink.check_schema(&batches[0].schema()).unwrap();
    let mut writer = sink.writer(task(&batches[0])).await.unwrap();
    for rows in batches {
        writer.write(rows).await.unwrap();
    }
    let ack = writer.finish().await.unwrap();
    sink.publish(&Story::new().acked(0, "a", vec![ack.clone()])).await.unwrap();
    ack
}

fn metadata(table: &Table, name: &str) -> ParquetMetaData {
    SerializedFileReader::new(File::open(table.root().join(name)).unwrap()).unwrap().metadata().clone()
}

/// Texts that do not compress well.
fn texts(rows: i64) -> RecordBatch {
    let text = |n: i64| format!("{:x}", (n as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    columns(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("text", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
    ])
}

#[tokio::test]
async fn file_is_closed_at_the_target_size() {
    let table = Table::with(|table| table.target_bytes(256 << 10).compression(Compression::None));
    let ack = land(&table, vec![texts(100_000)]).await;
    let names = table.parquet_files();
    assert!(names.len() > 5, "{names:?}");
    assert_eq!(ack.files, names.len() as u64);
    let sizes: Vec<u64> = names.iter().map(|name| table.root().join(name).metadata().unwrap().len()).collect();
    assert_eq!(ack.bytes, sizes.iter().sum::<u64>());
    // A slice of 16,384 rows is what it may be over.
    assert!(sizes.iter().all(|size| *size < 1 << 20), "{sizes:?}");
    assert_eq!(visible_ids(&table).await, (0..100_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn rows_of_many_writes_share_a_file_and_a_row_group() {
    let table = Table::new();
    let batches = (0..50).map(|n| texts(1000).slice(n, 20)).collect();
    let ack = land(&table, batches).await;
    assert_eq!((ack.files, ack.rows), (1, 1000));
    assert_eq!(metadata(&table, &table.parquet_files()[0]).num_row_groups(), 1);
}

#[tokio::test]
async fn large_file_leaves_in_parts_and_comes_back_whole() {
    let table = Table::with(|table| table.compression(Compression::None));
    let rows = texts(600_000);
    land(&table, vec![rows.clone()]).await;
    let names = table.parquet_files();
    assert_eq!(names.len(), 1);
    assert!(metadata(&table, &names[0]).num_row_groups() > 1, "memory is bounded by row groups");
    let back = arrow::compute::concat_batches(&rows.schema(), &table.read(&names[0])).unwrap();
    assert_eq!(back, rows);
}

#[tokio::test]
async fn footer_says_where_rows_came_from() {
    let table = Table::new();
    land(&table, vec![texts(10)]).await;
    let metadata = metadata(&table, &table.parquet_files()[0]);
    let file = metadata.file_metadata();
    assert!(file.created_by().unwrap().starts_with("tidemill version "), "{:?}", file.created_by());
    let entry = |name: &str| {
        let entries = file.key_value_metadata().unwrap().iter();
        entries.clone().find(|entry| entry.key == name).unwrap_or_else(|| panic!("{name}")).value.clone().unwrap()
    };
    assert_eq!(entry("tidemill.query_id"), "5eed");
    assert_eq!(entry("tidemill.sink"), "hot");
    assert_eq!(entry("tidemill.batch_id"), "0");
    assert_eq!(entry("tidemill.attempt"), "a");
    assert_eq!(entry("tidemill.ranges"), r#"{"rate-0":[0,10]}"#);
}

#[tokio::test]
async fn compression_is_as_asked_and_zstd_if_not() {
    for (asked, expected) in [
        (None, "ZSTD"),
        (Some(Compression::None), "UNCOMPRESSED"),
        (Some(Compression::Snappy), "SNAPPY"),
        (Some(Compression::Lz4), "LZ4_RAW"),
        (Some(Compression::Gzip), "GZIP"),
    ] {
        let table = Table::with(|table| match asked {
            Some(compression) => table.compression(compression),
            None => table,
        });
        land(&table, vec![texts(1000)]).await;
        let used: Codec = metadata(&table, &table.parquet_files()[0]).row_group(0).column(1).compression();
        assert!(format!("{used:?}").starts_with(expected), "{used:?}");
        assert_eq!(visible_ids(&table).await.len(), 1000);
    }
}

#[tokio::test]
async fn dictionary_is_used_only_where_rows_repeat() {
    let table = Table::new();
    let rows = 5000;
    let status = StringArray::from_iter_values((0..rows).map(|n| ["ok", "hot", "cold"][n as usize % 3]));
    let value = BinaryArray::from_iter_values((0..rows).map(|n| format!("value {n}")));
    let at = TimestampMicrosecondArray::from_iter_values((0..rows).map(|n| n * 1000)).with_timezone("UTC");
    land(
        &table,
        vec![columns(vec![
            ("offset", Arc::new(Int64Array::from_iter_values(0..rows))),
            ("status", Arc::new(status)),
            ("value", Arc::new(value)),
            ("at", Arc::new(at)),
        ])],
    )
    .await;
    let metadata = metadata(&table, &table.parquet_files()[0]);
    let encodings = |column: usize| metadata.row_group(0).column(column).encodings().collect::<BTreeSet<_>>();
    assert!(encodings(0).contains(&Encoding::DELTA_BINARY_PACKED));
    assert!(encodings(1).contains(&Encoding::RLE_DICTIONARY));
    assert!(!encodings(2).contains(&Encoding::RLE_DICTIONARY));
    assert!(encodings(3).contains(&Encoding::DELTA_BINARY_PACKED));
    assert!(metadata.row_group(0).column(0).statistics().is_some(), "readers skip by offset");
    assert!(metadata.row_group(0).column(2).statistics().is_none(), "nobody skips by opaque bytes");
}

#[tokio::test]
async fn seconds_are_stored_as_milliseconds_for_readers_that_are_not_arrow() {
    let table = Table::new();
    let seconds = TimestampSecondArray::from(vec![1_790_000_000]).with_timezone("UTC");
    land(&table, vec![columns(vec![("at", Arc::new(seconds))])]).await;
    let file = File::open(table.root().join(&table.parquet_files()[0])).unwrap();
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
    let expected = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    assert_eq!(reader.schema().field(0).data_type(), &expected);
}

#[tokio::test]
async fn partition_columns_become_folders_and_leave_the_files() {
    let table = Table::with(|table| table.partition_by(["day", "kind"]));
    let values = [Some("a/b"), Some("a%2Fb"), Some("a b"), Some("é"), Some("x=y"), None, Some("")];
    let days = StringArray::from_iter_values(values.iter().map(|_| "2026-10-01"));
    let rows = columns(vec![
        ("kind", Arc::new(StringArray::from_iter(values))),
        ("id", Arc::new(Int64Array::from_iter_values(0..7))),
        ("day", Arc::new(days)),
    ]);
    let ack = land(&table, vec![rows]).await;
    assert_eq!((ack.rows, ack.files), (7, 6));
    let mut found = Vec::new();
    for name in table.parquet_files() {
        let [day, kind, file] = name.split('/').collect::<Vec<_>>()[..] else { panic!("one level a column: {name}") };
        assert_eq!(day, "day=2026-10-01");
        assert!(file.starts_with("part-"));
        for rows in table.read(&name) {
            assert_eq!(rows.schema().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["id"]);
            found.extend(rows.column(0).as_primitive::<Int64Type>().values().iter().map(|id| (*id, kind.to_owned())));
        }
    }
    found.sort();
    let null = "kind=__HIVE_DEFAULT_PARTITION__";
    let expected = ["kind=a%2Fb", "kind=a%252Fb", "kind=a b", "kind=é", "kind=x%3Dy", null, null];
    assert_eq!(found, (0..).zip(expected.map(str::to_owned)).collect::<Vec<_>>());
}

#[tokio::test]
async fn value_that_cannot_be_a_folder_fails_naming_column_and_batch() {
    let table = Table::with(|table| table.partition_by(["kind"]));
    for value in ["..", "__HIVE_DEFAULT_PARTITION__", &"x".repeat(300)] {
        let rows = columns(vec![
            ("id", Arc::new(Int64Array::from(vec![1]))),
            ("kind", Arc::new(StringArray::from(vec![value]))),
        ]);
        let mut writer = table.open().writer(task(&rows)).await.unwrap();
        let error = writer.write(rows).await.expect_err("refused");
        assert_eq!(error.code(), code::BAD_PARTITION_VALUE);
        for part in ["column kind", "sink hot", "batch 0"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
    assert!(table.files().is_empty(), "{:?}", table.files());
}

#[tokio::test]
async fn open_files_are_bounded_and_rows_complete() {
    let table = Table::with(|table| table.partition_by(["p"]).files_open_max(4));
    let batches = (0..10).map(|round| {
        columns(vec![
            ("id", Arc::new(Int64Array::from_iter_values(round * 40..(round + 1) * 40))),
            ("p", Arc::new(Int64Array::from_iter_values((0..40).map(|n| n % 8)))),
        ])
    });
    let ack = land(&table, batches.collect()).await;
    assert_eq!(ack.rows, 400);
    assert!(ack.files >= 8, "{}", ack.files);
    assert_eq!(visible_ids(&table).await, (0..400).collect::<Vec<_>>());
}

#[tokio::test]
async fn memory_is_bounded_whatever_the_number_of_partitions() {
    let table = Table::with(|table| table.partition_by(["p"]));
    let text = "x".repeat(1000);
    let batches = (0..20).map(|round| {
        let rows = 10_000;
        columns(vec![
            ("id", Arc::new(Int64Array::from_iter_values(round * rows..(round + 1) * rows)) as ArrayRef),
            ("p", Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n % 50)))),
            ("text", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("{round} {n} {text}"))))),
        ])
    });
    let sink = table.open();
    let first = columns(vec![
        ("id", Arc::new(Int64Array::from(vec![0])) as ArrayRef),
        ("p", Arc::new(Int64Array::from(vec![0]))),
        ("text", Arc::new(StringArray::from(vec![""]))),
    ]);
    let mut writer = sink.writer(task(&first)).await.unwrap();
    for rows in batches {
        writer.write(rows).await.unwrap();
        // Of 200 MB. Other tests that run in this process hold some too.
        assert!(memory::used() < 128 << 20, "{}", memory::used());
    }
    let ack = writer.finish().await.unwrap();
    assert_eq!(ack.rows, 200_000);
    sink.publish(&Story::new().acked(0, "a", vec![ack])).await.unwrap();
    assert_eq!(visible_ids(&table).await, (0..200_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn columns_that_parquet_or_its_readers_cannot_take_are_refused_before_anything_runs() {
    let table = Table::new();
    let sink = table.open();
    let check = |fields: Vec<Field>| sink.check_schema(&Arc::new(Schema::new(fields)));
    let id = || Field::new("id", DataType::Int64, false);
    let nested = DataType::Struct(vec![id(), Field::new("l", DataType::new_list(DataType::Utf8, true), true)].into());
    check(vec![id(), Field::new("nested", nested, true), Field::new("v", DataType::BinaryView, true)]).unwrap();
    for fields in [
        vec![],
        vec![id(), Field::new("ID", DataType::Utf8, true)],
        vec![id(), Field::new("i", DataType::Interval(IntervalUnit::MonthDayNano), true)],
        vec![id(), Field::new("s", DataType::Struct(Fields::empty()), true)],
    ] {
        let error = check(fields.clone()).expect_err(&format!("{fields:?}"));
        assert_eq!(error.code(), code::SINK_SCHEMA, "{error}");
    }
}

#[tokio::test]
async fn write_that_fails_fails_the_task_naming_the_file() {
    for (rows, kind) in [(10, OpKind::Put), (600_000, OpKind::Complete)] {
        let table = Table::with(|table| table.compression(Compression::None));
        let (sink, _) = table.scripted(move |op| if op.kind == kind { Fault::Fails } else { Fault::None });
        let rows = texts(rows);
        let mut writer = sink.writer(task(&rows)).await.unwrap();
        let error = match writer.write(rows).await {
            Ok(()) => writer.finish().await.expect_err("refused"),
            Err(error) => error,
        };
        assert_eq!(error.code(), code::STORE_UNAVAILABLE, "{kind:?}");
        assert!(error.to_string().contains("parquet.staged"), "{error}");
        assert_eq!(table.parquet_files(), [] as [&str; 0]);
    }
}

#[tokio::test]
async fn sink_says_what_it_promises() {
    let sink = Table::with(|table| table.partition_by(["day"])).open();
    assert!(matches!(sink.guarantee(), Guarantee::ExactlyOnce { reader } if reader.contains("**/*.parquet")));
    assert_eq!(sink.default_interval_ms(), 10_000);
    assert!(sink.needs_checkpoint());
    assert!(sink.description().ends_with(" by day"), "{}", sink.description());
}
