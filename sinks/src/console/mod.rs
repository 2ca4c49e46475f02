//! The console: each batch as a table, as in Spark.
//!
//! ```text
//! -------------------------------------------
//! Batch: 0
//! -------------------------------------------
//! +---------+-------+
//! |sensor_id|celsius|
//! +---------+-------+
//! |       s1|   21.5|
//! +---------+-------+
//! ```
//!
//! At least once: a batch that is run again is printed again, under the same number. A batch without rows prints
//! nothing. Binary columns that hold UTF-8 are shown as text, others as hexadecimal digits; control characters are
//! escaped, so data cannot command the terminal.

mod config;
mod sink;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use config::{Console, ConsoleFormat, Output, Truncate};
pub use sink::ConsoleSink;
