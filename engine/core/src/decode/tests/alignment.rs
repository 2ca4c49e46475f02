//! One message is one row, whatever it holds.

use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, Int64Array, LargeBinaryArray, StringArray, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};

use super::super::{BadRecordPolicy, JsonDecoder, JsonError, JsonOptions};
use super::{NULL, bad_rows, binary, decode, decoder, fields, shown};

#[test]
fn each_message_is_one_row_even_where_messages_would_glue() {
    let messages = [r#"{"id":1}"#, r#"{"id":2}{"id":3}"#, "", "   ", r#"{"id":4,"x":""#, r#""}"#, r#"{"id":5}"#];
    let decoded = decode("id bigint", &messages);
    assert_eq!(bad_rows(&decoded), [1, 2, 3, 4, 5]);
    let ids: Vec<_> = (0..7).map(|row| shown(&decoded.rows, "id", row)).collect();
    assert_eq!(ids, ["1", NULL, NULL, NULL, NULL, NULL, "5"]);
    assert_eq!(decoded.rows.null_count(), 0, "a bad row is a row of nulls, not a null");
    let reasons: Vec<_> = decoded.bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "expected the end of the message, found an object (byte 8)",
            "the message is empty (byte 0)",
            "the message is blank (byte 0)",
            "the message ends within a string (byte 13)",
            "expected an object, found a string (byte 0)",
        ]
    );
}

#[test]
fn bad_rows_among_a_thousand_stay_alone_and_keep_their_text() {
    let bad = [(0, r#"{"id":x}"#), (499, r#"{"id":"abc"}"#), (999, r#"{"id":1"#)];
    let mut messages: Vec<String> = (0..1000).map(|id| format!(r#"{{"id":{id},"s":"v{id}"}}"#)).collect();
    for (row, text) in bad {
        messages[row] = text.to_owned();
    }
    let ddl = "id bigint not null, _corrupt_record string, s string";
    let decoded = decode(ddl, &messages);
    assert_eq!(bad_rows(&decoded), [0, 499, 999]);
    for (row, message) in messages.iter().enumerate() {
        let got = ["id", "s", "_corrupt_record"].map(|field| shown(&decoded.rows, field, row));
        let is_bad = bad.iter().any(|(bad, _)| *bad == row);
        let expected = if is_bad {
            [NULL.into(), NULL.into(), message.clone()]
        } else {
            [row.to_string(), format!("v{row}"), NULL.into()]
        };
        assert_eq!(got, expected, "row {row}");
    }
    let again = decode(ddl, &messages);
    assert_eq!((again.rows, again.bad), (decoded.rows, decoded.bad), "a replay agrees");
}

#[test]
fn tombstone_is_a_null_row_and_empty_or_literal_null_is_bad() {
    let messages: [Option<&[u8]>; 6] = [None, Some(b"{\"a\":1}"), None, Some(b""), Some(b"{\"a\":2}"), Some(b"null")];
    let array = BinaryArray::from_iter(messages);
    let decoded = decoder(fields("a bigint not null, _corrupt_record string")).decode(&array).expect("binary");
    assert_eq!(bad_rows(&decoded), [3, 5]);
    let nulls: Vec<_> = (0..6).map(|row| decoded.rows.is_null(row)).collect();
    assert_eq!(nulls, [true, false, true, false, false, false]);
    let values: Vec<_> = (0..6).map(|row| shown(&decoded.rows, "a", row)).collect();
    assert_eq!(values, [NULL, "1", NULL, NULL, "2", NULL]);
    let texts: Vec<_> = (0..6).map(|row| shown(&decoded.rows, "_corrupt_record", row)).collect();
    assert_eq!(texts, [NULL, NULL, NULL, "", NULL, "null"]);
}

#[test]
fn every_layout_of_messages_gives_the_same_rows() {
    let messages = [Some(r#"{"a":1}"#), None, Some("x"), Some(r#"{"a":4}"#)];
    let strings = StringArray::from_iter(messages);
    let as_bytes = || messages.iter().map(|message| message.map(str::as_bytes));
    let arrays: [&dyn Array; 6] = [
        &strings,
        &StringViewArray::from_iter(messages),
        &arrow::compute::cast(&strings, &DataType::LargeUtf8).expect("a cast that widens"),
        &BinaryArray::from_iter(as_bytes()),
        &LargeBinaryArray::from_iter(as_bytes()),
        &BinaryViewArray::from_iter(as_bytes()),
    ];
    for array in arrays {
        let decoded = decoder(fields("a bigint")).decode(array).expect("messages");
        let got: Vec<_> = decoded.rows.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(got, [Some(1), None, None, Some(4)], "{}", array.data_type());
        assert_eq!(bad_rows(&decoded), [2], "{}", array.data_type());
        assert!(decoded.rows.is_null(1), "{}", array.data_type());
    }
    let sliced = decoder(fields("a bigint")).decode(&strings.slice(2, 2)).expect("messages");
    assert_eq!((bad_rows(&sliced), shown(&sliced.rows, "a", 1)), (vec![0], "4".to_owned()));
}

#[test]
fn no_messages_are_no_rows() {
    for ddl in ["a bigint", "s struct<x: array<map<string, decimal(5,2)>>>", "_corrupt_record string"] {
        let decoded = decode(ddl, &[] as &[&str]);
        assert_eq!((decoded.rows.len(), decoded.bad.len()), (0, 0), "{ddl}");
    }
    let decoded = decoder(Fields::empty()).decode(&binary(&["{}", "[]"])).expect("binary");
    assert_eq!((decoded.rows.len(), bad_rows(&decoded)), (2, vec![1]), "no fields");
}

#[test]
fn corrupt_record_column_is_never_read_from_a_message() {
    let messages = [r#"{"_corrupt_record":"mine","a":1}"#, r#"{"a":1,"_corrupt_record":3}"#, "\u{1}"];
    let decoded = decode("_corrupt_record string, a bigint", &messages);
    let texts: Vec<_> = (0..3).map(|row| shown(&decoded.rows, "_corrupt_record", row)).collect();
    assert_eq!(texts, [NULL, NULL, "\u{1}"]);
    assert_eq!(bad_rows(&decoded), [2]);

    let options = JsonOptions { corrupt_record_column: "raw".into() };
    let decoder = JsonDecoder::try_new(fields("a bigint, raw string"), options).expect("a string column");
    let decoded = decoder.decode(&binary(&[b"\xff{".as_slice()])).expect("binary");
    assert_eq!(shown(&decoded.rows, "raw", 0), "\u{fffd}{", "what is not UTF-8 is replaced");
}

#[test]
fn top_fields_of_the_result_are_nullable_and_inner_ones_as_given() {
    let decoder = decoder(fields("a bigint not null, s struct<x: bigint not null> not null"));
    let decoded = decoder.decode(&binary(&["", r#"{"a":1,"s":{"x":2}}"#])).expect("binary");
    assert_eq!(decoded.rows.fields(), decoder.fields());
    assert!(decoder.fields().iter().all(|field| field.is_nullable()));
    let DataType::Struct(inner) = decoder.fields()[1].data_type() else { panic!("a struct") };
    assert!(!inner[0].is_nullable());
    assert!(decoded.rows.column(1).as_struct().column(0).is_null(0), "null, not 0");
}

#[test]
fn schemas_and_columns_that_cannot_be_decoded_are_refused_by_name() {
    fn refused(fields: Fields) -> String {
        JsonDecoder::try_new(fields, JsonOptions::default()).expect_err("a schema to refuse").to_string()
    }
    let one = |name: &str, data_type| Fields::from(vec![Field::new(name, data_type, true)]);
    assert_eq!(
        refused(one("s", DataType::Struct(one("t", DataType::Date64)))),
        "field \"s.t\": JSON cannot be decoded into Date64"
    );
    let twice = Fields::from(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Utf8, true)]);
    assert_eq!(refused(twice.clone()), "two fields are named \"a\"");
    let corrupt = Field::new("_corrupt_record", DataType::Utf8, true);
    assert_eq!(refused(vec![corrupt.clone(), corrupt].into()), "two fields are named \"_corrupt_record\"");
    assert_eq!(refused(one("s", DataType::Struct(twice))), "two fields of \"s\" are named \"a\"");
    assert_eq!(
        refused(one("_corrupt_record", DataType::Int64)),
        "column \"_corrupt_record\" takes the text of bad messages and must be a string, not Int64"
    );
    let deep = (0..128).fold(DataType::Int8, |inner, _| super::list_of(inner, true));
    assert_eq!(refused(one("a", deep)), "the schema nests deeper than the 128 levels a message may have");

    let numbers = Int64Array::from(vec![1]);
    let error = decoder(fields("a bigint")).decode(&numbers).expect_err("numbers are no messages");
    assert!(matches!(&error, JsonError::MessageType(DataType::Int64)), "{error:?}");
}

#[test]
fn policies_have_stable_names() {
    let names = [BadRecordPolicy::Fail, BadRecordPolicy::Null].map(|policy| serde_json::to_string(&policy).ok());
    assert_eq!(names, [Some("\"fail\"".to_owned()), Some("\"null\"".to_owned())]);
    let options: JsonOptions = serde_json::from_str("{}").expect("defaults");
    assert_eq!(options, JsonOptions::default());
}
