//! Sinks of Tidemill: where rows go.
//!
//! * [`parquet`]: Parquet tables on any object store, exactly once for every reader of `**/*.parquet`
//! * [`console`]: a table a batch on standard output
//! * [`memory`]: named tables in this process, for tests and for looking around
//! * [`noop`]: counts rows and drops them, for benches
//!
//! A sink's folder has the files `config` (options, typed builder, spec), `sink` (the driver's side), `writer` (the
//! task's side) and `tests`. Every sink runs the promises of `tidemill_core::testing::sink_promises`.

use std::sync::Arc;

use tidemill_core::Registry;

pub mod console;
pub mod memory;
pub mod noop;
pub mod parquet;

pub use self::parquet::Parquet;
pub use console::Console;
pub use memory::MemorySink;
pub use noop::Noop;

/// Adds every sink of this crate to a registry.
pub fn register(registry: &mut Registry) {
    registry.add_sink(Arc::new(self::parquet::ParquetFormat));
    registry.add_sink(Arc::new(console::ConsoleFormat));
    registry.add_sink(Arc::new(memory::MemoryFormat));
    registry.add_sink(Arc::new(noop::NoopFormat));
}
