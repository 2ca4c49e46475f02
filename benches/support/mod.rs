//! What the benches share: a process that measures itself, medians, and the output of a case.

#![allow(dead_code, reason = "each bench uses its part")]

use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

/// What a measured process says of itself, as one JSON line on stdout.
pub fn say_measured(seconds: f64, rows: u64) {
    println!("{}", json!({"seconds": seconds, "rows": rows, "cpu_s": cpu_seconds(), "peak_rss_mb": peak_rss_mb()}));
}

/// Runs this very binary once more with these arguments, and gives what it measured.
pub fn measure(args: &[&str]) -> Value {
    let this = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(this).args(args).stderr(Stdio::inherit()).output().expect("this binary runs");
    assert!(output.status.success(), "{args:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    serde_json::from_str(text.lines().last().expect("it says something")).expect("it says JSON")
}

/// Each case of a bench that reads a whole topic, against the bare consume loop: this very binary takes `bare` and
/// `land CASE` as its arguments. Ours and the bare loop take turns, and medians are compared.
pub fn compare_with_bare(as_json: bool, bench: &str, cases: &[&str], turns: usize, at: &[&str], rows: u64) {
    // The broker's cache and its compiler are warm for whoever comes first.
    measure(&[&["bare"], at].concat());
    for case in cases {
        let (mut ours, mut limits) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            limits.push(measure(&[&["bare"], at].concat()));
            ours.push(measure(&[&["land", case], at].concat()));
        }
        for measured in ours.iter().chain(&limits) {
            assert_eq!(measured["rows"], rows, "a run that loses rows is no measurement");
        }
        let of = |all: &[Value], name: &str| {
            median(all.iter().map(|measured| measured[name].as_f64().expect("a number")).collect())
        };
        let rate = |all: &[Value]| rows as f64 / of(all, "seconds");
        print_case(
            as_json,
            &json!({
                "bench": bench,
                "case": case,
                "rows_per_s": rate(&ours),
                "limit_rows_per_s": rate(&limits),
                "ratio_to_limit": rate(&ours) / rate(&limits),
                "cpu_s_per_mrow": of(&ours, "cpu_s") / (rows as f64 / 1e6),
                "limit_cpu_s_per_mrow": of(&limits, "cpu_s") / (rows as f64 / 1e6),
                "peak_rss_mb": of(&ours, "peak_rss_mb"),
                "median_ms": of(&ours, "seconds") * 1000.0,
                "limit_ms": of(&limits, "seconds") * 1000.0,
            }),
        );
    }
}

/// Prints what a process of its own says of the bare consume loop.
pub fn bare(brokers: &str, topic: &str, partitions: i32) {
    let read = tidemill_connectors::kafka::bare::bare_consume_loop(brokers, topic, partitions, 8 << 20);
    let read = read.expect("the broker is there");
    say_measured(read.seconds, read.rows);
}

/// The median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which this part of the values lie, such as 0.99.
pub fn percentile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * part).ceil() as usize).clamp(1, values.len()) - 1]
}

/// The median time from one commit to the next over a query's first batches, in milliseconds. Then it is stopped.
pub async fn median_batch_ms(query: &tidemill::StreamingQuery, batches: u64) -> tidemill::Result<f64> {
    let took = batches_ms(query, batches).await?;
    query.stop().await?;
    Ok(median(took))
}

/// The times from one commit to the next over a query's first batches, in milliseconds.
#[allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]
pub async fn batches_ms(query: &tidemill::StreamingQuery, batches: u64) -> tidemill::Result<Vec<f64>> {
    let mut took = Vec::new();
    let mut before = None;
    for batch in 0..batches {
        query.await_batch(tidemill::BatchId(batch)).await?;
        let now = Instant::now();
        if let Some(before) = before.replace(now) {
            took.push(now.duration_since(before).as_secs_f64() * 1000.0);
        }
    }
    Ok(took)
}

/// Tells people on standard error how long each phase of a batch took on average, in milliseconds.
pub fn say_phases(progress: &[tidemill::StreamingQueryProgress]) {
    let mut sums: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    for (name, ms) in progress.iter().flat_map(|progress| &progress.duration_ms) {
        *sums.entry(name).or_default() += ms;
    }
    let mean = |sum: u64| sum as f64 / progress.len().max(1) as f64;
    let phases: Vec<String> = sums.iter().map(|(name, sum)| format!("{name} {:.1}", mean(*sum))).collect();
    eprintln!("phases of a batch, in ms: {}", phases.join("  "));
}

/// Prints a case: one JSON line, or one line for people.
pub fn print_case(as_json: bool, case: &Value) {
    if as_json {
        println!("{case}");
        return;
    }
    let fields = case.as_object().expect("a case is an object");
    let shown = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| match value.as_f64() {
        Some(number) if value.is_f64() => format!("{name} {number:.3}"),
        _ => format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
    });
    println!("{}", shown.collect::<Vec<_>>().join("  "));
}

/// User and system time of this process.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
    let ticks: f64 = [fields[11], fields[12]].iter().map(|ticks| ticks.parse::<f64>().expect("a number")).sum();
    // The kernel counts in hundredths of a second for every architecture that we run on.
    ticks / 100.0
}

pub fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts it");
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib / 1024.0
}
