//! Options given as strings, as Spark users know them: names match in any case, a name that nobody takes is an error.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result, code};

/// What one option is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Its full name.
    pub name: &'static str,
    /// What it takes.
    pub takes: &'static str,
    /// What it is if it is not given; empty if it is required, or if there is nothing then.
    pub default: &'static str,
    /// Where it applies: to streams, to reads of a range, or to both.
    pub applies: Applies,
    /// What it is called in Spark; empty if Spark has none.
    pub spark: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Where an option applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// To streams alone.
    Stream,
    /// To static reads alone.
    Batch,
    /// To both.
    Both,
}

impl Applies {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Applies::Stream => "stream",
            Applies::Batch => "batch",
            Applies::Both => "both",
        }
    }
}

/// The options of one reader or writer. Every option must be taken by somebody: [`Options::finish`] names the others.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Lower-case name → (name as given, value). Values may be secrets: `Debug` of the taker decides what prints.
    given: BTreeMap<String, (String, Value)>,
    /// Every name that was asked for, as documented: what a misspelt one is compared with.
    known: Vec<String>,
}

/// A value that does not print: any of them may be a password.
#[derive(Clone)]
struct Value(String);

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Options {
    /// No options.
    pub fn new() -> Self {
        Options::default()
    }

    /// Sets an option; the last value of a name wins.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.given.insert(name.to_lowercase(), (name.to_owned(), Value(value.into())));
    }

    /// Whether an option was given.
    pub fn contains(&self, name: &str) -> bool {
        self.given.contains_key(&name.to_lowercase())
    }

    /// Takes an option's text.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.known.push(name.to_owned());
        self.given.remove(&name.to_lowercase()).map(|(_, value)| value.0)
    }

    /// Takes an option's text; an error if it was not given.
    pub fn require(&mut self, name: &str, meaning: &str) -> Result<String> {
        self.take(name).ok_or_else(|| {
            Error::new(code::MISSING_OPTION, format!("option \"{name}\" is missing"))
                .fix(format!("set .option(\"{name}\", …): {meaning}"))
        })
    }

    /// Takes and parses an option. `expected` says in words what it takes, such as "a positive whole number".
    pub fn parse<T: FromStr>(&mut self, name: &str, expected: &str) -> Result<Option<T>> {
        self.parse_with(name, expected, |text| text.trim().parse().ok())
    }

    /// Takes a length of time as Spark writes it: a whole number and a unit (`us`, `ms`, `s`, `m` or `min`, `h`, `d`), or a
    /// number of milliseconds.
    pub fn parse_duration(&mut self, name: &str) -> Result<Option<Duration>> {
        self.parse_with(name, "a length of time, such as 500ms, 30s, 15m, 1h", read_duration)
    }

    /// Takes `true` or `false`, in any case.
    pub fn parse_bool(&mut self, name: &str) -> Result<Option<bool>> {
        self.parse_with(name, "true or false", |text| text.trim().to_lowercase().parse().ok())
    }

    /// Takes an option and reads it with `read`, which answers `None` to a text that it does not understand.
    pub fn parse_with<T>(&mut self, name: &str, expected: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match read(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::new(code::INVALID_OPTION, format!("option \"{name}\" is \"{text}\""))
                .fix(format!("it takes {expected}"))),
        }
    }

    /// Takes every option whose name begins with `prefix` (in any case), without the prefix, names as they were given.
    pub fn take_prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let lower = prefix.to_lowercase();
        let names: Vec<String> = self.given.keys().filter(|name| name.starts_with(&lower)).cloned().collect();
        let taken = names.iter().filter_map(|name| self.given.remove(name));
        taken.map(|(name, value)| (name[prefix.len()..].to_owned(), value.0)).collect()
    }

    /// The end of reading options: an option that is left is one that nobody knows.
    pub fn finish(self, owner: &str) -> Result<()> {
        let Some((name, _)) = self.given.into_values().next() else { return Ok(()) };
        let error = Error::new(code::UNKNOWN_OPTION, format!("{owner} has no option \"{name}\""));
        Err(match nearest(&name, self.known.iter().map(String::as_str)) {
            Some(known) => error.fix(format!("did you mean \"{known}\"?")),
            None => error.fix(format!("it has: {}", self.known.join(", "))),
        })
    }
}

fn read_duration(text: &str) -> Option<Duration> {
    let text = text.trim().to_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    let seconds = |each: u64| number.checked_mul(each).map(Duration::from_secs);
    match unit.trim() {
        "us" => Some(Duration::from_micros(number)),
        "" | "ms" => Some(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" | "min" => seconds(60),
        "h" => seconds(60 * 60),
        "d" => seconds(24 * 60 * 60),
        _ => None,
    }
}

/// The known name that a misspelt one most likely means, if one is near.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    known
        .map(|known| (strsim::damerau_levenshtein(&name, &known.to_lowercase()), known))
        .filter(|(distance, known)| *distance <= (known.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_option_is_refused_with_the_nearest_known_one() {
        let mut options = Options::new();
        options.set("startingOffset", "earliest");
        assert_eq!(options.take("startingOffsets"), None);
        let error = options.finish("kafka").expect_err("refused");
        assert_eq!(error.code(), code::UNKNOWN_OPTION);
        assert!(error.to_string().ends_with("did you mean \"startingOffsets\"?"), "{error}");
    }

    #[test]
    fn lengths_of_time_are_read_as_spark_writes_them() {
        for (text, expected_us) in [
            ("15m", Some(900_000_000)),
            (" 2 MIN ", Some(120_000_000)),
            ("250", Some(250_000)),
            ("250ms", Some(250_000)),
            ("7us", Some(7)),
            ("1h", Some(3_600_000_000)),
            ("1d", Some(86_400_000_000)),
            ("0s", Some(0)),
            ("", None),
            ("m", None),
            ("-1s", None),
            ("1.5s", None),
            ("3 weeks", None),
            ("99999999999999999999s", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(read_duration(text), expected_us.map(Duration::from_micros), "{text}");
        }
    }

    #[test]
    fn names_match_in_any_case_and_values_do_not_print() {
        let mut options = Options::new();
        options.set("KAFKA.sasl.password", "hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(options.take_prefixed("kafka."), [("sasl.password".to_owned(), "hunter2".to_owned())]);
        assert!(options.finish("kafka").is_ok());
    }
}
