//! Replays one batch of a query from its logged offsets: the same rows as the first time, and nothing else is touched.
//!
//! `cargo run --example replay_batch -- BROKERS TOPIC CHECKPOINT BATCH`

use std::process::ExitCode;

use tidemill::BatchId;
use tidemill::prelude::*;

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic, checkpoint, batch] = &args[..] else {
        eprintln!("usage: replay_batch BROKERS TOPIC CHECKPOINT BATCH");
        return ExitCode::from(64);
    };
    let Ok(batch) = batch.parse() else {
        eprintln!("\"{batch}\" is not the number of a batch");
        return ExitCode::from(64);
    };
    tidemill::exit_code(run(brokers, topic, checkpoint, batch).await)
}

async fn run(brokers: &str, topic: &str, checkpoint: &str, batch: u64) -> tidemill::Result<()> {
    let session = Session::builder().build()?;
    let readings = session.stream(Kafka::brokers(brokers).topic(topic)).await?.select_expr([
        "partition",
        "offset",
        "CAST(value AS STRING) AS reading",
    ]);
    readings.replay(checkpoint, BatchId(batch)).await?.show().await
}
