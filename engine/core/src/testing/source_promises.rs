//! What every source promises. Each promise is a function; a source's tests run [`all`], or the ones that they name.
//!
//! The source under test must have rows waiting from its initial position, and must not get new ones meanwhile unless a
//! promise says otherwise. A broken promise is a panic that says which.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::StreamExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result, code};
use crate::offsets::{Offsets, Range, Split};
use crate::source::{Offer, ReadContext, ReadItem, ReadLimit, Receipt, Source, SourceReader, SourceSpec};

/// The name that the source has in these tests.
const NAME: &str = "under-test";

/// How long a cancelled read may go on.
const CANCEL_BOUND: Duration = Duration::from_secs(2);

/// Runs every promise.
pub async fn all(source: &dyn Source, reader: &dyn SourceReader) {
    spec_survives_json(source);
    offsets_survive_json(source).await;
    splits_are_deterministic(source).await;
    rows_have_the_schema(source, reader).await;
    range_read_twice_gives_the_same_rows(source, reader).await;
    receipts_match_the_splits(source, reader).await;
    projection_is_obeyed(source, reader).await;
    small_record_batches_hold_the_same_rows(source, reader).await;
    limit_is_obeyed(source, reader).await;
    up_to_is_obeyed(source, reader).await;
    ranges_follow_one_another(source, reader).await;
    reads_at_the_same_time_do_not_disturb_one_another(source, reader).await;
    dropped_read_does_no_harm(source, reader).await;
    cancel_ends_the_read(source, reader).await;
}

/// A context for reading everything, whole.
pub fn context() -> ReadContext {
    ReadContext {
        projection: None,
        batch_rows: 1024,
        buffer_bytes: 4 << 20,
        cancel: CancellationToken::new(),
        clock: Arc::new(SystemClock::default()),
    }
}

/// What the source offers from its initial position.
pub async fn offer(source: &dyn Source) -> Offer {
    let initial = source.initial().await.expect("the source has an initial position");
    let offer = source.next(&initial, &ReadLimit::default()).await.expect("the source can be asked");
    offer.expect("the source under test has rows waiting")
}

/// The splits of a range.
pub fn splits(source: &dyn Source, range: &Range) -> Vec<Split> {
    source.plan(NAME, range, &source.interpretation()).expect("a range of its own can be planned")
}

/// Reads one split to its end: the rows, and the receipt, which must be the last item.
pub async fn read(
    reader: &dyn SourceReader,
    split: &Split,
    context: ReadContext,
) -> Result<(Vec<RecordBatch>, Receipt)> {
    let mut items = reader.read(split.clone(), context);
    let (mut rows, mut receipt) = (Vec::new(), None);
    while let Some(item) = items.next().await {
        assert!(receipt.is_none(), "the receipt is the last item");
        match item? {
            ReadItem::Rows(batch) => rows.push(batch),
            ReadItem::End => {}
            ReadItem::Receipt(last) => receipt = Some(last),
        }
    }
    let missing = || Error::new(code::BUG, format!("split \"{}\" ended without a receipt", split.id));
    Ok((rows, receipt.ok_or_else(missing)?))
}

/// Reads a range with one read after the other: all rows as text, in the order of the splits.
pub async fn read_range(source: &dyn Source, reader: &dyn SourceReader, range: &Range) -> Vec<String> {
    let mut rows = Vec::new();
    for split in splits(source, range) {
        let (batches, _) = read(reader, &split, context()).await.expect("the range can be read");
        rows.extend(batches.iter().flat_map(texts));
    }
    rows
}

/// The rows of a record batch, each as text.
fn texts(rows: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = rows
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a column can be shown"))
        .collect();
    let line = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|");
    (0..rows.num_rows()).map(line).collect()
}

fn count(rows: &[RecordBatch]) -> u64 {
    rows.iter().map(|rows| rows.num_rows() as u64).sum()
}

/// A spec is written down and sent: nothing of it is lost.
pub fn spec_survives_json(source: &dyn Source) {
    let text = serde_json::to_string(source.spec()).expect("a spec is plain data");
    let back: SourceSpec = serde_json::from_str(&text).expect("a spec can be read back");
    assert_eq!(&back, source.spec());
}

/// Offsets are written down and read back: the source understands them as before.
pub async fn offsets_survive_json(source: &dyn Source) {
    let Offer { range, latest, .. } = offer(source).await;
    let again = |offsets: &Offsets| -> Offsets {
        let text = serde_json::to_string(offsets).expect("offsets are plain data");
        serde_json::from_str(&text).expect("offsets can be read back")
    };
    for offsets in [&range.start, &range.end, &latest] {
        assert_eq!(&again(offsets), offsets);
    }
    let back = Range { start: again(&range.start), end: again(&range.end) };
    assert_eq!(splits(source, &back), splits(source, &range));
    let next = source.next(&again(&range.start), &ReadLimit::default()).await.expect("the source can be asked");
    assert_eq!(next.map(|offer| offer.range.start), Some(range.start));
}

/// The same range gives the same splits, with names of their own.
pub async fn splits_are_deterministic(source: &dyn Source) {
    let range = offer(source).await.range;
    let first = splits(source, &range);
    assert_eq!(first, splits(source, &range), "planned twice");
    assert!(!first.is_empty(), "a range with rows has splits");
    let mut ids: Vec<_> = first.iter().map(|split| &split.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), first.len(), "ids are unique");
    let empty = Range { start: range.end.clone(), end: range.end };
    assert_eq!(splits(source, &empty), [], "an empty range has no splits");
}

/// Rows have the columns that the source announced, in every record batch.
pub async fn rows_have_the_schema(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    for split in splits(source, &range) {
        let (rows, _) = read(reader, &split, context()).await.expect("the split can be read");
        for rows in rows {
            assert_eq!(rows.schema(), source.schema());
            assert!(rows.num_rows() > 0, "no record batch without rows");
        }
    }
}

/// The promise on which everything rests.
pub async fn range_read_twice_gives_the_same_rows(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    let first = read_range(source, reader, &range).await;
    assert!(!first.is_empty(), "the source under test has rows waiting");
    assert_eq!(first, read_range(source, reader, &range).await);
}

/// Receipts are exactly the splits, and count what was delivered.
pub async fn receipts_match_the_splits(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    let splits = splits(source, &range);
    let mut receipts = Vec::new();
    for split in &splits {
        let (rows, receipt) = read(reader, split, context()).await.expect("the split can be read");
        assert_eq!(receipt.rows, count(&rows), "rows of split {}", split.id);
        assert_eq!(receipt.lost, 0);
        source.check_receipt(split, &receipt).expect("the source accepts its reader's receipt");
        receipts.push(receipt);
    }
    Receipt::check(&splits, &receipts).expect("the receipts are the splits");
}

/// Any choice and order of columns, and none at all, gives those columns of the same rows.
pub async fn projection_is_obeyed(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    let columns = source.schema().fields().len();
    let choices: [Vec<usize>; 4] = [vec![], vec![0], vec![columns - 1], (0..columns).rev().collect()];
    for split in splits(source, &range) {
        let (whole, receipt) = read(reader, &split, context()).await.expect("the split can be read");
        let whole = concat_batches(&source.schema(), &whole).expect("record batches of one schema");
        for choice in &choices {
            let context = ReadContext { projection: Some(choice.clone()), ..context() };
            let (rows, projected) = read(reader, &split, context).await.expect("the split can be read");
            assert_eq!(projected.rows, receipt.rows, "columns {choice:?}");
            assert_eq!(count(&rows), receipt.rows, "columns {choice:?}");
            let expected = whole.project(choice).expect("the columns are there");
            if !choice.is_empty() {
                let rows = concat_batches(&expected.schema(), &rows).expect("record batches of the projected schema");
                assert_eq!(rows, expected, "columns {choice:?}");
            }
        }
    }
}

/// The size of record batches changes nothing but the size of record batches.
pub async fn small_record_batches_hold_the_same_rows(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    for split in splits(source, &range) {
        let (whole, _) = read(reader, &split, context()).await.expect("the split can be read");
        let context = ReadContext { batch_rows: 1, ..context() };
        let (rows, _) = read(reader, &split, context).await.expect("the split can be read");
        assert!(rows.iter().all(|rows| rows.num_rows() == 1), "batch_rows is an upper bound");
        assert_eq!(rows.iter().flat_map(texts).collect::<Vec<_>>(), whole.iter().flat_map(texts).collect::<Vec<_>>());
    }
}

/// A limit gives a beginning of what is waiting, and never nothing.
pub async fn limit_is_obeyed(source: &dyn Source, reader: &dyn SourceReader) {
    let Offer { range, .. } = offer(source).await;
    let limit = ReadLimit { rows: Some(1), up_to: None };
    let limited = source.next(&range.start, &limit).await.expect("the source can be asked");
    let limited = limited.expect("a limit does not hide that rows wait").range;
    assert_eq!(limited.start, range.start);
    let most = splits(source, &range).len();
    let rows = read_range(source, reader, &limited).await;
    // Every partition may give one row, so that none is starved.
    assert!(rows.len() <= most, "{} rows with a limit of one, {most} splits", rows.len());
}

/// Nothing at or beyond `up_to` is offered, and at `up_to` nothing is left.
pub async fn up_to_is_obeyed(source: &dyn Source, reader: &dyn SourceReader) {
    let Offer { range, .. } = offer(source).await;
    let first = source.next(&range.start, &ReadLimit { rows: Some(1), up_to: None }).await.expect("it can be asked");
    let up_to = first.expect("rows wait").range.end;
    let limit = ReadLimit { rows: None, up_to: Some(up_to.clone()) };
    let bounded = source.next(&range.start, &limit).await.expect("the source can be asked").expect("rows wait").range;
    let expected = Range { start: range.start, end: up_to.clone() };
    assert_eq!(read_range(source, reader, &bounded).await, read_range(source, reader, &expected).await);
    let rest = source.next(&up_to, &limit).await.expect("the source can be asked");
    assert!(rest.is_none(), "nothing is left at the bound: {rest:?}");
}

/// Read in pieces, one range after the other, the rows are those of the whole.
pub async fn ranges_follow_one_another(source: &dyn Source, reader: &dyn SourceReader) {
    let Offer { range, .. } = offer(source).await;
    let mut whole = read_range(source, reader, &range).await;
    let piece = (whole.len() as u64 / 4).max(1);
    let limit = ReadLimit { rows: Some(piece), up_to: Some(range.end.clone()) };
    let (mut at, mut rows, mut ranges) = (range.start.clone(), Vec::new(), 0);
    while let Some(offer) = source.next(&at, &limit).await.expect("the source can be asked") {
        assert_eq!(offer.range.start, at, "a range starts where the last one ended");
        rows.extend(read_range(source, reader, &offer.range).await);
        at = offer.range.end;
        ranges += 1;
        assert!(ranges <= whole.len() + 100, "ranges without rows for ever");
    }
    whole.sort();
    rows.sort();
    assert_eq!(rows, whole);
    if let (Some(all), Some(left)) = (source.rows_between(&range.start, &range.end), source.rows_between(&at, &at)) {
        assert!(all >= whole.len() as u64, "{all} rows between the ends, {} were read", whole.len());
        assert_eq!(left, 0);
    }
}

/// Two attempts may read the same splits at once: the older one is not always gone yet.
pub async fn reads_at_the_same_time_do_not_disturb_one_another(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    for split in splits(source, &range) {
        let one = read(reader, &split, context());
        let other = read(reader, &split, context());
        let (one, other) = futures::future::join(one, other).await;
        let (one, other) = (one.expect("the first can be read").0, other.expect("the second can be read").0);
        assert_eq!(one.iter().flat_map(texts).collect::<Vec<_>>(), other.iter().flat_map(texts).collect::<Vec<_>>());
    }
}

/// A read that was dropped in the middle leaves nothing behind that the next one would see.
pub async fn dropped_read_does_no_harm(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    let whole = read_range(source, reader, &range).await;
    for split in splits(source, &range) {
        let mut items = reader.read(split, ReadContext { batch_rows: 1, ..context() });
        items.next().await.expect("the split has rows").expect("the split can be read");
    }
    assert_eq!(read_range(source, reader, &range).await, whole);
}

/// A cancelled read ends soon, without a receipt for rows that it did not deliver.
pub async fn cancel_ends_the_read(source: &dyn Source, reader: &dyn SourceReader) {
    let range = offer(source).await.range;
    for split in splits(source, &range) {
        let (_, receipt) = read(reader, &split, context()).await.expect("the split can be read");
        let context = ReadContext { batch_rows: 1, ..context() };
        let (cancel, clock) = (context.cancel.clone(), SystemClock::default());
        let mut items = reader.read(split, context);
        let mut delivered = 0;
        if let Some(Ok(ReadItem::Rows(rows))) = items.next().await {
            delivered += rows.num_rows() as u64;
        }
        cancel.cancel();
        let late = clock.sleep(CANCEL_BOUND);
        let rest = std::pin::pin!(async {
            while let Some(item) = items.next().await {
                match item {
                    Ok(ReadItem::Rows(rows)) => delivered += rows.num_rows() as u64,
                    Ok(ReadItem::End) => {}
                    Ok(ReadItem::Receipt(_)) => assert_eq!(delivered, receipt.rows, "a receipt for rows not delivered"),
                    Err(_) => {}
                }
            }
        });
        let ended = matches!(futures::future::select(rest, late).await, futures::future::Either::Left(_));
        assert!(ended, "a cancelled read goes on for {CANCEL_BOUND:?}");
    }
}

/// A setting that changes how rows are read is logged with the range and handed back: a re-run obeys what was logged.
pub fn plan_obeys_the_logged_interpretation(source: &dyn Source, range: &Range, logged: &Value, shown: &str) {
    let splits = source.plan(NAME, range, logged).expect("a range of its own can be planned");
    for split in splits {
        assert!(split.end.as_json().to_string().contains(shown), "{split:?} does not show {shown}");
    }
}
