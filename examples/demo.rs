//! `./dev demo`: rows from an embedded broker to Parquet files, with a crash on the way.
//!
//! The program starts librdkafka's mock cluster and fills a topic, lands it with a pipeline in a child process, kills
//! that child once with SIGKILL in the middle, starts it again, and then looks whether each offset is there once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use tidemill::arrow::array::{AsArray, RecordBatch};
use tidemill::arrow::datatypes::{Int32Type, Int64Type};
use tidemill::prelude::*;

const TOPIC: &str = "sensor-data";
const PARTITIONS: i32 = 4;
/// About 120 bytes each: far below the 5 MB that the mock cluster keeps of a partition.
const ROWS: i64 = 40_000;
const COLUMNS: &str = "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &args[..] {
        [] => demo(),
        [role, brokers] if role == "fill" => fill(brokers),
        [role, brokers, folder] if role == "pipeline" => pipeline(brokers, Path::new(folder)),
        _ => Err("usage: demo, or demo fill ADDRESS (writes the readings to a broker of your own)".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("tidemill-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;

    println!("1. An embedded broker, and {ROWS} sensor readings as JSON in topic \"{TOPIC}\".");
    let cluster = MockCluster::new(1)?;
    cluster.create_topic(TOPIC, PARTITIONS, 1)?;
    fill(&cluster.bootstrap_servers())?;

    println!("2. A pipeline in a process of its own lands them as Parquet, a batch every 100 ms …");
    let mut child = start(&cluster.bootstrap_servers(), &folder)?;
    follow(&mut child, Some("batch 4:"))?;
    child.kill()?;
    child.wait()?;
    println!(
        "   … and is killed in the middle, with SIGKILL. On the disk: {} files.",
        files(&folder.join("table"))?.len()
    );

    println!("3. Started again, it goes on at the very next offset.");
    let mut child = start(&cluster.bootstrap_servers(), &folder)?;
    follow(&mut child, None)?;
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("the pipeline ended with {status}").into());
    }

    println!("4. What any reader of {}/**/*.parquet sees:", folder.join("table").display());
    look(&folder.join("table"))?;

    println!("\nWhat to try next:");
    println!("  cargo run --example quickstart             a table on the screen every second, no broker at all");
    println!("  ./dev services up                          a real broker, at the ADDRESS that it prints; then:");
    println!("  cargo run --example demo -- fill ADDRESS   the same readings in its topic \"{TOPIC}\"; then:");
    println!("  cargo run --example sensor_data -- ADDRESS the topic on the console, resumed after Ctrl-C");
    println!("  cargo run --example kafka_to_parquet -- --help");
    println!("The demo's files stay in {}.", folder.display());
    Ok(())
}

/// The pipeline itself, in the child process.
fn pipeline(brokers: &str, folder: &Path) -> Result<(), Failure> {
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    tokio::runtime::Runtime::new()?.block_on(async {
        let session = Session::builder().log_to_stderr().build()?;
        let source = Kafka::brokers(brokers).topic(TOPIC).start(Start::Earliest).max_offsets_per_trigger(2_000);
        let readings = session.stream(source).await?.decode(Json::ddl(COLUMNS));
        let readings = readings.select(["sensor_id", "ts", "temperature", "humidity", "status", "partition", "offset"]);
        let query = session
            .query("demo")
            .sink("table", readings, Parquet::table(at("table")))
            .checkpoint(at("checkpoint"))
            .trigger(Trigger::processing_time(Duration::from_millis(100)))
            .start()
            .await?;
        query.process_all_available().await?;
        query.stop().await?;
        Ok(())
    })
}

fn start(brokers: &str, folder: &Path) -> Result<Child, Failure> {
    let this = std::env::current_exe()?;
    let child = Command::new(this).arg("pipeline").arg(brokers).arg(folder).stderr(Stdio::piped()).spawn();
    Ok(child?)
}

/// Prints what the child says, until it says a certain thing or ends.
fn follow(child: &mut Child, until: Option<&str>) -> Result<(), Failure> {
    let stderr = child.stderr.take().ok_or("the child has no stderr")?;
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        println!("   | {line}");
        if until.is_some_and(|until| line.starts_with(until)) {
            break;
        }
    }
    Ok(())
}

/// Notes the first row that was not delivered.
#[derive(Default)]
struct Deliveries(OnceLock<KafkaError>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.0.get_or_init(|| error.clone());
        }
    }
}

/// Writes the readings to the topic, which has to be there with at least four partitions, unless the broker makes topics by
/// itself.
fn fill(brokers: &str) -> Result<(), Failure> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("message.timeout.ms", "30000");
    let producer: BaseProducer<Deliveries> = config.create_with_context(Deliveries::default())?;
    for seq in 0..ROWS {
        let reading = format!(
            "{{\"sensor_id\":\"sensor-{}\",\"ts\":\"2026-01-01T{:02}:{:02}:{:02}Z\",\"temperature\":{}.{},\"humidity\":{}.5,\
             \"status\":\"ok\",\"seq\":{seq}}}",
            seq % 100,
            seq / 3600 % 24,
            seq / 60 % 60,
            seq % 60,
            15 + seq % 20,
            seq % 10,
            30 + seq % 60,
        );
        let record = BaseRecord::<(), _>::to(TOPIC).partition(seq as i32 % PARTITIONS).payload(&reading);
        if let Err((error, _)) = producer.send(record) {
            return Err(error.into());
        }
        if seq % 1_000 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(Duration::from_secs(60))?;
    match producer.context().0.get() {
        Some(error) => Err(format!("readings were not delivered to topic \"{TOPIC}\" at {brokers}: {error}").into()),
        None => Ok(()),
    }
}

/// Reads the table as an outsider would, shows some of it, and counts offsets.
fn look(table: &Path) -> Result<(), Failure> {
    let files = files(table)?;
    let mut rows = Vec::new();
    for file in &files {
        let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(file)?)?.build()?;
        rows.extend(reader.collect::<Result<Vec<RecordBatch>, _>>()?);
    }
    let first = rows.first().ok_or("the table is empty")?;
    println!("{}", tidemill::arrow::util::pretty::pretty_format_batches(&[first.slice(0, first.num_rows().min(8))])?);
    for file in files.iter().take(4) {
        let bytes = std::fs::metadata(file)?.len();
        println!("   {} ({bytes} bytes)", file.strip_prefix(table)?.display());
    }
    if files.len() > 4 {
        println!("   … and {} more files", files.len() - 4);
    }

    let mut found = Vec::new();
    for rows in &rows {
        let column = |name: &str| rows.column_by_name(name).ok_or_else(|| format!("no column \"{name}\""));
        let partitions = column("partition")?.as_primitive::<Int32Type>().values().iter();
        let offsets = column("offset")?.as_primitive::<Int64Type>().values().iter();
        found.extend(partitions.copied().zip(offsets.copied()));
    }
    found.sort_unstable();
    let each = ROWS / i64::from(PARTITIONS);
    let expected: Vec<(i32, i64)> = (0..PARTITIONS).flat_map(|p| (0..each).map(move |offset| (p, offset))).collect();
    if found != expected {
        return Err(format!("{} rows are there, and not each of {} offsets once", found.len(), expected.len()).into());
    }
    println!("   {} rows in {} files: each offset once.", found.len(), files.len());
    Ok(())
}

/// The table's files, in the order of their names, which is the order of their batches.
fn files(table: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    if table.exists() {
        for entry in std::fs::read_dir(table)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
