//! Dates and timestamps.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, TimeUnit};

use super::{BAD, bad_rows, binary, check_ddl, decoder};

const MICROS_A_DAY: i64 = 86_400_000_000;

/// 2024-03-10T02:30:00Z.
const HALF_PAST_TWO: i64 = 1_710_037_800;

/// The number a timestamp column holds for this JSON value; `None` when the message is bad.
fn units(unit: TimeUnit, zone: Option<&str>, json: &str) -> Option<i64> {
    let schema: Fields = vec![Field::new("t", DataType::Timestamp(unit, zone.map(Into::into)), true)].into();
    let messages = [format!(r#"{{"t":{json}}}"#), r#"{"t":null}"#.to_owned()];
    let decoded = decoder(schema).decode(&binary(&messages)).expect("binary messages");
    let column: &ArrayRef = decoded.rows.column(0);
    assert_eq!(column.data_type(), &DataType::Timestamp(unit, zone.map(Into::into)));
    let numbers = cast(column, &DataType::Int64).expect("a timestamp is a number");
    let numbers = numbers.as_primitive::<Int64Type>();
    assert!(numbers.is_null(1), "{json}");
    assert_eq!(bad_rows(&decoded).is_empty(), numbers.is_valid(0), "{json}");
    numbers.is_valid(0).then(|| numbers.value(0))
}

fn check_all(unit: TimeUnit, zone: Option<&str>, table: &[(&str, Option<i64>)]) {
    for (json, expected) in table {
        assert_eq!(units(unit, zone, json), *expected, "{json} in {unit:?}, {zone:?}");
    }
}

#[test]
fn timestamp_forms_in_utc() {
    const S: i64 = 1_000_000;
    let table = [
        ("\"2024-03-10T02:30:00\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10T02:30:00Z\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10t02:30:00z\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10 02:30:00\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10T02:30\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10T02:30Z\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10 02:30:00+0530\"", Some((HALF_PAST_TWO - 19_800) * S)),
        ("\"2024-03-10T02:30:00+05:30\"", Some((HALF_PAST_TWO - 19_800) * S)),
        ("\"2024-03-10T02:30:00-08\"", Some((HALF_PAST_TWO + 28_800) * S)),
        ("\"2024-03-10T02:30:00-00:00\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10T02:30:00.1\"", Some(HALF_PAST_TWO * S + 100_000)),
        ("\"2024-03-10T02:30:00.123Z\"", Some(HALF_PAST_TWO * S + 123_000)),
        ("\"2024-03-10T02:30:00.123456789+00:00\"", Some(HALF_PAST_TWO * S + 123_456)),
        ("\"2024\\u002d03-10T02:30:00Z\"", Some(HALF_PAST_TWO * S)),
        ("\"2024-03-10\"", Some(1_710_028_800 * S)),
        ("1710037800", Some(HALF_PAST_TWO * S)),
        ("0", Some(0)),
        ("-1", Some(-S)),
        ("253402300799", Some(253_402_300_799 * S)),
        ("-62135596800", Some(-62_135_596_800 * S)),
        ("\"9999-12-31T23:59:59Z\"", Some(253_402_300_799 * S)),
        ("\"0001-01-01T00:00:00Z\"", Some(-62_135_596_800 * S)),
        ("\"1969-12-31T23:59:59.9999999Z\"", Some(-1)),
        ("\"1900-02-28\"", Some(-25_509 * MICROS_A_DAY)),
        ("\"2000-02-29\"", Some(11_016 * MICROS_A_DAY)),
        ("253402300800", None),
        ("1710037800000", None),
        ("9223372036854775807", None),
        ("1710037800.5", None),
        ("1e9", None),
        ("\"1710037800\"", None),
        ("true", None),
        ("{}", None),
        ("\"\"", None),
        ("\"2024-02-30\"", None),
        ("\"2023-02-29\"", None),
        ("\"1900-02-29\"", None),
        ("\"2024-00-10\"", None),
        ("\"2024-13-10\"", None),
        ("\"2024-04-31\"", None),
        ("\"2024-03-00\"", None),
        ("\"0000-01-01\"", None),
        ("\"2016-12-31T23:59:60Z\"", None),
        ("\"2024-03-10T24:00:00\"", None),
        ("\"2024-03-10T02:60:00\"", None),
        ("\"2024-03-10T02:30:00.\"", None),
        ("\"2024-03-10T02:30:00.Z\"", None),
        ("\"2024-03-10T02:30:00.1234567890Z\"", None),
        ("\"2024-03-10T02:30:00,5Z\"", None),
        ("\"2024-03-10T02:30:\"", None),
        ("\"2024-03-10T02\"", None),
        ("\"2024-03-10T\"", None),
        ("\"2024-03-10Z\"", None),
        ("\"2024-03-10  02:30:00\"", None),
        ("\"2024-03-10_02:30:00\"", None),
        ("\" 2024-03-10\"", None),
        ("\"2024-03-10 \"", None),
        ("\"2024-03-10T02:30:00 Z\"", None),
        ("\"2024-03-10T02:30:00ZZ\"", None),
        ("\"2024-03-10T02:30:00UTC\"", None),
        ("\"2024-03-10T02:30:00+24:00\"", None),
        ("\"2024-03-10T02:30:00+05:60\"", None),
        ("\"2024-03-10T02:30:00+5:30\"", None),
        ("\"2024-03-10T02:30:00+\"", None),
        ("\"2024-03-10T02:30:00*05:30\"", None),
        ("\"2024-3-10\"", None),
        ("\"24-03-10\"", None),
        ("\"+2024-03-10\"", None),
        ("\"20240310\"", None),
        ("\"2024/03/10\"", None),
        ("\"2024-03-1é\"", None),
        ("\"２０２４-03-10\"", None),
    ];
    check_all(TimeUnit::Microsecond, Some("UTC"), &table);
}

#[test]
fn other_units_truncate_and_refuse_what_they_cannot_hold() {
    let fraction = "\"2024-03-10T02:30:00.987654321Z\"";
    let before_1970 = "\"1969-12-31T23:59:59.5Z\"";
    check_all(TimeUnit::Second, Some("UTC"), &[(fraction, Some(HALF_PAST_TWO)), (before_1970, Some(-1))]);
    let millis = [(fraction, Some(HALF_PAST_TWO * 1000 + 987)), ("1710037800", Some(HALF_PAST_TWO * 1000))];
    check_all(TimeUnit::Millisecond, Some("UTC"), &millis);
    let table = [
        (fraction, Some(HALF_PAST_TWO * 1_000_000_000 + 987_654_321)),
        ("\"2262-04-11T23:47:16.854775807Z\"", Some(i64::MAX)),
        ("\"2262-04-11T23:47:16.854775808Z\"", None),
        ("\"1677-09-21T00:12:43.145224192Z\"", Some(i64::MIN)),
        ("\"1677-09-21T00:12:43.145224191Z\"", None),
        ("\"9999-12-31T23:59:59Z\"", None),
        ("\"0001-01-01T00:00:00Z\"", None),
        ("253402300799", None),
    ];
    check_all(TimeUnit::Nanosecond, Some("UTC"), &table);
}

#[test]
fn text_without_zone_is_in_the_columns_zone() {
    let table = [
        ("\"2024-03-10T02:30:00\"", None), // The night the clocks skip from 2 to 3.
        ("\"2024-03-10T02:30:00Z\"", Some(HALF_PAST_TWO)),
        ("\"2024-03-10T01:30:00\"", Some(HALF_PAST_TWO - 3600 + 5 * 3600)),
        ("\"2024-11-03T01:30:00\"", Some(1_730_611_800)), // Twice that night: the earlier.
        ("\"2024-07-01\"", Some(1_719_806_400)),
        ("1710037800", Some(HALF_PAST_TWO)),
    ];
    check_all(TimeUnit::Second, Some("America/New_York"), &table);
    check_all(TimeUnit::Second, Some("+05:30"), &[("\"1970-01-01T05:30:00\"", Some(0))]);
    for zone in ["Z", "+00:00", "Etc/UTC"] {
        check_all(TimeUnit::Second, Some(zone), &[("\"1970-01-01T00:00:01\"", Some(1))]);
    }
    let nowhere: Fields =
        vec![Field::new("t", DataType::Timestamp(TimeUnit::Second, Some("Nowhere".into())), true)].into();
    assert!(super::JsonDecoder::try_new(nowhere, super::JsonOptions::default()).is_err());
}

#[test]
fn timestamp_ntz_takes_wall_times_only() {
    let table = [
        ("\"2024-03-10T02:30:00\"", Some(HALF_PAST_TWO * 1_000_000)),
        ("\"2024-03-10\"", Some(1_710_028_800 * 1_000_000)),
        ("\"2024-03-10T02:30:00Z\"", None),
        ("\"2024-03-10T02:30:00+05:30\"", None),
        ("1710037800", None),
    ];
    check_all(TimeUnit::Microsecond, None, &table);
}

#[test]
fn dates() {
    let table = [
        ("\"2024-03-10\"", "2024-03-10"),
        ("\"1970-01-01\"", "1970-01-01"),
        ("\"0001-01-01\"", "0001-01-01"),
        ("\"9999-12-31\"", "9999-12-31"),
        ("\"2024-02-29\"", "2024-02-29"),
        ("\"2023-02-29\"", BAD),
        ("\"2024-03-10T00:00:00\"", BAD),
        ("\"2024-03-10Z\"", BAD),
        ("\"2024-3-10\"", BAD),
        ("\"\"", BAD),
        ("19792", BAD),
    ];
    for (json, expected) in table {
        check_ddl("date", json, expected);
    }
}

#[test]
fn days_are_counted_as_the_calendar_has_them() {
    use chrono::{Datelike, NaiveDate};
    let first = NaiveDate::from_ymd_opt(1, 1, 1).expect("a date");
    let last = NaiveDate::from_ymd_opt(9999, 12, 31).expect("a date");
    // A step that is prime to weeks, months and years.
    for date in first.iter_days().step_by(17).take_while(|date| *date <= last).chain([last]) {
        let days = super::super::time::date(date.to_string().as_bytes());
        assert_eq!(days, Ok(i64::from(date.num_days_from_ce()) - 719_163), "{date}");
    }
}
