//! The shape of a rate source's offsets.
//!
//! ```json
//! {"v":1,"row":450,"origin_ms":1764433320000,"rows_per_second":10}
//! ```
//!
//! Row `row` is the next one. Its time, and that of every row of the range that ends here, is `origin_ms` plus its number
//! divided by the rate: the offsets carry all that rows depend on. A rate of zero (`rate-micro-batch`) gives all rows of
//! the range the time `origin_ms`.

use serde::{Deserialize, Serialize};
use tidemill_core::{Error, Offsets, Result, code};

const VERSION: u32 = 1;

/// A position, of the source and of a split alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RateOffset {
    v: u32,
    pub(super) row: u64,
    pub(super) origin_ms: i64,
    pub(super) rows_per_second: u64,
}

impl RateOffset {
    pub(super) fn new(row: u64, origin_ms: i64, rows_per_second: u64) -> Self {
        RateOffset { v: VERSION, row, origin_ms, rows_per_second }
    }

    pub(super) fn decode(offsets: &Offsets) -> Result<Self> {
        let decoded: RateOffset = offsets.decode()?;
        if decoded.v != VERSION {
            let what = format!("offsets of a rate source have the unknown version {}", decoded.v);
            return Err(Error::new(code::BAD_OFFSET, what));
        }
        Ok(decoded)
    }

    pub(super) fn encode(self) -> Offsets {
        Offsets::encode(&self)
    }

    /// The same clock at another row.
    pub(super) fn at_row(self, row: u64) -> Self {
        RateOffset { row, ..self }
    }

    /// The time of a row, in microseconds since 1970.
    pub(super) fn time_us(self, row: u64) -> i64 {
        let origin = i128::from(self.origin_ms) * 1000;
        let after = match self.rows_per_second {
            0 => 0,
            rate => i128::from(row) * 1_000_000 / i128::from(rate),
        };
        i64::try_from(origin + after).unwrap_or(i64::MAX)
    }
}
