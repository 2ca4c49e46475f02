//! Number tokens as typed values: never a silently changed one. The tokens come from the cursor or from
//! [`is_number`], so their grammar is already right.

use super::cursor::NumberToken;

/// A whole number. `None`: it passes 64 bits.
#[inline]
pub(super) fn whole(token: &NumberToken<'_>) -> Option<i64> {
    let (negative, magnitude) = magnitude(token)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// A whole number that is not negative. `None`: it is, or passes 64 bits. `-0` is 0.
pub(super) fn unsigned(token: &NumberToken<'_>) -> Option<u64> {
    let (negative, magnitude) = magnitude(token)?;
    (!negative || magnitude == 0).then_some(magnitude)
}

#[inline]
fn sign_of(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    }
}

/// Whether a whole number is negative, and how large it is.
#[inline]
fn magnitude(token: &NumberToken<'_>) -> Option<(bool, u64)> {
    let (negative, digits) = sign_of(token.text);
    // Eighteen digits always fit, so the checked arithmetic is kept for the few that are longer.
    if digits.len() <= 18 {
        return Some((negative, token.digits));
    }
    let add = |value: u64, digit: &u8| value.checked_mul(10)?.checked_add(value_of(*digit));
    Some((negative, digits.iter().try_fold(0, add)?))
}

#[inline]
fn value_of(digit: u8) -> u64 {
    u64::from(digit.wrapping_sub(b'0'))
}

/// The nearest double. `None`: its magnitude passes the largest finite one.
#[inline]
pub(super) fn double(token: &NumberToken<'_>) -> Option<f64> {
    // Both the digits and the power of ten are exact doubles here, so that one rounding gives the nearest one.
    let (negative, digits) = sign_of(token.text);
    if digits.len() <= 18 && token.digits <= 1 << 53 && !token.has_exponent {
        let magnitude = token.digits as f64 / POWERS_OF_TEN[token.decimals];
        return Some(if negative { -magnitude } else { magnitude });
    }
    long_double(token.text)
}

fn long_double(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// The nearest float, rounded once from the text. `None`: its magnitude passes the largest finite one.
pub(super) fn float(token: &NumberToken<'_>) -> Option<f32> {
    let value: f32 = std::str::from_utf8(token.text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// As many as a short number has decimals.
const POWERS_OF_TEN: [f64; 18] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17];

/// Why a number is not a decimal of the column's type.
#[derive(Debug, PartialEq)]
pub(super) struct DoesNotFit;

/// A decimal as its unscaled integer, rounded half-up (away from zero), as Spark rounds.
pub(super) fn decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, DoesNotFit> {
    let (negative, text) = sign_of(text);
    let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at(exponent_at);
    let point_at = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits = || mantissa.iter().filter(|byte| **byte != b'.').map(|byte| value_of(*byte));

    let leading_zeros = digits().take_while(|digit| *digit == 0).count();
    let digits_whole = i64::try_from(point_at).map_err(|_| DoesNotFit)?;
    let significant = digits().skip(leading_zeros);
    if significant.clone().next().is_none() {
        return Ok(0);
    }
    // How many of the significant digits are kept: those up to the column's last place.
    let kept = digits_whole
        .saturating_add(exponent_of(exponent))
        .saturating_add(i64::from(scale))
        .saturating_sub(i64::try_from(leading_zeros).map_err(|_| DoesNotFit)?);
    if kept < 0 {
        return Ok(0);
    }
    if kept > i64::from(precision) {
        return Err(DoesNotFit);
    }
    let mut padded = significant.chain(std::iter::repeat(0));
    let mut unscaled = 0i128;
    for digit in padded.by_ref().take(usize::try_from(kept).map_err(|_| DoesNotFit)?) {
        unscaled = unscaled * 10 + i128::from(digit);
    }
    if padded.next().is_some_and(|digit| digit >= 5) {
        unscaled += 1;
    }
    // Rounding up may add a digit: 999.995 does not fit decimal(5,2).
    if unscaled >= 10i128.pow(u32::from(precision)) {
        return Err(DoesNotFit);
    }
    Ok(if negative { -unscaled } else { unscaled })
}

/// The exponent with its `e`, or 0 for none; one that passes 64 bits counts as the farthest.
fn exponent_of(text: &[u8]) -> i64 {
    let Some((_, text)) = text.split_first() else { return 0 };
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (negative, digits) = sign_of(text);
    let add = |value: i64, digit: &u8| value.saturating_mul(10).saturating_add(value_of(*digit) as i64);
    let magnitude = digits.iter().fold(0, add).min(i64::MAX / 4);
    if negative { -magnitude } else { magnitude }
}

/// Whether all of `text` is one JSON number.
pub(super) fn is_number(text: &[u8]) -> bool {
    let mut cursor = super::cursor::Cursor::new();
    cursor.reset(text);
    cursor.number().is_ok() && cursor.peek().is_none()
}
