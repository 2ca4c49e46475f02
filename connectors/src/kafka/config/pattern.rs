//! Topics by a pattern.

use regex::Regex;
use serde::{Deserialize, Serialize};
use tidemill_core::{Error, Result, code};

/// Topics that Kafka keeps for itself: no pattern means them.
const INTERNAL: &[&str] = &["__consumer_offsets", "__transaction_state", "__share_group_state"];

/// A regular expression that a topic's whole name matches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in crate::kafka) struct TopicPattern {
    text: String,
    regex: Regex,
}

impl TopicPattern {
    /// Reads a regular expression.
    pub(in crate::kafka) fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into().trim().to_owned();
        if text.is_empty() {
            return Err(Error::new(code::INVALID_OPTION, "the pattern for topics is empty")
                .at("option", "subscribePattern")
                .fix("give a regular expression for whole names of topics, such as \"sensor-.*\""));
        }
        let regex = Regex::new(&format!("^(?:{text})$")).map_err(|error| {
            let what = format!("\"{text}\" is no regular expression");
            Error::new(code::INVALID_OPTION, what)
                .at("option", "subscribePattern")
                .fix("it takes a regular expression for whole names of topics, such as \"sensor-.*\"")
                .because(error)
        })?;
        Ok(TopicPattern { text, regex })
    }

    /// Whether it means this topic.
    pub(in crate::kafka) fn matches(&self, topic: &str) -> bool {
        self.regex.is_match(topic) && !INTERNAL.contains(&topic)
    }

    /// The text that it was made of.
    pub(in crate::kafka) fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for TopicPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for TopicPattern {}

impl TryFrom<String> for TopicPattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        TopicPattern::new(text)
    }
}

impl From<TopicPattern> for String {
    fn from(pattern: TopicPattern) -> String {
        pattern.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_whole_names_and_no_internal_topics() {
        let matches = |pattern: &str, topic: &str| TopicPattern::new(pattern).expect("read").matches(topic);
        for (pattern, topic, expected) in [
            ("sensor-.*", "sensor-1", true),
            ("sensor-.*", "a-sensor-1", false),
            ("a|b", "a", true),
            ("a|b", "ab", false),
            (".*", "t", true),
            (".*", "__consumer_offsets", false),
            (".*", "__mine", true),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
        assert_eq!(TopicPattern::new("a(").expect_err("refused").code(), code::INVALID_OPTION);
    }
}
