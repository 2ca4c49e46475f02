//! The shapes of a checkpoint's files, as FORMAT.md draws them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_core::store::{Damage, seal, unseal};
use tidemill_core::{
    Ack, AttemptId, BatchId, Error, Generation, Loss, Nonce, Offsets, QueryId, Range, Receipt, Result, RunId, code,
};

/// The format that this version writes, and the highest that it reads.
pub const FORMAT: u32 = 1;

/// Control entries that later versions write. They are refused by name, not taken for damage.
const RESERVED_KINDS: &[&str] = &["skip", "rewind", "abandon", "moved", "map-topic"];

/// What every file begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the format.
    pub format: u32,
    /// What the file is.
    pub kind: String,
    /// Whose it is.
    pub query_id: QueryId,
    /// The driver start that wrote it.
    pub generation: Generation,
    /// Unlike any other writer's.
    pub nonce: Nonce,
}

/// A file: the common head, and a body of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<B> {
    /// The common fields.
    #[serde(flatten)]
    pub head: Head,
    /// The fields of this kind.
    #[serde(flatten)]
    pub body: B,
}

/// A body, and what its file calls itself.
pub trait Body: Serialize + DeserializeOwned {
    /// The `kind` field.
    const KIND: &'static str;
}

/// `metadata`: that this is a checkpoint, and of which query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataBody {
    /// The version that made it, for people.
    pub created_by: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: i64,
}

impl Body for MetadataBody {
    const KIND: &'static str = "metadata";
}

/// `generations/<e>`: who runs here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationBody {
    /// This start.
    pub run_id: RunId,
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// When, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// The version that runs.
    pub version: String,
}

impl Body for GenerationBody {
    const KIND: &'static str = "generation";
}

/// What a batch reads of one source, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// `[start, end)`.
    #[serde(flatten)]
    pub range: Range,
    /// The source's own account of how the range is interpreted.
    pub interpretation: Value,
    /// What was wanted and was gone when the batch was planned: the range starts beyond it. What turned out to be gone
    /// while it was read is in the receipts.
    #[serde(default, skip_serializing_if = "Loss::is_none")]
    pub loss: Loss,
}

/// `offsets/<N>`: what batch N reads. Whoever creates it first decides it, for every driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetsBody {
    /// N.
    pub batch_id: BatchId,
    /// The nonce of `acks/<N-1>`, from whose positions N was planned.
    pub previous_acks: Option<Nonce>,
    /// The batch's time, in milliseconds since 1970: what `now()` says, on every run.
    pub timestamp_ms: i64,
    /// The session's time zone.
    pub time_zone: String,
    /// Watermarks that apply to N.
    pub watermarks: BTreeMap<String, i64>,
    /// The plan that was there when N was planned; a differing one is allowed and said.
    pub fingerprint: String,
    /// The query's sinks: a changed set is refused while N is pending.
    pub sinks: BTreeSet<String>,
    /// By name.
    pub sources: BTreeMap<String, SourceEntry>,
}

impl Body for OffsetsBody {
    const KIND: &'static str = "batch";
}

/// `acks/<N>`: what batch N wrote. Whoever creates it first decides which attempt N is, for all sinks at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcksBody {
    /// N.
    pub batch_id: BatchId,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// The nonce of the `offsets/<N>` that the attempt ran.
    pub offsets_nonce: Nonce,
    /// The plan that ran.
    pub fingerprint: String,
    /// The readers' accounts.
    pub receipts: Vec<Receipt>,
    /// Where every source is after N. N+1 is planned from here, and from nowhere else.
    pub positions: BTreeMap<String, Offsets>,
    /// Watermarks for N+1.
    pub watermarks: BTreeMap<String, i64>,
    /// State files of N.
    pub state: Vec<Value>,
    /// By name: the acks of the attempt's tasks.
    pub sinks: BTreeMap<String, Vec<Ack>>,
    /// What N read, by source, for the sinks' own records.
    pub ranges: Value,
}

impl Body for AcksBody {
    const KIND: &'static str = "batch";
}

/// `commits/<N>`: batch N counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitBody {
    /// N.
    pub batch_id: BatchId,
    /// The nonce of `acks/<N>`.
    pub acks_nonce: Nonce,
    /// Rows read.
    pub input_rows: u64,
    /// Rows written, by sink.
    pub output_rows: BTreeMap<String, u64>,
}

impl Body for CommitBody {
    const KIND: &'static str = "batch";
}

/// `boundary/<k>`: names of batches at or below `batch_id` are dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundaryBody {
    /// The highest dead batch.
    pub batch_id: BatchId,
}

impl Body for BoundaryBody {
    const KIND: &'static str = "boundary";
}

/// `purged/<j>`: the boundaries of the j-th hundred are dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedBody {
    /// The first boundary that may still be there.
    pub below: u64,
}

impl Body for PurgedBody {
    const KIND: &'static str = "purged";
}

/// What the bytes of a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<B> {
    /// A whole entry.
    Good(Box<Entry<B>>),
    /// Not what somebody wrote.
    Torn(Damage),
}

/// The bytes of an entry.
pub fn encode<B: Body>(entry: &Entry<B>) -> Bytes {
    debug_assert_eq!(entry.head.kind, B::KIND);
    seal(entry)
}

/// Reads the bytes of an entry. Damage is a result, since some of it is legal; an unknown format, a control entry of a
/// later version and an entry of another query are errors. `owner` is the query, once it is known.
pub fn decode<B: Body>(bytes: &[u8], owner: Option<&QueryId>) -> Result<Parsed<B>> {
    let value = match unseal(bytes) {
        Ok(value) => value,
        Err(damage) => return Ok(Parsed::Torn(damage)),
    };
    let format = value.get("format").and_then(Value::as_u64);
    if format.is_none_or(|format| format > u64::from(FORMAT)) {
        let found = format.map_or_else(|| "no format".to_owned(), |format| format!("format {format}"));
        return Err(Error::new(
            code::CHECKPOINT_VERSION,
            format!("the file has {found}, this version reads up to {FORMAT}"),
        )
        .fix("run the version that wrote it, or a newer one"));
    }
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind != B::KIND {
        let error =
            Error::new(code::CHECKPOINT_VERSION, format!("the file is of kind \"{kind}\", not \"{}\"", B::KIND));
        return Err(if RESERVED_KINDS.contains(&kind) {
            error.fix("a newer version wrote a control entry here: run that version")
        } else {
            error.fix("it does not belong here; was it copied?")
        });
    }
    let entry: Entry<B> = serde_json::from_value(value).map_err(|error| {
        Error::new(code::CHECKPOINT_DAMAGED, "the file is whole and has not the fields of its kind").because(error)
    })?;
    if owner.is_some_and(|owner| *owner != entry.head.query_id) {
        return Err(Error::new(code::CHECKPOINT_FOREIGN, format!("the file belongs to query {}", entry.head.query_id))
            .fix("give every query a checkpoint location of its own"));
    }
    Ok(Parsed::Good(Box::new(entry)))
}
