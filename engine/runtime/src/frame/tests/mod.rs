//! Frames, method by method: on rows where there are any, by schema and error where it is a stream.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field};
use tidemill_core::Error;

use super::DataFrame;
use crate::session::Session;

mod decode;
mod errors;
pub(crate) mod fake;
mod select;
mod shape;
mod streaming;

/// Three readings: `sensorId`, `celsius`, `seq`, and `data`, a struct of `celsius` and `unit`.
fn readings(session: &Session) -> DataFrame {
    let celsius = || Arc::new(Float64Array::from(vec![Some(20.5), Some(40.0), None])) as ArrayRef;
    let unit: ArrayRef = Arc::new(StringArray::from(vec!["C", "C", "C"]));
    let data = StructArray::from(vec![
        (Arc::new(Field::new("celsius", DataType::Float64, true)), celsius()),
        (Arc::new(Field::new("unit", DataType::Utf8, true)), unit),
    ]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("sensorId", Arc::new(StringArray::from(vec!["a", "b", "a"]))),
        ("celsius", celsius()),
        ("seq", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("data", Arc::new(data)),
    ];
    session.create_dataframe(vec![RecordBatch::try_from_iter(columns).expect("equal lengths")])
}

/// The values of a frame, row by row, without the frame of the table.
async fn rows(frame: &DataFrame) -> Vec<String> {
    let table = frame.table(100).await.expect("a table");
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(1);
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(" "))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// The names of a frame's columns.
fn columns(frame: &DataFrame) -> Vec<String> {
    let schema = frame.schema().expect("a schema");
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// The error that a frame kept.
fn error(frame: &DataFrame) -> Error {
    frame.schema().expect_err("the chain failed")
}
