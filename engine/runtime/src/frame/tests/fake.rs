//! A stream for tests that never run a query: it has a schema and a description, and nothing to read.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use async_trait::async_trait;
use serde_json::{Value, json};
use tidemill_core::{
    Context, Error, Offer, Offsets, Options, Range, ReadLimit, Registry, Result, Source, SourceBuilder, SourceFormat,
    SourceReader, SourceSpec, Split, code,
};

use crate::frame::DataFrame;
use crate::session::Session;

/// Columns: `sensorId`, `celsius`, `value`, `data` (a struct of `celsius` and `unit`).
#[derive(Debug)]
pub(crate) struct FakeSource {
    spec: SourceSpec,
    schema: SchemaRef,
}

impl FakeSource {
    pub(crate) fn new(topic: &str) -> Arc<Self> {
        let data = Fields::from(vec![
            Field::new("celsius", DataType::Float64, true),
            Field::new("unit", DataType::Utf8, true),
        ]);
        let schema = Schema::new(vec![
            Field::new("sensorId", DataType::Utf8, true),
            Field::new("celsius", DataType::Float64, true),
            Field::new("value", DataType::Binary, true),
            Field::new("data", DataType::Struct(data), true),
        ]);
        let spec = SourceSpec { format: "fake".to_owned(), config: json!({ "topic": topic }) };
        Arc::new(FakeSource { spec, schema: Arc::new(schema) })
    }
}

#[async_trait]
impl Source for FakeSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn description(&self) -> String {
        format!("fake rows of {}", self.spec.config["topic"])
    }

    async fn initial(&self) -> Result<Offsets> {
        Ok(Offsets::encode(&0))
    }

    async fn next(&self, _from: &Offsets, _limit: &ReadLimit) -> Result<Option<Offer>> {
        Ok(None)
    }

    fn plan(&self, _name: &str, _range: &Range, _interpretation: &Value) -> Result<Vec<Split>> {
        Ok(Vec::new())
    }
}

/// The format `fake` with the option `topic`.
#[derive(Debug)]
struct FakeFormat;

#[async_trait]
impl SourceFormat for FakeFormat {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn open(&self, mut options: Options, _context: &Context) -> Result<Arc<dyn Source>> {
        let topic = options.require("topic", "what to read")?;
        options.finish("source \"fake\"")?;
        Ok(FakeSource::new(&topic))
    }

    fn reader(&self, _spec: &SourceSpec, _context: &Context) -> Result<Arc<dyn SourceReader>> {
        Err(Error::new(code::BUG, "nothing is read in these tests"))
    }
}

/// The typed form of it.
#[derive(Debug)]
pub(crate) struct Fake(pub(crate) &'static str);

#[async_trait]
impl SourceBuilder for Fake {
    async fn build(self, _context: &Context) -> Result<Arc<dyn Source>> {
        Ok(FakeSource::new(self.0))
    }
}

/// A session that knows the format.
pub(crate) fn session() -> Session {
    let mut registry = Registry::new();
    registry.add_source(Arc::new(FakeFormat));
    Session::with_registry(registry).parallelism(2).build().expect("a session")
}

/// A streaming frame.
pub(crate) fn stream(session: &Session) -> DataFrame {
    DataFrame::new(session.clone(), crate::frame::scan(None, FakeSource::new("readings")))
}
