//! The decoder against serde_json: what is taken, what is refused, and which values come out, over seeded random
//! messages and random damage to them.

use arrow::array::{Array, AsArray, StructArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use serde_json::Value;

use super::{binary, decoder, fields};

const DDL: &str = "id bigint, name string, t double, ok boolean, small int, tags array<string>, \
                   n struct<x: bigint not null, y: array<struct<z: double>>>, m map<string, bigint>";

/// xorshift64*: small, and the same everywhere.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A value that mostly fits `kind`.
fn value(rng: &mut Rng, kind: &str, out: &mut String) {
    let kinds = ["bigint", "string", "double", "boolean", "int", "tags", "n", "m", "null", "any"];
    let kind = if rng.below(40) == 0 { rng.pick(&kinds) } else { kind };
    match kind {
        "bigint" => out.push_str(&match rng.below(6) {
            0 => (rng.next() as i64).to_string(),
            1 => rng.pick(&["9223372036854775807", "-9223372036854775808", "9223372036854775808", "0"]).to_owned(),
            _ => (rng.below(2000) as i64 - 1000).to_string(),
        }),
        "int" => out.push_str(&match rng.below(6) {
            0 => (rng.next() as i32).to_string(),
            1 => rng.pick(&["2147483647", "-2147483648", "2147483648"]).to_owned(),
            _ => rng.below(1000).to_string(),
        }),
        "double" => out.push_str(&match rng.below(5) {
            0 => f64::from_bits(rng.next() >> 2).to_string(),
            1 => format!("{}e{}", rng.below(1_000_000), rng.below(60) as i64 - 30),
            2 => format!("{}.{}E+{}", rng.below(100), rng.next(), rng.below(9)),
            _ => format!("{}.{:02}", rng.below(100), rng.below(100)),
        }),
        "string" => string(rng, out),
        "boolean" => out.push_str(rng.pick(&["true", "false"])),
        "tags" => list(rng, out, |rng, out| value(rng, "string", out)),
        "n" => object(rng, out, &[("x", "bigint"), ("y", "ys")]),
        "ys" => list(rng, out, |rng, out| object(rng, out, &[("z", "double"), ("u", "any")])),
        "m" => object(rng, out, &[("k1", "bigint"), ("k2", "bigint"), ("", "bigint")]),
        "any" => match rng.below(4) {
            0 => list(rng, out, |rng, out| value(rng, "any", out)),
            1 => object(rng, out, &[("q", "any"), ("r", "string")]),
            _ => value(rng, "double", out),
        },
        _ => out.push_str("null"),
    }
}

fn string(rng: &mut Rng, out: &mut String) {
    out.push('"');
    for _ in 0..rng.below(14) {
        let piece = [
            "a",
            "Z",
            "0",
            " ",
            "é",
            "😀",
            "\\n",
            "\\\"",
            "\\\\",
            "\\/",
            "\\u0041",
            "\\ud83d\\ude00",
            "\\u0000",
            "{",
            "]",
            ",",
        ];
        out.push_str(rng.pick(&piece));
    }
    out.push('"');
}

fn list(rng: &mut Rng, out: &mut String, item: impl Fn(&mut Rng, &mut String)) {
    out.push('[');
    for number in 0..rng.below(4) {
        if number > 0 {
            out.push(',');
        }
        item(rng, out);
    }
    out.push(']');
}

fn object(rng: &mut Rng, out: &mut String, of: &[(&str, &str)]) {
    out.push('{');
    let mut first = true;
    for (key, kind) in of {
        if rng.below(12) == 0 {
            continue;
        }
        let blank = rng.pick(&["", "", "", " ", "\n\t"]);
        out.push_str(if first { "" } else { "," });
        out.push_str(&format!("{blank}\"{key}\"{blank}:{blank}"));
        first = false;
        value(rng, kind, out);
        out.push_str(blank);
    }
    out.push('}');
}

fn message(rng: &mut Rng) -> Vec<u8> {
    let mut keys = vec![
        ("id", "bigint"),
        ("name", "string"),
        ("t", "double"),
        ("ok", "boolean"),
        ("small", "int"),
        ("tags", "tags"),
        ("n", "n"),
        ("m", "m"),
        ("unknown", "any"),
    ];
    for _ in 0..rng.below(3) {
        let (a, b) = (rng.below(keys.len()), rng.below(keys.len()));
        keys.swap(a, b);
    }
    let mut text = String::new();
    object(rng, &mut text, &keys);
    text.into_bytes()
}

/// Breaks a message, or not: a byte changed, dropped, doubled or put in.
fn damage(rng: &mut Rng, message: &mut Vec<u8>) {
    for _ in 0..rng.below(3) {
        let at = rng.below(message.len());
        let byte = rng.pick(b"\"\\{}[],:0123456789-+.eEtfnu \n\x00\x1f\x7f\xff\xc3\xa9");
        match rng.below(5) {
            0 => message[at] = byte,
            1 => drop(message.remove(at)),
            2 => message.insert(at, byte),
            3 => message.insert(at, message[at]),
            _ => message.truncate(at.max(1)),
        }
        if message.is_empty() {
            message.push(b'{');
        }
    }
}

/// What the schema makes of a message by serde_json's reading of it; `None`: the message is bad.
fn expected(value: &Value) -> Option<()> {
    let row = value.as_object()?;
    let whole =
        |value: &Value, range: std::ops::RangeInclusive<i64>| value.as_i64().is_some_and(|it| range.contains(&it));
    let list =
        |value: &Value, item: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(item));
    let null_or =
        |key: &str, fits: &dyn Fn(&Value) -> bool| row.get(key).is_none_or(|value| value.is_null() || fits(value));
    let y = |item: &Value| {
        item.is_null()
            || item.as_object().is_some_and(|item| item.get("z").is_none_or(|z| z.is_null() || z.is_number()))
    };
    let fits = null_or("id", &|value| whole(value, i64::MIN..=i64::MAX))
        && null_or("t", &Value::is_number)
        && null_or("ok", &Value::is_boolean)
        && null_or("small", &|value| whole(value, i32::MIN.into()..=i32::MAX.into()))
        && null_or("tags", &|value| list(value, &|_| true))
        && null_or("n", &|value| {
            value.is_object()
                && value.get("x").is_some_and(|x| whole(x, i64::MIN..=i64::MAX))
                && value.get("y").is_none_or(|items| items.is_null() || list(items, &y))
        })
        && null_or("m", &|value| {
            value.as_object().is_some_and(|map| map.values().all(|it| it.is_null() || whole(it, i64::MIN..=i64::MAX)))
        });
    fits.then_some(())
}

/// What was decoded, back as JSON, for the fields whose JSON has one form only.
fn check_values(rows: &StructArray, row: usize, value: &Value, message: &str) {
    let of = |key: &str| rows.column_by_name(key).expect("the field is there");
    let json = |key: &str| value.get(key).cloned().unwrap_or(Value::Null);
    let valid = |array: &dyn Array| array.is_valid(row);
    let id = of("id").as_primitive::<Int64Type>();
    assert_eq!(valid(id).then(|| id.value(row)), json("id").as_i64(), "{message}");
    let small = of("small").as_primitive::<Int32Type>();
    assert_eq!(valid(small).then(|| i64::from(small.value(row))), json("small").as_i64(), "{message}");
    let ok = of("ok").as_boolean();
    assert_eq!(valid(ok).then(|| ok.value(row)), json("ok").as_bool(), "{message}");
    let name = of("name").as_string::<i32>();
    if json("name").is_string() || json("name").is_null() {
        assert_eq!(valid(name).then(|| name.value(row)), json("name").as_str(), "{message}");
    }
    let t = of("t").as_primitive::<Float64Type>();
    let expected = json("t").as_f64();
    assert_eq!(valid(t), expected.is_some(), "{message}");
    if let Some(expected) = expected {
        // serde_json as it is built here may miss the nearest double by a few; the other test is exact.
        let distance = t.value(row).to_bits().abs_diff(expected.to_bits());
        assert!(distance <= 8, "{} is not {expected}: {message}", t.value(row));
    }
    let tags = of("tags").as_list::<i32>();
    let expected = json("tags").as_array().map(Vec::len);
    assert_eq!(valid(tags).then(|| tags.value(row).len()), expected, "{message}");
    if let (Some(expected), true) = (json("tags").as_array(), valid(tags)) {
        let items = tags.value(row);
        for (item, expected) in items.as_string::<i32>().iter().zip(expected) {
            assert!(item == expected.as_str() || !(expected.is_string() || expected.is_null()), "{message}");
        }
    }
    let n = of("n").as_struct();
    let x = n.column(0).as_primitive::<Int64Type>();
    assert_eq!(valid(n).then(|| x.value(row)), json("n").get("x").and_then(Value::as_i64), "{message}");
    let m = of("m").as_map();
    let expected: Option<Vec<_>> =
        json("m").as_object().map(|map| map.iter().map(|(key, value)| (key.clone(), value.as_i64())).collect());
    let got: Option<Vec<_>> = valid(m).then(|| {
        let entries = m.value(row);
        let values = entries.column(1).as_primitive::<Int64Type>();
        let mut got: Vec<_> =
            entries.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).zip(values).collect();
        got.sort();
        got
    });
    assert_eq!(got, expected, "{message}");
}

/// Where the two rightly differ: a key that comes twice (each of its values must fit here, in a map none may), `-0`
/// (a whole number here), and numbers beyond a double in places where none is asked for.
fn is_incomparable(message: &[u8], error: Option<&serde_json::Error>) -> bool {
    let text = String::from_utf8_lossy(message);
    error.is_some_and(|error| error.to_string().contains("out of range"))
        || text.contains("-0")
        || has_repeated_key(&text)
}

fn has_repeated_key(text: &str) -> bool {
    struct Unique;
    impl<'de> serde::Deserialize<'de> for Unique {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(UniqueVisitor)
        }
    }
    struct UniqueVisitor;
    impl<'de> serde::de::Visitor<'de> for UniqueVisitor {
        type Value = Unique;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a value without repeated keys")
        }
        fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_unit<E>(self) -> Result<Unique, E> {
            Ok(Unique)
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
            while items.next_element::<Unique>()?.is_some() {}
            Ok(Unique)
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
            let mut keys = std::collections::HashSet::new();
            while let Some((key, _)) = entries.next_entry::<String, Unique>()? {
                if !keys.insert(key) {
                    return Err(serde::de::Error::custom("repeated key"));
                }
            }
            Ok(Unique)
        }
    }
    serde_json::from_str::<Unique>(text).is_err_and(|error| error.to_string().contains("repeated key"))
}

#[test]
fn takes_refuses_and_reads_as_serde_json_does() {
    let decoder = decoder(fields(DDL));
    let (mut good, mut bad, mut skipped) = (0, 0, 0);
    for seed in 1..=60u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let messages: Vec<Vec<u8>> = (0..500)
            .map(|_| {
                let mut message = message(&mut rng);
                damage(&mut rng, &mut message);
                message
            })
            .collect();
        let decoded = decoder.decode(&binary(&messages)).expect("binary messages");
        let mut reported = decoded.bad.iter().map(|bad| bad.row).peekable();
        for (row, message) in messages.iter().enumerate() {
            let shown = format!("seed {seed}, row {row}: {}", message.escape_ascii());
            let parsed = serde_json::from_slice::<Value>(message);
            let is_bad = reported.next_if_eq(&row).is_some();
            if is_incomparable(message, parsed.as_ref().err()) {
                skipped += 1;
                continue;
            }
            let fits = parsed.as_ref().is_ok_and(|value| expected(value).is_some());
            assert_eq!(!is_bad, fits, "{shown}: {:?}", decoded.bad.iter().find(|bad| bad.row == row));
            match parsed {
                Ok(value) if fits => {
                    good += 1;
                    check_values(&decoded.rows, row, &value, &shown);
                }
                _ => {
                    bad += 1;
                    let all_null = decoded.rows.columns().iter().all(|column| column.is_null(row));
                    assert!(all_null && decoded.rows.is_valid(row), "{shown}");
                }
            }
        }
        assert_eq!(reported.next(), None);
    }
    assert!(good > 8000 && bad > 8000 && skipped < 4000, "a fair mix: {good} good, {bad} bad, {skipped} skipped");
}

#[test]
fn doubles_agree_with_the_standard_library() {
    let mut rng = Rng(7);
    let texts: Vec<String> = (0..20_000)
        .map(|_| match rng.below(4) {
            0 => f64::from_bits(rng.next()).to_string(),
            1 => format!("{}.{}", rng.below(1 << 30), rng.below(1 << 30)),
            2 => format!("-0.{:0width$}", rng.below(1000), width = rng.below(22) + 1),
            _ => format!("{}e{}", rng.next(), rng.below(700) as i64 - 350),
        })
        .filter(|text| text.parse::<f64>().is_ok_and(f64::is_finite) && !text.contains("inf"))
        .collect();
    let messages: Vec<_> = texts.iter().map(|text| format!(r#"{{"d":{text}}}"#)).collect();
    let decoded = decoder(fields("d double")).decode(&binary(&messages)).expect("binary messages");
    assert_eq!(decoded.bad, []);
    for (text, got) in texts.iter().zip(decoded.rows.column(0).as_primitive::<Float64Type>().values()) {
        let expected: f64 = text.parse().expect("a number");
        assert_eq!(got.to_bits(), expected.to_bits(), "{text}");
    }
}
