//! What a rate source is told: the typed builder, the options in string form, and the spec that both make.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::options::Applies;
use tidemill_core::{Context, Error, OptionDoc, Options, Result, Source, SourceBuilder, SourceSpec, code};

use super::source::RateSource;

/// The name of the source whose rows come by the second.
pub(super) const FORMAT: &str = "rate";

/// The name of the source whose rows come by the batch.
pub(super) const MICRO_BATCH_FORMAT: &str = "rate-micro-batch";

const NUMBER: &str = "a whole number from 1 to 1000000000";

const PARTITIONS: OptionDoc = OptionDoc {
    name: "numPartitions",
    takes: NUMBER,
    default: "1",
    applies: Applies::Stream,
    spark: "numPartitions (Spark's default parallelism)",
    meaning: "Into how many splits a batch is cut.",
};

/// The options of the source whose rows come by the second.
pub(super) const OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: "rowsPerSecond",
        takes: NUMBER,
        default: "1",
        applies: Applies::Stream,
        spark: "rowsPerSecond",
        meaning: "Rows a second.",
    },
    PARTITIONS,
];

/// The options of the source whose rows come by the batch.
pub(super) const MICRO_BATCH_OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: "rowsPerBatch",
        takes: NUMBER,
        default: "",
        applies: Applies::Stream,
        spark: "rowsPerBatch",
        meaning: "Rows a batch. Required.",
    },
    OptionDoc {
        name: "startTimestamp",
        takes: "a number of milliseconds",
        default: "0",
        applies: Applies::Stream,
        spark: "startTimestamp",
        meaning: "The time of the first batch's rows, since 1970.",
    },
    OptionDoc {
        name: "advanceMillisPerBatch",
        takes: "a number of milliseconds",
        default: "1000",
        applies: Applies::Stream,
        spark: "advanceMillisPerBatch",
        meaning: "How much later the rows of the next batch are.",
    },
    PARTITIONS,
];

/// Whose rows they are, clock or batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pace {
    /// Rows a second.
    PerSecond { rows: u64 },
    /// Rows a batch, the time of the first batch, and the time between batches.
    PerBatch { rows: u64, start_ms: i64, advance_ms: i64 },
}

/// The config of the spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RateConfig {
    pub(super) pace: Pace,
    pub(super) partitions: u64,
}

impl RateConfig {
    pub(super) fn spec(&self) -> SourceSpec {
        let format = match self.pace {
            Pace::PerSecond { .. } => FORMAT,
            Pace::PerBatch { .. } => MICRO_BATCH_FORMAT,
        };
        let config = serde_json::to_value(self).expect("a config is plain data");
        SourceSpec { format: format.to_owned(), config }
    }
}

/// The config that a spec carries.
pub(super) fn from_spec(spec: &SourceSpec) -> Result<RateConfig> {
    RateConfig::deserialize(&spec.config)
        .map_err(|error| Error::new(code::INVALID_OPTION, "the spec of a rate source is not one").because(error))
}

/// A rate source, in typed form.
///
/// ```
/// use tidemill_connectors::Rate;
///
/// let source = Rate::rows_per_second(10).partitions(2);
/// # let _ = source;
/// ```
#[derive(Clone, Debug)]
pub struct Rate {
    rows: u64,
    partitions: u64,
}

impl Rate {
    /// So many rows a second.
    pub fn rows_per_second(rows: u64) -> Self {
        Rate { rows, partitions: 1 }
    }

    /// Into how many splits a range is cut; 1 by default.
    #[must_use]
    pub fn partitions(mut self, partitions: u64) -> Self {
        self.partitions = partitions;
        self
    }

    pub(super) fn from_options(mut options: Options) -> Result<Self> {
        if options.contains("rampUpTime") {
            return Err(Error::new(code::INVALID_OPTION, "option \"rampUpTime\" is not supported")
                .fix("leave it out: the rate is the same from the first second"));
        }
        let rows = options.parse("rowsPerSecond", "a positive whole number")?.unwrap_or(1);
        let partitions = options.parse("numPartitions", "a positive whole number")?.unwrap_or(1);
        options.finish("the rate source")?;
        Ok(Rate { rows, partitions })
    }

    pub(super) fn resolve(self) -> Result<RateConfig> {
        positive("rowsPerSecond", self.rows)?;
        positive("numPartitions", self.partitions)?;
        Ok(RateConfig { pace: Pace::PerSecond { rows: self.rows }, partitions: self.partitions })
    }
}

/// The config of the format `rate-micro-batch`, which has no typed form.
pub(super) fn micro_batch_from_options(mut options: Options) -> Result<RateConfig> {
    let (number, ms) = ("a positive whole number", "a number of milliseconds");
    let rows: Option<u64> = options.parse("rowsPerBatch", number)?;
    let rows = rows.ok_or_else(|| {
        Error::new(code::MISSING_OPTION, "option \"rowsPerBatch\" is missing").fix("set how many rows a batch has")
    })?;
    let start_ms = options.parse("startTimestamp", ms)?.unwrap_or(0);
    let advance_ms = options.parse("advanceMillisPerBatch", ms)?.unwrap_or(1000);
    let partitions = options.parse("numPartitions", number)?.unwrap_or(1);
    options.finish("the rate-micro-batch source")?;
    positive("rowsPerBatch", rows)?;
    positive("numPartitions", partitions)?;
    Ok(RateConfig { pace: Pace::PerBatch { rows, start_ms, advance_ms }, partitions })
}

fn positive(name: &str, value: u64) -> Result<()> {
    // Times are computed in microseconds: a rate beyond one row in each of them has no times to give.
    if (1..=1_000_000_000).contains(&value) {
        return Ok(());
    }
    Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is \"{value}\""))
        .fix("it takes a whole number from 1 to 1000000000"))
}

#[async_trait]
impl SourceBuilder for Rate {
    async fn build(self, context: &Context) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(RateSource::new(self.resolve()?, context)))
    }
}
