//! The leaf of a streaming plan: reads splits.
//!
//! Below it stands an in-memory table whose rows *are* the splits, as JSON. What a partition reads is therefore data: an
//! engine may shuffle the partitions, or run a slice of them, and every split is still read once. Above it nobody may
//! learn how many rows there will be: exact statistics would turn `count(*)` into a literal.
//!
//! Every split is read by a task of its own. Its rows go through a small queue, as the reader made them; its receipt
//! goes to the attempt's reports, perhaps a moment after the rows have ended. A reader that fails or panics fails the
//! attempt. Dropping the stream ends the reads that have not given all of their rows.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use futures::{FutureExt, Stream};
use serde::{Deserialize, Serialize};
use tidemill_core::crash::crash_point;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::offsets::Split;
use tidemill_core::source::{ReadContext, ReadItem, Receipt, Source, SourceReader, SourceSpec};

use super::attempt::AttemptContext;
use super::errors::{from_datafusion, from_panic, into_datafusion, placed, stopped};
use super::scan::SourceBinding;
use super::shared_reads::{Outlets, RunningRead, SplitRows, read_alone};

/// What a scan reads, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRead {
    /// The source's name within the query.
    pub source: String,
    /// What a reader is built from.
    pub spec: SourceSpec,
    /// The columns that are read, as indices into the source's schema; all if none is given. Where several scans share
    /// the read, what they need together.
    pub columns: Option<Vec<usize>>,
    /// This scan's own columns, as indices into what is read; all if none is given.
    pub output: Option<Vec<usize>>,
    /// How many scans share the read, over all plans of the batch.
    pub consumers: usize,
    /// Whether a partition gives its splits' rows one split after the other.
    pub ordered: bool,
}

impl SourceRead {
    /// What a scan that wants the columns `wanted` reads, bound to a batch.
    pub(super) fn new(name: &str, source: &dyn Source, bound: &SourceBinding, wanted: &[usize]) -> Result<Self> {
        let all: Vec<usize> = (0..source.schema().fields().len()).collect();
        let columns = if bound.partitions.is_empty() { wanted } else { bound.columns.as_slice() };
        let output = wanted.iter().map(|column| columns.iter().position(|read| read == column));
        let output: Vec<usize> = output.collect::<Option<_>>().ok_or_else(|| {
            Error::new(code::BUG, "a scan wants columns that the batch does not read").at("source", name)
        })?;
        Ok(SourceRead {
            source: name.to_owned(),
            spec: source.spec().clone(),
            output: (!output.iter().copied().eq(0..columns.len())).then_some(output),
            columns: (*columns != all).then(|| columns.to_vec()),
            consumers: bound.consumers.max(1),
            ordered: bound.ordered,
        })
    }
}

/// Reads the splits that its input's rows describe.
#[derive(Debug)]
pub struct SourceReadExec {
    read: Arc<SourceRead>,
    /// What the reader gives: the source's schema, cut to [`SourceRead::columns`].
    read_schema: SchemaRef,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SourceReadExec {
    /// Reads these splits, partition by partition. Without any there is one partition without rows.
    pub(super) fn over_splits(
        read: SourceRead,
        source_schema: &SchemaRef,
        partitions: &[Vec<Split>],
    ) -> PlanResult<Self> {
        let read_schema = match &read.columns {
            Some(columns) => Arc::new(source_schema.project(columns)?),
            None => Arc::clone(source_schema),
        };
        let rows = partitions.iter().map(|splits| split_rows(splits)).collect::<PlanResult<Vec<_>>>()?;
        let rows = if rows.is_empty() { vec![Vec::new()] } else { rows };
        let input = MemorySourceConfig::try_new_exec(&rows, split_schema(), None)?;
        SourceReadExec::try_new(read, read_schema, input)
    }

    /// Reads what the rows of `input` describe.
    pub fn try_new(read: SourceRead, read_schema: SchemaRef, input: Arc<dyn ExecutionPlan>) -> PlanResult<Self> {
        let schema = match &read.output {
            Some(output) => Arc::new(read_schema.project(output)?),
            None => Arc::clone(&read_schema),
        };
        let properties = properties(schema, input.as_ref());
        Ok(SourceReadExec { read: Arc::new(read), read_schema, input, properties, metrics: Default::default() })
    }

    /// What is read.
    pub fn read(&self) -> &SourceRead {
        &self.read
    }

    /// The columns that the reader gives.
    pub fn read_schema(&self) -> &SchemaRef {
        &self.read_schema
    }
}

/// As many partitions as the input has, each finite, rows as they come.
fn properties(schema: SchemaRef, input: &dyn ExecutionPlan) -> Arc<PlanProperties> {
    let partitions = input.properties().output_partitioning().partition_count();
    let properties = PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    // The queues take part in tokio's budget.
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

impl DisplayAs for SourceReadExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<_> = self.schema().fields().iter().map(|field| field.name().clone()).collect();
        let SourceRead { source, spec, consumers, .. } = self.read.as_ref();
        write!(f, "SourceReadExec: source={source}, format={}, columns=[{}]", spec.format, columns.join(", "))?;
        if *consumers > 1 { write!(f, ", consumers={consumers}") } else { Ok(()) }
    }
}

impl ExecutionPlan for SourceReadExec {
    fn name(&self) -> &str {
        "SourceReadExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // The planner has grouped the splits; more partitions below would undo it.
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
            ChildrenPropertiesMode::Recompute => properties(self.schema(), input.as_ref()),
        };
        let (read, read_schema) = (Arc::clone(&self.read), Arc::clone(&self.read_schema));
        Ok(Arc::new(SourceReadExec { read, read_schema, input, properties, metrics: Default::default() }))
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
        let descriptors = self.input.execute(partition, context)?;
        let opened = open(descriptors, Arc::clone(&self.read), Arc::clone(&self.read_schema), attempt);
        let (read, rows_read) = (Arc::clone(&self.read), MetricBuilder::new(&self.metrics).output_rows(partition));
        let rows =
            stream::once(opened).try_flatten().map(move |rows: Result<RecordBatch>| -> PlanResult<RecordBatch> {
                let rows = rows.map_err(into_datafusion)?;
                rows_read.add(rows.num_rows());
                match &read.output {
                    Some(output) => Ok(rows.project(output)?),
                    None => Ok(rows),
                }
            });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The rows of the descriptors: one column of JSON.
fn split_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("split", DataType::Utf8, false)]))
}

fn split_rows(splits: &[Split]) -> PlanResult<Vec<RecordBatch>> {
    if splits.is_empty() {
        return Ok(Vec::new());
    }
    let texts = splits.iter().map(|split| {
        serde_json::to_string(split)
            .map_err(|error| into_datafusion(Error::new(code::BUG, "a split cannot be written down").because(error)))
    });
    let texts = texts.collect::<PlanResult<Vec<_>>>()?;
    Ok(vec![RecordBatch::try_new(split_schema(), vec![Arc::new(StringArray::from(texts))])?])
}

fn splits_of(rows: &RecordBatch) -> Result<Vec<Split>> {
    let bad = |what: &str| Error::new(code::BUG, format!("descriptors of splits {what}"));
    let texts = rows.column(0).as_any().downcast_ref::<StringArray>().ok_or_else(|| bad("are not text"))?;
    let splits = texts
        .iter()
        .map(|text| serde_json::from_str(text.unwrap_or_default()).map_err(|error| bad("do not parse").because(error)));
    splits.collect()
}

/// Starts, or joins, the reads of all splits of a partition, and merges their rows.
async fn open(
    mut descriptors: SendableRecordBatchStream,
    read: Arc<SourceRead>,
    schema: SchemaRef,
    attempt: Arc<AttemptContext>,
) -> Result<impl Stream<Item = Result<RecordBatch>>> {
    let mut parts = Vec::new();
    while let Some(rows) = descriptors.try_next().await.map_err(from_datafusion)? {
        for split in splits_of(&rows)? {
            parts.push(open_split(split, &read, &schema, &attempt)?);
        }
    }
    Ok(match read.ordered {
        true => stream::iter(parts).flatten().left_stream(),
        false => stream::select_all(parts).right_stream(),
    })
}

fn open_split(split: Split, read: &SourceRead, schema: &SchemaRef, attempt: &Arc<AttemptContext>) -> Result<SplitRows> {
    let task = ReadTask {
        reader: attempt.clients.reader(&read.spec)?,
        split: split.clone(),
        schema: Arc::clone(schema),
        context: ReadContext {
            projection: read.columns.clone(),
            batch_rows: attempt.batch_rows,
            buffer_bytes: attempt.read_bytes,
            cancel: attempt.cancel.child_token(),
            clock: Arc::clone(&attempt.clock),
        },
        attempt: Arc::clone(attempt),
    };
    match read.consumers {
        1 => Ok(read_alone(|outlets| task.spawn(outlets))),
        consumers => attempt.shared.join(&split, consumers, |outlets| task.spawn(outlets)),
    }
}

/// One read of one split.
struct ReadTask {
    reader: Arc<dyn SourceReader>,
    split: Split,
    schema: SchemaRef,
    context: ReadContext,
    attempt: Arc<AttemptContext>,
}

impl ReadTask {
    fn spawn(self, mut outlets: Outlets) -> RunningRead {
        let (cancel, ended) = (self.context.cancel.clone(), Arc::new(AtomicBool::new(false)));
        let (running, has_ended) = (self.attempt.running.enter(), Arc::clone(&ended));
        let task = tokio::spawn(async move {
            let _running = running;
            let read = AssertUnwindSafe(self.run(&mut outlets, &has_ended)).catch_unwind().await;
            if let Err(error) = read.unwrap_or_else(|panic: Box<dyn Any + Send>| Err(from_panic(panic))) {
                if has_ended.load(Ordering::Acquire) {
                    self.attempt.reports.fail(error);
                    return;
                }
                // A consumer that is gone needs no error. The last gets the error itself, with its causes.
                while outlets.len() > 1 {
                    let _ = outlets.swap_remove(0).send(Err(error.clone())).await;
                }
                if let Some(outlet) = outlets.pop() {
                    let _ = outlet.send(Err(error)).await;
                }
            }
        });
        RunningRead::new(cancel, task.abort_handle(), ended)
    }

    /// Gives every consumer the rows of the split, then reports the receipt. The attempt waits for both.
    async fn run(&self, outlets: &mut Outlets, has_ended: &AtomicBool) -> Result<()> {
        let mut items = self.reader.read(self.split.clone(), self.context.clone());
        let (mut delivered, mut receipt) = (0_u64, None);
        while let Some(item) = self.unless_stopped(items.next()).await? {
            match item.map_err(|error| placed(error, "source", &self.split.source))? {
                ReadItem::Receipt(given) if receipt.is_none() => receipt = Some(given),
                _ if receipt.is_some() => return Err(self.broken("the reader went on after its receipt")),
                ReadItem::Receipt(_) => {}
                ReadItem::End => {
                    // In this order: a consumer that sees the end, and goes, must not stop the read.
                    has_ended.store(true, Ordering::Release);
                    outlets.clear();
                }
                ReadItem::Rows(_) if has_ended.load(Ordering::Acquire) => {
                    return Err(self.broken("the reader gave rows after their end"));
                }
                ReadItem::Rows(rows) if rows.num_rows() == 0 => {}
                ReadItem::Rows(rows) => {
                    if rows.schema_ref().fields() != self.schema.fields() {
                        return Err(self.broken("the reader gave other columns than it was asked for"));
                    }
                    if delivered == 0 {
                        crash_point("mid-read", self.attempt.batch_id);
                    }
                    delivered += rows.num_rows() as u64;
                    self.deliver(rows, outlets).await?;
                }
            }
        }
        let receipt = receipt.ok_or_else(|| self.broken("the reader ended without a receipt"))?;
        self.check(&receipt, delivered)?;
        self.attempt.reports.add_receipt(receipt);
        Ok(())
    }

    async fn deliver(&self, rows: RecordBatch, outlets: &mut Outlets) -> Result<()> {
        let mut at = 0;
        while at < outlets.len() {
            match self.unless_stopped(outlets[at].send(Ok(rows.clone()))).await? {
                Ok(()) => at += 1,
                Err(_) => drop(outlets.remove(at)),
            }
        }
        if outlets.is_empty() { Err(stopped()) } else { Ok(()) }
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => Err(stopped()),
            done = work => Ok(done),
        }
    }

    fn check(&self, receipt: &Receipt, delivered: u64) -> Result<()> {
        if receipt.rows == delivered {
            return Ok(());
        }
        let what = format!("the reader gave {delivered} rows and a receipt for {}", receipt.rows);
        Err(Error::new(code::RECEIPT_MISMATCH, what).at("source", &self.split.source).at("split", &self.split.id))
    }

    fn broken(&self, what: &str) -> Error {
        Error::new(code::BUG, what).at("source", &self.split.source).at("split", &self.split.id)
    }
}
