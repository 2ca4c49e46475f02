//! The boundary to where data comes from.
//!
//! A [`Source`] lives in the driver: it knows where the data ends and cuts ranges into splits. A [`SourceReader`] lives
//! in a task: it reads exactly one split. Neither ever sees a batch id, so neither can tell a first run from a replay.
//!
//! The promise on which everything rests: **reading a range twice gives the same rows, or an error; never other rows.**

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::{Error, Result, code};
use crate::ids::QueryId;
use crate::offsets::{Offsets, Range, Split};

/// Everything needed to build a source's readers on another machine. Secrets are named in it, never contained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSpec {
    /// The registered format, such as `kafka`.
    pub format: String,
    /// The format's own settings.
    pub config: Value,
}

/// How much one batch may read of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadLimit {
    /// At most about this many rows, shared between partitions in proportion to what each has waiting.
    pub rows: Option<u64>,
    /// Nothing at or beyond these offsets: where a query with the trigger `available_now` stops.
    pub up_to: Option<Offsets>,
}

/// What a source's own options say about how much one batch reads of it, and when. The engine makes a [`ReadLimit`] of it
/// for every batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// At most about this many rows a batch.
    pub rows_max: Option<u64>,
    /// At most about this many bytes a batch, as [`Receipt::bytes`] counts them.
    pub bytes_max: Option<u64>,
    /// When a batch is held back.
    pub hold: Option<Hold>,
}

/// Holds a batch back until enough rows wait, or long enough has been waited (in Spark: `minOffsetsPerTrigger` with
/// `maxTriggerDelay`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Rows that are enough.
    pub rows: u64,
    /// How long after the batch before it a batch is held back at most.
    pub delay_max: Duration,
}

/// What a source offers for the next batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What the batch may read. It starts where it was asked to, or beyond what is lost.
    pub range: Range,
    /// Where the source ends at this moment, limits aside: the base of every lag figure.
    pub latest: Offsets,
    /// What is gone that was wanted (only where the source was told to go on after a loss): the range starts beyond it.
    pub loss: Loss,
}

/// What is gone that was to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Rows, as far as they can be counted.
    pub rows: u64,
    /// What happened, for people; empty if nothing is gone.
    pub why: Vec<String>,
}

impl Loss {
    /// Whether nothing is gone.
    pub fn is_none(&self) -> bool {
        self.rows == 0 && self.why.is_empty()
    }

    /// Adds what happened, and how many rows it cost.
    pub fn add(&mut self, rows: u64, why: impl Into<String>) {
        self.rows += rows;
        self.why.push(why.into());
    }
}

/// Which source of which query it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The query, for ever.
    pub query_id: &'a QueryId,
    /// The source's name in it.
    pub source: &'a str,
}

/// The driver's side of a source.
#[async_trait]
pub trait Source: Send + Sync + Debug {
    /// What a task needs to build a reader.
    fn spec(&self) -> &SourceSpec;

    /// The columns of every row, whatever the range.
    fn schema(&self) -> SchemaRef;

    /// One line for people: what is read, where it starts, which guards are off.
    fn description(&self) -> String;

    /// How much one batch reads, and when, by this source's own options.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// How rows of a range are interpreted, as far as a changed setting could change it (Kafka: the isolation level).
    /// It is logged with the range and handed back to [`Source::plan`], so a re-run reads as the first run did.
    fn interpretation(&self) -> Value {
        Value::Null
    }

    /// Where a query without a checkpoint starts. Called once in the life of a query, unless its first batch was never
    /// logged.
    async fn initial(&self) -> Result<Offsets>;

    /// What a static read reads: from where it starts to where it ends, as they are now. Without an end of its own, what is
    /// there.
    async fn bounds(&self) -> Result<Range> {
        let start = self.initial().await?;
        let offer = self.next(&start, &ReadLimit::default()).await?;
        Ok(offer.map_or_else(|| Range { start: start.clone(), end: start }, |offer| offer.range))
    }

    /// Whether [`Source::initial`] can answer something else the later it is asked, so that rows in between would be passed
    /// over unseen (Kafka: ends move on, and what is there goes). Such a start is logged at once, with a batch that may be
    /// empty.
    fn start_moves(&self) -> bool {
        false
    }

    /// What the next batch reads, from `from`; none if nothing is waiting. Never a range that shrinks or goes back: a
    /// source whose end lies below a known end fails. Partitions that appear get a start, known ones are kept for ever.
    /// It may be asked while the batch before is still shown, and before [`Source::committed`] tells of that one.
    async fn next(&self, from: &Offsets, limit: &ReadLimit) -> Result<Option<Offer>>;

    /// How long a query that runs as often as it can leaves the source alone after a look that found nothing, so that
    /// waiting costs little.
    fn idle_pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Cuts a range into splits. Pure and deterministic: the same range gives the same splits on every machine.
    /// `interpretation` is what was logged with the range.
    fn plan(&self, name: &str, range: &Range, interpretation: &Value) -> Result<Vec<Split>>;

    /// Judges the receipt of a split beyond what [`Receipt::check`] does. Pure.
    fn check_receipt(&self, split: &Split, receipt: &Receipt) -> Result<()> {
        let (_, _) = (split, receipt);
        Ok(())
    }

    /// Told that everything below these offsets is committed. Advice: it may be repeated and it may be skipped. The batch
    /// after it waits for it, so it must not wait for anybody.
    async fn committed(&self, up_to: &Offsets, owner: Owner<'_>) -> Result<()> {
        let (_, _) = (up_to, owner);
        Ok(())
    }

    /// Told that a query ends, of which it then hears no more: the place to wait, within a bound of seconds, for what
    /// [`Source::committed`] began. It may be skipped.
    async fn ended(&self, owner: Owner<'_>) {
        let _ = owner;
    }

    /// What a person should know, and has not been told: asked after every batch, every look and at the end.
    fn warnings(&self, owner: Owner<'_>) -> Vec<String> {
        let _ = owner;
        Vec::new()
    }

    /// Figures for progress, by name, of a source that has been read to `end` and reached to `latest` when the batch was
    /// planned.
    fn metrics(&self, end: &Offsets, latest: &Offsets, owner: Owner<'_>) -> BTreeMap<String, String> {
        let (_, _, _) = (end, latest, owner);
        BTreeMap::new()
    }

    /// Rows waiting between two positions, for progress; none where the source cannot tell.
    fn rows_between(&self, start: &Offsets, end: &Offsets) -> Option<u64> {
        let (_, _) = (start, end);
        None
    }
}

/// What a task gives its reader.
#[derive(Clone, Debug)]
pub struct ReadContext {
    /// The columns wanted, as indices into the source's schema, in this order. All of them if none is given.
    pub projection: Option<Vec<usize>>,
    /// Rows that a record batch should have.
    pub batch_rows: usize,
    /// Bytes that this read may hold between the client library and the consumer.
    pub buffer_bytes: usize,
    /// Set when the attempt is over: the reader must end soon, also from inside a blocking call.
    pub cancel: CancellationToken,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// What comes out of a read: rows, and as the very last item the receipt.
#[derive(Clone, Debug)]
pub enum ReadItem {
    /// Rows of the projected schema.
    Rows(RecordBatch),
    /// No rows come any more. A reader whose receipt takes a while says so before it, and what is done with the rows goes
    /// on meanwhile; others need not.
    End,
    /// The end: what was read.
    Receipt(Receipt),
}

/// The task's side of a source.
pub trait SourceReader: Send + Sync + Debug {
    /// Reads exactly `[start, end)` of the split. Dropping the stream ends the read.
    fn read(&self, split: Split, context: ReadContext) -> BoxStream<'static, Result<ReadItem>>;
}

/// A reader's account of one split. The driver acknowledges a batch only if the receipts are, as a multiset, the splits
/// that it planned: an over-read, an under-read or a foreign row becomes a failed batch instead of wrong data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The source's name within the query.
    pub source: String,
    /// The split's id.
    pub split: String,
    /// The planned start, as the reader was given it.
    pub start: Offsets,
    /// The planned end, as the reader was given it.
    pub end: Offsets,
    /// Rows delivered.
    pub rows: u64,
    /// Bytes delivered, as the source counts them.
    pub bytes: u64,
    /// The position of the first row delivered; none if there was no row or the source has no such number.
    pub first: Option<i64>,
    /// The position of the last row delivered.
    pub last: Option<i64>,
    /// Whether positions rose strictly, row by row.
    pub ascending: bool,
    /// Rows known to be lost (only where the source was told to go on after a loss).
    pub lost: u64,
    /// Who the source was *after* the range had been read (Kafka: the topic id), to be compared with the plan.
    pub identity: Value,
}

impl Receipt {
    /// Whether the receipts are the planned splits, each exactly once, in strict ascent.
    pub fn check(planned: &[Split], receipts: &[Receipt]) -> Result<()> {
        let mismatch = |what: String| Err(Error::new(code::RECEIPT_MISMATCH, what));
        let mut open: Vec<&Split> = planned.iter().collect();
        for receipt in receipts {
            let same = |split: &&Split| {
                split.source == receipt.source
                    && split.id == receipt.split
                    && split.start == receipt.start
                    && split.end == receipt.end
            };
            match open.iter().position(same) {
                Some(at) => drop(open.swap_remove(at)),
                None => return mismatch(format!("split \"{}\" was read twice, or was never planned", receipt.split)),
            }
            if !receipt.ascending {
                return mismatch(format!("rows of split \"{}\" did not come in strict ascent", receipt.split));
            }
        }
        match open.first() {
            Some(split) => mismatch(format!("split \"{}\" was planned and not read", split.id)),
            None => Ok(()),
        }
    }
}
