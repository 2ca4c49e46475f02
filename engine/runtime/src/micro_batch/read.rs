//! Read: from logged ranges to splits. Lazy: the tasks read when rows are asked for.

use tidemill_core::{Result, Split};

use super::{Logged, MicroBatch};

impl MicroBatch {
    /// Cuts the logged ranges into splits, as they are interpreted in the log. Deterministic, so the receipts of every
    /// attempt can be compared with it.
    pub(super) fn splits(&self, logged: &Logged) -> Result<Vec<Split>> {
        let mut splits = Vec::new();
        for (name, source) in &self.query.sources {
            let Some(entry) = logged.entry.body.sources.get(name) else { continue };
            let planned = source.plan(name, &entry.range, &entry.interpretation);
            splits.extend(planned.map_err(|error| error.at("source", name))?);
        }
        Ok(splits)
    }
}
