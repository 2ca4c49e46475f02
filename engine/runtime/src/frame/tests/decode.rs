//! Decoding the column `value`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use tidemill_core::code;

use super::{columns, error, fake, readings, rows};
use crate::dataflow::{BadRecordPolicy, Json};
use crate::frame::DataFrame;

/// Kafka's columns, as far as they matter here.
fn messages(values: [&str; 2]) -> DataFrame {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("key", Arc::new(StringArray::from(vec!["k0", "k1"]))),
        ("value", Arc::new(StringArray::from(values.to_vec()))),
        ("topic", Arc::new(StringArray::from(vec!["sensors", "sensors"]))),
        ("partition", Arc::new(Int32Array::from(vec![3, 3]))),
        ("offset", Arc::new(Int64Array::from(vec![450, 451]))),
    ];
    fake::session().create_dataframe(vec![RecordBatch::try_from_iter(columns).expect("equal lengths")])
}

#[tokio::test]
async fn fields_come_first_and_win_over_columns_of_their_name() {
    let frame = messages([r#"{"sensorId": "a", "key": 7}"#, r#"{"sensorId": "b"}"#]);
    let frame = frame.decode(Json::ddl("sensorId string, key long"));
    assert_eq!(columns(&frame), ["sensorId", "key", "topic", "partition", "offset"]);
    assert_eq!(rows(&frame).await, ["a 7 sensors 3 450", "b  sensors 3 451"]);
    assert_eq!(rows(&frame.filter("key = 7").select(["sensorId"])).await, ["a"]);
}

#[tokio::test]
async fn bad_record_is_an_error_that_says_where_it_is_unless_it_may_be_null() {
    let values = [r#"{"n": 1}"#, r#"{"n": "#];
    let failed = messages(values).decode(Json::ddl("n long")).collect().await.expect_err("a bad record");
    assert_eq!(failed.code(), code::BAD_RECORD);
    assert!(failed.to_string().contains("sensors-3@451"), "{failed}");
    let json = Json::ddl("n long").on_bad_record(BadRecordPolicy::Null);
    assert_eq!(rows(&messages(values).decode(json).select(["n", "offset"])).await, ["1 450", "451"]);
}

#[test]
fn message_is_decoded_once_however_many_fields_are_used() {
    let frame = messages(["{}", "{}"]).decode(Json::ddl("a long, b long, c long")).filter("a > 1 AND b > 1");
    let plan = frame.clone().into_plan().expect("a plan");
    let optimised = frame.session().state().optimize(&plan).expect("a plan").display_indent().to_string();
    assert_eq!(optimised.matches("decode_json(").count(), 1, "{optimised}");
}

#[test]
fn frame_without_messages_and_wrong_schemas_are_refused() {
    let json = || Json::ddl("n long");
    let none = error(&readings(&fake::session()).decode(json()));
    assert!(none.to_string().contains("there is no column \"value\""), "{none}");
    let wrong = error(&messages(["", ""]).decode(Json::ddl("n lnog")));
    assert_eq!(wrong.code(), code::BAD_PLAN);
    let number = error(&messages(["", ""]).with_column("value", "1").decode(json()));
    assert_eq!(number.code(), code::BAD_PLAN, "{number}");
    assert!(fake::stream(&fake::session()).decode(json()).is_streaming());
}
