//! The driver's side.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tidemill_core::{
    Acked, AttemptId, BatchId, Error, Guarantee, Published, Result, Sink, SinkKey, SinkSpec, SinkWriter, WriteTask,
    code,
};

use super::config::{Config, FORMAT};
use super::table::{Table, Visible, owner};
use super::writer::MemoryWriter;

/// Appends to a table in memory.
#[derive(Debug)]
pub(super) struct MemoryTableSink {
    spec: SinkSpec,
    table: Arc<Table>,
}

impl MemoryTableSink {
    pub(super) fn new(table: Arc<Table>) -> Result<Self> {
        let config = serde_json::to_value(Config { table: table.name.clone() })
            .map_err(|error| Error::new(code::BUG, "a spec cannot be written").because(error))?;
        Ok(MemoryTableSink { spec: SinkSpec { format: FORMAT.to_owned(), config }, table })
    }
}

#[async_trait]
impl Sink for MemoryTableSink {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }

    fn description(&self) -> String {
        format!("memory table \"{}\"", self.table.name)
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce { reader: "this process" }
    }

    fn check_schema(&self, _schema: &SchemaRef) -> Result<()> {
        Ok(())
    }

    fn needs_checkpoint(&self) -> bool {
        false
    }

    async fn last_published(&self, key: &SinkKey) -> Result<Option<BatchId>> {
        let owner = owner(key);
        let contents = self.table.lock();
        let own = contents.visible.keys().filter(|(other, _)| *other == owner);
        Ok(own.map(|(_, batch_id)| *batch_id).max())
    }

    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(MemoryWriter::new(Arc::clone(&self.table), task)))
    }

    async fn publish(&self, batch: &Acked) -> Result<Published> {
        let published = Published {
            rows: batch.acks.iter().map(|ack| ack.rows).sum(),
            bytes: batch.acks.iter().map(|ack| ack.bytes).sum(),
            files: 0,
        };
        let key = (owner(&batch.key), batch.batch_id);
        let mut contents = self.table.lock();
        match contents.visible.get(&key) {
            Some(there) if there.acks_nonce == batch.acks_nonce => return Ok(published),
            Some(_) => {
                return Err(Error::new(code::SINK_FOREIGN, "another checkpoint published this batch here")
                    .at("table", &self.table.name)
                    .at("batch", batch.batch_id));
            }
            None => {}
        }
        let stages: Vec<_> =
            batch.acks.iter().map(|ack| (key.0.clone(), key.1, batch.attempt.clone(), ack.task)).collect();
        if let Some(lost) = stages.iter().find(|stage| !contents.staged.contains_key(stage)) {
            return Err(Error::new(code::STAGE_LOST, format!("the rows of task {} are gone", lost.3))
                .at("table", &self.table.name)
                .at("batch", batch.batch_id));
        }
        let rows = stages.iter().filter_map(|stage| contents.staged.remove(stage)).flatten().collect();
        contents.visible.insert(key.clone(), Visible { acks_nonce: batch.acks_nonce.clone(), rows });
        contents.order.push(key);
        Ok(published)
    }

    async fn discard(&self, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
        let owner = owner(key);
        let mut contents = self.table.lock();
        contents
            .staged
            .retain(|(other, batch, attempt, _), _| *other != owner || *batch != batch_id || attempt == winner);
        Ok(())
    }

    async fn sweep(&self, key: &SinkKey, last: BatchId) -> Result<()> {
        let owner = owner(key);
        self.table.lock().staged.retain(|(other, batch_id, _, _), _| *other != owner || *batch_id > last);
        Ok(())
    }
}
