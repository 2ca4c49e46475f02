//! The driver's side.

use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use tidemill_core::store::Location;
use tidemill_core::store::doctor::glance;
use tidemill_core::{
    Acked, AttemptId, BatchId, Clock, Context, Error, Guarantee, Published, Result, Rng, Sink, SinkKey, SinkSpec,
    SinkWriter, WriteTask, code,
};

use super::config::{Config, FORMAT};
use super::layout::{self, Layout};
use super::manifest::Manifest;
use super::partition::Partitioner;
use super::writer::ParquetWriter;
use super::{properties, publish, sweep};

/// A Parquet table that a query appends to.
#[derive(Clone, Debug)]
pub struct ParquetSink {
    spec: SinkSpec,
    config: Arc<Config>,
    location: Location,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl ParquetSink {
    /// A sink over a location that is open.
    pub(super) fn over(config: Config, location: Location, context: &Context) -> Result<Self> {
        let value = serde_json::to_value(&config)
            .map_err(|error| Error::new(code::BUG, "a spec cannot be written").because(error))?;
        let spec = SinkSpec { format: FORMAT.to_owned(), config: value };
        let (clock, rng) = (Arc::clone(&context.clock), Arc::clone(&context.rng));
        Ok(ParquetSink { spec, config: Arc::new(config), location, clock, rng })
    }

    /// The record of a published batch; none if it is not published.
    pub async fn manifest(&self, key: &SinkKey, batch_id: BatchId) -> Result<Option<Manifest>> {
        let path = Layout::of(key)?.manifest(batch_id)?;
        let Some(file) = self.location.read(&path).await? else { return Ok(None) };
        Manifest::read(&file, &self.location, &path).map(Some)
    }
}

#[async_trait]
impl Sink for ParquetSink {
    fn spec(&self) -> &SinkSpec {
        &self.spec
    }

    fn description(&self) -> String {
        let by = match self.config.partition_by.as_slice() {
            [] => String::new(),
            columns => format!(" by {}", columns.join(", ")),
        };
        format!("parquet {}{by}", self.location.url)
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce { reader: "any reader of **/*.parquet" }
    }

    fn check_schema(&self, schema: &SchemaRef) -> Result<()> {
        let refuse = |what: String| Error::new(code::SINK_SCHEMA, what).at("path", &self.location.url);
        for (at, field) in schema.fields().iter().enumerate() {
            let lower = field.name().to_lowercase();
            if schema.fields()[..at].iter().any(|other| other.name().to_lowercase() == lower) {
                return Err(refuse(format!("two columns are called \"{}\" in some case", field.name()))
                    .fix("rename one: many readers do not tell upper from lower case"));
            }
        }
        let partitioner = Partitioner::new(schema, &self.config.partition_by)?;
        for field in properties::stored_schema(partitioner.schema()).fields() {
            can_be_written(field).map_err(|error| {
                refuse(format!(
                    "column \"{}\" of type {} cannot be written as Parquet",
                    field.name(),
                    field.data_type()
                ))
                .because(error)
                .fix("cast it to another type, or leave it out")
            })?;
        }
        Ok(())
    }

    fn default_interval_ms(&self) -> u64 {
        10_000
    }

    async fn last_published(&self, key: &SinkKey) -> Result<Option<BatchId>> {
        let folder = Layout::of(key)?.manifests()?;
        let mut newest = None;
        let mut listed = self.location.store.list(Some(&folder));
        loop {
            match listed.try_next().await {
                Ok(Some(meta)) => newest = newest.max(layout::manifest_batch(&meta.location)),
                Ok(None) | Err(object_store::Error::NotFound { .. }) => break,
                Err(error) => return Err(self.location.error(&folder, error)),
            }
        }
        let Some(batch_id) = newest else { return Ok(None) };
        // Read it: a name alone is no proof that a batch was published.
        let manifest = self.manifest(key, batch_id).await?;
        match manifest {
            Some(manifest)
                if (&manifest.query_id, &manifest.sink, manifest.batch_id) == (&key.query_id, &key.sink, batch_id) =>
            {
                Ok(Some(batch_id))
            }
            Some(_) => Err(Error::new(code::SINK_FOREIGN, "a manifest belongs to another query, sink or batch")
                .at("sink", &key.sink)
                .at("batch", batch_id)
                .at("path", &self.location.url)
                .fix("restore the manifest that was replaced, or start with a new table")),
            None => Err(Error::new(code::STORE_UNAVAILABLE, "a manifest that was listed cannot be read")
                .at("batch", batch_id)
                .at("path", &self.location.url)),
        }
    }

    fn table(&self) -> Option<&str> {
        Some(&self.location.url)
    }

    async fn prepare(&self, key: &SinkKey) -> Result<Vec<String>> {
        let (all, own) = (layout::queries(), Layout::of(key)?.query()?);
        let queries = self.location.folders(&all).await?;
        if !queries.contains(&own) {
            // Claims and manifests rest on it.
            glance(&self.location, &all, &*self.clock, &*self.rng, publish::PATIENCE).await?;
        }
        let others = queries.into_iter().filter(|query| *query != own).count();
        Ok(match others {
            0 => Vec::new(),
            others => vec![format!(
                "{} holds rows of {others} other {}; what this query reads of the same source is there twice",
                self.location.url,
                if others == 1 { "query" } else { "queries" }
            )],
        })
    }

    async fn writer(&self, task: WriteTask) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(ParquetWriter::new(Arc::clone(&self.config), self.location.clone(), task)?))
    }

    async fn publish(&self, batch: &Acked) -> Result<Published> {
        publish::publish(&self.location, self.clock.as_ref(), batch).await
    }

    async fn discard(&self, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> Result<()> {
        sweep::discard(&self.location, key, batch_id, winner).await
    }

    async fn sweep(&self, key: &SinkKey, last: BatchId) -> Result<()> {
        sweep::up_to(&self.location, key, last).await
    }
}

/// Writes one null of the column to memory: the encoder's own word on what it can.
fn can_be_written(field: &Field) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let schema = Arc::new(Schema::new(vec![field.clone().with_nullable(true)]));
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), None)?;
    writer.write(&RecordBatch::try_new(schema, vec![new_null_array(field.data_type(), 1)])?)?;
    writer.close()?;
    Ok(())
}
