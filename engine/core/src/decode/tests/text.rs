//! Strings, binaries, bytes that are not quite JSON, and nesting meant to kill.

use super::{BAD, NULL, bad_rows, check_ddl, decode, shown};

#[test]
fn bytes_that_are_not_quite_json_are_bad_each_alone() {
    let utf16: Vec<u8> = r#"{"a":"x"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let table: [(&[u8], &str, &str); 14] = [
        (b"\xEF\xBB\xBF{\"a\":\"x\"}", BAD, "the message begins with a byte order mark (byte 0)"),
        (b"{\"a\":\"x\xFFy\"}", BAD, "invalid UTF-8 (byte 7)"),
        (b"{\"a\":\"\\ud800\"}", BAD, "field \"a\": lone surrogate in a string (byte 6)"),
        (b"{\"a\":\"x\\u0000y\"}", "x\0y", ""),
        (b"{\"a\":\"x\"}\0", BAD, "expected the end of the message, found byte 0x00 (byte 9)"),
        (&utf16, BAD, "expected a string, found byte 0x00 (byte 1)"),
        (b"[{\"a\":\"x\"}]", BAD, "expected an object, found an array (byte 0)"),
        (b"5", BAD, "expected an object, found a number (byte 0)"),
        (b"null", BAD, "expected an object, found null (byte 0)"),
        (b"true", BAD, "expected an object, found the boolean true (byte 0)"),
        (b"hello", BAD, "expected an object, found \"hello\" (byte 0)"),
        (b"{\"b\":\"\xC0\x80\",\"a\":\"x\"}", BAD, "invalid UTF-8 (byte 6)"),
        (b"{\"b\":\"\\udc00\",\"a\":\"x\"}", BAD, "lone surrogate in a string (byte 6)"),
        (b"{\"a\":\"x\ny\"}", BAD, "field \"a\": control character 0x0a in a string (byte 7)"),
    ];
    let messages: Vec<&[u8]> = table.iter().flat_map(|(message, ..)| [*message, b"{\"a\":\"good\"}"]).collect();
    let decoded = decode("a string", &messages);
    let mut bad = decoded.bad.iter();
    for (number, (message, expected, reason)) in table.into_iter().enumerate() {
        let shown_message = String::from_utf8_lossy(message);
        if expected == BAD {
            let got = bad.next().expect("one more bad row");
            assert_eq!((got.row, got.reason.as_str()), (number * 2, reason), "{shown_message}");
        } else {
            assert_eq!(shown(&decoded.rows, "a", number * 2), expected, "{shown_message}");
        }
        assert_eq!(shown(&decoded.rows, "a", number * 2 + 1), "good", "after {shown_message}");
    }
    assert_eq!(bad.next(), None);
}

#[test]
fn strings_and_escapes() {
    let table = [
        (r#""""#, ""),
        (r#""plain""#, "plain"),
        (r#""exactly8""#, "exactly8"),
        (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
        (
            r#""a long run of text, then \u00e9 and more text after it""#,
            "a long run of text, then é and more text after it",
        ),
        (r#""\ud83d\ude00""#, "😀"),
        (r#""😀 é ü""#, "😀 é ü"),
        (r#""\u2028\u007f""#, "\u{2028}\u{7f}"),
        (r#""\uFFFF\uDBFF\uDFFF""#, "\u{ffff}\u{10ffff}"),
        (r#""\ud83d""#, BAD),
        (r#""\ud83dx""#, BAD),
        (r#""\ud83d\u0041""#, BAD),
        (r#""\ude00\ud83d""#, BAD),
        (r#""\ud83d\ud83d\ude00""#, BAD),
        (r#""\u12""#, BAD),
        (r#""\u12g4""#, BAD),
        (r#""\u+123""#, BAD),
        (r#""\U0041""#, BAD),
        (r#""\'""#, BAD),
        (r#""\""#, BAD),
        ("\"\u{1f}\"", BAD),
        ("\"12345678\u{0}\"", BAD),
        ("\"\u{7f}\u{80}\"", "\u{7f}\u{80}"),
        ("'x'", BAD),
    ];
    for (json, expected) in table {
        check_ddl("string", json, expected);
    }
    // Every length and place of a quote within a word of eight.
    for length in 0..40 {
        let text: String = "abcdefghij".chars().cycle().take(length).collect();
        check_ddl("string", &format!("\"{text}\""), &text);
        check_ddl("string", &format!("\"{text}\\n{text}\""), &format!("{text}\n{text}"));
        check_ddl("string", &format!("\"{text}\u{3}{text}\""), BAD);
    }
}

#[test]
fn string_column_takes_the_json_text_of_other_values() {
    let table = [
        ("12", "12"),
        ("1.50", "1.50"),
        ("1e400", "1e400"),
        ("true", "true"),
        (r#"{"b": [1, "x\n"] }"#, r#"{"b": [1, "x\n"] }"#),
        ("[ ]", "[ ]"),
        ("null", NULL),
        ("007", BAD),
        ("[1,]", BAD),
        (r#"{"b"}"#, BAD),
        ("nope", BAD),
    ];
    for (json, expected) in table {
        check_ddl("string", json, expected);
    }
}

#[test]
fn binary_is_padded_base64() {
    let table = [
        (r#""""#, ""),
        (r#""Zg==""#, "66"),
        (r#""Zm8=""#, "666f"),
        (r#""Zm9v""#, "666f6f"),
        (r#""Zm9vYmFy""#, "666f6f626172"),
        (r#""+\/+/""#, "fbffbf"),
        (r#""Zg""#, BAD),
        (r#""Zg=""#, BAD),
        (r#""Zh==""#, BAD),
        (r#""Zm9=""#, BAD),
        (r#""Z===""#, BAD),
        (r#""====""#, BAD),
        (r#""Zg==Zg==""#, BAD),
        (r#""Zm9-""#, BAD),
        (r#""Zm 9v""#, BAD),
        ("12", BAD),
    ];
    for (json, expected) in table {
        check_ddl("binary", json, expected);
    }
}

#[test]
fn deep_nesting_is_a_bad_row_on_a_small_stack() {
    let run = || {
        for (key, levels, is_bad) in
            [("a", 100_000, true), ("u", 100_000, true), ("u", 5_000_000, true), ("u", 128, true), ("u", 127, false)]
        {
            for (open, close) in [("[", "]"), (r#"{"k":"#, "}")] {
                let inner = if open == "[" { "" } else { "1" };
                let nested = format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
                for ddl in ["a bigint", "a string"] {
                    let decoded = decode(ddl, &[format!(r#"{{"{key}":{nested}}}"#), r#"{"a":2}"#.to_owned()]);
                    let at = format!("{levels} levels of {open} in {key}, {ddl}");
                    assert_eq!(bad_rows(&decoded), if is_bad { vec![0] } else { vec![] }, "{at}");
                    assert!(decoded.bad.iter().all(|bad| bad.reason.chars().count() <= 200), "{at}");
                    assert_eq!(shown(&decoded.rows, "a", 1), "2", "{at}");
                }
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
    thread.join().expect("the process lives");
}

#[test]
fn as_many_levels_as_a_schema_has_are_decoded() {
    let ddl = format!("a {}int{}", "array<".repeat(64), ">".repeat(64));
    let message = format!(r#"{{"a":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
    let decoded = decode(&ddl, &[message]);
    assert_eq!(decoded.bad, []);
}

#[test]
fn reasons_are_one_short_line() {
    let long = "x\ny".repeat(1000);
    let name = "n".repeat(300);
    let messages = [
        format!(r#"{{"a":"{}"}}"#, long.replace('\n', "\\n")),
        format!(r#"{{"a":{}}}"#, "9".repeat(5000)),
        long.clone(),
    ];
    let decoded = decode(&format!("a date, {name} int not null"), &messages);
    assert_eq!(bad_rows(&decoded), [0, 1, 2]);
    let missing = decode(&format!("{name} int not null"), &["{}"]);
    for bad in decoded.bad.iter().chain(&missing.bad) {
        assert!(bad.reason.chars().count() <= 200, "{}", bad.reason);
        assert!(!bad.reason.contains('\n'), "{}", bad.reason);
    }
    assert_eq!(missing.bad[0].reason.chars().count(), 200);
    let ranges = decode("a struct<b: array<int>>", &[r#"{"a":{"b":[1,"x"]}}"#, r#"{"a":{"b":[3000000000]}}"#]);
    let reasons: Vec<_> = ranges.bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "field \"a.b[]\": expected int, found a string (byte 13)",
            "field \"a.b[]\": \"3000000000\" is out of range of int (byte 11)",
        ]
    );
}
