//! The shared promises, and the faults on request.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{FutureExt, StreamExt};
use tidemill_core::testing::source_promises::{self, context, offer, read, splits};
use tidemill_core::{Context, ErrorKind, Options, ReadItem, Registry, Source, SourceBuilder, SourceReader, code};

use super::MemorySource;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]))
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = ids.clone().map(|id| (id % 3 != 0).then(|| format!("name {id}")));
    let names: StringArray = names.collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(ids)), Arc::new(names)]).unwrap()
}

async fn open(table: &MemorySource) -> (Arc<dyn Source>, Arc<dyn SourceReader>) {
    let context = Context::default();
    let source = table.clone().build(&context).await.unwrap();
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let reader = registry.source(&source.spec().format).unwrap().reader(source.spec(), &context).unwrap();
    (source, reader)
}

#[tokio::test]
async fn memory_source_keeps_every_promise() {
    for pieces in [1, 3] {
        let table = MemorySource::new(schema()).splits(pieces);
        table.add(rows(0..10));
        table.add(rows(10..11));
        table.add(rows(11..100));
        let (source, reader) = open(&table).await;
        source_promises::all(source.as_ref(), reader.as_ref()).await;
    }
}

#[tokio::test]
async fn fault_strikes_at_its_row_as_often_as_asked() {
    let table = MemorySource::new(schema());
    table.add(rows(0..600));
    table.fail_at(450, 2);
    let (source, reader) = open(&table).await;
    let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
    for _ in 0..2 {
        let mut items = reader.read(split.clone(), context());
        let Some(Ok(ReadItem::Rows(before))) = items.next().await else {
            panic!("rows before the fault are delivered")
        };
        assert_eq!(before.num_rows(), 450);
        let Some(Err(error)) = items.next().await else { panic!("the fault strikes") };
        assert_eq!((error.code(), error.kind()), (code::SOURCE_UNAVAILABLE, ErrorKind::Retry));
        assert!(items.next().await.is_none());
    }
    let (_, receipt) = read(reader.as_ref(), &split, context()).await.unwrap();
    assert_eq!(receipt.rows, 600);
    assert_eq!(table.reads(), [(0, 600); 3]);
}

#[tokio::test]
async fn panic_strikes_once_and_leaves_the_table_whole() {
    let table = MemorySource::new(schema());
    table.add(rows(0..10));
    table.panic_at(0, 1);
    let (source, reader) = open(&table).await;
    let split = splits(source.as_ref(), &offer(source.as_ref()).await.range).remove(0);
    let first = std::panic::AssertUnwindSafe(read(reader.as_ref(), &split, context())).catch_unwind().await;
    assert!(first.is_err(), "the first read panics");
    assert_eq!(read(reader.as_ref(), &split, context()).await.unwrap().1.rows, 10);
}

#[tokio::test]
async fn string_form_finds_the_table_by_its_name() {
    let table = MemorySource::named("orders", schema());
    table.add(rows(0..5));
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let format = registry.source("Memory").unwrap();
    let mut options = Options::new();
    options.set("table", "orders");
    let source = format.open(options, &Context::default()).await.unwrap();
    assert_eq!(source.spec(), open(&table).await.0.spec());
    let mut options = Options::new();
    options.set("table", "nobody");
    let error = format.open(options, &Context::default()).await.unwrap_err();
    assert_eq!(error.code(), code::SOURCE_NOT_FOUND);
}

#[tokio::test]
async fn range_of_a_process_that_is_gone_is_an_error() {
    let table = MemorySource::new(schema());
    table.add(rows(0..10));
    let (source, _) = open(&table).await;
    let range = offer(source.as_ref()).await.range;
    let (emptied, reader) = open(&MemorySource::new(schema())).await;
    let error = emptied.next(&range.end, &Default::default()).await.unwrap_err();
    assert_eq!(error.code(), code::SOURCE_TRUNCATED);
    let error = read(reader.as_ref(), &splits(emptied.as_ref(), &range)[0], context()).await.unwrap_err();
    assert_eq!(error.code(), code::DATA_LOSS);
}
