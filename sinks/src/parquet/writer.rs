//! The task's side: rows in, staged files out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use tidemill_core::store::Location;
use tidemill_core::{Ack, Error, Result, SinkWriter, WriteTask, code};

use super::config::Config;
use super::file::OpenFile;
use super::layout::Layout;
use super::manifest::{AckPayload, ManifestFile};
use super::memory;
use super::partition::Partitioner;
use super::properties;

/// Rows are encoded in slices of about so many bytes, so that budgets are looked at in time.
const SLICE_BYTES: usize = 4 << 20;
/// And of at most so many rows.
const SLICE_ROWS_MAX: usize = 16 << 10;

/// Writes one task's rows.
pub(super) struct ParquetWriter {
    config: Arc<Config>,
    location: Location,
    layout: Layout,
    task: WriteTask,
    partitioner: Partitioner,
    schema: SchemaRef,
    /// By partition folder.
    open: HashMap<Arc<str>, OpenFile>,
    staged: Vec<ManifestFile>,
    /// Files begun so far.
    files: u32,
}

impl ParquetWriter {
    pub(super) fn new(config: Arc<Config>, location: Location, task: WriteTask) -> Result<Self> {
        let partitioner = Partitioner::new(&task.schema, &config.partition_by)?;
        let schema = properties::stored_schema(partitioner.schema());
        let layout = Layout::of(&task.key)?;
        Ok(ParquetWriter {
            config,
            location,
            layout,
            task,
            partitioner,
            schema,
            open: HashMap::new(),
            staged: Vec::new(),
            files: 0,
        })
    }

    async fn write_part(&mut self, folder: &Arc<str>, rows: RecordBatch, bytes: usize) -> Result<()> {
        let file = match self.open.get_mut(folder) {
            Some(file) => file,
            None => {
                if self.open.len() >= self.config.files_open_max {
                    self.close_largest(OpenFile::bytes).await?;
                }
                let file = self.begin(folder)?;
                self.open.entry(Arc::clone(folder)).or_insert(file)
            }
        };
        file.write(&self.location, &self.task, rows, bytes).await?;
        if file.bytes() >= self.config.target_bytes
            && let Some(file) = self.open.remove(folder)
        {
            self.close(file).await?;
        }
        self.keep_budget().await
    }

    fn begin(&mut self, folder: &str) -> Result<OpenFile> {
        let (batch_id, attempt) = (self.task.batch_id, &self.task.attempt);
        let target = self.layout.file(folder, batch_id, attempt, self.task.task, self.files)?;
        let stage = self.layout.stage(batch_id, attempt, &target)?;
        self.files += 1;
        Ok(OpenFile::new(target, stage, self.config.compression))
    }

    async fn close(&mut self, file: OpenFile) -> Result<()> {
        self.staged.push(file.close(&self.location, &self.task).await?);
        Ok(())
    }

    /// Closes the file that is largest by this measure: it reads well as it is.
    async fn close_largest<T: Ord>(&mut self, measure: impl Fn(&OpenFile) -> T) -> Result<()> {
        let largest = self.open.iter().max_by_key(|(_, file)| measure(file)).map(|(folder, _)| Arc::clone(folder));
        match largest.and_then(|folder| self.open.remove(&folder)) {
            Some(file) => self.close(file).await,
            None => Ok(()),
        }
    }

    fn held_bytes(&self) -> usize {
        self.open.values().map(OpenFile::held_bytes).sum()
    }

    /// While the process holds too much, frees what this task's largest holds: it ends its row group or, if there is
    /// none, the file.
    async fn keep_budget(&mut self) -> Result<()> {
        // Ends: each turn leaves less held, or one file less.
        while memory::exceeded() && self.held_bytes() > memory::TASK_BYTES_FREE {
            match self.open.values_mut().max_by_key(|file| file.held_bytes()) {
                Some(file) if file.held_bytes() < memory::WORTH_FREEING_BYTES => return Ok(()),
                Some(file) if file.is_parked() => self.close_largest(OpenFile::held_bytes).await?,
                Some(file) => file.end_row_group(&self.location, &self.task).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl SinkWriter for ParquetWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if rows.num_columns() != self.task.schema.fields().len() {
            return Err(Error::new(code::BUG, "rows do not have the task's columns").at("sink", &self.task.key.sink));
        }
        let parts = self.partitioner.split(&rows).map_err(|error| self.place(error))?;
        for (folder, part) in parts {
            let part = properties::stored_rows(&part, &self.schema)?;
            let bytes_per_row = properties::bytes_of(&part) / part.num_rows().max(1);
            let step = (SLICE_BYTES / bytes_per_row.max(1)).clamp(1, SLICE_ROWS_MAX);
            for start in (0..part.num_rows()).step_by(step) {
                let slice = part.slice(start, step.min(part.num_rows() - start));
                let bytes = bytes_per_row * slice.num_rows();
                self.write_part(&folder, slice, bytes).await.map_err(|error| self.place(error))?;
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<Ack> {
        for file in std::mem::take(&mut self.open).into_values() {
            self.close(file).await.map_err(|error| self.place(error))?;
        }
        self.staged.sort_by(|one, other| one.path.cmp(&other.path));
        let payload = AckPayload { files: std::mem::take(&mut self.staged) };
        Ok(Ack {
            task: self.task.task,
            rows: payload.files.iter().map(|file| file.rows).sum(),
            bytes: payload.files.iter().map(|file| file.bytes).sum(),
            files: payload.files.len() as u64,
            payload: serde_json::to_value(payload)
                .map_err(|error| Error::new(code::BUG, "an ack cannot be written").because(error))?,
        })
    }

    async fn abort(mut self: Box<Self>) {
        for file in std::mem::take(&mut self.open).into_values() {
            file.abort().await;
        }
    }
}

impl ParquetWriter {
    fn place(&self, error: Error) -> Error {
        error.at("sink", &self.task.key.sink).at("batch", self.task.batch_id)
    }
}
