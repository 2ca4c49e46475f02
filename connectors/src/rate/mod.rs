//! Rows that the clock makes, for trying things out: `timestamp` and a `value` that counts from 0.
//!
//! Two formats. `rate` has a number of rows a second; the clock decides where a batch ends. `rate-micro-batch` has a
//! number of rows a batch, whatever the clock says. In both, rows depend on offsets alone, so a range that is read again
//! gives the same rows.

mod config;
mod offset;
mod read;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use tidemill_core::{Context, OptionDoc, Options, Result, Source, SourceFormat, SourceReader, SourceSpec};

pub use config::Rate;

/// The format `rate`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateFormat;

#[async_trait]
impl SourceFormat for RateFormat {
    fn name(&self) -> &'static str {
        config::FORMAT
    }

    fn options(&self) -> &'static [OptionDoc] {
        config::OPTIONS
    }

    async fn open(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(source::RateSource::new(Rate::from_options(options)?.resolve()?, context)))
    }

    fn reader(&self, spec: &SourceSpec, _context: &Context) -> Result<Arc<dyn SourceReader>> {
        config::from_spec(spec)?;
        Ok(Arc::new(read::RateReader))
    }
}

/// The format `rate-micro-batch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateMicroBatchFormat;

#[async_trait]
impl SourceFormat for RateMicroBatchFormat {
    fn name(&self) -> &'static str {
        config::MICRO_BATCH_FORMAT
    }

    fn options(&self) -> &'static [OptionDoc] {
        config::MICRO_BATCH_OPTIONS
    }

    async fn open(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(source::RateSource::new(config::micro_batch_from_options(options)?, context)))
    }

    fn reader(&self, spec: &SourceSpec, _context: &Context) -> Result<Arc<dyn SourceReader>> {
        config::from_spec(spec)?;
        Ok(Arc::new(read::RateReader))
    }
}
