//! The task's side: keeps the first rows, prints them when the batch ends.

use std::io::Write;
use std::sync::PoisonError;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use serde_json::Value;
use tidemill_core::{Ack, Error, Result, SinkWriter, WriteTask, code};

use super::config::{Config, Output};
use super::table;

/// Prints one batch.
pub(super) struct ConsoleWriter {
    config: Config,
    output: Option<Output>,
    task: WriteTask,
    shown: Vec<RecordBatch>,
    rows: u64,
}

impl ConsoleWriter {
    pub(super) fn new(config: Config, output: Option<Output>, task: WriteTask) -> Self {
        ConsoleWriter { config, output, task, shown: Vec::new(), rows: 0 }
    }
}

#[async_trait]
impl SinkWriter for ConsoleWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        let wanted = (self.config.rows as u64).saturating_sub(self.rows).min(rows.num_rows() as u64) as usize;
        self.rows += rows.num_rows() as u64;
        if wanted > 0 {
            self.shown.push(rows.slice(0, wanted));
        }
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<Ack> {
        let table = table::table(&self.task.schema, &self.shown, self.config.truncate)
            .map_err(|error| Error::new(code::ENCODE, "the rows cannot be shown as text").because(error))?;
        let line = "-------------------------------------------";
        let mut text = format!("{line}\nBatch: {}\n{line}\n{table}", self.task.batch_id);
        if self.rows > self.config.rows as u64 {
            let rows = if self.config.rows == 1 { "row" } else { "rows" };
            text.push_str(&format!("only showing top {} {rows}\n", self.config.rows));
        }
        text.push('\n');
        let bytes = text.len() as u64;
        print(self.output, text).await?;
        Ok(Ack { task: self.task.task, rows: self.rows, bytes, files: 0, payload: Value::Null })
    }

    async fn abort(self: Box<Self>) {}
}

/// Writes off the async workers: a terminal or a pipe may block for as long as its reader likes.
async fn print(output: Option<Output>, text: String) -> Result<()> {
    let printed = tokio::task::spawn_blocking(move || match output {
        Some(output) => write(&mut *output.lock().unwrap_or_else(PoisonError::into_inner), &text),
        None => write(&mut std::io::stdout().lock(), &text),
    });
    let printed = printed.await.map_err(|error| Error::new(code::TASK_PANICKED, "printing panicked").because(error))?;
    printed.map_err(|error| match error.kind() {
        // Whoever read has gone; waiting will not bring it back.
        std::io::ErrorKind::BrokenPipe => {
            Error::new(code::STORE_REFUSED, "the console is closed").because(error).fix("keep its reader running")
        }
        _ => Error::new(code::SINK_UNAVAILABLE, "the console cannot be written").because(error),
    })
}

fn write(output: &mut (impl Write + ?Sized), text: &str) -> std::io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}
