//! How a Parquet table is set up: options in string form, the typed builder, and the spec that both make.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::registry::SinkFormat;
use tidemill_core::{Context, Error, Options, Result, Sink, SinkBuilder, SinkSpec, code};

use super::sink::ParquetSink;

/// The registered name.
pub(super) const FORMAT: &str = "parquet";

/// How pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Zstandard, level 1: files a third smaller than with Snappy, or more, for about a tenth more time.
    #[default]
    Zstd,
    /// Not at all.
    None,
    /// Snappy.
    Snappy,
    /// LZ4, the raw form that all readers share.
    Lz4,
    /// Gzip: slow; for readers that know nothing else.
    Gzip,
}

impl Compression {
    fn from_option(text: &str) -> Option<Self> {
        Some(match text.trim().to_lowercase().as_str() {
            "zstd" => Compression::Zstd,
            "none" | "uncompressed" => Compression::None,
            "snappy" => Compression::Snappy,
            "lz4" | "lz4_raw" => Compression::Lz4,
            "gzip" => Compression::Gzip,
            _ => return None,
        })
    }
}

/// The spec's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Config {
    /// The table's location.
    pub path: String,
    /// The columns that become folders, outermost first.
    pub partition_by: Vec<String>,
    /// How pages are compressed.
    pub compression: Compression,
    /// A file is closed when it has about so many bytes.
    pub target_bytes: u64,
    /// A task holds at most so many files open; one more closes the largest.
    pub files_open_max: usize,
}

/// A Parquet table, as a sink.
///
/// ```
/// use tidemill_sinks::Parquet;
/// use tidemill_sinks::parquet::Compression;
///
/// let hot = Parquet::table("hot").partition_by(["day"]).target_bytes(64 << 20).compression(Compression::Snappy);
/// ```
#[derive(Clone, Debug)]
pub struct Parquet(Config);

impl Parquet {
    /// The table at this location: a path or a URL. It is made if it is not there.
    pub fn table(location: impl Into<String>) -> Self {
        Parquet(Config {
            path: location.into(),
            partition_by: Vec::new(),
            compression: Compression::default(),
            target_bytes: 128 << 20,
            files_open_max: 256,
        })
    }

    /// Makes these columns Hive partition folders, outermost first. They are not repeated in the files.
    #[must_use]
    pub fn partition_by<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.0.partition_by = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Closes a file when it has about so many bytes (128 MiB). A batch never shares a file with another, so files of
    /// small batches stay small whatever this says: hold the trigger longer instead.
    #[must_use]
    pub fn target_bytes(mut self, bytes: u64) -> Self {
        self.0.target_bytes = bytes;
        self
    }

    /// Compresses pages in this way.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.0.compression = compression;
        self
    }

    /// Lets a task hold so many files open (256): rows of one more partition close the largest of them.
    #[must_use]
    pub fn files_open_max(mut self, files: usize) -> Self {
        self.0.files_open_max = files;
        self
    }

    fn from_options(mut options: Options, partition_by: Vec<String>) -> Result<Self> {
        let path = options.require("path", "the folder or URL of the table")?;
        let mut table = Parquet::table(path).partition_by(partition_by);
        let names = "zstd, none, snappy, lz4 or gzip";
        if let Some(compression) = options.parse_with("compression", names, Compression::from_option)? {
            table = table.compression(compression);
        }
        if let Some(bytes) = options.parse_with("targetFileBytes", "a size, such as 134217728 or 128MiB", bytes_of)? {
            table = table.target_bytes(bytes);
        }
        if let Some(files) = options.parse("maxOpenFiles", "a positive whole number")? {
            table = table.files_open_max(files);
        }
        options.finish(FORMAT)?;
        Ok(table)
    }

    /// The settings alone, for tests that bring their own store.
    #[cfg(test)]
    pub(super) fn into_config(self) -> Config {
        self.0
    }

    fn open(self, context: &Context) -> Result<ParquetSink> {
        let mut config = self.0;
        for (name, zero) in
            [("targetFileBytes", config.target_bytes == 0), ("maxOpenFiles", config.files_open_max == 0)]
        {
            if zero {
                return Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is 0")).fix("give at least 1"));
            }
        }
        let location = context.stores.open(&config.path)?;
        // A spec travels: a relative path would mean another folder in another process.
        config.path = location.url.clone();
        ParquetSink::over(config, location, context)
    }
}

impl SinkBuilder for Parquet {
    fn build(self, context: &Context) -> Result<Arc<dyn Sink>> {
        Ok(Arc::new(self.open(context)?))
    }
}

/// A count of bytes, alone or with a unit: `1048576`, `1MiB`, `1m`. All units are powers of 1024.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The format `parquet`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetFormat;

#[async_trait]
impl SinkFormat for ParquetFormat {
    fn name(&self) -> &'static str {
        FORMAT
    }

    async fn open(&self, options: Options, partition_by: Vec<String>, context: &Context) -> Result<Arc<dyn Sink>> {
        Parquet::from_options(options, partition_by)?.build(context)
    }

    fn sink(&self, spec: &SinkSpec, context: &Context) -> Result<Arc<dyn Sink>> {
        let config = serde_json::from_value(spec.config.clone())
            .map_err(|error| Error::new(code::BUG, "the spec of a Parquet sink cannot be read").because(error))?;
        Parquet(config).build(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("1", Some(1)),
            ("134217728", Some(128 << 20)),
            ("128MiB", Some(128 << 20)),
            (" 2 kb ", Some(2048)),
            ("3g", Some(3 << 30)),
            ("", None),
            ("-1", None),
            ("1.5m", None),
            ("99999999999999999999", None),
            ("99999999999g", None),
        ] {
            assert_eq!(bytes_of(text), bytes, "{text:?}");
        }
    }

    #[tokio::test]
    async fn options_and_builder_make_the_same_spec() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t").display().to_string();
        let mut options = Options::new();
        for (name, value) in
            [("path", path.as_str()), ("COMPRESSION", "Snappy"), ("targetFileBytes", "1MiB"), ("maxOpenFiles", "3")]
        {
            options.set(name, value);
        }
        let context = Context::default();
        let by_options = ParquetFormat.open(options, vec!["day".to_owned()], &context).await.unwrap();
        let typed = Parquet::table(&path)
            .partition_by(["day"])
            .compression(Compression::Snappy)
            .target_bytes(1 << 20)
            .files_open_max(3)
            .build(&context)
            .unwrap();
        assert_eq!(by_options.spec(), typed.spec());
        let again = ParquetFormat.sink(typed.spec(), &context).unwrap();
        assert_eq!(again.spec(), typed.spec());
    }

    #[tokio::test]
    async fn bad_options_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        for (name, value, refused) in [
            ("compression", "brotli", code::INVALID_OPTION),
            ("targetFileBytes", "0", code::INVALID_OPTION),
            ("maxOpenFiles", "0", code::INVALID_OPTION),
            ("compresion", "zstd", code::UNKNOWN_OPTION),
        ] {
            let mut options = Options::new();
            options.set("path", path.as_str());
            options.set(name, value);
            let error = ParquetFormat.open(options, vec![], &Context::default()).await.expect_err(name);
            assert_eq!(error.code(), refused, "{error}");
        }
        let error = ParquetFormat.open(Options::new(), vec![], &Context::default()).await.expect_err("no path");
        assert_eq!(error.code(), code::MISSING_OPTION);
    }
}
