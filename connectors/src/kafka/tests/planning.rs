//! Tables of what is planned from what is known and what the broker says.

use std::collections::BTreeMap;

use serde_json::json;
use tidemill_core::{Offsets, Range, ReadLimit, code};

use crate::kafka::config::{Isolation, Subscription};
use crate::kafka::offset::{KafkaOffsets, Position, SplitOffsets};
use crate::kafka::plan::{self, Doubt, PartitionState, Snapshot, TopicState};

fn offsets(positions: &[(i32, i64)]) -> KafkaOffsets {
    let mut offsets = KafkaOffsets::new();
    for (partition, next) in positions {
        offsets.set("t", *partition, Position { next: *next, epoch: None });
    }
    if let Some(topic) = offsets.topics.get_mut("t") {
        topic.id = Some("id-1".to_owned());
    }
    offsets
}

/// Partitions as `(number, earliest, readable, high watermark)`.
fn snapshot(id: Option<&str>, partitions: &[(i32, i64, i64, i64)]) -> Snapshot {
    let states = partitions.iter().map(|(partition, earliest, readable, high_watermark)| {
        let (earliest, readable, high_watermark) = (*earliest, *readable, *high_watermark);
        (*partition, PartitionState { earliest, readable, high_watermark, epoch: Some(7) })
    });
    let topic = TopicState { id: id.map(str::to_owned), partitions: states.collect() };
    Snapshot { topics: BTreeMap::from([("t".to_owned(), topic)]), without_offsets: None }
}

fn subscription() -> Subscription {
    Subscription::Subscribe(["t".to_owned()].into())
}

type Ends = Vec<(i32, i64, i64)>;

fn offer(known: &KafkaOffsets, found: Snapshot, limit: &ReadLimit) -> Result<Option<Ends>, Doubt> {
    let offer = plan::offer(known, found, &subscription(), limit)?;
    Ok(offer.map(|offer| {
        let start = KafkaOffsets::decode(&offer.range.start).unwrap();
        let end = KafkaOffsets::decode(&offer.range.end).unwrap();
        end.iter()
            .map(|(_, at, stop)| (at, start.get("t", at).expect("every end has a start").next, stop.next))
            .collect()
    }))
}

fn check(known: &[(i32, i64)], found: &[(i32, i64, i64, i64)], expected: Option<&[(i32, i64, i64)]>) {
    let planned = offer(&offsets(known), snapshot(Some("id-1"), found), &ReadLimit::default());
    assert_eq!(planned.expect("planned").as_deref(), expected, "{known:?} {found:?}");
}

#[test]
fn positions_that_are_all_of_other_topics_are_refused() {
    let mut known = KafkaOffsets::new();
    known.set("other", 0, Position { next: 5, epoch: None });
    let found = || snapshot(Some("id-1"), &[(0, 0, 10, 10)]);
    let doubt = offer(&known, found(), &ReadLimit::default()).expect_err("refused");
    assert_eq!(doubt.error.code(), code::QUERY_CHANGED, "{:?}", doubt.error);
    assert!(!doubt.passing);
    // One topic of several may come and go.
    known.set("t", 0, Position { next: 3, epoch: None });
    let planned = plan::offer(&known, found(), &subscription(), &ReadLimit::default());
    assert!(planned.expect("planned").is_some());
}

#[test]
fn range_ends_at_the_last_readable_offset_and_never_below_its_start() {
    check(&[(0, 0)], &[(0, 0, 10, 10)], Some(&[(0, 0, 10)]));
    check(&[(0, 10)], &[(0, 0, 10, 10)], None);
    check(&[(0, 3), (1, 5)], &[(0, 0, 9, 12), (1, 5, 5, 5)], Some(&[(0, 3, 9), (1, 5, 5)]));
    // An open transaction begins below the start: nothing is lost, nothing is read.
    check(&[(0, 120)], &[(0, 0, 100, 200)], None);
    check(&[(0, 120), (1, 0)], &[(0, 0, 100, 200), (1, 0, 4, 4)], Some(&[(0, 120, 120), (1, 0, 4)]));
}

#[test]
fn partition_that_appears_is_read_from_its_first_row() {
    check(&[(0, 5)], &[(0, 0, 5, 5), (1, 0, 3, 3)], Some(&[(0, 5, 5), (1, 0, 3)]));
    check(&[(0, 5)], &[(0, 0, 5, 5), (1, 0, 0, 0)], None);
    let lost = offer(&offsets(&[(0, 5)]), snapshot(Some("id-1"), &[(0, 0, 5, 5), (1, 2, 3, 3)]), &ReadLimit::default());
    assert_eq!(lost.unwrap_err().error.code(), code::DATA_LOSS);
}

#[test]
fn what_contradicts_a_known_position_is_an_error_with_both_numbers() {
    let refused = |known: &[(i32, i64)], found: Snapshot| {
        let Doubt { error, passing } = offer(&offsets(known), found, &ReadLimit::default()).expect_err("refused");
        (error.code(), passing, error.to_string())
    };
    let (code, passing, text) = refused(&[(0, 20)], snapshot(Some("id-1"), &[(0, 60, 80, 80)]));
    assert_eq!((code, passing), (code::DATA_LOSS, false));
    assert!(text.contains("40 rows are lost") && text.contains("from 20") && text.contains("is 60"), "{text}");

    let (code, passing, text) = refused(&[(0, 100), (1, 1)], snapshot(Some("id-1"), &[(0, 0, 40, 40), (1, 0, 1, 1)]));
    assert_eq!((code, passing), (code::SOURCE_TRUNCATED, true));
    assert!(text.contains("ends at 40") && text.contains("position 100"), "{text}");

    let (code, passing, text) = refused(&[(0, 100)], snapshot(Some("id-2"), &[(0, 0, 150, 150)]));
    assert_eq!((code, passing), (code::TOPIC_RECREATED, false));
    assert!(text.contains("id-1") && text.contains("id-2"), "{text}");

    // One bad reply must not become the truth: asked again first.
    let (code, passing, _) = refused(&[(0, 10), (1, 10)], snapshot(Some("id-1"), &[(0, 0, 20, 20)]));
    assert_eq!((code, passing), (code::SOURCE_NOT_FOUND, true));
    let (code, passing, _) = refused(&[(0, 10)], Snapshot::default());
    assert_eq!((code, passing), (code::SOURCE_NOT_FOUND, true));
}

#[test]
fn broker_without_topic_ids_is_used_and_a_known_id_is_kept() {
    let planned =
        plan::offer(&offsets(&[(0, 1)]), snapshot(None, &[(0, 0, 5, 5)]), &subscription(), &ReadLimit::default());
    let range = planned.unwrap().unwrap().range;
    for end in [&range.start, &range.end] {
        assert_eq!(KafkaOffsets::decode(end).unwrap().topics["t"].id.as_deref(), Some("id-1"));
    }
}

#[test]
fn topic_that_is_no_longer_subscribed_is_carried_on() {
    let mut known = offsets(&[(0, 1)]);
    known.set("old", 3, Position { next: 99, epoch: Some(2) });
    let offer = plan::offer(&known, snapshot(Some("id-1"), &[(0, 0, 5, 5)]), &subscription(), &ReadLimit::default());
    let range = offer.unwrap().unwrap().range;
    let end = KafkaOffsets::decode(&range.end).unwrap();
    assert_eq!(end.get("old", 3), Some(Position { next: 99, epoch: Some(2) }));
    assert_eq!(plan::splits("k", &range, Isolation::ReadCommitted).unwrap().len(), 1);
}

#[test]
fn up_to_bounds_the_range() {
    let up_to = |positions: &[(i32, i64)]| ReadLimit { rows: None, up_to: Some(offsets(positions).encode()) };
    let found = || snapshot(Some("id-1"), &[(0, 0, 50, 50), (1, 0, 9, 9)]);
    let known = offsets(&[(0, 10)]);
    assert_eq!(offer(&known, found(), &up_to(&[(0, 30)])).unwrap().unwrap(), [(0, 10, 30)]);
    assert_eq!(offer(&known, found(), &up_to(&[(0, 30), (1, 4)])).unwrap().unwrap(), [(0, 10, 30), (1, 0, 4)]);
    assert_eq!(offer(&known, found(), &up_to(&[(0, 10)])).unwrap(), None);
    assert_eq!(offer(&known, found(), &up_to(&[(0, 90)])).unwrap_err().error.code(), code::SOURCE_TRUNCATED);
}

#[test]
fn limit_is_shared_in_proportion_as_in_spark() {
    let shared = |sizes: &[i64], rows: u64| -> Vec<i64> {
        let zero: Vec<_> = (0..).zip(sizes).map(|(at, _)| (at, 100)).collect();
        let ends: Vec<_> = (0..).zip(sizes).map(|(at, size)| (at, 100 + size)).collect();
        let limited = plan::share(&offsets(&zero), &offsets(&ends), rows);
        limited.iter().map(|(_, _, position)| position.next - 100).collect()
    };
    assert_eq!(shared(&[10, 20, 30], 60), [10, 20, 30]);
    assert_eq!(shared(&[10, 20, 30], 600), [10, 20, 30]);
    assert_eq!(shared(&[10, 20, 30], 6), [1, 2, 3]);
    // Shares are rounded down …
    assert_eq!(shared(&[10, 10, 10], 10), [3, 3, 3]);
    // … but none is starved.
    assert_eq!(shared(&[1, 1, 1000], 10), [1, 1, 9]);
    assert_eq!(shared(&[1, 1, 1, 1], 1), [1, 1, 1, 1]);
    assert_eq!(shared(&[0, 5], 2), [0, 2]);
    assert_eq!(shared(&[0, 0], 2), [0, 0]);
    assert_eq!(shared(&[i64::MAX - 100, 1], u64::MAX), [i64::MAX - 100, 1]);
}

#[test]
fn splits_are_one_a_partition_with_rows_and_say_how_to_read() {
    let range =
        Range { start: offsets(&[(0, 5), (1, 2), (2, 0)]).encode(), end: offsets(&[(0, 9), (1, 2), (2, 1)]).encode() };
    let splits = plan::splits("k", &range, Isolation::ReadUncommitted).unwrap();
    let shown: Vec<_> = splits.iter().map(|split| (split.id.as_str(), split.estimated_rows)).collect();
    assert_eq!(shown, [("t-0", 4), ("t-2", 1)]);
    let start = SplitOffsets::decode(&splits[0].start).unwrap();
    assert_eq!((start.next, start.partition, start.isolation), (5, 0, Isolation::ReadUncommitted));
    assert_eq!(start.id.as_deref(), Some("id-1"));
    let broken = Range { start: offsets(&[(0, 5)]).encode(), end: offsets(&[(0, 4)]).encode() };
    assert_eq!(plan::splits("k", &broken, Isolation::ReadCommitted).unwrap_err().code(), code::BAD_OFFSET);
    let broken = Range { start: offsets(&[]).encode(), end: offsets(&[(0, 4)]).encode() };
    assert_eq!(plan::splits("k", &broken, Isolation::ReadCommitted).unwrap_err().code(), code::BAD_OFFSET);
}

#[test]
fn offsets_have_the_documented_shape_and_foreign_ones_are_refused() {
    let mut known = offsets(&[(0, 450), (11, 0)]);
    known.set("t", 0, Position { next: 450, epoch: Some(3) });
    let shape = json!({"v":1,"topics":{"t":{"id":"id-1","partitions":{"0":{"next":450,"epoch":3},"11":{"next":0}}}}});
    assert_eq!(known.encode().as_json(), &shape);
    assert_eq!(KafkaOffsets::decode(&known.encode()).unwrap(), known);
    for foreign in [
        json!({"v":2,"topics":{}}),
        json!({"row":1}),
        json!(null),
        json!({"v":1,"topics":{"t":{"partitions":{"x":{"next":1}}}}}),
    ] {
        let foreign: Offsets = serde_json::from_value(foreign).unwrap();
        assert_eq!(KafkaOffsets::decode(&foreign).unwrap_err().code(), code::BAD_OFFSET, "{foreign:?}");
    }
    assert_eq!(plan::rows_between(&offsets(&[(0, 10)]), &offsets(&[(0, 15), (1, 7)])), 5);
}
