//! Schemas as text, there and back.

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use super::super::{parse_ddl, to_ddl};
use super::{fields, list_of};

#[test]
fn every_type_and_its_other_names() {
    let timestamp = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let table = [
        ("boolean", DataType::Boolean, "boolean"),
        ("tinyint", DataType::Int8, "tinyint"),
        ("byte", DataType::Int8, "tinyint"),
        ("smallint", DataType::Int16, "smallint"),
        ("short", DataType::Int16, "smallint"),
        ("int", DataType::Int32, "int"),
        ("INTEGER", DataType::Int32, "int"),
        ("bigint", DataType::Int64, "bigint"),
        ("Long", DataType::Int64, "bigint"),
        ("float", DataType::Float32, "float"),
        ("real", DataType::Float32, "float"),
        ("double", DataType::Float64, "double"),
        ("string", DataType::Utf8, "string"),
        ("binary", DataType::Binary, "binary"),
        ("date", DataType::Date32, "date"),
        ("timestamp", timestamp(Some("UTC")), "timestamp"),
        ("timestamp_ltz", timestamp(Some("UTC")), "timestamp"),
        ("timestamp_ntz", timestamp(None), "timestamp_ntz"),
        ("decimal", DataType::Decimal128(10, 0), "decimal(10,0)"),
        ("decimal(5)", DataType::Decimal128(5, 0), "decimal(5,0)"),
        ("dec( 38 , 38 )", DataType::Decimal128(38, 38), "decimal(38,38)"),
        ("numeric(10,2)", DataType::Decimal128(10, 2), "decimal(10,2)"),
        ("array<int>", list_of(DataType::Int32, true), "array<int>"),
        ("array<int not null>", list_of(DataType::Int32, false), "array<int not null>"),
        ("array<array<int>>", list_of(list_of(DataType::Int32, true), true), "array<array<int>>"),
        ("struct<>", DataType::Struct(Fields::empty()), "struct<>"),
    ];
    for (text, data_type, written) in table {
        let parsed = fields(&format!("a {text}"));
        assert_eq!(*parsed[0], Field::new("a", data_type, true), "{text}");
        assert_eq!(to_ddl(&parsed), Ok(format!("a {written}")), "{text}");
    }
}

#[test]
fn schemas_go_there_and_back() {
    let table = [
        ("sensor_id string, ts timestamp, temperature double", ""),
        ("a bigint not null, b string comment 'it''s' ", "a bigint not null, b string comment 'it''s'"),
        (
            "n STRUCT<a: bigint, b array<string>> NOT NULL,m map<string,int>",
            "n struct<a: bigint, b: array<string>> not null, m map<string,int>",
        ),
        ("a:int,b : string not null comment \"say \"\"x\"\"\"", "a int, b string not null comment 'say \"x\"'"),
        ("`a b` int, `x``y` int, `é,:<` int, été int, 1st int", ""),
        ("A int, a int", ""),
        ("timestamp timestamp, struct struct<map: map<string,struct<x: int not null> not null>>, not int", ""),
        ("struct<a: int, b: struct<c: date>>", "a int, b struct<c: date>"),
        ("struct int", ""),
        (" \n a\tint ", "a int"),
    ];
    for (text, written) in table {
        let parsed = fields(text);
        let written = if written.is_empty() { text } else { written };
        assert_eq!(to_ddl(&parsed).as_deref(), Ok(written), "{text}");
        assert_eq!(fields(written), parsed, "{text}");
    }
    let commented = fields("b string comment 'it''s'");
    assert_eq!(commented[0].metadata().get("comment").map(String::as_str), Some("it's"));
    assert!(!fields("n struct<a: int not null> not null")[0].is_nullable());
}

#[test]
fn errors_say_what_and_where() {
    let table = [
        ("", "the schema is empty", 1),
        ("   ", "the schema is empty", 4),
        ("a", "expected the type of \"a\", found the end of the schema", 2),
        ("a, b int", "expected the type of \"a\", found \",\"", 2),
        ("a strng", "unknown type \"strng\", did you mean \"string\"?", 3),
        ("a int, b doubel", "unknown type \"doubel\", did you mean \"double\"?", 10),
        ("a timestmp", "unknown type \"timestmp\", did you mean \"timestamp\"?", 3),
        ("a VARCHAR(3)", "unknown type \"VARCHAR\", did you mean \"string\"?", 3),
        ("a bool", "unknown type \"bool\", did you mean \"boolean\"?", 3),
        ("a int64", "unknown type \"int64\", did you mean \"bigint\"?", 3),
        ("a int,", "expected a field name, found the end of the schema", 7),
        ("a int b int", "expected \",\" or the end of the schema, found \"b\"", 7),
        ("a int, a string", "two fields are named \"a\"", 8),
        ("a struct<x: int, x: int>", "two fields are named \"x\"", 18),
        ("a int not", "expected \"null\" after \"not\"", 10),
        ("a int not nul", "expected \"null\" after \"not\"", 11),
        ("a int comment x", "expected the comment in quotes, found \"x\"", 15),
        ("a array", "expected \"<\", found the end of the schema", 8),
        ("a array<int", "expected \">\", found the end of the schema", 12),
        ("a array<>", "expected a type, found \">\"", 9),
        ("a struct<x int", "expected \",\" or \">\", found the end of the schema", 15),
        ("a map<int, string>", "map keys must be string, not int", 7),
        ("a map<string>", "expected \",\", found \">\"", 13),
        ("a decimal(39,2)", "the precision of a decimal is a number from 1 to 38, not \"39\"", 11),
        ("a decimal(0)", "the precision of a decimal is a number from 1 to 38, not \"0\"", 11),
        ("a decimal(5,6)", "the scale 6 passes the precision 5", 13),
        ("a decimal(5,-1)", "unexpected '-'; a name with signs in it stands in backticks", 13),
        ("a decimal(x)", "the precision of a decimal is a number from 1 to 38, not \"x\"", 11),
        ("a-b int", "unexpected '-'; a name with signs in it stands in backticks", 2),
        ("`a int", "the ` is not closed", 1),
        ("`` int", "a field name is empty", 1),
        ("a int>", "expected \",\" or the end of the schema, found \">\"", 6),
        ("struct<a: int>, b int", "expected the end of the schema, found \",\"", 15),
        ("é int, b strin g", "unknown type \"strin\", did you mean \"string\"?", 10),
    ];
    for (text, message, position) in table {
        let error = parse_ddl(text).expect_err(text);
        assert_eq!((error.message.as_str(), error.position), (message, Some(position)), "{text}");
    }
    let error = parse_ddl("a strng").expect_err("a misspelt type");
    assert_eq!(error.to_string(), "unknown type \"strng\", did you mean \"string\"? (character 3 of the schema)");
    let error = parse_ddl("a quaternion").expect_err("an unknown type");
    assert!(error.message.contains("there are boolean, tinyint"), "{error}");
}

#[test]
fn deep_types_are_an_error_and_not_an_abort() {
    let nested = |levels: usize| format!("a {}int{}", "array<".repeat(levels), ">".repeat(levels));
    assert!(parse_ddl(&nested(64)).is_ok());
    for levels in [65, 100_000] {
        let error = parse_ddl(&nested(levels)).expect_err("too deep");
        assert_eq!(error.message, "types nest more than 64 levels deep");
    }
}

#[test]
fn types_without_a_word_in_ddl_are_refused() {
    for data_type in [DataType::UInt8, DataType::Date64, DataType::Timestamp(TimeUnit::Millisecond, None)] {
        let fields: Fields = vec![Field::new("a", data_type, true)].into();
        let error = to_ddl(&fields).expect_err("no word");
        assert!(error.message.starts_with("DDL has no word for the type "), "{error}");
        assert_eq!(error.position, None);
    }
}
