//! Kafka as a source.
//!
//! The driver's side (`source`, on `cluster` and the pure `place` and `plan`) finds out where topics begin and end; the task's side
//! (`read`, on `lane` and `columns`) reads exactly one range of one partition. `config` and `properties` are what a user
//! says, `offset` is what is logged, `lag` tells tools outside, `client` (with `token` for its login) and `ffi` are the library.
//!
//! Promises: a range that is read twice gives the same rows, or an error. A topic that was deleted and made again, rows
//! that are gone, and an end that lies below a known one are errors, never a jump (unless losses are accepted: then they
//! are counted). No consumer group is joined, and none is read but the one that `Start::Group` takes over from, once;
//! positions are committed to one for tools outside. Every wait has a bound, and the library's own reason is in the error.
//!
//! `config::options` lists the options.

mod client;
mod cluster;
mod columns;
mod config;
mod ffi;
mod identity;
mod lag;
mod lane;
mod offset;
mod place;
mod plan;
mod properties;
mod read;
mod source;
mod token;
mod watch;

#[cfg(feature = "testing")]
pub mod bare;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use tidemill_core::{Context, OptionDoc, Options, Result, Source, SourceFormat, SourceReader, SourceSpec};

pub use config::{Kafka, Start, WithoutMatch};

/// The format `kafka`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KafkaFormat;

#[async_trait]
impl SourceFormat for KafkaFormat {
    fn name(&self) -> &'static str {
        config::FORMAT
    }

    fn options(&self) -> &'static [OptionDoc] {
        config::options::OPTIONS
    }

    async fn open(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>> {
        let config = Kafka::from_options(options, false)?.resolve(&context.vault, false)?;
        Ok(Arc::new(source::KafkaSource::open(config, context).await?))
    }

    async fn open_static(&self, options: Options, context: &Context) -> Result<Arc<dyn Source>> {
        let config = Kafka::from_options(options, true)?.resolve(&context.vault, true)?;
        Ok(Arc::new(source::KafkaSource::open(config, context).await?))
    }

    fn reader(&self, spec: &SourceSpec, context: &Context) -> Result<Arc<dyn SourceReader>> {
        Ok(Arc::new(read::KafkaReader::new(spec, context)?))
    }
}
