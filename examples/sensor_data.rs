//! The lesson: read the topic `sensor-data`, show every reading on the console, and remember in a checkpoint how far it
//! came. Stop it, start it again: it goes on at the very next offset.
//!
//! `cargo run --example sensor_data -- [BROKERS] [CHECKPOINT]`

use tidemill::prelude::*;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    tidemill::exit_code(run().await)
}

async fn run() -> tidemill::Result<()> {
    let mut args = std::env::args().skip(1);
    let brokers = args.next().unwrap_or_else(|| "localhost:9092".to_owned());
    let checkpoint = args.next().unwrap_or_else(|| "checkpoints/sensor-data".to_owned());

    let session = Session::builder().log_to_stderr().build()?;
    let readings = session
        .read_stream()
        .format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", "sensor-data")
        .option("startingOffsets", "earliest")
        .load()
        .await?
        .select_expr(["partition", "offset", "CAST(value AS STRING) AS reading"]);
    let query = readings
        .write_stream()
        .format("console")
        .option("truncate", "false")
        .option("checkpointLocation", checkpoint)
        .start()
        .await?;
    query.stop_on_signal()?;
    query.await_termination().await
}
