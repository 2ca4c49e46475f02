//! Rows that a test adds, in the memory of this process.
//!
//! The rows live in a table with a name, process-wide, so that a spec can name them and a restarted query finds them
//! again. A position is a row number. For tests of what happens when things go wrong, a table can be told to fail or to
//! panic at given rows, a given number of times.

mod config;
mod offset;
mod read;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use tidemill_core::options::Applies;
use tidemill_core::{Context, OptionDoc, Options, Result, Source, SourceFormat, SourceReader, SourceSpec};

pub use config::MemorySource;

/// The format `memory`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryFormat;

#[async_trait]
impl SourceFormat for MemoryFormat {
    fn name(&self) -> &'static str {
        config::FORMAT
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[OptionDoc {
            name: "table",
            takes: "a name",
            default: "",
            applies: Applies::Stream,
            spark: "",
            meaning: "The table, made in this process with `MemorySource::named`. Required.",
        }]
    }

    async fn open(&self, mut options: Options, _context: &Context) -> Result<Arc<dyn Source>> {
        let table = options.require("table", "the name of a table that was made with MemorySource::named")?;
        options.finish("the memory source")?;
        Ok(Arc::new(source::MemoryTableSource::new(config::find(&table)?)))
    }

    fn reader(&self, spec: &SourceSpec, _context: &Context) -> Result<Arc<dyn SourceReader>> {
        Ok(Arc::new(read::MemoryReader::new(config::from_spec(spec)?)))
    }
}
