//! Rows of a static frame, for programs and for people.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan;
use tidemill_core::{Error, Result, code};

use super::DataFrame;
use crate::dataflow::from_datafusion;

/// How many rows `show` prints, as in Spark.
const SHOWN_ROWS: usize = 20;

/// Prints a text and a line's end. That nobody reads is an error like any other.
pub(super) fn print(text: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).map_err(|error| {
        Error::new(code::STORE_REFUSED, "standard output cannot be written")
            .because(error)
            .fix("keep its reader running, or free the disk that it goes to")
    })
}

impl DataFrame {
    /// All rows of a static frame. A stream has no end, so on a streaming frame this is an error.
    pub async fn collect(&self) -> Result<Vec<RecordBatch>> {
        if self.is_streaming() {
            return Err(Error::new(code::USAGE, "a streaming frame cannot be collected: its rows have no end")
                .fix("use write_stream(), for a look at the rows with format(\"console\")"));
        }
        let plan = self.clone().into_plan()?;
        let state = self.session.engine().state_at(self.session.context().clock.now_ms())?;
        let physical = state.create_physical_plan(&plan).await.map_err(from_datafusion)?;
        physical_plan::collect(physical, state.task_ctx()).await.map_err(from_datafusion)
    }

    /// Prints the first 20 rows of a static frame as a table.
    pub async fn show(&self) -> Result<()> {
        print(&self.table(SHOWN_ROWS).await?)
    }

    /// The first rows of a static frame as a table, as [`DataFrame::show`] prints it.
    pub async fn table(&self, rows: usize) -> Result<String> {
        if self.is_streaming() {
            return Err(Error::new(code::USAGE, "a streaming frame cannot be shown: its rows have no end")
                .fix("use write_stream() with format(\"console\")"));
        }
        // One row more than is shown tells whether there are more.
        let mut shown = self.clone().limit(rows.saturating_add(1)).collect().await?;
        let more = truncate(&mut shown, rows);
        let schema = self.schema()?;
        if shown.is_empty() {
            shown.push(RecordBatch::new_empty(schema));
        }
        let table = pretty_format_batches(&shown)
            .map_err(|error| Error::new(code::BUG, "rows could not be shown").because(error))?;
        let note = if more { format!("\nonly showing top {rows} rows") } else { String::new() };
        Ok(format!("{table}{note}"))
    }
}

/// Keeps the first rows; tells whether any were left out.
fn truncate(batches: &mut Vec<RecordBatch>, rows: usize) -> bool {
    let mut left = rows;
    let mut more = false;
    for batch in batches.iter_mut() {
        more |= batch.num_rows() > left;
        *batch = batch.slice(0, batch.num_rows().min(left));
        left -= batch.num_rows();
    }
    batches.retain(|batch| batch.num_rows() > 0);
    more
}
