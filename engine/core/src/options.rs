//! Options given as strings, as Spark users know them: names match in any case, a name that nobody takes is an error.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::{Error, Result, code};

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
    fn names_match_in_any_case_and_values_do_not_print() {
        let mut options = Options::new();
        options.set("KAFKA.sasl.password", "hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(options.take_prefixed("kafka."), [("sasl.password".to_owned(), "hunter2".to_owned())]);
        assert!(options.finish("kafka").is_ok());
    }
}
