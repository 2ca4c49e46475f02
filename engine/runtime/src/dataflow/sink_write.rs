//! The root of a streaming plan: writes rows to a sink and answers with acks.
//!
//! As many partitions out as in. Each opens a writer of its own when its first rows come, under a task number that it
//! draws from the attempt: the number of a partition is no identity. A partition without rows writes nothing and answers
//! with no row. What is answered is small and has the same schema for every sink, so it can travel; the driver alone
//! publishes. A writer whose task fails, or is dropped, is aborted.

use std::fmt;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, RecordBatch, StringArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_core::crash::crash_point;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::ids::{AttemptId, BatchId};
use tidemill_core::sink::{Ack, SinkKey, SinkSpec, SinkWriter, WriteTask};

use super::attempt::AttemptContext;
use super::errors::{from_arrow, from_datafusion, into_datafusion, placed};

/// What a sink's tasks write, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SinkWrite {
    /// What a writer is built from.
    pub spec: SinkSpec,
    /// Who writes.
    pub key: SinkKey,
    /// The batch.
    pub batch_id: BatchId,
    /// This execution of the batch.
    pub attempt: AttemptId,
    /// What the batch reads, per source, for the footers of files.
    pub ranges: Value,
}

/// Writes its input's rows and gives one row for every writer: sink, task, ack.
#[derive(Debug)]
pub struct SinkWriteExec {
    write: Arc<SinkWrite>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SinkWriteExec {
    /// Writes the rows of `input`.
    pub fn new(write: SinkWrite, input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties(input.as_ref());
        SinkWriteExec { write: Arc::new(write), input, properties, metrics: Default::default() }
    }

    /// What is written.
    pub fn write(&self) -> &SinkWrite {
        &self.write
    }
}

/// The schema of acks: `sink` (its name), `task` (its number), `ack` (JSON).
pub fn ack_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("sink", DataType::Utf8, false),
            Field::new("task", DataType::UInt32, false),
            Field::new("ack", DataType::Utf8, false),
        ]))
    });
    Arc::clone(&SCHEMA)
}

/// The acks in rows that a [`SinkWriteExec`] gave, each with its sink's name.
pub fn acks_of(rows: &RecordBatch) -> Result<Vec<(String, Ack)>> {
    let bad = || Error::new(code::BUG, "rows of acks have another schema");
    let text = |column: usize| rows.column(column).as_any().downcast_ref::<StringArray>().ok_or_else(bad);
    let (sinks, acks) = (text(0)?, text(2)?);
    let pairs = sinks.iter().zip(acks).map(|(sink, ack)| {
        let ack = serde_json::from_str(ack.unwrap_or_default()).map_err(|error| bad().because(error))?;
        Ok((sink.unwrap_or_default().to_owned(), ack))
    });
    pairs.collect()
}

fn properties(input: &dyn ExecutionPlan) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(ack_schema()),
        Partitioning::UnknownPartitioning(input.properties().output_partitioning().partition_count()),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

impl DisplayAs for SinkWriteExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SinkWrite { spec, key, batch_id, .. } = self.write.as_ref();
        write!(f, "SinkWriteExec: sink={}, format={}, batch_id={batch_id}", key.sink, spec.format)
    }
}

impl ExecutionPlan for SinkWriteExec {
    fn name(&self) -> &str {
        "SinkWriteExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // One writer for each partition: more of them are more files.
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let input = children.swap_remove(0);
        let properties = match options.children_properties {
            ChildrenPropertiesMode::Keep => Arc::clone(&self.properties),
            ChildrenPropertiesMode::Recompute => properties(input.as_ref()),
        };
        let write = Arc::clone(&self.write);
        Ok(Arc::new(SinkWriteExec { write, input, properties, metrics: Default::default() }))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let attempt = AttemptContext::of(&context).map_err(into_datafusion)?;
        let rows = self.input.execute(partition, context)?;
        let written = MetricBuilder::new(&self.metrics).counter("rows_written", partition);
        let acked = write_all(rows, Arc::clone(&self.write), attempt, written);
        let acks = stream::once(acked).try_filter_map(|ack| async move { Ok(ack) }).map_err(into_datafusion);
        Ok(Box::pin(RecordBatchStreamAdapter::new(ack_schema(), acks)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Writes a partition and gives its ack as a row; none if there were no rows.
async fn write_all(
    mut input: SendableRecordBatchStream,
    write: Arc<SinkWrite>,
    attempt: Arc<AttemptContext>,
    written: Count,
) -> Result<Option<RecordBatch>> {
    let mut open: Option<OpenWriter> = None;
    while let Some(rows) = input.next().await {
        let rows = rows.map_err(from_datafusion)?;
        if rows.num_rows() == 0 {
            continue;
        }
        let first = open.is_none();
        let writer = match &mut open {
            Some(writer) => writer,
            None => open.insert(OpenWriter::open(&write, input.schema(), &attempt).await?),
        };
        written.add(rows.num_rows());
        writer.write(rows).await?;
        if first {
            crash_point("mid-write", write.batch_id);
        }
    }
    match open {
        None => Ok(None),
        Some(writer) => {
            let ack = writer.finish().await?;
            ack_row(&write.key.sink, &ack).map(Some)
        }
    }
}

fn ack_row(sink: &str, ack: &Ack) -> Result<RecordBatch> {
    let json = serde_json::to_string(ack)
        .map_err(|error| Error::new(code::BUG, "an ack cannot be written down").because(error))?;
    let columns: [Arc<dyn Array>; 3] = [
        Arc::new(StringArray::from(vec![sink])),
        Arc::new(UInt32Array::from(vec![ack.task])),
        Arc::new(StringArray::from(vec![json])),
    ];
    RecordBatch::try_new(ack_schema(), columns.to_vec()).map_err(from_arrow)
}

/// A writer that is aborted unless it is finished.
struct OpenWriter {
    writer: Option<Box<dyn SinkWriter>>,
    sink: String,
    task: u32,
    rows: u64,
    attempt: Arc<AttemptContext>,
}

impl OpenWriter {
    async fn open(write: &SinkWrite, schema: SchemaRef, attempt: &Arc<AttemptContext>) -> Result<Self> {
        let sink = write.key.sink.clone();
        let task = attempt.reports.next_task(&sink);
        let work = WriteTask {
            key: write.key.clone(),
            batch_id: write.batch_id,
            attempt: write.attempt.clone(),
            task,
            schema,
            ranges: write.ranges.clone(),
        };
        let opened = attempt.clients.sink(&write.spec)?.writer(work).await;
        let writer = opened.map_err(|error| placed(error, "sink", &sink))?;
        Ok(OpenWriter { writer: Some(writer), sink, task, rows: 0, attempt: Arc::clone(attempt) })
    }

    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        match &mut self.writer {
            Some(writer) => writer.write(rows).await.map_err(|error| placed(error, "sink", &self.sink)),
            None => Err(self.broken("is written to after its end".to_owned())),
        }
    }

    async fn finish(mut self) -> Result<Ack> {
        let Some(writer) = self.writer.take() else { return Err(self.broken("is finished twice".to_owned())) };
        let ack = writer.finish().await.map_err(|error| placed(error, "sink", &self.sink))?;
        match (ack.task, ack.rows) {
            (task, rows) if task == self.task && rows == self.rows => Ok(ack),
            (task, rows) => {
                let (own, given) = (self.task, self.rows);
                Err(self.broken(format!("acknowledged {rows} rows of task {task}, not {given} of task {own}")))
            }
        }
    }

    fn broken(&self, what: String) -> Error {
        Error::new(code::BUG, format!("a writer {what}")).at("sink", &self.sink)
    }
}

impl Drop for OpenWriter {
    fn drop(&mut self) {
        // Aborting may wait for a store, and a drop cannot: it goes on by itself. The attempt's end waits for it, within
        // a bound; what is left behind is invisible and is discarded later.
        if let Some(writer) = self.writer.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let running = self.attempt.running.enter();
            runtime.spawn(async move {
                writer.abort().await;
                drop(running);
            });
        }
    }
}
