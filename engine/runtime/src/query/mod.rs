//! A running query: how it is set up, what is said about it, and the loop that runs it.
//!
//! * `builder`: `session.query(name)`, with one or more named sinks and one commit
//! * `writer`: `df.write_stream()`, its one-sink form in Spark's words
//! * `handle`: [`StreamingQuery`]; `progress`: what it says about each batch
//! * `run`: the loop
//! * `replay`: the rows of one batch once more

mod builder;
mod handle;
mod progress;
mod replay;
mod run;
mod writer;

pub use builder::QueryBuilder;
pub use handle::StreamingQuery;
pub use progress::{SinkProgress, SourceProgress, StreamingQueryProgress, StreamingQueryStatus};
pub use writer::DataStreamWriter;

/// Says something on stderr. Nobody may be there to hear it any more; that is no reason to fail.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}
