//! The data path on DataFusion: how a query's plan becomes one batch's tasks, and how those run.
//!
//! ```text
//!  logical plan ─── analysed once, checked by `unsupported` ───────────────────────────── when the query is built
//!       │  `plan_batch`: optimise, bind the splits, plan physically, put the sink on top ─┐
//!       ▼                                                                                 │ for every batch
//!  SinkWriteExec ← Filter, Projection, … ← SourceReadExec ← descriptors of splits         │
//!       │  `executor`: all partitions of all sinks at once; one more task for every split ┘
//!       ▼
//!  BatchOutcome: acks and receipts
//! ```
//!
//! Two rules hold it together. *Everything in a plan is data*: specs that the registry turns into clients, splits that
//! stand in rows; so a plan can travel ([`codec`]), and no operator takes `execute(partition)` for an identity. *What a
//! task reports goes beside the rows*, never among them: receipts and counts go to the [`attempt`].
//!
//! Left out: what a batch reads (`checkpoint`, `micro_batch`) and what becomes of its acks.
//!
//! * plans: [`scan`], [`range_scan`] (static), [`unsupported`], [`engine`], [`plan_batch`]
//! * operators: [`source_read`] (with [`shared_reads`]), [`sink_write`]; [`codec`]
//! * running: [`attempt`], [`clients`], [`executor`]
//! * [`spool`]: sinks that show rows at once, beside others
//! * expressions: [`json`]
//! * [`errors`]: DataFusion's errors, turned into ours

pub mod attempt;
pub mod clients;
pub mod codec;
pub mod engine;
pub mod errors;
pub mod executor;
pub mod json;
pub mod plan_batch;
pub mod range_scan;
pub mod scan;
pub mod shared_reads;
pub mod sink_write;
pub mod source_read;
pub mod spool;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unsupported;

pub use attempt::AttemptContext;
pub use clients::Clients;
pub use codec::Codec;
pub use engine::{Engine, EngineOptions};
pub use errors::from_datafusion;
pub use executor::{BatchExecutor, BatchOutcome, LocalExecutor};
pub use json::{BadRecordPolicy, Json, from_json};
pub use plan_batch::{BatchJob, BatchRequest, SinkPlan};
pub use range_scan::RangeTable;
pub use scan::{StreamTable, is_streaming, sources_of};
pub use spool::{SpoolFormat, Spooled};
pub use unsupported::{check_streaming, volatile_functions};
