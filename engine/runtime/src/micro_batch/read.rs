//! Read: from logged ranges to splits. Lazy: the tasks read when rows are asked for.

use tidemill_core::{Result, Split};

use super::MicroBatch;
use crate::checkpoint::entry::OffsetsBody;

impl MicroBatch {
    /// Cuts the logged ranges into splits, as they are interpreted in the log. Deterministic, so the receipts of every
    /// attempt can be compared with it.
    pub(super) fn splits(&self, body: &OffsetsBody) -> Result<Vec<Split>> {
        let mut splits = Vec::new();
        for (name, source) in &self.query.sources {
            let Some(entry) = body.sources.get(name) else { continue };
            let planned = source.plan(name, &entry.range, &entry.interpretation);
            splits.extend(planned.map_err(|error| error.at("source", name))?);
        }
        Ok(splits)
    }
}
