//! Rows as a table of text, laid out as Spark's `show`.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::config::Truncate;

/// The table with its frame, each line ended.
pub(super) fn table(schema: &Schema, batches: &[RecordBatch], truncate: Truncate) -> Result<String, ArrowError> {
    let header: Vec<String> = schema.fields().iter().map(|field| cut(&shown(field.name()), truncate)).collect();
    let mut lines = vec![header];
    for batch in batches {
        let columns: Result<Vec<Vec<String>>, ArrowError> =
            batch.columns().iter().map(|c| cells(c, truncate)).collect();
        let columns = columns?;
        lines.extend((0..batch.num_rows()).map(|row| columns.iter().map(|column| column[row].clone()).collect()));
    }
    let mut widths = vec![3; schema.fields().len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(width_of(cell));
        }
    }
    let mut frame = String::from("+");
    for width in &widths {
        frame.push_str(&"-".repeat(*width));
        frame.push('+');
    }
    frame.push('\n');
    let mut text = frame.clone();
    for (number, line) in lines.iter().enumerate() {
        text.push('|');
        for (width, cell) in widths.iter().zip(line) {
            let pad = " ".repeat(width - width_of(cell));
            let _ = match truncate {
                Truncate::At(_) => write!(text, "{pad}{cell}|"),
                Truncate::Never => write!(text, "{cell}{pad}|"),
            };
        }
        text.push('\n');
        if number == 0 {
            text.push_str(&frame);
        }
    }
    text.push_str(&frame);
    Ok(text)
}

fn cells(column: &ArrayRef, truncate: Truncate) -> Result<Vec<String>, ArrowError> {
    let options = FormatOptions::new()
        .with_null("NULL")
        .with_display_error(true)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let binary = match column.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) | DataType::BinaryView => {
            Some(cast(column, &DataType::LargeBinary)?)
        }
        _ => None,
    };
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let binary = binary.as_ref().map(arrow::array::AsArray::as_binary::<i64>);
    let cell = |row: usize| match binary {
        Some(bytes) if bytes.is_valid(row) => bytes_shown(bytes.value(row)),
        _ => formatter.value(row).to_string(),
    };
    Ok((0..column.len()).map(|row| cut(&shown(&cell(row)), truncate)).collect())
}

/// Text if the bytes are UTF-8, else their hexadecimal digits, as Spark shows bytes.
fn bytes_shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("[{}]", digits.join(" "))
        }
    }
}

/// Escapes control characters: a row stays one line, and data cannot command the terminal.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(shown, "\\u{{{:x}}}", c as u32);
            }
            c => shown.push(c),
        }
    }
    shown
}

fn cut(text: &str, truncate: Truncate) -> String {
    match truncate {
        Truncate::At(limit) if text.chars().count() > limit => {
            // Below four there is no room for dots.
            let (kept, dots) = if limit < 4 { (limit, "") } else { (limit - 3, "...") };
            text.chars().take(kept).chain(dots.chars()).collect()
        }
        _ => text.to_owned(),
    }
}

/// Columns that a terminal takes for a text: two for the wide letters of East Asia and for pictures.
fn width_of(text: &str) -> usize {
    let wide = |c: char| {
        matches!(c as u32,
            0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0x33FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xA000..=0xA4CF
            | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6
            | 0x1F300..=0x1F64F | 0x1F900..=0x1F9FF | 0x20000..=0x3FFFD)
    };
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}
