//! Ten rows a second, a table on the screen for every batch. Needs nothing but this checkout:
//! `cargo run --example quickstart`. Ends with Ctrl-C, or after the batch whose number is given as an argument.

use std::time::Duration;

use tidemill::BatchId;
use tidemill::prelude::*;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    tidemill::exit_code(run().await)
}

async fn run() -> tidemill::Result<()> {
    let last = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let session = Session::builder().log_to_stderr().build()?;
    let query = session
        .read_stream()
        .format("rate")
        .option("rowsPerSecond", 10)
        .load()
        .await?
        .select_expr(["value", "value % 3 AS lane", "timestamp"])
        .filter("lane <> 1")
        .write_stream()
        .format("console")
        .trigger(Trigger::processing_time(Duration::from_secs(1)))
        .start()
        .await?;
    query.stop_on_signal()?;
    query.await_batch(BatchId(last)).await?;
    query.stop().await
}
