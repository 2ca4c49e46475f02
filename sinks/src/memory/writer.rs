//! The task's side.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use serde_json::Value;
use tidemill_core::{Ack, Result, SinkWriter, WriteTask};

use super::table::{Table, owner};

/// Stages one task's rows.
#[derive(Debug)]
pub(super) struct MemoryWriter {
    table: Arc<Table>,
    task: WriteTask,
    rows: Vec<RecordBatch>,
}

impl MemoryWriter {
    pub(super) fn new(table: Arc<Table>, task: WriteTask) -> Self {
        MemoryWriter { table, task, rows: Vec::new() }
    }
}

#[async_trait]
impl SinkWriter for MemoryWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() > 0 {
            self.rows.push(rows);
        }
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<Ack> {
        let MemoryWriter { table, task, rows } = *self;
        let ack = Ack {
            task: task.task,
            rows: rows.iter().map(|rows| rows.num_rows() as u64).sum(),
            bytes: rows.iter().map(|rows| rows.get_array_memory_size() as u64).sum(),
            files: 0,
            payload: Value::Null,
        };
        table.lock().staged.insert((owner(&task.key), task.batch_id, task.attempt, task.task), rows);
        Ok(ack)
    }

    async fn abort(self: Box<Self>) {}
}
