//! From sources to frames, streaming and static: in string form, as Spark's users know it, or typed.

use std::fmt::Display;
use std::future::IntoFuture;
use std::sync::Arc;

use futures::future::BoxFuture;
use tidemill_core::{Error, Options, Result, Source, SourceBuilder, code};

use super::Session;
use crate::frame::{DataFrame, scan, static_scan};

impl Session {
    /// Begins to read a stream, in string form.
    ///
    /// ```no_run
    /// # use tidemill_runtime::session::Session;
    /// # async fn example(session: Session) -> tidemill_core::Result<()> {
    /// let readings = session
    ///     .read_stream()
    ///     .format("kafka")
    ///     .option("kafka.bootstrap.servers", "broker1:9092")
    ///     .option("subscribe", "sensor-data")
    ///     .load()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_stream(&self) -> DataStreamReader {
        DataStreamReader { session: self.clone(), format: None, options: Options::new(), name: None }
    }

    /// Begins a static read of what a source has in a range: in string form, or typed with [`DataFrameReader::source`]. The
    /// range is fixed when the frame is made, and read as often as the frame is.
    ///
    /// ```no_run
    /// # use tidemill_runtime::session::Session;
    /// # async fn example(session: Session) -> tidemill_core::Result<()> {
    /// let readings = session
    ///     .read()
    ///     .format("kafka")
    ///     .option("kafka.bootstrap.servers", "broker1:9092")
    ///     .option("subscribe", "sensor-data")
    ///     .option("endingOffsets", "latest")
    ///     .load()
    ///     .await?;
    /// readings.show().await
    /// # }
    /// ```
    pub fn read(&self) -> DataFrameReader {
        DataFrameReader { session: self.clone(), format: None, options: Options::new() }
    }

    /// Reads a stream through a typed builder. Await it; before that it may be given a name.
    pub fn stream<B: SourceBuilder + 'static>(&self, source: B) -> StreamLoad<B> {
        StreamLoad { session: self.clone(), source, name: None }
    }
}

/// Reads a stream, in string form: [`Session::read_stream`].
#[derive(Clone, Debug)]
pub struct DataStreamReader {
    session: Session,
    format: Option<String>,
    options: Options,
    name: Option<String>,
}

impl DataStreamReader {
    /// The kind of source, such as `kafka`.
    #[must_use]
    pub fn format(mut self, format: impl Into<String>) -> Self {
        self.format = Some(format.into());
        self
    }

    /// Sets an option of the source. Names match in any case; one that the source does not know is an error.
    #[must_use]
    pub fn option(mut self, name: impl AsRef<str>, value: impl Display) -> Self {
        self.options.set(name.as_ref(), value.to_string());
        self
    }

    /// Sets several options.
    #[must_use]
    pub fn options(mut self, options: impl IntoIterator<Item = (impl AsRef<str>, impl Display)>) -> Self {
        for (name, value) in options {
            self.options.set(name.as_ref(), value.to_string());
        }
        self
    }

    /// Names the source within its queries: letters, digits, `_` and `-`. The checkpoint knows the source's offsets by
    /// this name. Without it a source is called after its format and its place in the query, such as `kafka-0`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Opens the source. Nothing is read before a query starts.
    pub async fn load(self) -> Result<DataFrame> {
        let DataStreamReader { session, format, options, name } = self;
        let format = format.ok_or_else(|| {
            Error::new(code::MISSING_OPTION, "the stream to read has no format").fix("set .format(\"kafka\")")
        })?;
        let source = session.registry().source(&format)?.open(options, session.context()).await?;
        let plan = scan(name, source)?;
        Ok(DataFrame::new(session, Ok(plan)))
    }
}

/// Reads a range, as static rows: [`Session::read`].
#[derive(Clone, Debug)]
pub struct DataFrameReader {
    session: Session,
    format: Option<String>,
    options: Options,
}

impl DataFrameReader {
    /// The kind of source, such as `kafka`.
    #[must_use]
    pub fn format(mut self, format: impl Into<String>) -> Self {
        self.format = Some(format.into());
        self
    }

    /// Sets an option of the source. Names match in any case; one that the source does not know is an error.
    #[must_use]
    pub fn option(mut self, name: impl AsRef<str>, value: impl Display) -> Self {
        self.options.set(name.as_ref(), value.to_string());
        self
    }

    /// Finds out where the range starts and ends. Rows are read when the frame is.
    pub async fn load(self) -> Result<DataFrame> {
        let DataFrameReader { session, format, options } = self;
        let format = format.ok_or_else(|| {
            Error::new(code::MISSING_OPTION, "the rows to read have no format").fix("set .format(\"kafka\")")
        })?;
        let source = session.registry().source(&format)?.open_static(options, session.context()).await?;
        static_frame(session, source).await
    }

    /// As [`DataFrameReader::load`], of a typed builder.
    pub async fn source(self, source: impl SourceBuilder) -> Result<DataFrame> {
        let source = source.build_static(self.session.context()).await?;
        static_frame(self.session, source).await
    }
}

async fn static_frame(session: Session, source: Arc<dyn Source>) -> Result<DataFrame> {
    let range = source.bounds().await?;
    let table = session.engine().range_table(&source, &range)?;
    let plan = static_scan(&source.spec().format, table)?;
    Ok(DataFrame::new(session, Ok(plan)))
}

/// Reads a stream through a typed builder: [`Session::stream`]. Awaiting it opens the source.
#[derive(Debug)]
#[must_use = "a stream is opened by awaiting it"]
pub struct StreamLoad<B> {
    session: Session,
    source: B,
    name: Option<String>,
}

impl<B: SourceBuilder> StreamLoad<B> {
    /// Names the source within its queries: see [`DataStreamReader::name`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl<B: SourceBuilder + 'static> IntoFuture for StreamLoad<B> {
    type Output = Result<DataFrame>;
    type IntoFuture = BoxFuture<'static, Result<DataFrame>>;

    fn into_future(self) -> Self::IntoFuture {
        let StreamLoad { session, source, name } = self;
        Box::pin(async move {
            let source = source.build(session.context()).await?;
            let plan = scan(name, source)?;
            Ok(DataFrame::new(session, Ok(plan)))
        })
    }
}
