//! Replay: the rows of a batch once more, from its logged offsets.

use std::sync::Arc;

use arrow::array::RecordBatch;
use tidemill_core::{BatchId, Error, Receipt, Result, code};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::checkpoint::Log;
use crate::checkpoint::entry::{AcksBody, Entry, OffsetsBody};
use crate::checkpoint::view::Reader;
use crate::dataflow::sources_of;
use crate::frame::{DataFrame, name_sources};

impl DataFrame {
    /// The rows of one batch of a query, read once more from exactly the ranges that its checkpoint logged, with `now()`
    /// at the batch's logged time: called on a source's frame, source rows; on a transformed frame, output rows. The
    /// result is static. Nothing is written anywhere, and the query may run meanwhile.
    ///
    /// The checkpoint holds offsets, not programs: it is this frame that is run. Sources are found by their names, so a
    /// source that the query gave a name must have it here.
    ///
    /// # Errors
    ///
    /// [`code::BATCH_NOT_FOUND`] if the batch is not, or no longer, in the log; [`code::QUERY_CHANGED`] if the log has no
    /// source of that name; whatever the source says if the range is gone.
    pub async fn replay(self, checkpoint: impl AsRef<str>, batch_id: BatchId) -> Result<DataFrame> {
        let session = self.session().clone();
        let location = session.context().stores.open_existing(checkpoint.as_ref())?;
        let reader = Reader::open(location.clone()).await?;
        let place = |error: Error| error.at("checkpoint", &location.url).at("batch", batch_id);
        let logged = match reader.boundary().await?.dead {
            // A name at or below the boundary means nothing, whoever created it since.
            Some(dead) if batch_id.0 <= dead => None,
            _ => reader.binding::<OffsetsBody>(Log::Offsets, batch_id.0).await?,
        };
        let Entry { head, body } = logged.ok_or_else(|| {
            let error = Error::new(code::BATCH_NOT_FOUND, format!("batch {batch_id} is not in the log"));
            place(error).fix("older batches are purged; see what is kept in the folder \"offsets\"")
        })?;
        if let Some(acks) = reader.binding::<AcksBody>(Log::Acks, batch_id.0).await?
            && acks.body.offsets_nonce != head.nonce
        {
            // The plan that it ran by is torn, and the revision that took its place was never run.
            return Err(reader.damaged(Log::Offsets, batch_id.0));
        }

        let mut plans = [self.into_plan()?];
        name_sources(&mut plans)?;
        let [plan] = plans;
        let mut splits = Vec::new();
        let sources = sources_of(&plan)?;
        for (name, source) in &sources {
            let logged = body.sources.get(name).ok_or_else(|| {
                let names: Vec<&str> = body.sources.keys().map(String::as_str).collect();
                let error = Error::new(code::QUERY_CHANGED, format!("the batch read no source \"{name}\""));
                place(error).fix(format!("it read: {}; name the source with .name(…)", names.join(", ")))
            })?;
            splits.extend(source.plan(name, &logged.range, &logged.interpretation).map_err(place)?);
        }
        info!(%batch_id, fingerprint = body.fingerprint, "a batch is replayed by the program at hand");

        let engine = session.engine();
        let schema = Arc::clone(plan.schema().inner());
        let rows = engine.plan_rows(&plan, &splits, body.timestamp_ms).await?;
        let read = engine.executor().read(rows, batch_id, splits.len(), CancellationToken::new()).await;
        for (_, source) in &sources {
            engine.clients().release_reader(source.spec());
        }
        let (mut rows, receipts) = read.map_err(place)?;
        Receipt::check(&splits, &receipts).map_err(place)?;
        for receipt in &receipts {
            let split = splits.iter().find(|split| split.source == receipt.source && split.id == receipt.split);
            let source = sources.iter().find(|(name, _)| *name == receipt.source);
            if let (Some(split), Some((_, source))) = (split, source) {
                source.check_receipt(split, receipt).map_err(place)?;
            }
        }
        if rows.is_empty() {
            rows.push(RecordBatch::new_empty(schema));
        }
        Ok(session.create_dataframe(rows))
    }
}
