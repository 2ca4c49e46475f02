//! A plan as text.

use std::sync::Arc;

use tidemill_core::Result;

use super::{DataFrame, name_sources};
use crate::dataflow::sources_of;

impl DataFrame {
    /// The logical plan, and a line for each stream that it reads: its name in a query of this frame alone, and what it
    /// reads.
    ///
    /// The plan is shown as it is kept, before it is optimised for a batch.
    pub fn explain(&self) -> Result<String> {
        let mut plans = [self.clone().into_plan()?];
        name_sources(&mut plans)?;
        let [plan] = &plans;
        let mut text = format!("== Logical Plan ==\n{}\n", plan.display_indent());
        let sources = sources_of(Arc::as_ref(plan))?;
        if !sources.is_empty() {
            text.push_str("\n== Sources ==\n");
        }
        for (name, source) in sources {
            text.push_str(&format!("{name}: {}\n", source.description()));
        }
        Ok(text)
    }
}
