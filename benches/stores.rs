//! What a batch costs on each store: 1,000 rate rows into a Parquet table, table and checkpoint on a local disk, on S3
//! (moto on this machine), on HDFS (a name node and a data node on this machine).

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

use std::time::Duration;

use serde_json::json;
use tidemill::prelude::*;

#[path = "../tests/support/hdfs.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod hdfs;
#[path = "../tests/support/s3.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod s3;
#[path = "../tests/support/service.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod service;
mod support;

const BATCHES: u64 = 50;
const ROWS: u64 = 1000;

fn main() {
    let as_json = std::env::args().any(|arg| arg == "--json");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let measured = |case: &str, place: String, env: &[(String, String)]| {
        let ms = runtime.block_on(batches(&place, env)).expect("the query runs");
        (case.to_owned(), ms)
    };
    let local = measured("local disk", folder.path().display().to_string(), &[]);
    report(as_json, &local, None);
    let s3 = s3::S3::start();
    s3.requests();
    let on_s3 = measured("s3", "s3://tidemill/bench".to_owned(), &s3.env());
    let requests: u64 = s3.requests().as_object().expect("counts").values().filter_map(|count| count.as_u64()).sum();
    report(as_json, &on_s3, Some(requests as f64 / BATCHES as f64));
    drop(s3);
    let hdfs = hdfs::Hdfs::start(&[]);
    report(as_json, &measured("hdfs", format!("{}/bench", hdfs.url()), &[]), None);
}

fn report(as_json: bool, (case, ms): &(String, f64), requests: Option<f64>) {
    let line = json!({"bench": "stores", "case": case, "median_ms": ms, "rows": ROWS, "requests_a_batch": requests});
    support::print_case(as_json, &line);
}

/// The median time of a batch, in milliseconds.
async fn batches(place: &str, env: &[(String, String)]) -> tidemill::Result<f64> {
    let session = env.iter().fold(Session::builder(), |builder, (name, value)| builder.store_option(name, value));
    let session = session.build()?;
    let rows = session.read_stream().format("rate-micro-batch").option("rowsPerBatch", ROWS).load().await?;
    let query = session
        .query("stores")
        .sink("table", rows, Parquet::table(format!("{place}/table")))
        .checkpoint(format!("{place}/checkpoint"))
        .trigger(Trigger::processing_time(Duration::ZERO))
        .start()
        .await?;
    support::median_batch_ms(&query, BATCHES).await
}
