//! Parquet tables: each row exactly once for **any** reader of `**/*.parquet`, whatever crashes.
//!
//! ```text
//! hot/                                                    the table
//!   day=2026-10-01/part-<batch>-<task>-<n>-<attempt>-<sink>.parquet
//!   _tidemill/<query id>/<sink>/
//!     staging/<batch>/<attempt>/part-….parquet.staged     durable, invisible
//!     manifest/<batch>.json                               what the batch made visible, written last
//! ```
//!
//! Some readers look into hidden folders, so the rule is about names alone: nothing under the table ends in `.parquet`
//! before it is published. Tasks write staged files; once `acks/N` names the winning attempt, the driver gives its
//! files their final names and then writes manifest N. A reader of the manifests sees batches whole; a reader of the
//! folders may see a batch appear in parts, and never a row twice.
//!
//! Partition folders are Hive's: `column=value`, escaped ([`layout::escaped`]); partition columns are not repeated in
//! the files. Null and the empty text share one folder, as in Hive and Spark: pyarrow and Spark read both back as null,
//! DuckDB 1.4 shows the folder's name, `__HIVE_DEFAULT_PARTITION__`, where the column is text.
//!
//! Append only. Left out: schema evolution (readers see what the files say), compaction.

pub mod config;
mod file;
pub mod layout;
mod manifest;
mod memory;
mod partition;
mod properties;
mod publish;
mod sink;
mod sweep;
#[cfg(test)]
mod tests;
mod writer;

pub use config::{Compression, Parquet, ParquetFormat};
pub use manifest::{Manifest, ManifestFile};
pub use sink::ParquetSink;
