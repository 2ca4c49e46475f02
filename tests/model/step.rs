//! The labels of a schedule: what each step did, small enough to keep one for every state.

use std::fmt;

use super::decide::{Decision, Section};
use super::state::PLACES;
use super::words::{Attempt, Body, Kind, Range, Write};

/// How a create-if-absent was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Created {
    /// Written, and the answer says so.
    Done,
    /// Written, and the answer is an error: the read-back finds our own body.
    AppliedThenError,
    /// Not written, and the answer is an error: the read-back finds nothing, and the create is tried again.
    Refused,
    /// The name was taken.
    LostRace,
    /// No answer by the deadline: the run ends, and the create lands later or never.
    Unknown,
}

impl Created {
    /// Every answer.
    pub const ALL: [Self; 5] = [Self::Done, Self::AppliedThenError, Self::Refused, Self::LostRace, Self::Unknown];
}

/// What happened in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A run begins.
    Begin,
    /// A driver starts.
    Start,
    /// Recovery reads a section.
    Read(Section),
    /// Recovery decides.
    Decide(Decision),
    /// Nothing is left to do.
    Finish,
    /// A range is chosen.
    Plan(u8, Range),
    /// A create is answered.
    Create(Write, Created),
    /// A name is read back.
    ReadBack(Write, Body),
    /// The boundary is at or above the batch in hand: the run ends.
    Fenced(i8),
    /// The boundary is below the batch in hand.
    BoundaryOk,
    /// An attempt is executed and its files staged.
    Stage(Attempt),
    /// The direct sink takes rows and marker.
    WriteDirect(u8),
    /// The direct sink has marker N already.
    DirectHolds(u8),
    /// The manifest stands: the files need no look.
    ManifestStands(u8),
    /// The file is at its target.
    TargetThere(Attempt, u8),
    /// The file is brought to its target.
    Link(Attempt, u8),
    /// A copy has read its source.
    CopyStarts(Attempt, u8),
    /// The copy appears at its target.
    CopyLands(Attempt, u8),
    /// The file is in neither place at the first look.
    FirstLook(Attempt, u8),
    /// The second look; whether it found the file.
    SecondLook(Attempt, u8, bool),
    /// A staged file goes.
    Unlink(Attempt, u8),
    /// Stages of lost attempts go, so many files.
    Sweep(u8),
    /// The boundary stays.
    NothingToPurge,
    /// The boundary moves.
    Boundary(u8),
    /// Entries of one kind go.
    Delete(Kind, u8),
    /// A driver crashes at a place.
    Crash(u8),
    /// A create that was undecided is applied, or fails.
    Land(Write, bool),
    /// The files of a batch become one.
    Compact(u8),
    /// The newest entry of a kind is damaged.
    Tear(Kind, u8),
    /// Someone removes a staged file.
    Remove(Attempt, u8),
}

/// Who moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Actor {
    /// A driver, by its place.
    Driver(u8),
    /// The store, the network, an operator.
    World,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(0) => write!(f, "A    "),
            Self::Driver(_) => write!(f, "B    "),
            Self::World => write!(f, "world"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => write!(f, "nothing exists"),
            Self::Start => write!(f, "starts"),
            Self::Read(section) => write!(f, "reads {section:?}"),
            Self::Decide(decision) => write!(f, "decides {decision:?}"),
            Self::Finish => write!(f, "has finished"),
            Self::Plan(n, range) => write!(f, "plans batch {n} as {range}"),
            Self::Create(write, answer) => write!(f, "creates {write}: {answer:?}"),
            Self::ReadBack(write, found) => write!(f, "reads back ({write}): finds {found}"),
            Self::Fenced(boundary) => write!(f, "finds boundary {boundary}: its batch is dead, it stops"),
            Self::BoundaryOk => write!(f, "finds the boundary below its batch"),
            Self::Stage(attempt) => write!(f, "stages {attempt}"),
            Self::WriteDirect(n) => write!(f, "writes rows and marker {n} to the direct sink"),
            Self::DirectHolds(n) => write!(f, "finds marker {n} in the direct sink"),
            Self::ManifestStands(n) => write!(f, "finds manifest {n}"),
            Self::TargetThere(attempt, file) => write!(f, "finds the target of file {file}, {attempt}"),
            Self::Link(attempt, file) => write!(f, "links file {file}, {attempt}"),
            Self::CopyStarts(attempt, file) => write!(f, "starts to copy file {file}, {attempt}"),
            Self::CopyLands(attempt, file) => write!(f, "sees its copy of file {file} land, {attempt}"),
            Self::FirstLook(attempt, file) => write!(f, "does not find file {file}, {attempt}"),
            Self::SecondLook(attempt, file, true) => write!(f, "looks again and finds file {file}, {attempt}"),
            Self::SecondLook(attempt, file, false) => write!(f, "looks again for file {file}, {attempt}: gone"),
            Self::Unlink(attempt, file) => write!(f, "unlinks the stage of file {file}, {attempt}"),
            Self::Sweep(files) => write!(f, "sweeps {files} staged files"),
            Self::NothingToPurge => write!(f, "has nothing to purge"),
            Self::Boundary(n) => write!(f, "moves the boundary to {n}"),
            Self::Delete(kind, n) => write!(f, "deletes {kind:?} through {n}"),
            Self::Crash(place) => write!(f, "CRASHES ({})", PLACES[*place as usize]),
            Self::Land(write, true) => write!(f, "a create in flight lands: {write}"),
            Self::Land(write, false) => write!(f, "a create in flight finds its name taken: {write}"),
            Self::Compact(n) => write!(f, "compacts the files of batch {n}"),
            Self::Tear(kind, n) => write!(f, "tears the newest {kind:?} {n}"),
            Self::Remove(attempt, file) => write!(f, "removes staged file {file}, {attempt}"),
        }
    }
}
