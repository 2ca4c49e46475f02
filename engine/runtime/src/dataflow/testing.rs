//! A source and a sink for the tests of this folder: numbers, read with faults where asked, and rows kept in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, BinaryArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidemill_core::error::{Error, Result, code};
use tidemill_core::ids::{AttemptId, BatchId, QueryId};
use tidemill_core::offsets::{Offsets, Range, Split};
use tidemill_core::options::Options;
use tidemill_core::registry::{Context, Registry, SinkFormat, SourceFormat};
use tidemill_core::sink::{Ack, Acked, Guarantee, Published, Sink, SinkKey, SinkSpec, SinkWriter, WriteTask};
use tidemill_core::source::{Offer, ReadContext, ReadItem, ReadLimit, Receipt, Source, SourceReader, SourceSpec};

use super::engine::{Engine, EngineOptions};
use super::plan_batch::{BatchRequest, SinkPlan};
use super::scan::StreamTable;

/// What the source and the sink remember.
#[derive(Debug, Default)]
pub struct Memory {
    /// Every read: split and columns.
    pub reads: Mutex<Vec<(String, Option<Vec<usize>>)>>,
    /// By sink: the rows of finished tasks.
    pub finished: Mutex<BTreeMap<String, Vec<RecordBatch>>>,
    /// Writers given up.
    pub aborted: AtomicUsize,
    /// Readers and sinks built.
    pub built: AtomicUsize,
}

/// What goes wrong in a read, and at which number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    None,
    Fail(i64),
    Panic(i64),
    Hang(i64),
    NoReceipt,
    WrongReceipt,
    OtherColumns,
    /// Says where the rows end; the receipt comes when a sink has finished with them.
    LateReceipt,
    /// The same, and then an error in place of the receipt.
    LateFail,
    /// Gives the rows once more after it said that they had ended.
    EndsTooEarly,
}

/// A source of the numbers of a split's range: `n`, the split's name `part`, and `body`, a JSON message.
#[derive(Debug)]
pub struct Numbers {
    spec: SourceSpec,
}

impl Numbers {
    pub fn with(fault: Fault) -> Arc<dyn Source> {
        Arc::new(Numbers { spec: SourceSpec { format: "numbers".into(), config: json!(fault) } })
    }
}

pub fn numbers_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        Arc::new(Schema::new(vec![
            Field::new("part", DataType::Utf8, false),
            Field::new("n", DataType::Int64, false),
            Field::new("body", DataType::Binary, true),
        ]))
    });
    Arc::clone(&SCHEMA)
}

fn rows(part: &str, numbers: std::ops::Range<i64>) -> RecordBatch {
    let count = numbers.clone().count();
    let bodies: Vec<String> = numbers.clone().map(|n| format!(r#"{{"a":{n},"b":"b{n}"}}"#)).collect();
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(StringArray::from(vec![part; count])),
        Arc::new(Int64Array::from_iter_values(numbers)),
        Arc::new(BinaryArray::from_iter_values(bodies)),
    ];
    RecordBatch::try_new(numbers_schema(), columns).unwrap()
}

#[async_trait]
impl Source for Numbers {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }
    fn schema(&self) -> SchemaRef {
        numbers_schema()
    }
    fn description(&self) -> String {
        "numbers".into()
    }
    async fn initial(&self) -> Result<Offsets> {
        Ok(Offsets::encode(&0))
    }
    async fn next(&self, _: &Offsets, _: &ReadLimit) -> Result<Option<Offer>> {
        Ok(None)
    }
    fn plan(&self, _: &str, _: &Range, _: &Value) -> Result<Vec<Split>> {
        Ok(Vec::new())
    }
}

#[derive(Debug)]
struct NumbersReader {
    fault: Fault,
    memory: Arc<Memory>,
}

impl SourceReader for NumbersReader {
    fn read(&self, split: Split, context: ReadContext) -> BoxStream<'static, Result<ReadItem>> {
        self.memory.reads.lock().unwrap().push((split.id.clone(), context.projection.clone()));
        let (start, end): (i64, i64) = (split.start.decode().unwrap(), split.end.decode().unwrap());
        let (step, fault) = (context.batch_rows as i64, self.fault);
        let part = split.id.clone();
        let batches = stream::iter((start..end).step_by(context.batch_rows)).then(move |from| {
            let (part, projection) = (part.clone(), context.projection.clone());
            async move {
                let numbers = from..(from + step).min(end);
                match fault {
                    Fault::Fail(at) if numbers.contains(&at) => {
                        return Err(Error::new(code::SOURCE_UNAVAILABLE, "no answer").at("n", at).because("reset"));
                    }
                    Fault::Panic(at) if numbers.contains(&at) => panic!("number {at} is cursed"),
                    Fault::Hang(at) if numbers.contains(&at) => std::future::pending().await,
                    Fault::OtherColumns => return Ok(ReadItem::Rows(rows(&part, numbers))),
                    _ => {}
                }
                let all = rows(&part, numbers);
                Ok(ReadItem::Rows(match projection {
                    Some(columns) => all.project(&columns).unwrap(),
                    None => all,
                }))
            }
        });
        let count = (end - start) as u64;
        let receipt = Receipt {
            source: split.source.clone(),
            split: split.id.clone(),
            start: split.start.clone(),
            end: split.end.clone(),
            rows: if fault == Fault::WrongReceipt { count + 1 } else { count },
            bytes: 0,
            first: (count > 0).then_some(start),
            last: (count > 0).then_some(end - 1),
            ascending: true,
            lost: 0,
            identity: Value::Null,
        };
        let last = stream::iter((fault != Fault::NoReceipt).then_some(Ok(ReadItem::Receipt(receipt))));
        if !matches!(fault, Fault::LateReceipt | Fault::LateFail | Fault::EndsTooEarly) {
            return batches.chain(last).boxed();
        }
        let (memory, all) = (Arc::clone(&self.memory), rows(&split.id, start..end));
        let late = async move {
            while fault != Fault::EndsTooEarly && memory.finished.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            match fault {
                Fault::LateReceipt => None,
                Fault::EndsTooEarly => Some(Ok(ReadItem::Rows(all))),
                _ => Some(Err(Error::new(code::SOURCE_UNAVAILABLE, "no answer at the end"))),
            }
        };
        let late = stream::once(late).filter_map(std::future::ready);
        batches.chain(stream::iter([Ok(ReadItem::End)])).chain(late).chain(last).boxed()
    }
}

#[derive(Debug)]
struct NumbersFormat(Arc<Memory>);

#[async_trait]
impl SourceFormat for NumbersFormat {
    fn name(&self) -> &'static str {
        "numbers"
    }
    async fn open(&self, _: Options, _: &Context) -> Result<Arc<dyn Source>> {
        Ok(Numbers::with(Fault::None))
    }
    fn reader(&self, spec: &SourceSpec, _: &Context) -> Result<Arc<dyn SourceReader>> {
        self.0.built.fetch_add(1, Ordering::SeqCst);
        let fault = serde_json::from_value(spec.config.clone()).unwrap();
        Ok(Arc::new(NumbersReader { fault, memory: Arc::clone(&self.0) }))
    }
}

/// What goes wrong in a writer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum SinkFault {
    None,
    FailWrite,
    PanicWrite,
    HangWrite,
    FailFinish,
    WrongAck,
}

/// A sink that keeps the rows of finished tasks.
#[derive(Debug)]
pub struct Keep {
    spec: SinkSpec,
    tasks_max: usize,
    memory: Arc<Memory>,
}

#[async_trait]
impl Sink for Keep {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }
    fn description(&self) -> String {
        "keep".into()
    }
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }
    fn tasks_max(&self) -> usize {
        self.tasks_max
    }
    fn check_schema(&self, _: &SchemaRef) -> Result<()> {
        Ok(())
    }
    async fn last_published(&self, _: &SinkKey) -> Result<Option<BatchId>> {
        Ok(None)
    }
    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        let fault = serde_json::from_value(self.spec.config.clone()).unwrap();
        Ok(Box::new(KeepWriter { task, fault, rows: Vec::new(), memory: Arc::clone(&self.memory) }))
    }
    async fn publish(&self, _: &Acked) -> Result<Published> {
        Ok(Published::default())
    }
    async fn discard(&self, _: &SinkKey, _: BatchId, _: &AttemptId) -> Result<()> {
        Ok(())
    }
    async fn sweep(&self, _: &SinkKey, _: BatchId) -> Result<()> {
        Ok(())
    }
}

struct KeepWriter {
    task: WriteTask,
    fault: SinkFault,
    rows: Vec<RecordBatch>,
    memory: Arc<Memory>,
}

#[async_trait]
impl SinkWriter for KeepWriter {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        assert_eq!(rows.schema_ref().fields(), self.task.schema.fields());
        match self.fault {
            SinkFault::FailWrite => return Err(Error::new(code::SINK_UNAVAILABLE, "no room")),
            SinkFault::PanicWrite => panic!("the writer is cursed"),
            SinkFault::HangWrite => std::future::pending().await,
            _ => self.rows.push(rows),
        }
        Ok(())
    }
    async fn finish(self: Box<Self>) -> Result<Ack> {
        if self.fault == SinkFault::FailFinish {
            return Err(Error::new(code::SINK_UNAVAILABLE, "no room at the end"));
        }
        let rows = self.rows.iter().map(|rows| rows.num_rows() as u64).sum::<u64>();
        let rows = if self.fault == SinkFault::WrongAck { rows - 1 } else { rows };
        self.memory.finished.lock().unwrap().entry(self.task.key.sink.clone()).or_default().extend(self.rows);
        Ok(Ack { task: self.task.task, rows, bytes: 0, files: 1, payload: Value::Null })
    }
    async fn abort(self: Box<Self>) {
        self.memory.aborted.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct KeepFormat(Arc<Memory>);

#[async_trait]
impl SinkFormat for KeepFormat {
    fn name(&self) -> &'static str {
        "keep"
    }
    async fn open(&self, _: Options, _: Vec<String>, _: &Context) -> Result<Arc<dyn Sink>> {
        Err(Error::new(code::BUG, "not opened in tests"))
    }
    fn sink(&self, spec: &SinkSpec, _: &Context) -> Result<Arc<dyn Sink>> {
        self.0.built.fetch_add(1, Ordering::SeqCst);
        let memory = Arc::clone(&self.0);
        Ok(Arc::new(Keep { spec: spec.clone(), tasks_max: usize::MAX, memory }))
    }
}

/// An engine over [`Numbers`] and [`Keep`], with two tasks at a time and record batches of 100 rows.
#[derive(Debug)]
pub struct Kit {
    pub engine: Engine,
    pub memory: Arc<Memory>,
}

impl Kit {
    pub fn new() -> Self {
        let memory = Arc::new(Memory::default());
        let mut registry = Registry::new();
        registry.add_source(Arc::new(NumbersFormat(Arc::clone(&memory))));
        registry.add_sink(Arc::new(KeepFormat(Arc::clone(&memory))));
        let options = EngineOptions { parallelism: 2, memory_bytes: 64 << 20, batch_rows: 100, fetch_bytes: 16 << 20 };
        Kit { engine: Engine::new(Arc::new(registry), Context::default(), options).unwrap(), memory }
    }

    /// Makes a source known as a table, under its name.
    pub fn table(&self, name: &str, fault: Fault) {
        self.table_of(name, Numbers::with(fault));
    }

    pub fn table_of(&self, name: &str, source: Arc<dyn Source>) {
        let table = Arc::new(StreamTable { name: name.into(), source });
        self.engine.state().schema_for_ref(name).unwrap().register_table(name.into(), table).unwrap();
    }

    /// An analysed plan.
    pub async fn sql(&self, sql: &str) -> Result<LogicalPlan> {
        let plan = self.engine.state().create_logical_plan(sql).await.map_err(super::from_datafusion)?;
        self.engine.analyze(plan)
    }

    pub fn sink(&self, name: &str, plan: LogicalPlan, tasks_max: usize) -> SinkPlan {
        self.faulty_sink(name, plan, tasks_max, SinkFault::None)
    }

    pub fn faulty_sink(&self, name: &str, plan: LogicalPlan, tasks_max: usize, fault: SinkFault) -> SinkPlan {
        let spec = SinkSpec { format: "keep".into(), config: json!(fault) };
        let sink = Arc::new(Keep { spec, tasks_max, memory: Arc::clone(&self.memory) });
        SinkPlan::new(name, sink, Arc::new(plan))
    }

    /// A batch over these splits, with a sink for each of the queries: `s0`, `s1`, …
    pub async fn request(&self, splits: Vec<Split>, queries: &[&str]) -> BatchRequest {
        let mut sinks = Vec::new();
        for (at, sql) in queries.iter().enumerate() {
            sinks.push(self.sink(&format!("s{at}"), self.sql(sql).await.unwrap(), usize::MAX));
        }
        BatchRequest {
            query_id: QueryId::from_text("q"),
            batch_id: BatchId(7),
            attempt: AttemptId::from_text("a"),
            timestamp_ms: 1_700_000_000_000,
            ranges: Value::Null,
            splits,
            sinks,
        }
    }

    /// What a sink has, as sorted lines.
    pub fn lines(&self, sink: &str) -> Vec<String> {
        let mut lines = self.lines_in_order(sink);
        lines.sort();
        lines
    }

    pub fn lines_in_order(&self, sink: &str) -> Vec<String> {
        let finished = self.memory.finished.lock().unwrap();
        lines_of(finished.get(sink).map_or(&[], Vec::as_slice))
    }
}

/// Rows as lines, their columns divided by blanks.
pub fn lines_of(rows: &[RecordBatch]) -> Vec<String> {
    use datafusion::arrow::util::display::array_value_to_string;
    let line = |rows: &RecordBatch, row| {
        let texts = rows.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        texts.collect::<Vec<_>>().join(" ")
    };
    rows.iter().flat_map(|rows| (0..rows.num_rows()).map(|row| line(rows, row))).collect()
}

/// A split of the numbers in a range.
pub fn split(source: &str, id: &str, numbers: std::ops::Range<i64>) -> Split {
    Split {
        source: source.into(),
        id: id.into(),
        start: Offsets::encode(&numbers.start),
        end: Offsets::encode(&numbers.end),
        estimated_rows: (numbers.end - numbers.start) as u64,
    }
}
