//! `df.write_stream()`: the one-sink form of a query, in Spark's words.

use tidemill_core::{Error, Options, Result, SinkBuilder, code};

use super::builder::{QueryBuilder, SinkSetup};
use super::handle::StreamingQuery;
use crate::checkpoint::Retention;
use crate::frame::DataFrame;
use crate::trigger::Trigger;

/// Sets up a query with one sink, called `sink`.
#[derive(Debug)]
pub struct DataStreamWriter {
    frame: DataFrame,
    format: Option<String>,
    options: Options,
    partition_by: Vec<String>,
    sink: Option<SinkSetup>,
    output_mode: String,
    query: QueryBuilder,
}

impl DataFrame {
    /// Writes the rows of a streaming frame somewhere, batch after batch.
    pub fn write_stream(self) -> DataStreamWriter {
        let query = self.session().query("");
        DataStreamWriter {
            frame: self,
            format: None,
            options: Options::new(),
            partition_by: Vec::new(),
            sink: None,
            output_mode: "append".to_owned(),
            query,
        }
    }
}

impl DataStreamWriter {
    /// The sink's format, such as `parquet` or `console`.
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.format = Some(name.into());
        self
    }

    /// The sink, by its typed builder, in place of `format` and `option`.
    #[must_use]
    pub fn sink(mut self, sink: impl SinkBuilder + 'static) -> Self {
        let context = self.frame.session().context().clone();
        self.sink = Some(SinkSetup::Built(sink.build(&context)));
        self
    }

    /// An option of the sink; `checkpointLocation` is the query's own.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.set(name, value.to_string());
        self
    }

    /// Columns that become folders of a table.
    #[must_use]
    pub fn partition_by(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.partition_by = columns.into_iter().map(Into::into).collect();
        self
    }

    /// How results are written; only `append` is known yet.
    #[must_use]
    pub fn output_mode(mut self, mode: impl Into<String>) -> Self {
        self.output_mode = mode.into();
        self
    }

    /// The query's name, for people.
    #[must_use]
    pub fn query_name(mut self, name: impl Into<String>) -> Self {
        self.query = self.query.named(name.into());
        self
    }

    /// When batches start.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.query = self.query.trigger(trigger);
        self
    }

    /// How many batches the checkpoint keeps.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.query = self.query.retention(retention);
        self
    }

    /// Starts the query. It runs on its own; the handle watches it and stops it.
    pub async fn start(mut self) -> Result<StreamingQuery> {
        if !self.output_mode.eq_ignore_ascii_case("append") {
            return Err(Error::new(
                code::UNSUPPORTED_PLAN,
                format!("output mode \"{}\" is not known", self.output_mode),
            )
            .fix("use \"append\": each row is written once"));
        }
        if let Some(location) = self.options.take("checkpointLocation") {
            self.query = self.query.checkpoint(location);
        }
        let sink = match (self.sink, self.format) {
            (Some(_), None) if !self.partition_by.is_empty() => {
                return Err(Error::new(code::USAGE, "the writer has a typed sink and columns to partition by")
                    .fix("give the columns to the sink's own builder, such as Parquet::table(…).partition_by(…)"));
            }
            (Some(sink), None) => {
                self.options.finish("a writer with a typed sink")?;
                sink
            }
            (None, Some(format)) => {
                // Spark's rule: a table in memory is called as its query is.
                if format == "memory" && !self.query.name().is_empty() && !self.options.contains("queryName") {
                    self.options.set("queryName", self.query.name().to_owned());
                }
                SinkSetup::Named { format, options: self.options, partition_by: self.partition_by }
            }
            (Some(_), Some(_)) => {
                return Err(Error::new(code::USAGE, "the writer has both a typed sink and a format").fix("give it one"));
            }
            (None, None) => {
                return Err(Error::new(code::MISSING_OPTION, "the writer has no sink")
                    .fix("set .format(\"parquet\") or .format(\"console\")"));
            }
        };
        self.query.with_sink("sink", self.frame, sink).start().await
    }
}
