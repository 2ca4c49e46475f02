//! Lands a Kafka topic as a Parquet table, exactly once.
//!
//! ```text
//! cargo run --release --example kafka_to_parquet -- \
//!     --brokers localhost:9092 --topic sensor-data --table out/sensors --checkpoint out/checkpoint --columns json
//! ```
//!
//! It starts at the earliest offset, and after any interruption where it was. Both forms keep Kafka's `partition` and
//! `offset`, so that anybody can check that each offset landed once.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tidemill::Retention;
use tidemill::prelude::*;

/// Lands a Kafka topic as a Parquet table, exactly once.
#[derive(Parser)]
struct Args {
    /// Addresses of brokers, such as localhost:9092
    #[arg(long)]
    brokers: String,
    /// The topic
    #[arg(long)]
    topic: String,
    /// Where the table is: a folder, or a URL such as s3://bucket/table or hdfs://namenode:8020/table
    #[arg(long)]
    table: String,
    /// A second table that gets the same rows, in the same commit
    #[arg(long)]
    copy: Option<String>,
    /// Where the checkpoint is: a folder, or a URL
    #[arg(long)]
    checkpoint: String,
    /// What becomes of a message: its bytes, or typed columns
    #[arg(long, value_enum)]
    columns: Columns,
    /// Only rows that this SQL condition holds for, such as "celsius > 30"
    #[arg(long)]
    filter: Option<String>,
    /// When batches start: default, available-now, or an interval in milliseconds. Left out, a file sink's ten seconds
    #[arg(long, value_parser = trigger)]
    trigger: Option<Trigger>,
    /// At most about so many rows a batch
    #[arg(long)]
    max_offsets: Option<u64>,
    /// Keep only so many batches in the checkpoint's log. Left out, a day's batches, at least 100 and at most 10,000
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    keep_batches: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Columns {
    /// `value`, as it is
    Raw,
    /// The sensor reading that the message holds
    Json,
}

fn trigger(text: &str) -> Result<Trigger, String> {
    match text {
        "default" => Ok(Trigger::processing_time(Duration::ZERO)),
        "available-now" => Ok(Trigger::available_now()),
        _ => match text.parse() {
            Ok(ms) => Ok(Trigger::processing_time(Duration::from_millis(ms))),
            Err(_) => Err("it takes default, available-now, or a number of milliseconds".to_owned()),
        },
    }
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(64) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("the runtime cannot be started: {error}");
            return ExitCode::from(74);
        }
    };
    tidemill::exit_code(runtime.block_on(run(args)))
}

async fn run(args: Args) -> tidemill::Result<()> {
    let session = Session::builder().log_to_stderr().build()?;
    let mut topic = Kafka::brokers(args.brokers).topic(args.topic).start(Start::Earliest);
    if let Some(rows) = args.max_offsets {
        topic = topic.max_offsets_per_trigger(rows);
    }
    let messages = session.stream(topic).await?;
    let rows = match args.columns {
        Columns::Raw => messages.select(["value", "partition", "offset"]),
        Columns::Json => messages
            .decode(Json::ddl(
                "sensor_id string, ts timestamp, temperature double, humidity double, status string, seq long",
            ))
            .select(["sensor_id", "ts", "temperature", "humidity", "status", "seq", "partition", "offset"]),
    };
    let rows = match args.filter {
        Some(condition) => rows.filter(condition.as_str()),
        None => rows,
    };
    let retention = match args.keep_batches {
        Some(batches) => Retention { batches_min: batches, age: Duration::ZERO, batches_max: batches },
        None => Retention::default(),
    };
    let mut query = session.query("kafka_to_parquet").retention(retention);
    if let Some(copy) = args.copy {
        query = query.sink("copy", rows.clone(), Parquet::table(copy));
    }
    let query = query
        .sink("table", rows, Parquet::table(args.table))
        .checkpoint(args.checkpoint)
        .trigger(args.trigger.unwrap_or_default())
        .start()
        .await?;
    query.stop_on_signal()?;
    query.await_termination().await
}
