//! Where a source is, what a batch reads of it, and what one task reads.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, code};

/// A position of a source, in the source's own shape: the next thing to read, per partition.
///
/// The engine stores and compares offsets, and never looks inside. The shape is versioned by the source that owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offsets(serde_json::Value);

impl Offsets {
    /// Offsets of a source's own shape.
    pub fn encode(shape: &impl Serialize) -> Self {
        Offsets(serde_json::to_value(shape).expect("a source's offsets are plain data"))
    }

    /// The source's own shape, or an error that shows the offsets that do not have it.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.0)
            .map_err(|error| Error::new(code::BAD_OFFSET, format!("offsets not understood: {}", self.0)).because(error))
    }

    /// As JSON, for progress reports and people.
    pub fn as_json(&self) -> &serde_json::Value {
        &self.0
    }
}

/// What a batch reads of one source: `[start, end)`. A partition that appears has a start too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first thing to read.
    pub start: Offsets,
    /// The next thing to read after the range.
    pub end: Offsets,
}

/// What one task reads: a piece of a batch's range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The name of the source within the query.
    pub source: String,
    /// The name of the piece within the range, such as `sensor-data-3`. Unique and the same on every planning.
    pub id: String,
    /// The first thing to read.
    pub start: Offsets,
    /// The next thing to read after the piece.
    pub end: Offsets,
    /// How many rows to expect; zero if unknown.
    pub estimated_rows: u64,
}
