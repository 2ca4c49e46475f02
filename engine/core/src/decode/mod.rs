//! Messages as typed rows: schemas as DDL, and a decoder for each format.
//!
//! Promises: one message is one row, always, aligned with its offset; a bad message is one bad row and never touches
//! another; decoding asks neither the clock nor the host's zone, so that a replay gives the same rows.
//!
//! Leaves out what a bad record leads to: a decoder reports, its caller applies a [`BadRecordPolicy`].

mod base64;
mod column;
mod cursor;
pub mod ddl;
mod fault;
mod finish;
mod group;
pub mod json;
mod number;
#[cfg(test)]
mod tests;
mod time;

use arrow::array::StructArray;
use serde::{Deserialize, Serialize};

pub use ddl::{DdlError, parse_ddl, to_ddl};
pub use json::{JsonDecoder, JsonError, JsonOptions};

/// What a query does about a message that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BadRecordPolicy {
    /// The query stops, naming the message. Spark's `FAILFAST`.
    #[default]
    Fail,
    /// The row's fields are null, and its text is kept in `_corrupt_record` where the schema has it. Spark's
    /// `PERMISSIVE`, except that nothing of the row is kept.
    Null,
}

/// Decoded messages.
#[derive(Debug)]
pub struct Decoded {
    /// One row for each message, in order.
    pub rows: StructArray,
    /// The messages that could not be decoded, by ascending row.
    pub bad: Vec<BadRecord>,
}

/// A message that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its row in [`Decoded::rows`].
    pub row: usize,
    /// What is wrong with it: one line of at most 200 characters, which may quote a piece of the message.
    pub reason: String,
}
