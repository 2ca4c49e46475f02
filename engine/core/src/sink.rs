//! The boundary to where rows go.
//!
//! A [`SinkWriter`] lives in a task and makes rows durable but not visible; its [`Ack`] proves it. A [`Sink`] lives in
//! the driver and, once `acks/N` names the winning attempt, makes exactly that attempt's rows visible: *publishes* them.
//! Everything that a sink remembers is keyed by ([`SinkKey`], batch id).

use std::fmt::Debug;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::ids::{AttemptId, BatchId, Nonce, QueryId};

/// Everything needed to build a sink's writers on another machine. Secrets are named in it, never contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSpec {
    /// The registered format, such as `parquet`.
    pub format: String,
    /// The format's own settings.
    pub config: Value,
}

/// What a sink promises, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Each row is seen once by this reader, such as "any reader of `**/*.parquet`".
    ExactlyOnce {
        /// The reader that the promise is made to.
        reader: &'static str,
    },
    /// A batch may be written again after a failure, always under its batch id.
    AtLeastOnce,
}

/// How a sink's rows become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writers make rows durable and invisible; [`Sink::publish`] shows them.
    Prepared,
    /// Writers show rows at once, so they may be shown again: at least once. Beside another sink the engine spools the
    /// rows and writes them after `acks/N`.
    Direct,
    /// What the engine makes of a direct sink beside others: rows wait beside the checkpoint, and are discarded after
    /// the next commit.
    Spooled,
}

/// Who writes: the first half of the key of everything that a sink remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SinkKey {
    /// The query, for ever.
    pub query_id: QueryId,
    /// The sink's name within the query.
    pub sink: String,
}

/// What one task writes.
#[derive(Clone, Debug)]
pub struct WriteTask {
    /// Who writes.
    pub key: SinkKey,
    /// The batch.
    pub batch_id: BatchId,
    /// This execution of the batch.
    pub attempt: AttemptId,
    /// The number of the task within the attempt, unique in it.
    pub task: u32,
    /// The columns of the rows to come.
    pub schema: SchemaRef,
    /// What the batch reads, per source, for the footers of files.
    pub ranges: Value,
}

/// A task's proof that its rows are durable, and not yet visible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The task.
    pub task: u32,
    /// Rows written.
    pub rows: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Files (or other units) written.
    pub files: u64,
    /// What [`Sink::publish`] needs to find them, in the sink's own shape.
    pub payload: Value,
}

/// An acknowledged batch, as one sink sees it: what `acks/N` says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Who writes.
    pub key: SinkKey,
    /// The batch.
    pub batch_id: BatchId,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// The nonce of `offsets/N`.
    pub offsets_nonce: Nonce,
    /// The nonce of `acks/N`. What a sink finds published under another one came from another checkpoint.
    pub acks_nonce: Nonce,
    /// What the batch read, per source.
    pub ranges: Value,
    /// The acks of the winning attempt's tasks; none for a batch without rows.
    pub acks: Vec<Ack>,
}

/// What publishing did, for progress and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Rows made visible.
    pub rows: u64,
    /// Bytes made visible.
    pub bytes: u64,
    /// Files made visible.
    pub files: u64,
}

/// The driver's side of a sink.
#[async_trait]
pub trait Sink: Send + Sync + Debug {
    /// What a task needs to build a writer.
    fn spec(&self) -> &SinkSpec;

    /// One line for people: where the rows go.
    fn description(&self) -> String;

    /// What is promised.
    fn guarantee(&self) -> Guarantee;

    /// How rows become visible.
    fn mode(&self) -> Mode {
        Mode::Prepared
    }

    /// Refuses columns that this sink cannot take, before anything runs.
    fn check_schema(&self, schema: &SchemaRef) -> Result<()>;

    /// At most this many tasks may write at once. A sink that shows rows in their order takes 1.
    fn tasks_max(&self) -> usize {
        usize::MAX
    }

    /// What a trigger should hold between batches when the user names none, in milliseconds: file sinks hold, so that
    /// they do not write hundreds of files a second.
    fn default_interval_ms(&self) -> u64 {
        0
    }

    /// Whether a query that writes here needs a checkpoint location of its own (console and memory do not).
    fn needs_checkpoint(&self) -> bool {
        true
    }

    /// The newest batch of this key that is published, all of it; none if there is none. No side effects.
    async fn last_published(&self, key: &SinkKey) -> Result<Option<BatchId>>;

    /// The URL of the folder whose readers see the rows; none if they do not land in one.
    fn table(&self) -> Option<&str> {
        None
    }

    /// Called at each start of a query, before any batch is planned: refuses a place that cannot be used or cannot keep
    /// the [guarantee](Self::guarantee). Gives what a person should know, a sentence each: that others have written here,
    /// say. It may be repeated.
    async fn prepare(&self, _key: &SinkKey) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// A writer for one task. The task's names carry the attempt, so two attempts never touch one another's rows.
    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>>;

    /// Makes an acknowledged batch visible, its record last. Idempotent: it may be repeated after any crash, and two
    /// drivers may do it at once. Done is judged by looking, never by an error. When it returns, all of it is durable.
    async fn publish(&self, batch: &Acked) -> Result<Published>;

    /// Removes what attempts of this batch other than `winner` left behind. Called only after `commits/N`. It may be
    /// repeated and it may be skipped.
    async fn discard(&self, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()>;

    /// Removes all that is still staged of batches up to `last`. They are committed, so it is nobody's: left by a driver
    /// that slept past a commit, or whose discarding was skipped. Called after a purge; it may be repeated and skipped.
    async fn sweep(&self, key: &SinkKey, last: BatchId) -> Result<()>;
}

/// The task's side of a sink.
#[async_trait]
pub trait SinkWriter: Send {
    /// Takes rows of the task's schema.
    async fn write(&mut self, rows: RecordBatch) -> Result<()>;

    /// Ends the task: when it returns, every row is durable.
    async fn finish(self: Box<Self>) -> Result<Ack>;

    /// Gives the task up. Best effort: what it leaves is invisible and is discarded later.
    async fn abort(self: Box<Self>);
}
