//! What a query says about each of its batches, in Spark's field names.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tidemill_core::{BatchId, QueryId, RunId};

/// One batch, told after it was committed. Serialised, it is the progress JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamingQueryProgress {
    /// The query, for ever.
    pub id: QueryId,
    /// This start of it.
    pub run_id: RunId,
    /// Its name.
    pub name: String,
    /// When the trigger started: UTC, milliseconds, ISO 8601.
    pub timestamp: String,
    /// The batch.
    pub batch_id: BatchId,
    /// How long the trigger took, in milliseconds.
    pub batch_duration: u64,
    /// Rows read.
    pub num_input_rows: u64,
    /// Rows read per second since the trigger before; 0 for the first of a run.
    pub input_rows_per_second: f64,
    /// Rows read per second of the trigger.
    pub processed_rows_per_second: f64,
    /// The phases, in milliseconds: `latestOffset`, `queryPlanning`, `walCommit`, `addBatch`, `commitOffsets`,
    /// `triggerExecution`.
    pub duration_ms: BTreeMap<String, u64>,
    /// One entry a source.
    pub sources: Vec<SourceProgress>,
    /// The sink, if the query has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<SinkProgress>,
    /// Every sink, by name.
    pub sinks: BTreeMap<String, SinkProgress>,
    /// Operators that keep state; there are none yet.
    pub state_operators: Vec<Value>,
    /// The driver start that ran the batch.
    pub generation: u64,
}

/// One source in one batch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceProgress {
    /// The source's name in the query.
    pub name: String,
    /// What it reads.
    pub description: String,
    /// Where the batch began.
    pub start_offset: Value,
    /// The next thing to read after the batch.
    pub end_offset: Value,
    /// Where the source ended when the batch was planned; null for a batch that was rolled forward.
    pub latest_offset: Value,
    /// Rows read.
    pub num_input_rows: u64,
    /// Rows read per second since the trigger before.
    pub input_rows_per_second: f64,
    /// Rows read per second of the trigger.
    pub processed_rows_per_second: f64,
    /// `rowsBehindLatest`: rows that waited when the batch was planned, its own not counted; `secondsBehindLatest`: how long
    /// they take at the speed of this batch. Kafka adds `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and
    /// `avgOffsetsBehindLatest`, over its partitions, and `consumerGroup`, where lag is told. `dataLoss`: rows that were
    /// gone before the batch could read them (only where the source was told to go on; absent if there were none).
    pub metrics: BTreeMap<String, String>,
}

/// One sink in one batch: exact figures, of what it shows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkProgress {
    /// Where the rows go.
    pub description: String,
    /// Rows.
    pub num_output_rows: u64,
    /// Bytes.
    pub num_output_bytes: u64,
    /// Files.
    pub num_output_files: u64,
}

/// What a query is doing at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamingQueryStatus {
    /// In words.
    pub message: String,
    /// Whether the last look at the sources found anything.
    pub is_data_available: bool,
    /// Whether a batch is under way.
    pub is_trigger_active: bool,
}

impl StreamingQueryProgress {
    /// The progress JSON, on one line.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("progress is plain data")
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let rows_out: u64 = self.sinks.values().map(|sink| sink.num_output_rows).sum();
        let files: u64 = self.sinks.values().map(|sink| sink.num_output_files).sum();
        let mut line = format!(
            "batch {}: {} rows in, {rows_out} out, {} ms, {:.0} rows/s",
            self.batch_id, self.num_input_rows, self.batch_duration, self.processed_rows_per_second
        );
        if files > 0 {
            line.push_str(&format!(", {files} file{}", if files == 1 { "" } else { "s" }));
        }
        let sum = |metric: &str| -> u64 {
            self.sources.iter().filter_map(|source| source.metrics.get(metric)?.parse::<u64>().ok()).sum()
        };
        for (metric, word) in [("rowsBehindLatest", "behind"), ("dataLoss", "lost")] {
            let rows = sum(metric);
            if rows > 0 {
                line.push_str(&format!(", {rows} {word}"));
            }
        }
        line
    }
}

/// Milliseconds since 1970 as Spark writes them.
pub(crate) fn utc(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms)
        .map_or_else(String::new, |time| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}
