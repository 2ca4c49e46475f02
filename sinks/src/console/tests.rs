//! What the console prints, to the letter.

use std::sync::{Arc, Mutex};

use arrow::array::{
    ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use serde_json::Value;
use tidemill_core::registry::SinkFormat;
use tidemill_core::sink::Mode;
use tidemill_core::{
    AttemptId, BatchId, Context, Guarantee, Options, QueryId, Sink, SinkBuilder, SinkKey, WriteTask, code,
};

use super::{Console, ConsoleFormat, Truncate};

async fn print(sink: &dyn Sink, batch_id: u64, batches: Vec<RecordBatch>) -> u64 {
    let key = SinkKey { query_id: QueryId::from_text("q"), sink: "console".to_owned() };
    let schema = batches[0].schema();
    let attempt = AttemptId::from_text("a");
    let task = WriteTask { key, batch_id: BatchId(batch_id), attempt, task: 0, schema, ranges: Value::Null };
    let mut writer = sink.writer(task).await.unwrap();
    for rows in batches {
        writer.write(rows).await.unwrap();
    }
    writer.finish().await.unwrap().rows
}

fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

async fn shown(console: Console, batch_id: u64, batches: Vec<RecordBatch>) -> String {
    let text = Arc::new(Mutex::new(Vec::<u8>::new()));
    let sink = console.to(text.clone()).build(&Context::default()).unwrap();
    print(sink.as_ref(), batch_id, batches).await;
    let text = text.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

fn sensors() -> RecordBatch {
    rows(vec![
        ("sensor_id", Arc::new(StringArray::from(vec![Some("s1"), None]))),
        ("celsius", Arc::new(Float64Array::from(vec![21.5, -3.0]))),
    ])
}

#[tokio::test]
async fn batch_is_a_table_under_its_number() {
    let expected = "\
-------------------------------------------
Batch: 7
-------------------------------------------
+---------+-------+
|sensor_id|celsius|
+---------+-------+
|       s1|   21.5|
|     NULL|   -3.0|
+---------+-------+

";
    assert_eq!(shown(Console::new(), 7, vec![sensors()]).await, expected);
}

#[tokio::test]
async fn whole_cells_stand_to_the_left() {
    let long = "a text of more than twenty characters";
    let batch = rows(vec![("t", Arc::new(StringArray::from(vec![long, "x"])))]);
    let text = shown(Console::new().truncate(Truncate::Never), 0, vec![batch.clone()]).await;
    assert!(text.contains(&format!("|{long}|\n|x{}|\n", " ".repeat(long.len() - 1))), "{text}");
    let text = shown(Console::new(), 0, vec![batch.clone()]).await;
    assert!(text.contains("|a text of more th...|\n|                   x|\n"), "{text}");
    let text = shown(Console::new().truncate(Truncate::At(2)), 0, vec![batch]).await;
    assert!(text.contains("| a |\n|  x|\n"), "{text}");
}

#[tokio::test]
async fn rows_beyond_the_limit_are_said_and_counted() {
    let many = |from: i64| rows(vec![("n", Arc::new(Int64Array::from_iter_values(from..from + 15)) as ArrayRef)]);
    let text = shown(Console::new(), 0, vec![many(0), many(15)]).await;
    assert!(text.ends_with("| 19|\n+---+\nonly showing top 20 rows\n\n"), "{text}");
    let text = shown(Console::new().rows(1), 0, vec![many(0)]).await;
    assert!(text.ends_with("|  0|\n+---+\nonly showing top 1 row\n\n"), "{text}");
    let text = shown(Console::new().rows(15), 0, vec![many(0)]).await;
    assert!(text.ends_with("| 14|\n+---+\n\n"), "{text}");

    let output = Arc::new(Mutex::new(Vec::<u8>::new()));
    let sink = Console::new().rows(1).to(output).build(&Context::default()).unwrap();
    assert_eq!(print(sink.as_ref(), 0, vec![many(0), many(15)]).await, 30);
}

#[tokio::test]
async fn bytes_are_text_or_hexadecimal_and_commands_to_the_terminal_are_escaped() {
    let batch = rows(vec![
        (
            "v",
            Arc::new(BinaryArray::from_opt_vec(vec![
                Some(b"{\"a\":1}"),
                Some(b"\xff\x00"),
                None,
                Some("é\n".as_bytes()),
            ])),
        ),
        ("t", Arc::new(StringArray::from(vec!["\x1b[31mred", "a\tb", "潮", "x"]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![0, 1_500_000, 1, 2]).with_timezone("UTC"))),
    ]);
    let text = shown(Console::new().truncate(Truncate::Never), 0, vec![batch]).await;
    for expected in [
        "|{\"a\":1}|\\u{1b}[31mred|1970-01-01 00:00:00       |\n",
        "|[FF 00]|a\\tb         |1970-01-01 00:00:01.500   |\n",
        "|NULL   |潮           |1970-01-01 00:00:00.000001|\n",
        "|é\\n    |x            |1970-01-01 00:00:00.000002|\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[tokio::test]
async fn sink_built_from_its_spec_prints_to_the_same_output() {
    let output = Arc::new(Mutex::new(Vec::<u8>::new()));
    let context = Context::default();
    let sink = Console::new().to(output.clone()).build(&context).unwrap();
    let again = ConsoleFormat.sink(sink.spec(), &context).unwrap();
    print(again.as_ref(), 3, vec![sensors()]).await;
    assert!(String::from_utf8(output.lock().unwrap().clone()).unwrap().contains("Batch: 3\n"));
    let spec = sink.spec().clone();
    drop((sink, again, output));
    assert_eq!(ConsoleFormat.sink(&spec, &context).expect_err("gone").code(), code::USAGE);
}

#[tokio::test]
async fn options_are_those_of_spark() {
    let open = |pairs: &[(&str, &str)]| {
        let mut options = Options::new();
        for (name, value) in pairs {
            options.set(name, *value);
        }
        async move { ConsoleFormat.open(options, vec![], &Context::default()).await }
    };
    let typed = Console::new().rows(5).truncate(Truncate::At(7)).build(&Context::default()).unwrap();
    assert_eq!(open(&[("numrows", "5"), ("truncate", "7")]).await.unwrap().spec(), typed.spec());
    let typed = Console::new().truncate(Truncate::Never).build(&Context::default()).unwrap();
    assert_eq!(open(&[("truncate", "false")]).await.unwrap().spec(), typed.spec());
    assert_eq!(open(&[("truncate", "maybe")]).await.expect_err("refused").code(), code::INVALID_OPTION);
    assert_eq!(open(&[("numRow", "5")]).await.expect_err("refused").code(), code::UNKNOWN_OPTION);
    assert_eq!((typed.mode(), typed.guarantee()), (Mode::Direct, Guarantee::AtLeastOnce));
    assert_eq!((typed.tasks_max(), typed.needs_checkpoint()), (1, false));
    let schema = Arc::new(Schema::new(vec![Field::new("f", DataType::Float64, true)]));
    typed.check_schema(&schema).unwrap();
}
