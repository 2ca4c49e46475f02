//! The task's side: reads exactly the rows of one range of one partition.
//!
//! A range is done when a row at or beyond its end has come (it is kept for the next range), or the library has reached
//! the end of the partition at or beyond it, or its position has passed it: transaction markers, aborted rows and
//! compaction leave holes, so neither the last offset nor a count of rows can tell.
//!
//! With `failOnDataLoss` false, what is gone is counted in the receipt, and the range goes on behind it, or ends. A topic
//! that was made again gives nothing to a range of its forerunner: its id is asked for before the read as well as after.
//!
//! A thread of its own takes messages, builds record batches and hands them over through a short channel, so that
//! fetching, building and what comes after overlap. None of the runtime's threads for blocking work: there is a bounded
//! number of those, sinks need them too, and a reader keeps its own while it waits for its sink.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::json;
use tidemill_core::{Context, Error, ReadContext, ReadItem, Receipt, Result, SourceReader, SourceSpec, Split, code};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::client::{Client, denied_right, stopped};
use super::cluster::Question;
use super::columns::{self, Rows};
use super::config::{KafkaConfig, PLACEHOLDER_GROUP};
use super::ffi::{Code, Message, OffsetSpec};
use super::identity::Identities;
use super::lane::{FetchSizes, Lane, Pool};
use super::offset::SplitOffsets;
use super::plan;
use super::token::ClientSettings;
use super::watch::Watch;

/// Record batches that wait between the reading thread and the consumer.
const HANDED_OVER: usize = 2;

/// Messages that are taken from the library at a time.
const TAKE: usize = 4096;

/// Which part of the budget one record batch may have: two wait, one is built, and the library has its own.
const BATCH_PART: usize = 4;

/// The least and the most that it has.
const BATCH_BYTES: (usize, usize) = (256 << 10, 8 << 20);

/// How long an answer to a question about a range that gets nowhere may take.
const INQUIRY_BOUND: Duration = Duration::from_secs(2);

/// Reads ranges, and keeps its clients between them.
#[derive(Debug)]
pub(super) struct KafkaReader {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: KafkaConfig,
    schema: SchemaRef,
    pool: Pool,
    /// For questions: on a fetching client an answer would wait behind a fetch.
    asking: Arc<Client>,
    identities: Identities,
}

impl KafkaReader {
    pub(super) fn new(spec: &SourceSpec, context: &Context) -> Result<Self> {
        let config = KafkaConfig::from_spec(spec)?;
        let (mut client, login) = config.client(&context.vault)?;
        let asking = Client::for_questions(&client, &login)?;
        if client.get("group.id").is_none() {
            client.set("group.id", PLACEHOLDER_GROUP);
        }
        let (schema, pool) =
            (columns::schema(config.include_headers), Pool::new(ClientSettings { config: client, login }));
        Ok(KafkaReader { shared: Arc::new(Shared { config, schema, pool, asking, identities: Identities::default() }) })
    }
}

impl SourceReader for KafkaReader {
    fn read(&self, split: Split, context: ReadContext) -> BoxStream<'static, Result<ReadItem>> {
        let shared = Arc::clone(&self.shared);
        // Nothing happens before the stream is polled.
        let started = stream::once(async move {
            let (sender, receiver) = mpsc::channel(HANDED_OVER);
            let handle = Handle::current();
            let refused = sender.clone();
            let thread = std::thread::Builder::new().name("kafka-read".to_owned()).spawn(move || {
                let output = Output { sender, handle, context };
                let last = read_split(&shared, &split, &output).map(ReadItem::Receipt);
                output.send(last);
            });
            if let Err(error) = thread {
                let error = Error::new(code::SOURCE_UNAVAILABLE, "no thread can be started").because(error);
                // There is room: nothing was sent yet.
                let _ = refused.try_send(Err(error));
            }
            stream::unfold((receiver, false), |(mut receiver, ended)| async move {
                match receiver.recv().await {
                    Some(item) => {
                        let last = matches!(item, Err(_) | Ok(ReadItem::Receipt(_)));
                        Some((item, (receiver, last)))
                    }
                    None if ended => None,
                    None => Some((Err(Error::new(code::TASK_PANICKED, "a kafka reader panicked")), (receiver, true))),
                }
            })
        });
        started.flatten().boxed()
    }
}

/// Where the reading thread hands over what it has.
pub(super) struct Output {
    sender: mpsc::Sender<Result<ReadItem>>,
    handle: Handle,
    pub(super) context: ReadContext,
}

impl Output {
    /// Whether nobody wants more.
    fn over(&self) -> bool {
        self.context.cancel.is_cancelled() || self.sender.is_closed()
    }

    /// Hands over an item, waiting for room; false if nobody wants it.
    fn send(&self, item: Result<ReadItem>) -> bool {
        let item = match self.sender.try_send(item) {
            Ok(()) => return true,
            Err(mpsc::error::TrySendError::Closed(_)) => return false,
            Err(mpsc::error::TrySendError::Full(item)) => item,
        };
        self.handle.block_on(async {
            tokio::select! {
                biased;
                sent = self.sender.send(item) => sent.is_ok(),
                () = self.context.cancel.cancelled() => false,
            }
        })
    }

    fn rows(&self, rows: RecordBatch) -> Result<()> {
        if self.send(Ok(ReadItem::Rows(rows))) { Ok(()) } else { Err(stopped()) }
    }
}

/// Reads a split and gives its receipt.
fn read_split(shared: &Shared, split: &Split, output: &Output) -> Result<Receipt> {
    let (start, end) = (SplitOffsets::decode(&split.start)?, SplitOffsets::decode(&split.end)?);
    let sizes = FetchSizes::new(output.context.buffer_bytes, split.estimated_rows);
    let mut range = Range { shared, output, start: &start, end: end.next, tally: Tally::default(), is_reopened: false };
    if range.tolerant()
        && let Some(identity) = range.another_topic()?
    {
        range.tally.lost = range.end.abs_diff(start.next);
        return Ok(range.receipt(split, identity));
    }
    let mut lane = shared.pool.take(&start, sizes, &|| output.over())?;
    match range.read(&mut lane) {
        // At a loss the library has stopped.
        Ok(()) if range.tally.lost > 0 => shared.pool.give_up(lane),
        Ok(()) => shared.pool.put(lane),
        Err(error) if error.code() == code::STOPPED => {
            shared.pool.put(lane);
            return Err(error);
        }
        Err(error) => {
            // What is wrong with a lane stays with it.
            shared.pool.give_up(lane);
            return Err(error);
        }
    }
    output.send(Ok(ReadItem::End));
    // Only now: a topic that was made again while the range was read must not have its old name vouched for.
    let id = match end.id.as_ref().map(|_| range.identity()).transpose() {
        Ok(id) => id.flatten(),
        // What was read before the topic was deleted was read.
        Err(error) if error.code() == code::SOURCE_NOT_FOUND && range.tally.lost > 0 => None,
        // A broker that lags behind says so, too. Whether it is gone is for the planning of the next try to tell.
        Err(error) if error.code() == code::SOURCE_NOT_FOUND => {
            return Err(error.with_code(code::SOURCE_UNAVAILABLE));
        }
        Err(error) => return Err(error),
    };
    if let (Some(known), Some(found)) = (&end.id, &id)
        && range.tolerant()
        && known != found
    {
        // The next try reads nothing.
        return Err(plan::recreated(&start.topic, known, found).with_code(code::SOURCE_UNAVAILABLE));
    }
    Ok(range.receipt(split, id))
}

/// What was handed over.
struct Tally {
    rows: u64,
    bytes: u64,
    /// Rows that were not there any more.
    lost: u64,
    first: Option<i64>,
    last: Option<i64>,
    ascending: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { rows: 0, bytes: 0, lost: 0, first: None, last: None, ascending: true }
    }
}

impl Tally {
    #[inline]
    fn add(&mut self, offset: i64, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes as u64;
        self.ascending &= self.last.is_none_or(|last| last < offset);
        self.first.get_or_insert(offset);
        self.last = Some(offset);
    }
}

/// One range while it is read.
pub(super) struct Range<'a> {
    shared: &'a Shared,
    pub(super) output: &'a Output,
    pub(super) start: &'a SplitOffsets,
    pub(super) end: i64,
    tally: Tally,
    /// Whether it was begun anew because of an error that the broker does not confirm.
    is_reopened: bool,
}

/// An error of the partition.
struct Gone {
    error: Error,
    /// The first offset that is left behind it, if there is such.
    left: Option<i64>,
    /// Whether the broker has what the error says is gone: it may be one of the past, that waited in the library.
    is_past: bool,
}

impl From<Error> for Gone {
    fn from(error: Error) -> Self {
        Gone { error, left: None, is_past: false }
    }
}

/// Why taking over messages paused.
enum Pause {
    /// Everything that was taken from the queue is used up.
    Empty,
    /// The record batch is full.
    Full,
    /// The range is done.
    Done,
}

impl Range<'_> {
    fn read(&mut self, lane: &mut Lane) -> Result<()> {
        let SplitOffsets { topic, partition, .. } = self.start;
        let context = &self.output.context;
        let expected = usize::try_from(self.end - self.start.next).unwrap_or(usize::MAX);
        let rows_max = context.batch_rows.min(expected);
        let bytes_max = (context.buffer_bytes / BATCH_PART).clamp(BATCH_BYTES.0, BATCH_BYTES.1);
        let projection = context.projection.as_deref();
        let mut rows = Rows::new(&self.shared.schema, projection, topic, *partition, rows_max, bytes_max)?;
        // What was said about an outage that is over must not explain the next one.
        lane.client.works();
        let mut watch = Watch::new(self);
        loop {
            match self.take_over(lane, &mut rows) {
                Err(gone) => {
                    if self.pass_over(lane, gone)? {
                        break;
                    }
                    watch.progress();
                    continue;
                }
                Ok(Pause::Empty) => {}
                Ok(Pause::Full) => {
                    self.output.rows(rows.finish()?)?;
                    watch.progress();
                    continue;
                }
                Ok(Pause::Done) => break,
            }
            if self.output.over() {
                return Err(stopped());
            }
            if lane.queue.consume(&mut lane.held, TAKE, Duration::ZERO) > 0 {
                continue;
            }
            // With nothing held, the position tells whether the range is done although no row beyond it came.
            if lane.position() >= self.end {
                break;
            }
            if lane.queue.consume(&mut lane.held, 1, watch.wait()) == 0 {
                lane.client.serve();
                if let Err(error) = watch.check(self, lane)
                    && self.pass_over(lane, error.into())?
                {
                    break;
                }
            }
        }
        if !rows.is_empty() {
            self.output.rows(rows.finish()?)?;
        }
        lane.next = self.end;
        Ok(())
    }

    /// After an error: goes on behind what is gone, if that is what the user wants. True if the range ends with it.
    fn pass_over(&mut self, lane: &mut Lane, gone: Gone) -> Result<bool> {
        let Gone { error, left, is_past } = gone;
        // A log that is another one would be told by its epoch once more; nothing can be below its first row.
        if is_past && lane.next == self.start.next && !std::mem::replace(&mut self.is_reopened, true) {
            self.shared.pool.reopen(lane, self.start, &|| self.output.over())?;
            return Ok(false);
        }
        let loss = [code::DATA_LOSS, code::SOURCE_TRUNCATED, code::SOURCE_NOT_FOUND, code::TOPIC_RECREATED];
        if !self.tolerant() || !loss.contains(&error.code()) {
            return Err(error);
        }
        tracing::warn!(error = %error, "rows of kafka are gone, and the query goes on without them");
        let next = left.unwrap_or(self.end).clamp(lane.next, self.end);
        self.tally.lost += next.abs_diff(lane.next);
        if next < self.end {
            self.shared.pool.reopen(lane, &self.start.moved(next), &|| self.output.over())?;
        }
        Ok(next == self.end)
    }

    fn tolerant(&self) -> bool {
        !self.shared.config.fail_on_data_loss
    }

    /// The topic's id, by a question that is asked from now on.
    fn identity(&self) -> Result<Option<String>> {
        let (over, topic) = (|| self.output.over(), &self.start.topic);
        self.shared.identities.get(topic, || self.question(&over).topic_id(topic), &over)
    }

    /// Whether the topic is another one than that of the range, or gone: its id now.
    fn another_topic(&self) -> Result<Option<Option<String>>> {
        let Some(known) = &self.start.id else { return Ok(None) };
        match self.identity() {
            Ok(Some(found)) if found != *known => Ok(Some(Some(found))),
            Ok(_) => Ok(None),
            // Whether it is really gone shows while it is read.
            Err(error) if error.code() == code::SOURCE_NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn receipt(self, split: &Split, id: Option<String>) -> Receipt {
        let Tally { rows, bytes, lost, first, last, ascending } = self.tally;
        Receipt {
            source: split.source.clone(),
            split: split.id.clone(),
            start: split.start.clone(),
            end: split.end.clone(),
            rows,
            bytes,
            first,
            last,
            ascending,
            lost,
            identity: json!({ "id": id }),
        }
    }

    /// Moves held rows into the record batch.
    fn take_over(&mut self, lane: &mut Lane, rows: &mut Rows) -> Result<Pause, Gone> {
        let mut taken = 0;
        let pause = loop {
            if taken == lane.held.len() {
                break if lane.seen >= self.end { Pause::Done } else { Pause::Empty };
            }
            let message = lane.held.get(taken);
            let offset = message.offset();
            match message.code() {
                Code::NONE if offset >= self.end => break Pause::Done,
                Code::NONE if offset < lane.next => {
                    lane.held.release(taken);
                    let what = format!("row {offset} came after all rows below {} had", lane.next);
                    return Err(Error::new(code::SOURCE_UNAVAILABLE, what).at("partition", self.at()).into());
                }
                Code::NONE => {
                    let bytes = message.key().map_or(0, <[u8]>::len) + message.value().map_or(0, <[u8]>::len);
                    if !rows.fits(bytes) {
                        break Pause::Full;
                    }
                    rows.push(message, bytes);
                    self.tally.add(offset, bytes);
                    lane.next = offset + 1;
                }
                Code::END_OF_PARTITION => lane.seen = lane.seen.max(offset),
                code => {
                    let passes = self.event(lane, code, message);
                    lane.reported(offset);
                    if let Err(error) = passes {
                        lane.held.release(taken);
                        return Err(error);
                    }
                }
            }
            taken += 1;
        };
        lane.held.release(taken);
        Ok(pause)
    }

    /// How long the range may make no progress.
    pub(super) fn stuck_bound(&self) -> Duration {
        Duration::from_millis(self.shared.config.bounds.stuck_ms)
    }

    fn question<'a>(&'a self, stop: &'a dyn Fn() -> bool) -> Question<'a> {
        let bound = Duration::from_millis(self.shared.config.bounds.call_ms);
        Question { client: &self.shared.asking, bound, stop }
    }

    /// Offsets of the partition, for an error message: no answer is no harm.
    pub(super) fn offsets<const N: usize>(&self, specs: [OffsetSpec; N]) -> [Option<i64>; N] {
        let stop = || self.output.over();
        let mut question = self.question(&stop);
        question.bound = question.bound.min(INQUIRY_BOUND);
        question.offsets(&self.start.topic, self.start.partition, specs)
    }

    /// Nothing comes: is it still there? An error only for what the broker says, not for its silence.
    pub(super) fn inquire(&self) -> Result<()> {
        let stop = || self.output.over();
        let mut question = self.question(&stop);
        question.bound = question.bound.min(INQUIRY_BOUND);
        match (&self.start.id, question.topic_id(&self.start.topic)) {
            (Some(known), Ok(Some(found))) if *known != found => Err(plan::recreated(&self.start.topic, known, &found)),
            (_, Err(error)) if error.code() == code::SOURCE_NOT_FOUND => Err(error),
            _ => Ok(()),
        }
    }

    /// The partition, for a message.
    pub(super) fn at(&self) -> String {
        format!("{}-{}", self.start.topic, self.start.partition)
    }

    /// What an event of the partition means: an error, unless it passes.
    fn event(&self, lane: &Lane, code: Code, message: Message<'_>) -> Result<(), Gone> {
        let text = message.value().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
        let text = lane.client.clean(&text);
        let place = format!("{}@{}", self.at(), lane.next);
        let error = match code {
            Code::OFFSET_RESET => {
                let gone = self.out_of_range(lane, &text);
                return Err(Gone { error: gone.error.at("position", place), ..gone });
            }
            Code::TOPIC_DENIED | Code::CLUSTER_DENIED => denied_right("fetch", &text),
            Code::UNSUPPORTED_CODEC => {
                Error::new(code::BAD_RECORD, format!("a message is compressed in a way this build lacks: {text}"))
                    .fix("build with the codec's feature of rdkafka, or write with another codec")
            }
            Code::BAD_MESSAGE | Code::BAD_COMPRESSION => Error::new(
                code::BAD_RECORD,
                format!("a message is damaged: {text}"),
            )
            .fix("read it with another program to see what the broker has; a range that starts behind it can be read"),
            Code::TOO_LARGE => {
                Error::new(code::INVALID_OPTION, format!("a message is larger than what may be fetched: {text}"))
                    .fix("raise \"kafka.fetch.message.max.bytes\" and \"kafka.receive.message.max.bytes\"")
            }
            // The rest passes (brokers even say in passing that there is no such topic), or nothing comes: then the watch
            // asks whether it is so, and at last the range is stuck and says so.
            _ => {
                tracing::debug!(at = place, code = code.0, text, "kafka reports");
                return Ok(());
            }
        };
        Err(error.at("position", place).into())
    }

    /// The position is not in the partition: which end was left?
    fn out_of_range(&self, lane: &Lane, text: &str) -> Gone {
        if let Err(error) = self.inquire() {
            return error.into();
        }
        let (wanted, at) = (lane.next, self.at());
        let [earliest, high_watermark] = self.offsets([OffsetSpec::Earliest, OffsetSpec::HighWatermark]);
        match (earliest, high_watermark) {
            (Some(earliest), _) if wanted < earliest => {
                Gone { error: plan::lost(&at, wanted, earliest), left: Some(earliest), is_past: false }
            }
            (_, Some(high)) if high < wanted || high < self.end => plan::truncated(&at, self.end, high).into(),
            _ => {
                let what = format!("the log is not the one in which {at}@{wanted} was known: {text}");
                let error = Error::new(code::SOURCE_TRUNCATED, what)
                    .fix("the broker lost rows and has got others since (unclean election, or a topic made again)");
                Gone { error, left: None, is_past: self.start.epoch.is_some() || earliest == Some(wanted) }
            }
        }
    }
}
