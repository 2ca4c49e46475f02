//! Tables of what is planned from what is known and what the broker says.

use std::collections::BTreeMap;

use serde_json::json;
use tidemill_core::{Offer, Offsets, Range, ReadLimit, Result, Split, code};

use crate::kafka::config::{Isolation, Portions, Start, Subscription};
use crate::kafka::offset::{KafkaOffsets, Position, SplitOffsets};
use crate::kafka::place::Place;
use crate::kafka::plan::{self, Doubt, PartitionState, Rules, Snapshot, TopicState};

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

fn splits(range: &Range, portions: Portions) -> Result<Vec<Split>> {
    plan::splits("k", range, Isolation::ReadCommitted, &portions)
}

type Ends = Vec<(i32, i64, i64)>;

fn plan(known: &KafkaOffsets, found: Snapshot, limit: &ReadLimit) -> Result<Option<Offer>, Doubt> {
    let subscription = subscription();
    let rules = Rules { subscription: &subscription, end: None, tolerant: false, certain: true };
    plan::offer(known, found, &rules, limit)
}

fn offer(known: &KafkaOffsets, found: Snapshot, limit: &ReadLimit) -> Result<Option<Ends>, Doubt> {
    Ok(plan(known, found, limit)?.map(|offer| {
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
    assert!(plan(&known, found(), &ReadLimit::default()).expect("planned").is_some());
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
    let planned = plan(&offsets(&[(0, 1)]), snapshot(None, &[(0, 0, 5, 5)]), &ReadLimit::default());
    let range = planned.unwrap().unwrap().range;
    for end in [&range.start, &range.end] {
        assert_eq!(KafkaOffsets::decode(end).unwrap().topics["t"].id.as_deref(), Some("id-1"));
    }
}

#[test]
fn topic_that_is_no_longer_subscribed_is_carried_on() {
    let mut known = offsets(&[(0, 1)]);
    known.set("old", 3, Position { next: 99, epoch: Some(2) });
    let offer = plan(&known, snapshot(Some("id-1"), &[(0, 0, 5, 5)]), &ReadLimit::default());
    let range = offer.unwrap().unwrap().range;
    let end = KafkaOffsets::decode(&range.end).unwrap();
    assert_eq!(end.get("old", 3), Some(Position { next: 99, epoch: Some(2) }));
    assert_eq!(splits(&range, Portions::default()).unwrap().len(), 1);
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
    let planned = plan::splits("k", &range, Isolation::ReadUncommitted, &Portions::default()).unwrap();
    let shown: Vec<_> = planned.iter().map(|split| (split.id.as_str(), split.estimated_rows)).collect();
    assert_eq!(shown, [("t-0", 4), ("t-2", 1)]);
    let start = SplitOffsets::decode(&planned[0].start).unwrap();
    assert_eq!((start.next, start.partition, start.isolation), (5, 0, Isolation::ReadUncommitted));
    assert_eq!(start.id.as_deref(), Some("id-1"));
    let broken = Range { start: offsets(&[(0, 5)]).encode(), end: offsets(&[(0, 4)]).encode() };
    assert_eq!(splits(&broken, Portions::default()).unwrap_err().code(), code::BAD_OFFSET);
    let broken = Range { start: offsets(&[]).encode(), end: offsets(&[(0, 4)]).encode() };
    assert_eq!(splits(&broken, Portions::default()).unwrap_err().code(), code::BAD_OFFSET);
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

#[test]
fn partitions_are_cut_as_in_spark() {
    let cut = |sizes: &[i64], min_partitions: u64, most: u64| -> Vec<Vec<u64>> {
        let portions = Portions {
            min_partitions: Some(min_partitions).filter(|wanted| *wanted > 0),
            max_records_per_partition: Some(most).filter(|most| *most > 0),
            ..Portions::default()
        };
        let start: Vec<_> = (0..).zip(sizes).map(|(at, _)| (at, 100)).collect();
        let end: Vec<_> = (0..).zip(sizes).map(|(at, size)| (at, 100 + size)).collect();
        let range = Range { start: offsets(&start).encode(), end: offsets(&end).encode() };
        let mut cut = vec![Vec::new(); sizes.len()];
        let mut next = vec![100; sizes.len()];
        for split in splits(&range, portions).expect("cut") {
            let (start, end) = (SplitOffsets::decode(&split.start).unwrap(), SplitOffsets::decode(&split.end).unwrap());
            let at = usize::try_from(start.partition).unwrap();
            assert_eq!(start.next, next[at], "pieces follow one another");
            assert_eq!(split.estimated_rows, end.next.abs_diff(start.next));
            assert!(split.estimated_rows > 0, "no piece without rows");
            next[at] = end.next;
            cut[at].push(split.estimated_rows);
        }
        assert_eq!(next, end.iter().map(|(_, next)| *next).collect::<Vec<_>>(), "nothing is left over");
        cut
    };
    // One a partition, unless more are wanted than there are.
    assert_eq!(cut(&[10, 20], 0, 0), [[10], [20]]);
    assert_eq!(cut(&[10, 20], 2, 0), [[10], [20]]);
    assert_eq!(cut(&[10, 0], 0, 0), [vec![10], vec![]]);
    assert_eq!(cut(&[10], 4, 0), [[2, 3, 2, 3]]);
    assert_eq!(cut(&[10, 10], 4, 0), [[5, 5], [5, 5]]);
    // A small one stays whole, and the large one shares the rest.
    assert_eq!(cut(&[1, 100], 4, 0), [vec![1], vec![33, 33, 34]]);
    // No more pieces than rows.
    assert_eq!(cut(&[2], 9, 0), [[1, 1]]);
    assert_eq!(cut(&[10, 5], 0, 4), [vec![3, 3, 4], vec![2, 3]]);
    // First by rows, then by the number that is wanted.
    assert_eq!(cut(&[10], 6, 5), [[1, 2, 2, 1, 2, 2]]);
    assert_eq!(cut(&[i64::MAX - 100], 2, 0), [[(i64::MAX as u64 - 100) / 2, (i64::MAX as u64 - 100).div_ceil(2)]]);
}

/// What is planned by a query that goes on after losses.
fn tolerant(known: &KafkaOffsets, found: Snapshot, certain: bool) -> Result<Option<Offer>, Doubt> {
    let subscription = subscription();
    let rules = Rules { subscription: &subscription, end: None, tolerant: true, certain };
    plan::offer(known, found, &rules, &ReadLimit::default())
}

#[test]
fn losses_are_counted_where_the_query_goes_on_after_them() {
    let id = Some("id-1");
    let planned = |known: &[(i32, i64)], found: Snapshot| {
        let offer = tolerant(&offsets(known), found, true).expect("planned").expect("an offer");
        let (start, end) = (offer.range.start, offer.range.end);
        let (start, end) = (KafkaOffsets::decode(&start).unwrap(), KafkaOffsets::decode(&end).unwrap());
        let ends = end.iter().map(|(_, at, stop)| (at, start.get("t", at).expect("a start").next, stop.next));
        (ends.collect::<Vec<_>>(), offer.loss.rows, offer.loss.why.join("; "), end.topics["t"].id.clone())
    };
    // Trimmed: on from the first row that is left.
    let (ends, rows, why, _) = planned(&[(0, 20)], snapshot(id, &[(0, 60, 80, 80)]));
    assert_eq!((ends, rows), (vec![(0, 60, 80)], 40));
    assert!(why.contains("40 rows are lost"), "{why}");
    // All of it: nothing to read is a batch all the same, since it has a loss to tell.
    assert_eq!(planned(&[(0, 20)], snapshot(id, &[(0, 80, 80, 80)])).0, [(0, 80, 80)]);
    // Rows taken back: on from the new end, for the rows below it were read.
    let (ends, _, why, _) = planned(&[(0, 100)], snapshot(id, &[(0, 0, 40, 40)]));
    assert_eq!(ends, [(0, 40, 40)]);
    assert!(why.contains("ends at 40") && why.contains("position 100"), "{why}");
    // Made again: all of the new topic, whatever its size, and none of the partitions of the old one.
    for end in [0, 40, 150] {
        let (ends, _, why, id) = planned(&[(0, 100), (1, 7)], snapshot(Some("id-2"), &[(0, 0, end, end)]));
        assert_eq!(ends, [(0, 0, end)]);
        assert_eq!(id.as_deref(), Some("id-2"));
        assert!(why.contains("made again"), "{why}");
    }
    // A partition that appears without its first rows.
    let (ends, rows, ..) = planned(&[(0, 5)], snapshot(id, &[(0, 0, 5, 5), (1, 2, 3, 3)]));
    assert_eq!((ends, rows), (vec![(0, 5, 5), (1, 2, 3)], 2));
}

#[test]
fn what_a_stale_reply_could_have_said_is_no_loss_before_it_was_asked_again() {
    let id = Some("id-1");
    let doubtful =
        [snapshot(id, &[(0, 0, 40, 40), (1, 0, 9, 9)]), snapshot(id, &[(0, 0, 100, 100)]), Snapshot::default()];
    for found in doubtful {
        let doubt = tolerant(&offsets(&[(0, 100), (1, 9)]), found, false).expect_err("asked again");
        assert!(doubt.passing, "{doubt:?}");
    }
}

#[test]
fn what_is_gone_is_told_once_and_its_position_is_kept() {
    let known = offsets(&[(0, 10), (1, 10)]);
    let left = || snapshot(Some("id-1"), &[(0, 0, 12, 12)]);
    let ends = |offer: &Offer| KafkaOffsets::decode(&offer.range.end).unwrap();
    // Whatever becomes of an offer: it is told until a position is known in which it was.
    for _ in 0..2 {
        let offer = tolerant(&known, left(), true).expect("planned").expect("an offer");
        assert!(offer.loss.why[0].contains("partition 1 of topic \"t\" is gone"), "{:?}", offer.loss);
        let reached = ends(&offer);
        assert_eq!(reached.get("t", 1).unwrap().next, 10);
        assert_eq!(reached.encode().as_json()["topics"]["t"]["gone"], json!([1]));
        // From there it is not asked for again, and not told.
        let more = tolerant(&reached, snapshot(Some("id-1"), &[(0, 0, 13, 13)]), false).expect("planned");
        assert!(more.expect("an offer").loss.is_none());
        // It was there all the while, and goes on where it was.
        let back = snapshot(Some("id-1"), &[(0, 0, 12, 12), (1, 0, 15, 15)]);
        let offer = tolerant(&reached, back, false).expect("planned").expect("an offer");
        let (start, end) = (KafkaOffsets::decode(&offer.range.start).unwrap(), ends(&offer));
        assert_eq!((start.get("t", 1).unwrap().next, end.get("t", 1).unwrap().next), (10, 15));
        assert!(offer.loss.is_none() && !end.is_gone("t", 1));
    }
    let offer = tolerant(&known, Snapshot::default(), true).expect("planned").expect("an offer");
    assert!(offer.loss.why[0].contains("topic \"t\" does not exist"), "{:?}", offer.loss);
    assert_eq!(tolerant(&ends(&offer), Snapshot::default(), false).expect("planned"), None);
    // What `available_now` saw was without it.
    let subscription = subscription();
    let rules = Rules { subscription: &subscription, end: None, tolerant: true, certain: true };
    let limit = ReadLimit { rows: None, up_to: Some(offer.range.end.clone()) };
    let told = plan::offer(&known, Snapshot::default(), &rules, &limit).expect("planned").expect("an offer");
    assert_eq!(told.loss, offer.loss);
}

#[test]
fn a_place_is_where_it_was_named_or_refused_by_its_option() {
    // Readable up to 100, where a transaction is open, and written up to 200.
    let found = || snapshot(Some("id-1"), &[(0, 10, 100, 200), (1, 0, 5, 5)]);
    let place = |is_static, is_end, named: &[(i32, i64)]| {
        let at = Start::Offsets(BTreeMap::from([("t".to_owned(), named.iter().copied().collect())]));
        let found = Place { at: &at, is_end, is_static }.in_all(&subscription(), found());
        found.map(|offsets| offsets.iter().map(|(_, at, position)| (at, position.next)).collect::<Vec<_>>())
    };
    let (stream, read, start, end) = (false, true, false, true);
    for (is_static, is_end, named, expected) in [
        (stream, start, [(0, Start::FIRST), (1, Start::END)], [(0, 10), (1, 5)]),
        (stream, start, [(0, 150), (1, 5)], [(0, 150), (1, 5)]),
        (stream, end, [(0, 900), (1, 900)], [(0, 900), (1, 900)]),
        (read, end, [(0, Start::END), (1, 3)], [(0, 100), (1, 3)]),
    ] {
        assert_eq!(place(is_static, is_end, &named).expect("a place"), expected, "{named:?}");
    }
    // A backfill that goes on leaves out what was added.
    assert_eq!(place(stream, end, &[(0, 7)]).expect("a place"), [(0, 7)]);
    for (is_static, is_end, named, passing, words) in [
        (stream, start, &[(0, 201), (1, 0)][..], false, "startingOffsets"),
        (read, start, &[(0, 150), (1, 0)], false, "a transaction is open"),
        (read, end, &[(0, 150), (1, 0)], false, "endingOffsets"),
        (stream, start, &[(0, 1)], false, "do not name t-1"),
        (read, end, &[(0, 1)], false, "-1 (latest)"),
        // The reply may have lacked it.
        (stream, start, &[(0, 11), (1, 0), (7, 0)], true, "t-7 is named"),
    ] {
        let doubt = place(is_static, is_end, named).expect_err("refused");
        assert_eq!((doubt.error.code(), doubt.passing), (code::INVALID_OPTION, passing), "{named:?}");
        assert!(doubt.error.to_string().contains(words), "{named:?}: {}", doubt.error);
    }
    let at = Start::Earliest;
    let assigned = Subscription::Assign(BTreeMap::from([("t".to_owned(), [0, 2].into())]));
    let doubt =
        Place { at: &at, is_end: false, is_static: false }.in_all(&assigned, found()).expect_err("t-2 is missing");
    assert_eq!((doubt.error.code(), doubt.passing), (code::SOURCE_NOT_FOUND, true));
}

#[test]
fn what_has_an_end_has_the_same_partitions_at_both_and_does_not_end_before_it_starts() {
    let refused = |start: &[(i32, i64)], end: &[(i32, i64)]| {
        plan::check_bounds(&offsets(start), &offsets(end)).expect_err("refused").to_string()
    };
    plan::check_bounds(&offsets(&[(0, 5), (1, 0)]), &offsets(&[(0, 5), (1, 9)])).expect("a range");
    assert!(refused(&[(0, 6)], &[(0, 5)]).contains("starts at 6 and ends at 5"));
    assert!(refused(&[(0, 1)], &[(0, 5), (1, 5)]).contains("t-1 has only one end"));
    assert!(refused(&[(0, 1), (1, 1)], &[(0, 5)]).contains("t-1 has only one end"));
}

#[test]
fn what_available_now_saw_must_stay_there_even_where_losses_are_accepted() {
    let refused = |bound: KafkaOffsets, found: Snapshot| {
        let subscription = subscription();
        let rules = Rules { subscription: &subscription, end: None, tolerant: true, certain: true };
        let limit = ReadLimit { rows: None, up_to: Some(bound.encode()) };
        plan::offer(&offsets(&[(0, 5), (1, 5)]), found, &rules, &limit).expect_err("refused").error.code()
    };
    let bound = || offsets(&[(0, 20), (1, 20)]);
    let whole = [(0, 0, 30, 30), (1, 0, 30, 30)];
    assert_eq!(refused(bound(), snapshot(Some("id-2"), &whole)), code::TOPIC_RECREATED);
    assert_eq!(refused(bound(), snapshot(Some("id-1"), &whole[..1])), code::SOURCE_NOT_FOUND);
    assert_eq!(refused(bound(), snapshot(Some("id-1"), &[(0, 0, 30, 30), (1, 0, 19, 19)])), code::SOURCE_TRUNCATED);
    // Saturation: the largest limit that there is.
    let largest = ReadLimit { rows: Some(u64::MAX), up_to: None };
    assert_eq!(offer(&bound(), snapshot(Some("id-1"), &whole), &largest).unwrap().unwrap(), [(0, 20, 30), (1, 20, 30)]);
}
