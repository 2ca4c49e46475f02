//! The least that a batch costs: one rate row into a sink that does nothing.
//!
//! The limit is what the batch's durable writes cost by themselves: the protocol's three creates (offsets, acks, commits),
//! each with its syncs, made bare on the same disk, in turns with ours.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tidemill::prelude::*;
use tidemill::store::{self, Stores, create};
use tidemill_core::clock::SystemClock;

mod support;

const BATCHES: u64 = 200;
const CREATES: u64 = 3;
const TURNS: usize = 3;

fn main() {
    let as_json = std::env::args().any(|arg| arg == "--json");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (mut ours, mut limits) = (Vec::new(), Vec::new());
    // Kept to the end: for minutes after files were deleted, some file systems are slow to make new ones.
    let folders: Vec<_> = (0..2 * TURNS).map(|_| tempfile::tempdir().expect("a folder")).collect();
    for pair in folders.chunks(2) {
        limits.push(runtime.block_on(bare_creates(pair[0].path())) * CREATES as f64);
        ours.push(runtime.block_on(batches(pair[1].path())).expect("the query runs"));
    }
    let (ours, limit) = (support::median(ours), support::median(limits));
    support::print_case(
        as_json,
        &json!({
            "bench": "empty_batch",
            "case": "",
            "rows_per_s": 1000.0 / ours,
            "limit_rows_per_s": 1000.0 / limit,
            "ratio_to_limit": limit / ours,
            "cpu_s_per_mrow": null,
            "peak_rss_mb": support::peak_rss_mb(),
            "median_ms": ours,
            "limit_ms": limit,
        }),
    );
}

/// The median time of a batch, in milliseconds.
async fn batches(folder: &Path) -> tidemill::Result<f64> {
    let session = Session::builder().build()?;
    let rows = session.read_stream().format("rate-micro-batch").option("rowsPerBatch", 1).load().await?;
    let query = session
        .query("empty")
        .sink("none", rows, tidemill::Noop::new())
        .checkpoint(folder.to_string_lossy())
        .trigger(Trigger::processing_time(std::time::Duration::ZERO))
        .start()
        .await?;
    support::median_batch_ms(&query, BATCHES).await
}

/// The median time of one durable create, in milliseconds.
async fn bare_creates(folder: &Path) -> f64 {
    let location = Stores::default().open(&folder.to_string_lossy()).expect("the folder is there");
    let clock = SystemClock::default();
    let mut took = Vec::new();
    for number in 0..BATCHES {
        let path = store::Path::from(format!("offsets/{number:020}"));
        let body = bytes(number);
        let since = Instant::now();
        create(&location, &clock, &path, body.into(), std::time::Duration::from_secs(10)).await.expect("it is written");
        took.push(since.elapsed().as_secs_f64() * 1000.0);
    }
    support::median(took)
}

/// As many bytes as an entry has.
fn bytes(number: u64) -> Vec<u8> {
    format!("{number:0>700}").into_bytes()
}
