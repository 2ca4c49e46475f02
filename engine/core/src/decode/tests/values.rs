//! Numbers, decimals, nulls and nesting.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};

use super::{BAD, NULL, bad_rows, check, check_ddl, decode, list_of, shown};

#[test]
fn numbers_are_never_silently_changed() {
    let table = [
        ("bigint", "9223372036854775807", "9223372036854775807"),
        ("bigint", "-9223372036854775808", "-9223372036854775808"),
        ("bigint", "9223372036854775808", BAD),
        ("bigint", "-9223372036854775809", BAD),
        ("bigint", "99999999999999999999999999999999999999999", BAD),
        ("bigint", "1.0", BAD),
        ("bigint", "1.9", BAD),
        ("bigint", "1e3", BAD),
        ("bigint", "\"12\"", BAD),
        ("bigint", "007", BAD),
        ("bigint", "00", BAD),
        ("bigint", "0", "0"),
        ("bigint", "-0", "0"),
        ("bigint", "-", BAD),
        ("bigint", "+1", BAD),
        ("bigint", "0x10", BAD),
        ("bigint", "1_000", BAD),
        ("bigint", "NaN", BAD),
        ("bigint", "true", BAD),
        ("bigint", "[]", BAD),
        ("int", "2147483647", "2147483647"),
        ("int", "2147483648", BAD),
        ("int", "-2147483648", "-2147483648"),
        ("int", "-2147483649", BAD),
        ("smallint", "32768", BAD),
        ("smallint", "-32768", "-32768"),
        ("tinyint", "127", "127"),
        ("tinyint", "128", BAD),
        ("double", "1", "1.0"),
        ("double", "-1.5e-3", "-0.0015"),
        ("double", "9007199254740993", "9007199254740992.0"),
        ("double", "1e400", BAD),
        ("double", "-1e400", BAD),
        ("double", "1e-400", "0.0"),
        ("double", "NaN", BAD),
        ("double", "\"NaN\"", BAD),
        ("double", "Infinity", BAD),
        ("double", "-Infinity", BAD),
        ("double", "\"1.5\"", BAD),
        ("double", "1.", BAD),
        ("double", ".5", BAD),
        ("double", "01.5", BAD),
        ("double", "1e", BAD),
        ("double", "1e+", BAD),
        ("double", "1.5E+2", "150.0"),
        ("float", "16777217", "16777216.0"),
        ("float", "1e39", BAD),
        ("float", "3.4028235e38", "3.4028235e38"),
        ("boolean", "true", "true"),
        ("boolean", "false", "false"),
        ("boolean", "1", BAD),
        ("boolean", "\"true\"", BAD),
        ("boolean", "True", BAD),
        ("boolean", "tru", BAD),
        ("boolean", "truex", BAD),
    ];
    for (data_type, json, expected) in table {
        check_ddl(data_type, json, expected);
    }
    let unsigned = [
        (DataType::UInt8, "255", "255"),
        (DataType::UInt8, "999", BAD),
        (DataType::UInt8, "-1", BAD),
        (DataType::UInt16, "65536", BAD),
        (DataType::UInt32, "4294967295", "4294967295"),
        (DataType::UInt64, "18446744073709551615", "18446744073709551615"),
        (DataType::UInt64, "18446744073709551616", BAD),
        (DataType::UInt64, "-1", BAD),
    ];
    for (data_type, json, expected) in unsigned {
        check(&data_type, json, expected);
    }
}

#[test]
fn trailing_commas_and_other_loose_json_are_bad() {
    let messages = [
        r#"{"a":1,}"#,
        r#"{,"a":1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a" 1}"#,
        r#"{a:1}"#,
        r#"{'a':1}"#,
        r#"{"a":1}x"#,
        r#"{"a":1},"#,
        r#"{"a":1}]"#,
        r#"{"a":}"#,
        r#"{"a""#,
        r#"{"a":1"#,
        r#"{"a":1]"#,
        r#"{"b":[1,],"a":1}"#,
        r#"{"b":[1 2],"a":1}"#,
        r#"{"b":{"c":1,},"a":1}"#,
        r#"{"b":[}],"a":1}"#,
        r#"{"b":007,"a":1}"#,
        r#"{"b":"\x","a":1}"#,
        r#"{"b":nul,"a":1}"#,
        r#"{"b":nulla,"a":1}"#,
        r#"{"a":1}/*c*/"#,
        r#"// c"#,
        r#"{"b":,"a":1}"#,
    ];
    for message in messages {
        let decoded = decode("a bigint", &[message]);
        assert_eq!(bad_rows(&decoded), [0], "{message}");
        assert_eq!(shown(&decoded.rows, "a", 0), NULL, "{message}");
    }
    let decoded = decode("a bigint", &["\t\r\n {\n\"b\" : [ 1 , { } , [ ] ] ,\r\"a\"\t:\n1 } \n"]);
    assert_eq!((bad_rows(&decoded), shown(&decoded.rows, "a", 0)), (vec![], "1".into()));
}

#[test]
fn doubles_and_floats_are_the_nearest() {
    let texts = [
        "0.1",
        "123.456",
        "1e23",
        "8.41e21",
        "9007199254740993",
        "5e-324",
        "2.4703282292062328e-324",
        "1.7976931348623157e308",
        "2.2250738585072011e-308",
        "0.000001",
        "123456789012345678",
        "12345678901234567890123",
        "6.02214076e23",
        "9007199254740992.5",
        "0.30000000000000004",
        "16777217.0000001",
        "-0.0",
        "-0",
        "0e99999",
        "1.0000000000000002",
        "4503599627370497.5",
        "0.1234567890123456",
        "99999999999999.99",
    ];
    let messages: Vec<_> = texts.iter().map(|text| format!(r#"{{"d":{text},"f":{text}}}"#)).collect();
    let decoded = decode("d double", &messages);
    assert_eq!(decoded.bad, []);
    for (row, text) in texts.iter().enumerate() {
        let expected: f64 = text.parse().expect("a number");
        let got = decoded.rows.column(0).as_primitive::<Float64Type>().value(row);
        assert_eq!(got.to_bits(), expected.to_bits(), "{text}");
    }
    let decoded = decode("f float", &messages);
    for (row, text) in texts.iter().enumerate() {
        let expected: f32 = text.parse().expect("a number");
        let column = decoded.rows.column(0).as_primitive::<Float32Type>();
        let got = column.is_valid(row).then(|| column.value(row).to_bits());
        assert_eq!(got, expected.is_finite().then_some(expected.to_bits()), "{text}");
    }
}

#[test]
fn decimals_round_half_up_and_refuse_what_does_not_fit() {
    let table = [
        ("decimal(10,2)", "1.239", "1.24"),
        ("decimal(10,2)", "-1.235", "-1.24"),
        ("decimal(10,2)", "\"1.235\"", "1.24"),
        ("decimal(10,2)", "1.234", "1.23"),
        ("decimal(10,2)", "1.5e2", "150.00"),
        ("decimal(10,2)", "1.5E-2", "0.02"),
        ("decimal(10,2)", "12345678901", BAD),
        ("decimal(10,2)", "99999999.99", "99999999.99"),
        ("decimal(10,2)", "99999999.995", BAD),
        ("decimal(10,2)", "0.005", "0.01"),
        ("decimal(10,2)", "0.00499999999999999999999999999999999999999999", "0.00"),
        ("decimal(10,2)", "-0.004", "0.00"),
        ("decimal(10,2)", "0", "0.00"),
        ("decimal(10,2)", "-0.0", "0.00"),
        ("decimal(10,2)", "0e999999999999999999999", "0.00"),
        ("decimal(10,2)", "1e999999999999999999999", BAD),
        ("decimal(10,2)", "1e-999999999999999999999", "0.00"),
        ("decimal(10,2)", "100e-2", "1.00"),
        ("decimal(10,2)", "0.00001e7", "100.00"),
        ("decimal(5,2)", "123456.78", BAD),
        ("decimal(5,2)", "999.994", "999.99"),
        ("decimal(5,2)", "999.995", BAD),
        ("decimal(2,2)", "0.994", "0.99"),
        ("decimal(2,2)", "1", BAD),
        ("decimal(38,0)", "99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
        ("decimal(38,0)", "99999999999999999999999999999999999999.5", BAD),
        ("decimal(38,0)", "100000000000000000000000000000000000000", BAD),
        ("decimal(38,38)", "0.99999999999999999999999999999999999999", "0.99999999999999999999999999999999999999"),
        ("decimal(10,2)", "\"\"", BAD),
        ("decimal(10,2)", "\" 1\"", BAD),
        ("decimal(10,2)", "\"1,5\"", BAD),
        ("decimal(10,2)", "\"007\"", BAD),
        ("decimal(10,2)", "\"NaN\"", BAD),
        ("decimal(10,2)", "true", BAD),
        ("decimal(10,2)", "007", BAD),
    ];
    for (data_type, json, expected) in table {
        check_ddl(data_type, json, expected);
    }
    check(&DataType::Decimal128(3, -2), "12350", "12400");
    check(&DataType::Decimal128(3, -2), "1235000", BAD);
}

#[test]
fn null_missing_and_nested_non_null() {
    let ddl = "s struct<x: bigint not null>, r string not null";
    let messages = [
        r#"{"r":"a","s":null}"#,
        r#"{"r":"a","s":{}}"#,
        r#"{"r":"a"}"#,
        r#"{"s":{"x":1}}"#,
        r#"{"r":"a","s":{"x":7}}"#,
        r#"{"r":null,"s":{"x":7}}"#,
        r#"{"r":"a","s":{"x":null}}"#,
    ];
    let decoded = decode(ddl, &messages);
    assert_eq!(bad_rows(&decoded), [1, 3, 5, 6]);
    let structs = decoded.rows.column(0).as_struct();
    let nulls: Vec<_> = (0..7).map(|row| structs.is_null(row)).collect();
    assert_eq!(nulls, [true, true, true, true, false, true, true]);
    assert!((0..7).all(|row| structs.column(0).is_null(row) == (row != 4)), "null, not 0");
    let reasons: Vec<_> = decoded.bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "field \"s.x\": is missing, and must not be null (byte 15)",
            "field \"r\": is missing, and must not be null (byte 13)",
            "field \"r\": is null, and must not be (byte 5)",
            "field \"s.x\": is null, and must not be (byte 18)",
        ]
    );

    check(&list_of(DataType::Int64, false), "[1,null]", BAD);
    check(&list_of(DataType::Int64, false), "[1,2]", "[1, 2]");
    check(&list_of(DataType::Int64, true), "[1,null]", "[1, ]");
    check_ddl("bigint", "null", NULL);
    check_ddl("bigint", "nul", BAD);
    check_ddl("struct<x: bigint>", "{}", "{x: }");
    check_ddl("struct<>", "{\"y\":1}", "{}");
}

#[test]
fn nested_values_stay_aligned_when_a_row_breaks_half_way() {
    let ddl = "a array<struct<k: string, v: array<int>>>, m map<string, array<double>>, b binary, c boolean";
    let good = r#"{"a":[{"k":"x","v":[1,2]},null,{"v":[]}],"m":{"p":[1.5],"q":null},"b":"AQID","c":true}"#;
    let shown_good = ["[{k: x, v: [1, 2]}, , {k: , v: []}]", "{p: [1.5], q: }", "010203", "true"];
    // The good row cut at every byte, each between two whole ones.
    let messages: Vec<&str> = (0..good.len()).flat_map(|end| [good, &good[..end]]).chain([good]).collect();
    let decoded = decode(ddl, &messages);
    assert_eq!(bad_rows(&decoded), (0..good.len()).map(|cut| cut * 2 + 1).collect::<Vec<_>>());
    for row in 0..messages.len() {
        let got = ["a", "m", "b", "c"].map(|field| shown(&decoded.rows, field, row));
        let expected = if row % 2 == 0 { shown_good.map(String::from) } else { [NULL; 4].map(String::from) };
        assert_eq!(got, expected, "row {row}");
    }
    let items = decoded.rows.column(0).as_list::<i32>().values().len();
    assert_eq!(items, 3 * (good.len() + 1), "nothing of a bad row lies hidden in the items");
}

#[test]
fn last_of_a_repeated_key_wins_and_each_must_fit() {
    let table = [
        (r#"{"a":1,"a":2}"#, "2", NULL),
        (r#"{"a":1,"s":{"x":[1,2],"x":[3]},"a":null}"#, NULL, "{x: [3]}"),
        (r#"{"s":{"x":[1]},"a":1,"s":{}}"#, "1", "{x: }"),
        (r#"{"a":"x","a":2}"#, BAD, BAD),
        (r#"{"a":2,"a":"x"}"#, BAD, BAD),
    ];
    for (message, a, s) in table {
        let decoded = decode("a bigint, s struct<x: array<int>>", &[r#"{"a":7}"#, message, r#"{"a":8}"#]);
        let got = if decoded.bad.is_empty() {
            ["a", "s"].map(|field| shown(&decoded.rows, field, 1))
        } else {
            [BAD; 2].map(String::from)
        };
        assert_eq!(got, [a, s], "{message}");
        assert_eq!([0, 2].map(|row| shown(&decoded.rows, "a", row)), ["7", "8"], "{message}");
    }
    check_ddl("map<string, int>", r#"{"k":1,"l":2,"k":3}"#, BAD);
    let many = |last: &str| {
        let entries: Vec<_> = (0..50).map(|key| format!("\"k{key}\":{key}")).collect();
        format!("{{\"m\":{{{},\"{last}\":0}}}}", entries.join(","))
    };
    let decoded = decode("m map<string, int>", &[many("k50"), many("k7")]);
    assert_eq!(bad_rows(&decoded), [1]);
    assert_eq!(decoded.bad[0].reason, "field \"m\": map key \"k7\" comes twice (byte 5)");
}

#[test]
fn fields_are_found_in_any_order_by_exact_name() {
    let names: Vec<_> = (0..20).map(|number| format!("f{number}")).collect();
    let ddl = names.iter().map(|name| format!("{name} int")).collect::<Vec<_>>().join(", ");
    let entries: Vec<_> = (0..20).map(|number| format!("\"f{number}\":{number}")).collect();
    let reversed: Vec<_> = entries.iter().rev().cloned().collect();
    let spread: Vec<_> = (0..20).map(|number| entries[number * 7 % 20].clone()).collect();
    let messages =
        [entries, reversed, spread].map(|entries| format!(r#"{{"F0":9,{},"f20":9,"f":9}}"#, entries.join(",")));
    let decoded = decode(&ddl, &messages);
    assert_eq!(decoded.bad, []);
    for row in 0..3 {
        for (number, name) in names.iter().enumerate() {
            assert_eq!(shown(&decoded.rows, name, row), number.to_string(), "{name} in row {row}");
        }
    }
    // Names that JSON may or must escape.
    let decoded = decode(
        "`a\"b` int, `é` int, `` ` `` int".replace("`` ` ``", "```c`").as_str(),
        &[r#"{"a\"b":1,"é":2,"`c":3}"#, r#"{"\u0061\u0022b":1,"\u00e9":2,"\u0060c":3}"#, r#"{"a"b":1}"#],
    );
    assert_eq!(bad_rows(&decoded), [2]);
    for row in 0..2 {
        assert_eq!(["a\"b", "é", "`c"].map(|field| shown(&decoded.rows, field, row)), ["1", "2", "3"]);
    }
}

#[test]
fn large_and_view_layouts_are_kept() {
    check(&DataType::LargeUtf8, "\"x\"", "x");
    check(&DataType::Utf8View, "\"a text longer than twelve bytes\"", "a text longer than twelve bytes");
    check(&DataType::LargeBinary, "\"AQ==\"", "01");
    check(&DataType::BinaryView, "\"AQ==\"", "01");
    check(&DataType::LargeList(Arc::new(Field::new_list_field(DataType::Int8, false))), "[1,2]", "[1, 2]");
}
