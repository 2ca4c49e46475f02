//! Memory: named tables that live as long as this process, for tests and for looking around.
//!
//! It keeps the whole protocol of a durable sink (stages by attempt, visible when published, one record a batch), so
//! what is tested with it holds for the others. Every row of every batch stays in memory.

mod config;
mod sink;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use config::{MemoryFormat, MemorySink};
