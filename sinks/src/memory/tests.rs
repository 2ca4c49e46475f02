//! The memory sink keeps the promises of every sink; its tables are found by name.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use tidemill_core::registry::SinkFormat;
use tidemill_core::testing::sink_promises::SinkHarness;
use tidemill_core::{Context, Options, Sink, SinkBuilder, code, sink_promises};

use super::{MemoryFormat, MemorySink};

struct Harness(MemorySink);

#[async_trait]
impl SinkHarness for Harness {
    fn sink(&self) -> Arc<dyn Sink> {
        self.0.clone().build(&Context::default()).unwrap()
    }

    async fn visible(&self) -> Vec<RecordBatch> {
        self.0.rows()
    }

    async fn staged(&self) -> usize {
        self.0.staged()
    }
}

sink_promises!(Harness(MemorySink::new()));

#[tokio::test]
async fn table_is_found_by_its_name_and_by_its_spec() {
    let mut options = Options::new();
    options.set("queryName", "found_by_name");
    let context = Context::default();
    let sink = MemoryFormat.open(options, vec![], &context).await.unwrap();
    let named = MemorySink::named("found_by_name");
    assert_eq!(sink.spec(), named.build(&context).unwrap().spec());

    let unnamed = MemorySink::new();
    let by_spec = MemoryFormat.sink(unnamed.clone().build(&context).unwrap().spec(), &context).unwrap();
    assert_eq!(by_spec.description(), format!("memory table \"{}\"", unnamed.name()));

    let error = MemoryFormat.open(Options::new(), vec![], &context).await.expect_err("no name");
    assert_eq!(error.code(), code::MISSING_OPTION);
}

#[tokio::test]
async fn batches_come_in_the_order_of_publication_with_empty_ones() {
    use tidemill_core::testing::sink_promises::Story;

    let harness = Harness(MemorySink::new());
    let story = Story::new();
    for (batch_id, ids) in [(0, 0..2), (1, 0..0), (2, 2..3)] {
        story.land(harness.sink().as_ref(), batch_id, "a", ids).await;
    }
    let batches: Vec<(u64, usize)> = (harness.0.batches().iter())
        .map(|(batch_id, rows)| (batch_id.0, rows.iter().map(RecordBatch::num_rows).sum()))
        .collect();
    assert_eq!(batches, [(0, 2), (1, 0), (2, 1)]);
}
