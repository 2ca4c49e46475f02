//! Dates and timestamps: text as RFC 3339 and ISO 8601 have it, without ever asking the host for its zone.
//!
//! - Text: `2024-03-10`, or that with `T` or one blank and `02:30`, `02:30:00`, or `02:30:00.123456789` (1 to 9 digits),
//!   then nothing, `Z`, `+05:30`, `+0530` or `+05`. Years have four digits, 0001 to 9999. A date alone is its midnight.
//! - A fraction finer than the column's unit is cut off (towards the past), as in Spark.
//! - Text without a zone is in the column's zone, which is UTC for `timestamp`. A wall time that the zone skips is bad;
//!   one that it has twice is the earlier, as in Spark.
//! - `timestamp_ntz` (an Arrow timestamp without zone) takes wall times only: a zone in the text is bad, and so is a
//!   number.
//! - A bare integer is **seconds** since 1970, as in Spark; it must fall into the years 0001 to 9999, so that
//!   milliseconds are refused instead of read as the year 56158. A fraction is bad.
//! - Second 60 and hour 24 are bad.

use arrow::array::timezone::Tz;
use arrow::datatypes::TimeUnit;
use arrow::error::ArrowError;
use chrono::{DateTime, LocalResult, Offset, TimeZone};

const SECONDS_A_DAY: i64 = 86_400;
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;

/// Why a text or number is not a time of the column; put after the quoted text.
pub(super) type TimeFault = &'static str;

/// A timestamp column's unit and zone.
pub(super) struct Clock {
    units_a_second: u32,
    zone: Zone,
    /// The last date that was read, with its days since 1970: most rows are of one day.
    last: ([u8; 10], i64),
}

enum Zone {
    None,
    Utc,
    Named(Tz),
}

impl Clock {
    pub(super) fn try_new(unit: TimeUnit, zone: Option<&str>) -> Result<Self, ArrowError> {
        let units_a_second = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let zone = match zone {
            None => Zone::None,
            Some("UTC" | "Etc/UTC" | "Z" | "+00:00") => Zone::Utc,
            Some(name) => Zone::Named(name.parse()?),
        };
        Ok(Self { units_a_second, zone, last: (*b"1970-01-01", 0) })
    }

    /// A timestamp's text, in the column's units since 1970.
    pub(super) fn read_text(&mut self, text: &[u8]) -> Result<i64, TimeFault> {
        let time = wall_time(text, &mut self.last)?;
        let offset_s = match (time.offset_s, &self.zone) {
            (Some(_), Zone::None) => return Err("has a zone, which a timestamp_ntz cannot keep"),
            (Some(offset_s), _) => offset_s,
            (None, Zone::None | Zone::Utc) => 0,
            (None, Zone::Named(zone)) => offset_in(zone, time.seconds)?,
        };
        self.units(time.seconds - offset_s, time.nanos)
    }

    /// Whole seconds since 1970, in the column's units.
    pub(super) fn read_seconds(&self, seconds: i64) -> Result<i64, TimeFault> {
        if matches!(self.zone, Zone::None) {
            return Err("is a point in time, which a timestamp_ntz cannot keep");
        }
        if !(FIRST_SECOND..=LAST_SECOND).contains(&seconds) {
            return Err("as seconds is outside the years 0001 to 9999 (milliseconds?)");
        }
        self.units(seconds, 0)
    }

    fn units(&self, seconds: i64, nanos: u32) -> Result<i64, TimeFault> {
        let fraction = u64::from(nanos) * u64::from(self.units_a_second) / 1_000_000_000;
        let units = i128::from(seconds) * i128::from(self.units_a_second) + i128::from(fraction);
        i64::try_from(units).map_err(|_| "is out of the column's range")
    }
}

fn offset_in(zone: &Tz, wall_seconds: i64) -> Result<i64, TimeFault> {
    let wall = DateTime::from_timestamp(wall_seconds, 0).ok_or("is out of range")?.naive_utc();
    match zone.offset_from_local_datetime(&wall) {
        LocalResult::None => Err("does not exist in the column's zone"),
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => Ok(offset.fix().local_minus_utc().into()),
    }
}

/// A time as it is written.
struct WallTime {
    /// Seconds since 1970, read as if the text were UTC.
    seconds: i64,
    nanos: u32,
    /// East of UTC, when the text has a zone.
    offset_s: Option<i64>,
}

fn wall_time(text: &[u8], last: &mut ([u8; 10], i64)) -> Result<WallTime, TimeFault> {
    const NO_TIME: TimeFault = "is not a timestamp like 2024-03-10T02:30:00Z";
    let (date, rest) = text.split_first_chunk::<10>().ok_or(NO_TIME)?;
    if *date != last.0 {
        *last = (*date, days(date)?);
    }
    let midnight = last.1 * SECONDS_A_DAY;
    let [b'T' | b't' | b' ', hour1, hour2, b':', minute1, minute2, rest @ ..] = rest else {
        return if rest.is_empty() {
            Ok(WallTime { seconds: midnight, nanos: 0, offset_s: None })
        } else {
            Err(NO_TIME)
        };
    };
    let hour = two_digits(*hour1, *hour2).ok_or(NO_TIME)?;
    let minute = two_digits(*minute1, *minute2).ok_or(NO_TIME)?;
    let (second, nanos, rest) = match rest {
        [b':', second1, second2, b'.', rest @ ..] => {
            let (nanos, rest) = fraction(rest)?;
            (two_digits(*second1, *second2).ok_or(NO_TIME)?, nanos, rest)
        }
        [b':', second1, second2, rest @ ..] => (two_digits(*second1, *second2).ok_or(NO_TIME)?, 0, rest),
        rest => (0, 0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return Err("is an impossible time of day");
    }
    let seconds = midnight + i64::from(hour * 3600 + minute * 60 + second);
    Ok(WallTime { seconds, nanos, offset_s: offset(rest)? })
}

const NO_FRACTION: TimeFault = "has a fraction that is not 1 to 9 digits";

/// A fraction's digits (after the point) in nanoseconds, and what follows them.
fn fraction(text: &[u8]) -> Result<(u32, &[u8]), TimeFault> {
    // What one more digit counts.
    let (mut nanos, mut unit, mut rest) = (0, 100_000_000, text);
    while let [digit @ b'0'..=b'9', more @ ..] = rest {
        // Ten digits are too many.
        if unit == 0 {
            return Err(NO_FRACTION);
        }
        nanos += u32::from(digit - b'0') * unit;
        (unit, rest) = (unit / 10, more);
    }
    if rest.len() == text.len() { Err(NO_FRACTION) } else { Ok((nanos, rest)) }
}

fn offset(text: &[u8]) -> Result<Option<i64>, TimeFault> {
    const NO_ZONE: TimeFault = "has a zone that is not Z or like +05:30";
    let (sign, hour1, hour2, minute1, minute2) = match text {
        [] => return Ok(None),
        [b'Z' | b'z'] => return Ok(Some(0)),
        [sign, hour1, hour2, b':', minute1, minute2] => (sign, hour1, hour2, minute1, minute2),
        [sign, hour1, hour2, minute1, minute2] => (sign, hour1, hour2, minute1, minute2),
        [sign, hour1, hour2] => (sign, hour1, hour2, &b'0', &b'0'),
        _ => return Err(NO_ZONE),
    };
    let hours = two_digits(*hour1, *hour2).filter(|hours| *hours < 24).ok_or(NO_ZONE)?;
    let minutes = two_digits(*minute1, *minute2).filter(|minutes| *minutes < 60).ok_or(NO_ZONE)?;
    let magnitude = i64::from(hours * 3600 + minutes * 60);
    match sign {
        b'+' => Ok(Some(magnitude)),
        b'-' => Ok(Some(-magnitude)),
        _ => Err(NO_ZONE),
    }
}

/// A `YYYY-MM-DD` date in days since 1970.
pub(super) fn date(text: &[u8]) -> Result<i64, TimeFault> {
    days(text.try_into().map_err(|_| NO_DATE)?)
}

const NO_DATE: TimeFault = "is not a date like 2024-03-10";

fn days(text: &[u8; 10]) -> Result<i64, TimeFault> {
    let [year1, year2, year3, year4, b'-', month1, month2, b'-', day1, day2] = *text else { return Err(NO_DATE) };
    let century = two_digits(year1, year2).ok_or(NO_DATE)?;
    let year = century * 100 + two_digits(year3, year4).ok_or(NO_DATE)?;
    let month = two_digits(month1, month2).ok_or(NO_DATE)?;
    let day = two_digits(day1, day2).ok_or(NO_DATE)?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_in_month = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => 0,
    };
    if year == 0 || day == 0 || day > days_in_month {
        return Err("is an impossible date");
    }
    // Years that begin in March put the leap day last: a day's number within them is a linear formula of the month.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    let before_month = (153 * month + 2) / 5;
    const DAYS_FROM_MARCH_OF_YEAR_0_TO_1970: i64 = 719_468;
    Ok(i64::from(before_year + before_month + day - 1) - DAYS_FROM_MARCH_OF_YEAR_0_TO_1970)
}

#[inline]
fn two_digits(tens: u8, ones: u8) -> Option<u32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| u32::from(tens) * 10 + u32::from(ones))
}
