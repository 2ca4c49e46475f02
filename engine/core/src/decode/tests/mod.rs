//! What the decoder takes and refuses. The tables come from faults of other engines.

mod alignment;
mod ddl;
mod differential;
mod text;
mod times;
mod values;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields};
use arrow::util::display::array_value_to_string;

use super::{Decoded, JsonDecoder, JsonOptions, parse_ddl};

const BAD: &str = "<bad>";
const NULL: &str = "<null>";

fn fields(ddl: &str) -> Fields {
    parse_ddl(ddl).expect("the test's schema is right")
}

fn decoder(fields: Fields) -> JsonDecoder {
    JsonDecoder::try_new(fields, JsonOptions::default()).expect("the test's schema can be decoded")
}

fn binary<T: AsRef<[u8]>>(messages: &[T]) -> BinaryArray {
    BinaryArray::from_iter_values(messages)
}

fn decode<T: AsRef<[u8]>>(ddl: &str, messages: &[T]) -> Decoded {
    let decoded = decoder(fields(ddl)).decode(&binary(messages)).expect("binary messages");
    assert_eq!(decoded.rows.len(), messages.len(), "one row for each message");
    decoded
}

/// The value of a field as text; a null is [`NULL`].
fn shown(rows: &StructArray, field: &str, row: usize) -> String {
    let column = rows.column_by_name(field).expect("the field is there");
    shown_of(column, row)
}

fn shown_of(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return NULL.to_owned();
    }
    array_value_to_string(column, row).expect("a value that can be shown")
}

/// The rows that are bad.
fn bad_rows(decoded: &Decoded) -> Vec<usize> {
    decoded.bad.iter().map(|bad| bad.row).collect()
}

/// Checks what `{"a":<json>}` gives for a column `a` of this type, between two messages that must not be touched.
fn check(data_type: &DataType, json: &str, expected: &str) {
    let schema: Fields = vec![Field::new("a", data_type.clone(), true), Field::new("n", DataType::Int64, true)].into();
    let messages = [r#"{"n":1}"#.to_owned(), format!(r#"{{"n":2,"a":{json}}}"#), r#"{"n":3}"#.to_owned()];
    let decoded = decoder(schema).decode(&binary(&messages)).expect("binary messages");
    let at = format!("{json} into {data_type}: {:?}", decoded.bad);
    assert_eq!(decoded.rows.len(), 3, "{at}");
    assert_eq!(decoded.rows.column(0).data_type(), data_type, "{at}");
    for (row, n) in [(0, "1"), (2, "3")] {
        assert_eq!(
            (shown(&decoded.rows, "n", row).as_str(), shown(&decoded.rows, "a", row).as_str()),
            (n, NULL),
            "{at}"
        );
    }
    let got = if decoded.bad.is_empty() { shown(&decoded.rows, "a", 1) } else { BAD.to_owned() };
    assert_eq!(got, expected, "{at}");
    let is_bad = expected == BAD;
    assert_eq!(bad_rows(&decoded), if is_bad { vec![1] } else { vec![] }, "{at}");
    assert_eq!(shown(&decoded.rows, "n", 1), if is_bad { NULL } else { "2" }, "nothing of a bad row is kept: {at}");
}

/// [`check`] with the type in DDL.
fn check_ddl(data_type: &str, json: &str, expected: &str) {
    check(fields(&format!("a {data_type}"))[0].data_type(), json, expected);
}

fn list_of(item: DataType, nullable: bool) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, nullable)))
}
