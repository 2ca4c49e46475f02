//! The driver's side: there is nothing to publish.

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tidemill_core::sink::Mode;
use tidemill_core::{
    Acked, AttemptId, BatchId, Error, Guarantee, Published, Result, Sink, SinkKey, SinkSpec, SinkWriter, WriteTask,
    code,
};

use super::config::{Config, FORMAT, Output};
use super::writer::ConsoleWriter;

/// Shows each batch on the console.
pub struct ConsoleSink {
    spec: SinkSpec,
    config: Config,
    output: Option<Output>,
}

impl std::fmt::Debug for ConsoleSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConsoleSink({:?})", self.config)
    }
}

impl ConsoleSink {
    pub(super) fn new(config: Config, output: Option<Output>) -> Result<Self> {
        let value = serde_json::to_value(&config)
            .map_err(|error| Error::new(code::BUG, "a spec cannot be written").because(error))?;
        Ok(ConsoleSink { spec: SinkSpec { format: FORMAT.to_owned(), config: value }, config, output })
    }
}

#[async_trait]
impl Sink for ConsoleSink {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }

    fn description(&self) -> String {
        "console".to_owned()
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

    fn tasks_max(&self) -> usize {
        1
    }

    fn needs_checkpoint(&self) -> bool {
        false
    }

    async fn last_published(&self, _key: &SinkKey) -> Result<Option<BatchId>> {
        Ok(None)
    }

    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(ConsoleWriter::new(self.config.clone(), self.output.clone(), task)))
    }

    async fn publish(&self, batch: &Acked) -> Result<Published> {
        Ok(Published { rows: batch.acks.iter().map(|ack| ack.rows).sum(), ..Published::default() })
    }

    async fn discard(&self, _key: &SinkKey, _batch_id: BatchId, _winner: &AttemptId) -> Result<()> {
        Ok(())
    }

    async fn sweep(&self, _key: &SinkKey, _last: BatchId) -> Result<()> {
        Ok(())
    }
}
