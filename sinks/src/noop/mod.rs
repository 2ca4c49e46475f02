//! No sink at all: rows are counted and dropped. For benches, and for running a query for its side effects on nothing.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde_json::Value;
use tidemill_core::registry::SinkFormat;
use tidemill_core::sink::Mode;
use tidemill_core::{
    Ack, Acked, AttemptId, BatchId, Context, Guarantee, Options, Published, Result, Sink, SinkBuilder, SinkKey,
    SinkSpec, SinkWriter, WriteTask,
};

/// The registered name.
const FORMAT: &str = "noop";

/// The sink that drops rows. It has no memory of batches, so it is at-least-once by name, and a restart compares
/// nothing.
#[derive(Clone, Debug)]
pub struct Noop {
    spec: SinkSpec,
}

impl Default for Noop {
    fn default() -> Self {
        Noop::new()
    }
}

impl Noop {
    /// A sink that drops rows.
    pub fn new() -> Self {
        Noop { spec: SinkSpec { format: FORMAT.to_owned(), config: Value::Null } }
    }
}

impl SinkBuilder for Noop {
    fn build(self, _context: &Context) -> Result<Arc<dyn Sink>> {
        Ok(Arc::new(self))
    }
}

#[async_trait]
impl Sink for Noop {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }

    fn description(&self) -> String {
        "nowhere".to_owned()
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn mode(&self) -> Mode {
        Mode::Direct
    }

    fn check_schema(&self, _schema: &SchemaRef) -> Result<()> {
        Ok(())
    }

    fn needs_checkpoint(&self) -> bool {
        false
    }

    async fn last_published(&self, _key: &SinkKey) -> Result<Option<BatchId>> {
        Ok(None)
    }

    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(NoopWriter { task: task.task, rows: 0, bytes: 0 }))
    }

    async fn publish(&self, batch: &Acked) -> Result<Published> {
        let acks = batch.acks.iter();
        let (rows, bytes) = acks.fold((0, 0), |(rows, bytes), ack| (rows + ack.rows, bytes + ack.bytes));
        Ok(Published { rows, bytes, files: 0 })
    }

    async fn discard(&self, _key: &SinkKey, _batch_id: BatchId, _winner: &AttemptId) -> Result<()> {
        Ok(())
    }

    async fn sweep(&self, _key: &SinkKey, _last: BatchId) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct NoopWriter {
    task: u32,
    rows: u64,
    bytes: u64,
}

#[async_trait]
impl SinkWriter for NoopWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        self.bytes += rows.get_array_memory_size() as u64;
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<Ack> {
        Ok(Ack { task: self.task, rows: self.rows, bytes: self.bytes, files: 0, payload: Value::Null })
    }

    async fn abort(self: Box<Self>) {}
}

/// The format `noop`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopFormat;

#[async_trait]
impl SinkFormat for NoopFormat {
    fn name(&self) -> &'static str {
        FORMAT
    }

    async fn open(&self, options: Options, _partition_by: Vec<String>, context: &Context) -> Result<Arc<dyn Sink>> {
        options.finish(FORMAT)?;
        Noop::new().build(context)
    }

    fn sink(&self, _spec: &SinkSpec, context: &Context) -> Result<Arc<dyn Sink>> {
        Noop::new().build(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use tidemill_core::{AttemptId, Nonce, QueryId, Registry};

    use super::*;

    #[tokio::test]
    async fn rows_are_counted_and_nothing_is_remembered() {
        let mut registry = Registry::new();
        crate::register(&mut registry);
        let context = Context::default();
        let sink = registry.sink("noop").unwrap().open(Options::new(), vec![], &context).await.unwrap();
        let rows =
            RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..5)) as arrow::array::ArrayRef)])
                .unwrap();
        let key = SinkKey { query_id: QueryId::from_text("q"), sink: "s".to_owned() };
        let attempt = AttemptId::from_text("a");
        let task = WriteTask {
            key: key.clone(),
            batch_id: BatchId(0),
            attempt: attempt.clone(),
            task: 0,
            schema: rows.schema(),
            ranges: Value::Null,
        };
        let mut writer = sink.writer(task).await.unwrap();
        writer.write(rows.clone()).await.unwrap();
        writer.write(rows).await.unwrap();
        let acks = vec![writer.finish().await.unwrap()];
        let acked = Acked {
            key: key.clone(),
            batch_id: BatchId(0),
            attempt,
            offsets_nonce: Nonce::from_text("o"),
            acks_nonce: Nonce::from_text("n"),
            ranges: Value::Null,
            acks,
        };
        assert_eq!(sink.publish(&acked).await.unwrap().rows, 10);
        assert_eq!(sink.last_published(&key).await.unwrap(), None);
    }
}
