//! Spooled sinks: how a sink that shows rows at once stands beside others.
//!
//! A sink such as the console shows what it is given. Beside another sink that would show rows of attempts that lose. So
//! its rows wait in Arrow files beside the checkpoint, and are shown after `acks/N` has named the attempt: at least once,
//! and always those of the attempt that the other sinks show.
//!
//! ```text
//! <checkpoint>/spool/<sink>/<batch>-<attempt>-<task>.arrow
//! ```
//!
//! A batch's file stays until the next batch is committed: should its own `commits/N` be torn, it is shown again.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::sink::Mode;
use tidemill_core::store::{Location, Path, Upload, create::delete};
use tidemill_core::{
    Ack, Acked, AttemptId, BatchId, Context, Error, Guarantee, Options, Published, Registry, Result, Sink, SinkFormat,
    SinkKey, SinkSpec, SinkWriter, WriteTask, code,
};

/// The registered name. Users never write it.
const FORMAT: &str = "spool";

/// So many bytes are collected before they are written.
const PART_BYTES: usize = 8 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Config {
    /// The sink whose rows wait.
    inner: SinkSpec,
    /// The checkpoint.
    location: String,
}

/// Where a task's rows wait.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    path: String,
}

/// A sink whose rows wait beside the checkpoint until their attempt has won.
#[derive(Debug)]
pub struct Spooled {
    spec: SinkSpec,
    location: Location,
    inner: Arc<dyn Sink>,
}

impl Spooled {
    /// Puts the spool in front of a sink.
    pub fn new(inner: Arc<dyn Sink>, location: Location) -> Result<Self> {
        let config = Config { inner: inner.spec().clone(), location: location.url.clone() };
        let config = serde_json::to_value(config)
            .map_err(|error| Error::new(code::BUG, "a spec cannot be written down").because(error))?;
        Ok(Spooled { spec: SinkSpec { format: FORMAT.to_owned(), config }, location, inner })
    }
}

/// Makes spooled sinks out of their specs, in tasks.
#[derive(Debug)]
pub struct SpoolFormat {
    /// The formats of the sinks behind.
    pub formats: Registry,
}

#[async_trait]
impl SinkFormat for SpoolFormat {
    fn name(&self) -> &'static str {
        FORMAT
    }

    async fn open(&self, _: Options, _: Vec<String>, _: &Context) -> Result<Arc<dyn Sink>> {
        Err(Error::new(code::UNKNOWN_FORMAT, "no sink has the format \"spool\""))
    }

    fn sink(&self, spec: &SinkSpec, context: &Context) -> Result<Arc<dyn Sink>> {
        let config: Config = serde_json::from_value(spec.config.clone())
            .map_err(|error| Error::new(code::BUG, "the spec of a spooled sink is not understood").because(error))?;
        let inner = self.formats.sink(&config.inner.format)?.sink(&config.inner, context)?;
        Ok(Arc::new(Spooled { spec: spec.clone(), location: context.stores.open(&config.location)?, inner }))
    }
}

/// The folder of all that waits for a sink.
fn spool(sink: &str) -> String {
    format!("spool/{sink}")
}

/// How the names of a batch's files begin. Batches sort by their numbers, so it tells what is older, too.
fn of_batch(sink: &str, batch_id: BatchId) -> String {
    format!("{}/{:020}-", spool(sink), batch_id.0)
}

#[async_trait]
impl Sink for Spooled {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }

    fn description(&self) -> String {
        self.inner.description()
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn mode(&self) -> Mode {
        Mode::Spooled
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        self.inner.check_schema(schema)
    }

    fn tasks_max(&self) -> usize {
        self.inner.tasks_max()
    }

    fn needs_checkpoint(&self) -> bool {
        self.inner.needs_checkpoint()
    }

    async fn last_published(&self, _: &SinkKey) -> Result<Option<BatchId>> {
        Ok(None)
    }

    fn table(&self) -> Option<&str> {
        self.inner.table()
    }

    async fn prepare(&self, key: &SinkKey) -> Result<Vec<String>> {
        self.inner.prepare(key).await
    }

    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        let batch = of_batch(&task.key.sink, task.batch_id);
        let path = Path::from(format!("{batch}{}-{}.arrow", task.attempt, task.task));
        let upload = Upload::start(&self.location, &path);
        let ipc = StreamWriter::try_new(Vec::new(), &task.schema).map_err(encode)?;
        Ok(Box::new(SpoolWriter { task: task.task, path, upload, ipc, rows: 0, bytes: 0 }))
    }

    async fn publish(&self, batch: &Acked) -> Result<Published> {
        let mut published = Published::default();
        for ack in &batch.acks {
            let waiting: Waiting = serde_json::from_value(ack.payload.clone()).map_err(|error| {
                Error::new(code::CHECKPOINT_DAMAGED, "a spooled sink's ack is not understood").because(error)
            })?;
            let path = Path::from(waiting.path);
            let bytes = self.location.read(&path).await?.ok_or_else(|| {
                Error::new(code::STAGE_LOST, "rows that wait to be shown are gone")
                    .at("path", self.location.describe(&path))
            })?;
            let rows = StreamReader::try_new(Cursor::new(bytes), None).map_err(encode)?;
            let task = WriteTask {
                key: batch.key.clone(),
                batch_id: batch.batch_id,
                attempt: batch.attempt.clone(),
                task: ack.task,
                schema: rows.schema(),
                ranges: batch.ranges.clone(),
            };
            let mut writer = self.inner.writer(task).await?;
            for rows in rows {
                writer.write(rows.map_err(encode)?).await?;
            }
            let shown = writer.finish().await?;
            published.rows += shown.rows;
            published.bytes += shown.bytes;
            published.files += shown.files;
        }
        Ok(published)
    }

    /// What lost attempts of this batch wrote, and all that older batches have shown.
    async fn discard(&self, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
        let batch = of_batch(&key.sink, batch_id);
        let won = format!("{batch}{winner}-");
        self.delete(key, |path| *path < *batch || (path.starts_with(&batch) && !path.starts_with(&won))).await
    }

    async fn sweep(&self, key: &SinkKey, last: BatchId) -> Result<()> {
        let above = of_batch(&key.sink, last.next());
        self.delete(key, |path| *path < *above).await
    }
}

impl Spooled {
    async fn delete(&self, key: &SinkKey, goes: impl Fn(&str) -> bool) -> Result<()> {
        for path in self.location.paths(&Path::from(spool(&key.sink))).await? {
            if goes(path.as_ref()) {
                delete(&self.location, &path).await?;
            }
        }
        Ok(())
    }
}

fn encode(error: arrow::error::ArrowError) -> Error {
    Error::new(code::ENCODE, "rows cannot be spooled").because(error)
}

struct SpoolWriter {
    task: u32,
    path: Path,
    upload: Upload,
    ipc: StreamWriter<Vec<u8>>,
    rows: u64,
    bytes: u64,
}

impl SpoolWriter {
    async fn flush(&mut self) -> Result<()> {
        let part = std::mem::take(self.ipc.get_mut());
        self.bytes += part.len() as u64;
        self.upload.write(part.into()).await
    }
}

#[async_trait]
impl SinkWriter for SpoolWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        self.ipc.write(&rows).map_err(encode)?;
        if self.ipc.get_ref().len() >= PART_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn finish(mut self: Box<Self>) -> Result<Ack> {
        self.ipc.finish().map_err(encode)?;
        self.flush().await?;
        let SpoolWriter { task, path, upload, rows, bytes, .. } = *self;
        upload.finish().await?;
        let payload = serde_json::json!(Waiting { path: path.to_string() });
        Ok(Ack { task, rows, bytes, files: 0, payload })
    }

    async fn abort(self: Box<Self>) {
        self.upload.abort().await;
    }
}
