//! Tidemill: a micro-batch stream-processing engine with exactly-once output, on Arrow and DataFusion.
//!
//! A driver plans each batch as a range of offsets and writes it to a log before anything is read. Tasks read exactly
//! that range into Arrow record batches, DataFusion transforms them, sinks stage them, and the batch counts only after
//! every sink has acknowledged it. After any interruption a query goes on exactly where it was.
//!
//! ```no_run
//! use tidemill::prelude::*;
//!
//! # #[tokio::main]
//! # async fn main() -> tidemill::Result<()> {
//! let session = Session::builder().build()?;
//! let readings = session
//!     .read_stream()
//!     .format("kafka")
//!     .option("kafka.bootstrap.servers", "localhost:9092")
//!     .option("subscribe", "sensor-data")
//!     .load()
//!     .await?
//!     .select_expr(["CAST(value AS STRING) AS reading"]);
//! let query = readings
//!     .write_stream()
//!     .format("console")
//!     .option("checkpointLocation", "checkpoints/sensors")
//!     .start()
//!     .await?;
//! query.await_termination().await
//! # }
//! ```
//!
//! Arrow comes with it, as [`arrow`]: another version does not fit. Expressions and functions are DataFusion's, in
//! [`functions`].

pub use arrow;
pub use tidemill_connectors::{Kafka, MemorySource, Rate, Start, WithoutMatch};
pub use tidemill_core::{
    BatchId, BearerToken, Code, Error, ErrorKind, Offsets, Options, Registry, Result, Secret, code, registry, sink,
    source, store,
};
pub use tidemill_runtime::checkpoint::Retention;
pub use tidemill_runtime::dataflow::{BadRecordPolicy, Json, from_json};
pub use tidemill_runtime::frame::{DataFrame, col, functions};
pub use tidemill_runtime::query::{
    DataStreamWriter, QueryBuilder, SinkProgress, SourceProgress, StreamingQuery, StreamingQueryProgress,
    StreamingQueryStatus,
};
pub use tidemill_runtime::session::{DataFrameReader, DataStreamReader, Session, SessionBuilder};
pub use tidemill_runtime::trigger::Trigger;
pub use tidemill_sinks::parquet::Compression;
pub use tidemill_sinks::{Console, MemorySink, Noop, Parquet};

/// Every format that this build has, by name.
pub fn formats() -> Registry {
    let mut registry = Registry::new();
    tidemill_connectors::register(&mut registry);
    tidemill_sinks::register(&mut registry);
    registry
}

/// What a program's `main` gives back: the documented code of its error (0 without one), which is told on standard error.
///
/// ```no_run
/// # async fn run() -> tidemill::Result<()> { Ok(()) }
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     tidemill::exit_code(run().await)
/// }
/// ```
pub fn exit_code(outcome: Result<()>) -> std::process::ExitCode {
    use std::io::Write as _;
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be there to read it; the code is for whoever started the program.
            let _ = writeln!(std::io::stderr(), "{}", error.report());
            error.exit_code().into()
        }
    }
}

/// Begins a session that knows every format of this build. Part of the [`prelude`], so that it reads
/// `Session::builder()`.
pub trait BuildSession {
    /// A builder whose registry is [`formats`].
    fn builder() -> SessionBuilder;
}

impl BuildSession for Session {
    fn builder() -> SessionBuilder {
        Session::with_registry(formats())
    }
}

/// What a program usually needs.
pub mod prelude {
    pub use crate::functions::*;
    pub use crate::{
        BuildSession, Console, DataFrame, Json, Kafka, MemorySink, Parquet, Rate, Session, Start, StreamingQuery,
        Trigger, col,
    };
}

/// The README's code, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
