//! The shared promises, and what the clock does to a rate.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use tidemill_core::testing::ManualClock;
use tidemill_core::testing::source_promises::{self, context, offer, read, splits};
use tidemill_core::{
    Context, Offer, Options, Range, ReadLimit, Registry, Source, SourceBuilder, SourceReader, SourceSpec, code,
};

use super::Rate;
use super::offset::RateOffset;

const NOON: i64 = 1_764_417_600_000;

fn manual() -> (ManualClock, Context) {
    let clock = ManualClock::at(NOON);
    let context = Context { clock: Arc::new(clock.clone()), ..Context::default() };
    (clock, context)
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    registry
}

fn reader(spec: &SourceSpec) -> Arc<dyn SourceReader> {
    registry().source(&spec.format).unwrap().reader(spec, &Context::default()).unwrap()
}

/// The clock stands still between `initial` and `next`, so `offer` needs a position from before.
async fn offered(source: &dyn Source, clock: &ManualClock, by: Duration) -> Offer {
    let initial = source.initial().await.unwrap();
    clock.advance(by);
    source.next(&initial, &ReadLimit::default()).await.unwrap().unwrap()
}

async fn rows(source: &dyn Source, range: &Range) -> Vec<(i64, i64)> {
    let reader = reader(source.spec());
    let mut all = Vec::new();
    for split in splits(source, range) {
        for rows in read(reader.as_ref(), &split, context()).await.unwrap().0 {
            let times = rows.column(0).as_primitive::<TimestampMicrosecondType>().values();
            let values = rows.column(1).as_primitive::<Int64Type>().values();
            all.extend(times.iter().copied().zip(values.iter().copied()));
        }
    }
    all
}

#[tokio::test]
async fn rows_depend_on_offsets_alone() {
    let (clock, context) = manual();
    let source = Rate::rows_per_second(4).partitions(3).build(&context).await.unwrap();
    let range = offered(source.as_ref(), &clock, Duration::from_millis(2500)).await.range;
    let first = rows(source.as_ref(), &range).await;
    let expected: Vec<_> = (0..10).map(|row| (NOON * 1000 + row * 250_000, row)).collect();
    assert_eq!(first, expected);
    clock.advance(Duration::from_secs(1000));
    assert_eq!(rows(source.as_ref(), &range).await, expected);
}

#[tokio::test]
async fn clock_that_is_set_back_takes_no_row_back() {
    let (clock, context) = manual();
    let source = Rate::rows_per_second(10).build(&context).await.unwrap();
    let range = offered(source.as_ref(), &clock, Duration::from_secs(5)).await.range;
    clock.step_wall(-60_000);
    assert_eq!(source.next(&range.end, &ReadLimit::default()).await.unwrap(), None);
    clock.advance(Duration::from_secs(61));
    let next = source.next(&range.end, &ReadLimit::default()).await.unwrap().unwrap();
    assert_eq!(source.rows_between(&next.range.start, &next.range.end), Some(10));
}

#[tokio::test]
async fn changed_rate_goes_on_where_the_old_one_stopped() {
    let (clock, context) = manual();
    let slow = Rate::rows_per_second(10).build(&context).await.unwrap();
    let range = offered(slow.as_ref(), &clock, Duration::from_secs(10)).await.range;
    let fast = Rate::rows_per_second(1000).build(&context).await.unwrap();
    clock.advance(Duration::from_secs(1));
    let next = fast.next(&range.end, &ReadLimit::default()).await.unwrap().unwrap().range;
    let rows = rows(fast.as_ref(), &next).await;
    assert_eq!(rows.first(), Some(&((NOON + 10_000) * 1000, 100)));
    assert_eq!(rows.last(), Some(&((NOON + 10_999) * 1000, 1099)));
}

#[tokio::test]
async fn micro_batches_have_their_rows_whatever_the_clock_says() {
    let (_, context) = manual();
    let mut options = Options::new();
    for (name, value) in [("rowsPerBatch", "3"), ("startTimestamp", "1000"), ("advanceMillisPerBatch", "50")] {
        options.set(name, value);
    }
    let source = registry().source("rate-micro-batch").unwrap().open(options, &context).await.unwrap();
    let reader = reader(source.spec());
    source_promises::offsets_survive_json(source.as_ref()).await;
    source_promises::range_read_twice_gives_the_same_rows(source.as_ref(), reader.as_ref()).await;
    source_promises::receipts_match_the_splits(source.as_ref(), reader.as_ref()).await;
    source_promises::up_to_is_obeyed(source.as_ref(), reader.as_ref()).await;
    let first = offer(source.as_ref()).await.range;
    assert_eq!(rows(source.as_ref(), &first).await, [(1_000_000, 0), (1_000_000, 1), (1_000_000, 2)]);
    let second = source.next(&first.end, &ReadLimit::default()).await.unwrap().unwrap().range;
    assert_eq!(rows(source.as_ref(), &second).await, [(1_050_000, 3), (1_050_000, 4), (1_050_000, 5)]);
}

#[tokio::test]
async fn both_forms_make_the_same_spec() {
    let context = Context::default();
    let typed = Rate::rows_per_second(7).partitions(2).build(&context).await.unwrap();
    let mut options = Options::new();
    options.set("rowspersecond", "7");
    options.set("numPartitions", "2");
    let text = registry().source("rate").unwrap().open(options, &context).await.unwrap();
    assert_eq!(typed.spec(), text.spec());
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let cases = [
        ("rowsPerSecond", "0", code::INVALID_OPTION),
        ("rowsPerSecond", "many", code::INVALID_OPTION),
        ("numPartitions", "0", code::INVALID_OPTION),
        ("rampUpTime", "5s", code::INVALID_OPTION),
        ("rowPerSecond", "5", code::UNKNOWN_OPTION),
    ];
    for (name, value, expected) in cases {
        let mut options = Options::new();
        options.set(name, value);
        let error = registry().source("rate").unwrap().open(options, &Context::default()).await.unwrap_err();
        assert_eq!(error.code(), expected, "{name}={value}: {error}");
    }
}

/// A rate whose first position lies in the past, so that rows wait for the promises, and whose clock stands still.
#[tokio::test]
async fn rate_keeps_every_promise() {
    #[derive(Debug)]
    struct Past(Arc<dyn Source>);
    #[async_trait::async_trait]
    impl Source for Past {
        fn spec(&self) -> &SourceSpec {
            self.0.spec()
        }
        fn schema(&self) -> arrow::datatypes::SchemaRef {
            self.0.schema()
        }
        fn description(&self) -> String {
            self.0.description()
        }
        async fn initial(&self) -> tidemill_core::Result<tidemill_core::Offsets> {
            Ok(RateOffset::new(0, NOON - 10_000, 30).encode())
        }
        async fn next(&self, from: &tidemill_core::Offsets, limit: &ReadLimit) -> tidemill_core::Result<Option<Offer>> {
            self.0.next(from, limit).await
        }
        fn plan(
            &self,
            name: &str,
            range: &Range,
            logged: &serde_json::Value,
        ) -> tidemill_core::Result<Vec<tidemill_core::Split>> {
            self.0.plan(name, range, logged)
        }
        fn rows_between(&self, start: &tidemill_core::Offsets, end: &tidemill_core::Offsets) -> Option<u64> {
            self.0.rows_between(start, end)
        }
    }
    for partitions in [1, 4] {
        let (_, context) = manual();
        let source = Past(Rate::rows_per_second(30).partitions(partitions).build(&context).await.unwrap());
        source_promises::all(&source, reader(source.spec()).as_ref()).await;
    }
}
