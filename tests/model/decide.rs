//! Recovery: what a driver that has just started does next, as a pure function of what it read.
//!
//! A [`View`] is filled one section a step, and others may go on between two steps. Names at or below the boundary are
//! dead and count as absent. Nothing here reads, writes or remembers.

use super::rules::{Direct, EndsFrom, LostAttempt, Rules, Stale};
use super::words::{Attempt, BATCHES, Range, Row, SINKS, mix};

/// The parts of the store that recovery reads, each in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// `commits/*`
    Commits,
    /// Manifests and markers.
    Sinks,
    /// `acks/*`
    Acks,
    /// `offsets/*`
    Offsets,
    /// The newest `boundary/*`.
    Boundary,
}

/// What recovery has read so far. A section that was not read yet is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Sections read.
    pub reads: u8,
    /// Sinks that publish files: how many of `manifests` mean anything.
    pub sinks: u8,
    /// Highest boundary, −1 for none.
    pub boundary: i8,
    /// A row a batch, a lane a revision.
    pub offsets: [Row; BATCHES],
    /// A row a batch, a lane a revision.
    pub acks: [Row; BATCHES],
    /// A lane a batch.
    pub commits: Row,
    /// A row a sink, a lane a batch.
    pub manifests: [Row; SINKS],
    /// What the direct sink holds: a lane a batch.
    pub markers: Row,
}

impl View {
    /// Nothing was read yet.
    pub fn unread(sinks: u8) -> Self {
        let none = Row::default();
        Self {
            reads: 0,
            sinks,
            boundary: -1,
            offsets: [none; BATCHES],
            acks: [none; BATCHES],
            commits: none,
            manifests: [none; SINKS],
            markers: none,
        }
    }

    /// A word that differs wherever two views differ.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = mix(mix(0, u64::from(self.reads)), self.boundary as u64);
        let mut batch = 0;
        while batch < BATCHES {
            hash = mix(mix(hash, self.offsets[batch].bits()), self.acks[batch].bits());
            batch += 1;
        }
        hash = mix(mix(hash, self.commits.bits()), self.markers.bits());
        mix(mix(hash, self.manifests[0].bits()), self.manifests[1].bits())
    }

    /// Where batch `batch_id` ended; offset 0 before the first. `acks` and `commits` name the same attempt.
    fn end(&self, batch_id: i8, from: EndsFrom) -> u8 {
        let Ok(batch_id) = u8::try_from(batch_id) else { return 0 };
        let planned = self.offsets[batch_id as usize].binding();
        if let (EndsFrom::Offsets, Some(range)) = (from, planned) {
            return range.range().end();
        }
        let committed = self.commits.get(batch_id);
        let written = self.acks[batch_id as usize].binding().unwrap_or(committed);
        written.attempt().range().end()
    }
}

/// What recovery does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The view is of no single moment: read everything again.
    Reread,
    /// Stop and ask for a person.
    Refuse(Reason),
    /// The attempt is decided: publish and commit it, never execute it again.
    RollForward(Attempt),
    /// Execute a batch over exactly the logged range; `revision` of `acks` is what it will create.
    Run {
        /// The pending batch.
        batch_id: u8,
        /// What it reads.
        range: Range,
        /// 0, except where a lost attempt is replaced.
        revision: u8,
    },
    /// Nothing is pending: plan this batch; `revision` of `offsets` is what it will create.
    Plan {
        /// The next batch.
        batch_id: u8,
        /// Where the one before ended.
        start: u8,
        /// 0, except where a torn entry is superseded.
        revision: u8,
    },
}

/// Why a driver asks for a person. Batch numbers are −1 for "none yet".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The log has a hole.
    Hole,
    /// A sink shows a batch that `acks`, whose newest this is, does not know.
    SinkAhead(i8),
    /// A sink lacks a batch that was committed; this is the newest commit.
    SinkBehind(i8),
    /// `acks/N` cannot be read.
    AcksDamaged(i8),
    /// A staged file of an acknowledged attempt is in neither place.
    StagedFileGone,
    /// Manifest N names another attempt.
    ForeignManifest,
    /// `commits/N` names another attempt.
    ForeignCommit,
    /// The direct sink's marker N names other offsets.
    ForeignMarker,
}

impl Reason {
    /// For packing into a fingerprint.
    pub fn bits(self) -> u64 {
        match self {
            Self::Hole => 0,
            Self::StagedFileGone => 1,
            Self::ForeignManifest => 2,
            Self::ForeignCommit => 3,
            Self::ForeignMarker => 4,
            Self::SinkAhead(n) => 0x100 | u64::from(n as u8),
            Self::SinkBehind(n) => 0x200 | u64::from(n as u8),
            Self::AcksDamaged(n) => 0x300 | u64::from(n as u8),
        }
    }
}

/// Decides. The view is complete: all sections were read.
pub fn decide(view: &View, rules: &Rules) -> Decision {
    // With the boundary as the least they can be, dead names below it make no difference.
    let above = view.boundary;
    let committed = newest(|n| !view.commits.get(n).is_absent()).max(above);
    let acked = newest(|n| !view.acks[n as usize].is_empty()).max(above);
    let planned = newest(|n| !view.offsets[n as usize].is_empty()).max(above);

    // Everything read is dead, or a number is missing: others went on while we read.
    if committed == above && above >= 0 || acked > committed + 1 || planned > acked.max(committed) + 1 {
        return match rules.stale {
            Stale::Reread => Decision::Reread,
            Stale::Refuse => Decision::Refuse(Reason::Hole),
        };
    }
    let (lowest, highest) = sinks(view, rules);
    if highest > acked.max(committed) {
        return Decision::Refuse(Reason::SinkAhead(acked));
    }
    if lowest < committed {
        return Decision::Refuse(Reason::SinkBehind(committed));
    }

    let range = if planned > committed { view.offsets[planned as usize].binding() } else { None };
    if acked > committed {
        let row = view.acks[acked as usize];
        return match (row.binding(), range, rules.lost_attempt) {
            (Some(attempt), _, _) => Decision::RollForward(attempt.attempt()),
            (None, Some(range), LostAttempt::RunAgain) => {
                Decision::Run { batch_id: acked as u8, range: range.range(), revision: row.len() }
            }
            (None, _, _) => Decision::Refuse(Reason::AcksDamaged(acked)),
        };
    }
    if let Some(range) = range {
        return Decision::Run { batch_id: planned as u8, range: range.range(), revision: 0 };
    }
    let next = planned.max(committed + 1);
    let start = view.end(next - 1, rules.ends_from);
    let revision = if planned > committed { view.offsets[planned as usize].len() } else { 0 };
    Decision::Plan { batch_id: next as u8, start, revision }
}

/// The newest batch that every sink shows, and the newest that any does.
fn sinks(view: &View, rules: &Rules) -> (i8, i8) {
    let first = newest(|n| !view.manifests[0].get(n).is_absent());
    let (mut lowest, mut highest) = (first, first);
    if view.sinks == 2 {
        let second = newest(|n| !view.manifests[1].get(n).is_absent());
        (lowest, highest) = (first.min(second), first.max(second));
    }
    if rules.direct != Direct::None {
        let marker = newest(|n| !view.markers.get(n).is_absent());
        let lead = i8::from(rules.direct == Direct::Before && rules.direct_may_lead);
        (lowest, highest) = (lowest.min(marker), highest.max(marker - lead));
    }
    (lowest, highest)
}

/// The highest batch for which `has` holds, −1 for none.
fn newest(has: impl Fn(u8) -> bool) -> i8 {
    let mut n = BATCHES as i8 - 1;
    while n >= 0 && !has(n as u8) {
        n -= 1;
    }
    n
}
