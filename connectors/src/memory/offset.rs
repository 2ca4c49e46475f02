//! The shape of a memory source's offsets: `{"v":1,"row":450}`, the next row to read.

use serde::{Deserialize, Serialize};
use tidemill_core::{Error, Offsets, Result, code};

const VERSION: u32 = 1;

/// A position, of the source and of a split alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Row {
    v: u32,
    row: u64,
}

pub(super) fn encode(row: u64) -> Offsets {
    Offsets::encode(&Row { v: VERSION, row })
}

pub(super) fn decode(offsets: &Offsets) -> Result<u64> {
    let Row { v, row } = offsets.decode()?;
    if v != VERSION {
        return Err(Error::new(code::BAD_OFFSET, format!("offsets of a memory source have the unknown version {v}")));
    }
    Ok(row)
}
