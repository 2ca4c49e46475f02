#![doc = include_str!("FORMAT.md")]
//!
//! # Where things are
//!
//! [`entry`] has the shapes of the files, [`view`] reads them, [`recovery`] decides what a view means, [`Checkpoint`] (in
//! `writer`) creates entries and keeps old drivers out, `purge` deletes what nobody needs.

pub mod entry;
pub(crate) mod purge;
pub mod recovery;
pub mod view;
mod writer;

pub use purge::Retention;
pub use writer::{Checkpoint, CheckpointSettings, Fence, Logged};

use tidemill_core::store::Path;

/// The kinds of numbered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Log {
    /// One a driver start.
    Generations,
    /// What a batch reads.
    Offsets,
    /// What a batch wrote.
    Acks,
    /// That a batch counts.
    Commits,
    /// Which names are dead.
    Boundary,
    /// Which boundaries are dead.
    Purged,
}

impl Log {
    /// The folder's name.
    pub fn folder(self) -> &'static str {
        match self {
            Log::Generations => "generations",
            Log::Offsets => "offsets",
            Log::Acks => "acks",
            Log::Commits => "commits",
            Log::Boundary => "boundary",
            Log::Purged => "purged",
        }
    }

    /// The path of an entry, relative to the checkpoint.
    pub fn path(self, number: u64, revision: u32) -> Path {
        match revision {
            0 => Path::from(format!("{}/{number:020}", self.folder())),
            _ => Path::from(format!("{}/{number:020}.r{revision}", self.folder())),
        }
    }

    /// Number and revision of a file's name; none for what is no entry, such as a temporary file of some store.
    pub fn parse(name: &str) -> Option<(u64, u32)> {
        let (number, revision) = match name.split_once(".r") {
            Some((number, revision)) => (number, revision.parse().ok().filter(|revision| *revision > 0)?),
            None => (name, 0),
        };
        let digits = number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| number.parse().ok()).flatten().map(|number| (number, revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_twenty_digits_and_a_revision() {
        assert_eq!(Log::Offsets.path(7, 0).as_ref(), "offsets/00000000000000000007");
        assert_eq!(Log::Commits.path(7, 2).as_ref(), "commits/00000000000000000007.r2");
        for (name, expected) in [
            ("00000000000000000007", Some((7, 0))),
            ("00000000000000000007.r1", Some((7, 1))),
            ("00000000000000000007.r0", None),
            ("7", None),
            (".00000000000000000007.tmp.0", None),
            ("+0000000000000000007", None),
        ] {
            assert_eq!(Log::parse(name), expected, "{name}");
        }
    }
}
