//! What every exactly-once sink promises. Each promise is a function named after it; [`sink_promises!`] makes a test of
//! each.
//!
//! ```ignore
//! struct Harness { … }
//! impl SinkHarness for Harness { … }
//! sink_promises!(Harness::new());
//! ```
//!
//! [`sink_promises!`]: crate::sink_promises

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use serde_json::json;

use crate::error::{Result, code};
use crate::ids::{AttemptId, BatchId, Nonce, QueryId};
use crate::sink::{Ack, Acked, Sink, SinkKey, WriteTask};
use crate::store::faulty::{Fault, FaultyStore};

/// How the promises open the sink under test and look at what it shows. A new harness is a new, empty place.
#[async_trait]
pub trait SinkHarness: Send + Sync {
    /// The sink, as one more driver opens it on this place.
    fn sink(&self) -> Arc<dyn Sink>;

    /// The sink over a store that meets `fault` at its operation number `at`; none if there is no store to fail.
    fn faulty(&self, _at: u64, _fault: Fault) -> Option<(Arc<dyn Sink>, Arc<FaultyStore>)> {
        None
    }

    /// Every row that a reader sees, with at least the column `id`.
    async fn visible(&self) -> Vec<RecordBatch>;

    /// How many staged units wait or were left behind.
    async fn staged(&self) -> usize;
}

/// Makes a test of each promise, on a harness that the expression makes anew. The crate needs tokio's macros.
#[macro_export]
macro_rules! sink_promises {
    ($harness:expr) => {
        $crate::sink_promises!(@each $harness;
            staged_rows_are_invisible_until_published
            published_rows_are_those_of_the_acks
            publish_may_repeat
            two_publishers_show_rows_once
            late_publisher_changes_nothing
            losing_stage_is_discarded_and_the_winners_kept
            discarding_touches_no_other_batch
            discarding_may_repeat_and_needs_no_stage
            sweeping_removes_every_stage_up_to_a_batch
            aborted_rows_are_never_seen
            batch_of_another_checkpoint_is_refused
            batch_without_rows_leaves_a_record
            last_published_is_the_newest_and_has_no_side_effects
            two_sinks_of_one_query_keep_their_own_records
            lost_stage_is_refused
            publish_survives_any_single_fault
            publish_survives_death_at_every_operation
        );
    };
    (@each $harness:expr; $($promise:ident)+) => {
        mod promises {
            use super::*;
            $(
                #[tokio::test]
                async fn $promise() {
                    $crate::testing::sink_promises::$promise(&|| $harness).await;
                }
            )+
        }
    };
}

/// Makes a harness on a new place.
pub type Make<'a, H> = &'a (dyn Fn() -> H + Sync);

/// A query that writes to one sink: rows have an `id` and a text.
#[derive(Debug)]
pub struct Story {
    /// Who writes.
    pub key: SinkKey,
    schema: SchemaRef,
}

impl Default for Story {
    fn default() -> Self {
        Story::new()
    }
}

impl Story {
    /// A query with a sink `hot`.
    pub fn new() -> Self {
        Story::of("hot")
    }

    /// The same query's sink of this name.
    pub fn of(sink: &str) -> Self {
        let key = SinkKey { query_id: QueryId::from_text("5eed"), sink: sink.to_owned() };
        let schema =
            Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)]);
        Story { key, schema: Arc::new(schema) }
    }

    /// Rows with these ids.
    pub fn rows(&self, ids: Range<i64>) -> RecordBatch {
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("row {id}"))));
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_new(Arc::clone(&self.schema), vec![ids, text]).expect("the columns fit the schema")
    }

    /// What a task is told.
    pub fn task(&self, batch_id: u64, attempt: &str, task: u32) -> WriteTask {
        WriteTask {
            key: self.key.clone(),
            batch_id: BatchId(batch_id),
            attempt: AttemptId::from_text(attempt),
            task,
            schema: Arc::clone(&self.schema),
            ranges: json!({"rate-0": [0, 10]}),
        }
    }

    /// One task writes these rows and ends.
    pub async fn stage(
        &self,
        sink: &dyn Sink,
        batch_id: u64,
        attempt: &str,
        task: u32,
        ids: Range<i64>,
    ) -> Result<Ack> {
        let mut writer = sink.writer(self.task(batch_id, attempt, task)).await?;
        writer.write(self.rows(ids)).await?;
        writer.finish().await
    }

    /// The batch, acknowledged with these acks. The nonce of its `acks/N` names batch and attempt.
    pub fn acked(&self, batch_id: u64, attempt: &str, acks: Vec<Ack>) -> Acked {
        Acked {
            key: self.key.clone(),
            batch_id: BatchId(batch_id),
            attempt: AttemptId::from_text(attempt),
            offsets_nonce: Nonce::from_text(format!("offsets-{batch_id}")),
            acks_nonce: Nonce::from_text(format!("acks-{batch_id}-{attempt}")),
            ranges: json!({"rate-0": [0, 10]}),
            acks,
        }
    }

    /// Stages rows by two tasks, and acknowledges them.
    pub async fn staged(&self, sink: &dyn Sink, batch_id: u64, attempt: &str, ids: Range<i64>) -> Acked {
        let middle = (ids.start + ids.end) / 2;
        let mut acks = Vec::new();
        for (task, ids) in [(0, ids.start..middle), (1, middle..ids.end)] {
            acks.push(self.stage(sink, batch_id, attempt, task, ids).await.expect("staged"));
        }
        self.acked(batch_id, attempt, acks)
    }

    /// Stages and publishes rows.
    pub async fn land(&self, sink: &dyn Sink, batch_id: u64, attempt: &str, ids: Range<i64>) -> Acked {
        let acked = self.staged(sink, batch_id, attempt, ids).await;
        sink.publish(&acked).await.expect("published");
        acked
    }
}

/// The ids that a reader sees, sorted: a multiset, never a distinct count.
pub async fn visible_ids(harness: &dyn SinkHarness) -> Vec<i64> {
    let mut ids = Vec::new();
    for rows in harness.visible().await {
        let column = rows.column_by_name("id").expect("there is a column id");
        let column = cast(column, &DataType::Int64).expect("ids are numbers");
        assert_eq!(column.null_count(), 0);
        ids.extend_from_slice(column.as_primitive::<Int64Type>().values());
    }
    ids.sort_unstable();
    ids
}

async fn assert_visible(harness: &dyn SinkHarness, ids: Range<i64>, when: &str) {
    assert_eq!(visible_ids(harness).await, ids.collect::<Vec<_>>(), "{when}");
}

/// Before publishing, no reader sees a row, though all of them are durable.
pub async fn staged_rows_are_invisible_until_published<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let acked = story.staged(sink.as_ref(), 0, "a", 0..10).await;
    assert_visible(&harness, 0..0, "staged").await;
    assert_eq!(sink.last_published(&story.key).await.expect("answered"), None);
    // Another driver publishes: stages do not live in the sink that wrote them.
    harness.sink().publish(&acked).await.expect("published");
    assert_visible(&harness, 0..10, "published").await;
}

/// What is published is what the acks say, and the counts are exact.
pub async fn published_rows_are_those_of_the_acks<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    story.staged(sink.as_ref(), 0, "loser", 100..110).await;
    let acked = story.staged(sink.as_ref(), 0, "winner", 0..10).await;
    let published = sink.publish(&acked).await.expect("published");
    assert_eq!(published.rows, 10);
    assert_eq!(published.files, acked.acks.iter().map(|ack| ack.files).sum::<u64>());
    assert_visible(&harness, 0..10, "the winner's rows, and no others").await;
}

/// Publishing again changes nothing, also after later batches.
pub async fn publish_may_repeat<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let first = story.land(sink.as_ref(), 0, "a", 0..10).await;
    let once = sink.publish(&first).await.expect("again");
    let second = story.land(sink.as_ref(), 1, "b", 10..15).await;
    for acked in [&first, &second] {
        harness.sink().publish(acked).await.expect("again");
    }
    assert_eq!(harness.sink().publish(&first).await.expect("again"), once, "counts do not change");
    assert_visible(&harness, 0..15, "published again").await;
}

/// Two drivers may publish one batch at the same time.
pub async fn two_publishers_show_rows_once<H: SinkHarness>(make: Make<'_, H>) {
    for round in 0..8 {
        let (harness, story) = (make(), Story::new());
        let acked = story.staged(harness.sink().as_ref(), 0, "a", 0..10).await;
        let (one, two) = (harness.sink(), harness.sink());
        let (first, second) = futures::future::join(one.publish(&acked), two.publish(&acked)).await;
        // Either may meet the other half-way and be told to try again, which must then work.
        if first.is_err() || second.is_err() {
            one.publish(&acked).await.expect("published");
        }
        assert!(first.is_ok() || second.is_ok(), "round {round}: {first:?} {second:?}");
        assert_visible(&harness, 0..10, "published by two").await;
    }
}

/// A driver that slept through publication and discarding changes nothing when it wakes.
pub async fn late_publisher_changes_nothing<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sleeper = harness.sink();
    let acked = story.land(harness.sink().as_ref(), 0, "a", 0..10).await;
    harness.sink().discard(&story.key, BatchId(0), &acked.attempt).await.expect("discarded");
    sleeper.publish(&acked).await.expect("published already");
    assert_visible(&harness, 0..10, "after the sleeper woke").await;
}

/// After the commit, what a losing attempt left is removed; the winner's rows stay.
pub async fn losing_stage_is_discarded_and_the_winners_kept<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    story.staged(sink.as_ref(), 0, "loser", 100..110).await;
    let acked = story.staged(sink.as_ref(), 0, "winner", 0..10).await;
    // Even if it came too early, it must not take what is still to be published.
    sink.discard(&story.key, BatchId(0), &acked.attempt).await.expect("discarded");
    sink.publish(&acked).await.expect("published");
    sink.discard(&story.key, BatchId(0), &acked.attempt).await.expect("discarded");
    assert_eq!(harness.staged().await, 0);
    assert_visible(&harness, 0..10, "discarded").await;
}

/// Discarding batch N leaves the running attempts of other batches alone.
pub async fn discarding_touches_no_other_batch<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let first = story.land(sink.as_ref(), 0, "a", 0..10).await;
    let second = story.staged(sink.as_ref(), 1, "b", 10..20).await;
    let other = Story::of("other").staged(sink.as_ref(), 0, "c", 20..30).await;
    sink.discard(&story.key, BatchId(0), &first.attempt).await.expect("discarded");
    sink.publish(&second).await.expect("the stage of batch 1 is there");
    sink.publish(&other).await.expect("the stage of the other sink is there");
    assert_visible(&harness, 0..30, "all").await;
}

/// Discarding may be repeated, and may find nothing.
pub async fn discarding_may_repeat_and_needs_no_stage<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let attempt = AttemptId::from_text("a");
    for _ in 0..2 {
        harness.sink().discard(&story.key, BatchId(7), &attempt).await.expect("discarded");
    }
    let acked = story.land(harness.sink().as_ref(), 0, "a", 0..10).await;
    for _ in 0..2 {
        harness.sink().discard(&story.key, BatchId(0), &acked.attempt).await.expect("discarded");
    }
    assert_visible(&harness, 0..10, "discarded").await;
}

/// Sweeping up to batch N removes what is left of N and of all before it, and nothing above it or of other sinks.
pub async fn sweeping_removes_every_stage_up_to_a_batch<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    sink.sweep(&story.key, BatchId(3)).await.expect("there is nothing to sweep");
    for batch_id in 0..3 {
        let start = batch_id as i64 * 10;
        story.land(sink.as_ref(), batch_id, "a", start..start + 10).await;
        story.staged(sink.as_ref(), batch_id, "slept", 100..110).await;
    }
    let next = story.staged(sink.as_ref(), 3, "a", 30..40).await;
    let other = Story::of("other").staged(sink.as_ref(), 0, "a", 40..50).await;
    for _ in 0..2 {
        sink.sweep(&story.key, BatchId(2)).await.expect("swept");
    }
    assert_visible(&harness, 0..30, "swept").await;
    sink.publish(&next).await.expect("the stage of batch 3 is there");
    sink.publish(&other).await.expect("the stage of the other sink is there");
    assert_visible(&harness, 0..50, "all").await;
    assert_eq!(harness.staged().await, 0, "nothing else is left");
}

/// A task that is given up, or just dropped, shows nothing.
pub async fn aborted_rows_are_never_seen<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let mut aborted = sink.writer(story.task(0, "a", 0)).await.expect("a writer");
    aborted.write(story.rows(100..110)).await.expect("written");
    aborted.abort().await;
    let mut dropped = sink.writer(story.task(0, "a", 1)).await.expect("a writer");
    dropped.write(story.rows(110..120)).await.expect("written");
    drop(dropped);
    story.land(sink.as_ref(), 0, "b", 0..10).await;
    assert_visible(&harness, 0..10, "only the attempt that ended").await;
}

/// A batch that is published under another nonce came from another checkpoint: nothing more is shown.
pub async fn batch_of_another_checkpoint_is_refused<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    story.land(sink.as_ref(), 0, "a", 0..10).await;
    let foreign = story.staged(sink.as_ref(), 0, "b", 10..20).await;
    let error = sink.publish(&foreign).await.expect_err("refused");
    assert_eq!(error.code(), code::SINK_FOREIGN, "{error}");
    assert_visible(&harness, 0..10, "refused").await;
}

/// A batch without tasks leaves a record too: without it a restart would take the sink to be behind.
pub async fn batch_without_rows_leaves_a_record<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let nothing = sink.publish(&story.acked(0, "a", Vec::new())).await.expect("published");
    assert_eq!((nothing.rows, nothing.files), (0, 0));
    assert_eq!(harness.sink().last_published(&story.key).await.expect("answered"), Some(BatchId(0)));
    // A task without rows is the same.
    let ack = sink.writer(story.task(1, "b", 0)).await.expect("a writer").finish().await.expect("an ack");
    assert_eq!(ack.rows, 0);
    sink.publish(&story.acked(1, "b", vec![ack])).await.expect("published");
    assert_eq!(harness.sink().last_published(&story.key).await.expect("answered"), Some(BatchId(1)));
    assert_visible(&harness, 0..0, "no rows").await;
}

/// `last_published` answers the newest, asked by whomever and however often, and changes nothing.
pub async fn last_published_is_the_newest_and_has_no_side_effects<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    assert_eq!(sink.last_published(&story.key).await.expect("answered"), None);
    for batch_id in 0..12 {
        let start = batch_id as i64 * 10;
        story.land(sink.as_ref(), batch_id, "a", start..start + 10).await;
    }
    let pending = story.staged(sink.as_ref(), 12, "a", 120..130).await;
    let staged = harness.staged().await;
    for _ in 0..3 {
        assert_eq!(harness.sink().last_published(&story.key).await.expect("answered"), Some(BatchId(11)));
    }
    assert_eq!(harness.staged().await, staged);
    sink.publish(&pending).await.expect("published");
    assert_visible(&harness, 0..130, "all").await;
}

/// Records are kept by query *and* sink: two sinks on one place do not take one another's batches for their own.
pub async fn two_sinks_of_one_query_keep_their_own_records<H: SinkHarness>(make: Make<'_, H>) {
    // Names of one length, one attempt, alike rows: whatever is named by less than the key collides in silence.
    let (harness, hot, cold) = (make(), Story::of("hot"), Story::of("ice"));
    let sink = harness.sink();
    hot.land(sink.as_ref(), 0, "a", 0..10).await;
    assert_eq!(sink.last_published(&cold.key).await.expect("answered"), None);
    cold.land(sink.as_ref(), 0, "a", 10..20).await;
    hot.land(sink.as_ref(), 1, "b", 20..30).await;
    assert_eq!(sink.last_published(&hot.key).await.expect("answered"), Some(BatchId(1)));
    assert_eq!(sink.last_published(&cold.key).await.expect("answered"), Some(BatchId(0)));
    assert_visible(&harness, 0..30, "of both").await;
}

/// A stage that somebody removed is an error with a name, and nothing of the batch is recorded as published.
pub async fn lost_stage_is_refused<H: SinkHarness>(make: Make<'_, H>) {
    let (harness, story) = (make(), Story::new());
    let sink = harness.sink();
    let acked = story.staged(sink.as_ref(), 0, "a", 0..10).await;
    // Discarding with another winner is how a stage gets lost.
    sink.discard(&story.key, BatchId(0), &AttemptId::from_text("other")).await.expect("discarded");
    let error = sink.publish(&acked).await.expect_err("refused");
    assert_eq!(error.code(), code::STAGE_LOST, "{error}");
    assert_eq!(sink.last_published(&story.key).await.expect("answered"), None);
}

/// How many operations of the store publishing takes; none if there is no store to fail.
async fn operations<H: SinkHarness>(make: Make<'_, H>) -> Option<u64> {
    let (harness, story) = (make(), Story::new());
    let acked = story.staged(harness.sink().as_ref(), 0, "a", 0..10).await;
    let (sink, store) = harness.faulty(u64::MAX, Fault::None)?;
    sink.publish(&acked).await.expect("published");
    Some(store.log().len() as u64)
}

/// Any single operation may be refused, may be applied and then fail, may be answered "exists already": the same
/// publisher tries again, or a new one does, and each row is seen once.
pub async fn publish_survives_any_single_fault<H: SinkHarness>(make: Make<'_, H>) {
    let Some(operations) = operations(make).await else { return };
    for at in 0..operations {
        for fault in [Fault::AppliedThenFails, Fault::Fails, Fault::Conflict] {
            for fresh in [false, true] {
                let when = format!("{fault:?} at operation {at}, fresh {fresh}");
                let (harness, story) = (make(), Story::new());
                let acked = story.staged(harness.sink().as_ref(), 0, "a", 0..10).await;
                let (faulty, _) = harness.faulty(at, fault).expect("a store to fail");
                if faulty.publish(&acked).await.is_err() {
                    let next = if fresh { harness.sink() } else { faulty };
                    next.publish(&acked).await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
                }
                settled(&harness, &story, &acked, &when).await;
            }
        }
    }
}

/// The process may die before or after any operation: the next one publishes, and each row is seen once.
pub async fn publish_survives_death_at_every_operation<H: SinkHarness>(make: Make<'_, H>) {
    let Some(operations) = operations(make).await else { return };
    for at in 0..operations {
        for fault in [Fault::DiesBefore, Fault::DiesAfter] {
            let when = format!("{fault:?} operation {at}");
            let (harness, story) = (make(), Story::new());
            let acked = story.staged(harness.sink().as_ref(), 0, "a", 0..10).await;
            let (faulty, store) = harness.faulty(at, fault).expect("a store to fail");
            let _ = faulty.publish(&acked).await;
            assert!(store.is_dead(), "{when} was not reached");
            harness.sink().publish(&acked).await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
            settled(&harness, &story, &acked, &when).await;
        }
    }
}

async fn settled(harness: &dyn SinkHarness, story: &Story, acked: &Acked, when: &str) {
    let sink = harness.sink();
    assert_eq!(sink.last_published(&story.key).await.expect("answered"), Some(acked.batch_id), "{when}");
    sink.discard(&story.key, acked.batch_id, &acked.attempt).await.expect("discarded");
    assert_eq!(harness.staged().await, 0, "{when}");
    sink.publish(acked).await.unwrap_or_else(|error| panic!("{when}, again: {error:?}"));
    assert_visible(harness, 0..10, when).await;
}
