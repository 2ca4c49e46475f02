//! The words of the model, packed so that a state is a handful of machine words.
//!
//! A [`Range`] fits a byte, an [`Attempt`] two, an entry's [`Body`] two, and a [`Row`] is four bodies in one `u64`. An
//! unoptimised build then copies, compares and hashes states in word operations; everything outside this file uses the
//! accessors and never sees a bit.

use std::fmt;

/// Most micro-batches a run can have.
pub const BATCHES: usize = 3;
/// Most sinks a query can have.
pub const SINKS: usize = 2;
/// Most attempts a run can stage.
pub const ATTEMPTS: usize = 16;
/// Files that one attempt stages. With two sinks, file `i` belongs to sink `i`; with one, both belong to it.
pub const FILES: [u8; 2] = [0, 1];

/// Offsets `[start, end)`. Never empty, so its bits are never all zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Range(u8);

impl Range {
    /// Four bits each.
    pub fn new(start: u8, end: u8) -> Self {
        assert!(start < end && end < 15, "a range of the model is short and not empty");
        Self(start << 4 | end)
    }

    /// First offset read.
    pub fn start(self) -> u8 {
        self.0 >> 4
    }

    /// Next offset to read.
    pub fn end(self) -> u8 {
        self.0 & 15
    }
}

/// One execution of a micro-batch: its number, the range it read, and a number no other execution has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Attempt(u16);

impl Attempt {
    /// Two bits of batch, six of identity, eight of range.
    pub fn new(batch_id: u8, range: Range, id: u8) -> Self {
        assert!((id as usize) < ATTEMPTS, "more attempts than the model keeps");
        Self(u16::from(batch_id) << 14 | u16::from(id) << 8 | u16::from(range.0))
    }

    /// The micro-batch that was executed.
    pub fn batch_id(self) -> u8 {
        (self.0 >> 14) as u8
    }

    /// What makes this attempt differ from another one over the same range.
    pub fn id(self) -> u8 {
        (self.0 >> 8) as u8 & 63
    }

    /// What it read.
    pub fn range(self) -> Range {
        Range(self.0 as u8)
    }
}

/// What stands under a name: nothing, something unreadable, a range (`offsets`, a marker) or an attempt (the others).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Body(u16);

impl Body {
    /// No such name.
    pub const ABSENT: Self = Self(0);
    /// The name is there, its bytes are damaged.
    pub const TORN: Self = Self(u16::MAX);

    /// Nothing stands under the name.
    pub fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// The entry can be read.
    pub fn is_readable(self) -> bool {
        self.0 != 0 && self.0 != u16::MAX
    }

    /// As an attempt, for a body that was written as one.
    pub fn attempt(self) -> Attempt {
        assert!(self.is_readable(), "only a readable entry names an attempt");
        Attempt(self.0)
    }

    /// As a range, for a body that was written as one.
    pub fn range(self) -> Range {
        assert!(self.is_readable() && self.0 < 256, "only a readable entry names a range");
        Range(self.0 as u8)
    }

    /// For packing into a fingerprint.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }
}

impl From<Range> for Body {
    fn from(range: Range) -> Self {
        Self(u16::from(range.0))
    }
}

impl From<Attempt> for Body {
    fn from(attempt: Attempt) -> Self {
        Self(attempt.0)
    }
}

/// Four bodies. A lane is a revision (`offsets/N`, `acks/N`: a row a batch) or a batch (commits, a sink's manifests).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Row(u64);

impl Row {
    /// The body in one lane.
    pub fn get(self, lane: u8) -> Body {
        assert!(lane < 4, "a row has four lanes");
        Body((self.0 >> (lane * 16)) as u16)
    }

    /// Replaces the body in one lane.
    pub fn set(&mut self, lane: u8, body: Body) {
        assert!(lane < 4, "a row has four lanes");
        self.0 = self.0 & !(0xffff << (lane * 16)) | body.bits() << (lane * 16);
    }

    /// No lane holds anything.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One more than the highest lane that holds something: the next free revision.
    pub fn len(self) -> u8 {
        4 - (self.0.leading_zeros() / 16) as u8
    }

    /// The lowest readable lane: of several revisions, the one that binds.
    pub fn binding(self) -> Option<Body> {
        let mut lane = 0;
        while lane < 4 {
            let body = self.get(lane);
            if body.is_readable() {
                return Some(body);
            }
            lane += 1;
        }
        None
    }

    /// The row as a word, for a fingerprint.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The kinds of entry that are created, each under a name that can be created once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `offsets/N`: what batch N reads.
    Offsets,
    /// `acks/N`: what it wrote.
    Acks,
    /// A sink's record that N is visible.
    Manifest,
    /// `commits/N`: N counts.
    Commits,
}

impl Kind {
    /// Every kind, in the order in which a batch creates them.
    pub const ALL: [Self; 4] = [Self::Offsets, Self::Acks, Self::Manifest, Self::Commits];
}

/// A create-if-absent that a driver has in hand. `lane` is the revision, for a manifest the sink.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// What is created.
    pub kind: Kind,
    /// For which batch.
    pub batch_id: u8,
    /// Which revision, or which sink.
    pub lane: u8,
    /// With which content.
    pub body: Body,
}

impl Write {
    /// All of it in the low 32 bits.
    pub fn bits(self) -> u64 {
        (self.kind as u64) << 24 | u64::from(self.batch_id) << 20 | u64::from(self.lane) << 16 | self.body.bits()
    }
}

/// Folds one word into a fingerprint. For a fixed `hash` no two words collide, and for a fixed word no two hashes. Only
/// fingerprints go in as `hash`, never raw words: two of those would be interchangeable.
pub fn mix(hash: u64, word: u64) -> u64 {
    let once = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let twice = (once ^ once >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    twice ^ twice >> 32
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},{})", self.start(), self.end())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of batch {} over {}", self.id(), self.batch_id(), self.range())
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ABSENT => write!(f, "nothing"),
            Self::TORN => write!(f, "torn"),
            Self(bits) if bits < 256 => write!(f, "{}", self.range()),
            _ => write!(f, "{}", self.attempt()),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { batch_id, lane, body, .. } = self;
        match (self.kind, lane) {
            (Kind::Manifest, _) => write!(f, "manifest {batch_id} of sink {lane} = {body}"),
            (Kind::Commits, _) => write!(f, "commits/{batch_id} = {body}"),
            (Kind::Offsets, 0) => write!(f, "offsets/{batch_id} = {body}"),
            (Kind::Offsets, _) => write!(f, "offsets/{batch_id}.r{lane} = {body}"),
            (Kind::Acks, 0) => write!(f, "acks/{batch_id} = {body}"),
            (Kind::Acks, _) => write!(f, "acks/{batch_id}.r{lane} = {body}"),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lanes: Vec<_> = (0..self.len()).map(|lane| self.get(lane).to_string()).collect();
        write!(f, "{lanes:?}")
    }
}

/// What a person wants to see of a packed word is what it means.
macro_rules! debug_as_display {
    ($($word:ty),*) => {$(
        impl fmt::Debug for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    )*};
}

debug_as_display!(Range, Attempt, Body, Row, Write);
