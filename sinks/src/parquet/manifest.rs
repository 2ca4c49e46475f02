//! The manifest: a sink's record that a batch is visible. Its format, once and for ever:
//!
//! ```text
//! crc32c=9a0b4c1d
//! {"format":1,"kind":"batch","query_id":"…","sink":"hot","batch_id":42,"attempt":"…","offsets_nonce":"…",
//!  "acks_nonce":"…","ranges":{…},"rows":3,"bytes":812,"files":[{"path":"day=1/part-….parquet","bytes":812,"rows":3}]}
//! ```
//!
//! Two drivers that publish one batch write the same bytes, since everything in it comes from `acks/N`. Manifests are
//! never deleted: a sleeping driver would write one anew.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_core::store::{self, Location};
use tidemill_core::{Ack, Acked, AttemptId, BatchId, Error, Nonce, Published, QueryId, Result, code};

use object_store::path::Path;

/// The version of the format that this code writes.
const FORMAT: u32 = 1;

/// What a published batch consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Always `batch`; other kinds are reserved.
    pub kind: String,
    /// The query that wrote it.
    pub query_id: QueryId,
    /// The name of the sink within the query.
    pub sink: String,
    /// The batch.
    pub batch_id: BatchId,
    /// The attempt whose files these are.
    pub attempt: AttemptId,
    /// The nonce of `offsets/N`.
    pub offsets_nonce: Nonce,
    /// The nonce of `acks/N`: a manifest with another one came from another checkpoint.
    pub acks_nonce: Nonce,
    /// What the batch read, per source.
    pub ranges: Value,
    /// Rows in all files.
    pub rows: u64,
    /// Bytes in all files.
    pub bytes: u64,
    /// The files; none for a batch without rows.
    pub files: Vec<ManifestFile>,
}

/// One file of a batch. Tasks list theirs in their acks in the same form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Its path below the table's root, escapes included.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
}

/// What a task's ack carries.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AckPayload {
    pub files: Vec<ManifestFile>,
}

impl Manifest {
    /// The manifest that publishing this batch ends with.
    pub(super) fn of(batch: &Acked) -> Result<Self> {
        let mut files = Vec::new();
        for ack in &batch.acks {
            files.extend(files_of(ack)?);
        }
        Ok(Manifest {
            format: FORMAT,
            kind: "batch".to_owned(),
            query_id: batch.key.query_id.clone(),
            sink: batch.key.sink.clone(),
            batch_id: batch.batch_id,
            attempt: batch.attempt.clone(),
            offsets_nonce: batch.offsets_nonce.clone(),
            acks_nonce: batch.acks_nonce.clone(),
            ranges: batch.ranges.clone(),
            rows: files.iter().map(|file| file.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
            files,
        })
    }

    /// Reads a manifest's file.
    pub(super) fn read(file: &[u8], location: &Location, path: &Path) -> Result<Self> {
        let refuse = |code, what: String| Error::new(code, what).at("path", location.describe(path));
        let body = store::unseal(file)
            .map_err(|damage| refuse(code::CHECKPOINT_DAMAGED, format!("the manifest is damaged: {damage}")))?;
        if body.get("format").and_then(Value::as_u64) != Some(FORMAT.into()) {
            let format = body.get("format").cloned().unwrap_or_default();
            return Err(refuse(code::CHECKPOINT_VERSION, format!("the manifest has format {format}"))
                .fix("use the version of Tidemill that wrote it, or a later one"));
        }
        serde_json::from_value(body)
            .map_err(|error| refuse(code::CHECKPOINT_DAMAGED, "the manifest cannot be read".to_owned()).because(error))
    }

    /// Checks that a manifest found in the place of this one records the same decision.
    pub(super) fn recognise(&self, there: &Manifest, location: &Location, path: &Path) -> Result<()> {
        let names = |manifest: &Manifest| {
            (manifest.query_id.clone(), manifest.sink.clone(), manifest.batch_id, manifest.acks_nonce.clone())
        };
        match names(self) == names(there) {
            true => Ok(()),
            false => Err(foreign(&self.sink, self.batch_id, location, path)),
        }
    }

    /// What publishing it made visible.
    pub(super) fn published(&self) -> Published {
        Published { rows: self.rows, bytes: self.bytes, files: self.files.len() as u64 }
    }
}

fn foreign(sink: &str, batch_id: BatchId, location: &Location, path: &Path) -> Error {
    Error::new(code::SINK_FOREIGN, "another checkpoint published this batch here")
        .at("sink", sink)
        .at("batch", batch_id)
        .at("path", location.describe(path))
        .fix("a checkpoint was restored, copied or forked: give this query a table of its own")
}

/// Whose batch this is: created if absent before a file of it has its name, in an envelope like a manifest's.
///
/// ```text
/// crc32c=51d2c6a0
/// {"format":1,"kind":"claim","query_id":"…","sink":"hot","batch_id":42,"acks_nonce":"…"}
/// ```
///
/// Once the manifest is there it says the same; claims of batches that are finished for ever are swept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    format: u32,
    kind: String,
    query_id: QueryId,
    sink: String,
    batch_id: BatchId,
    acks_nonce: Nonce,
}

impl Claim {
    pub(super) fn of(batch: &Acked) -> Self {
        Claim {
            format: FORMAT,
            kind: "claim".to_owned(),
            query_id: batch.key.query_id.clone(),
            sink: batch.key.sink.clone(),
            batch_id: batch.batch_id,
            acks_nonce: batch.acks_nonce.clone(),
        }
    }

    /// Checks that a claim found in the place of this one is for the same decision.
    pub(super) fn recognise(&self, theirs: &[u8], location: &Location, path: &Path) -> Result<()> {
        let there = store::unseal(theirs).map_err(|damage| {
            Error::new(code::CHECKPOINT_DAMAGED, format!("the claim is damaged: {damage}"))
                .at("path", location.describe(path))
                .fix("see whether files of this batch are in the table; if none is, remove the claim")
        })?;
        match serde_json::from_value::<Claim>(there) {
            Ok(there) if there == *self => Ok(()),
            _ => Err(foreign(&self.sink, self.batch_id, location, path)),
        }
    }
}

fn files_of(ack: &Ack) -> Result<Vec<ManifestFile>> {
    let payload = AckPayload::deserialize(&ack.payload).map_err(|error| {
        Error::new(code::BUG, "the ack of a Parquet task cannot be read").at("task", ack.task).because(error)
    })?;
    Ok(payload.files)
}
