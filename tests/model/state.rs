//! What a run is made of: the [`Store`] all drivers share, and each [`Driver`]'s place in the protocol.
//!
//! Both are `Copy` and small, and each has a fingerprint that takes in all of it. Drivers are interchangeable: two
//! states that differ in the drivers' names only have one fingerprint.

use super::decide::{Reason, View};
use super::rules::Bounds;
use super::words::{ATTEMPTS, Attempt, BATCHES, Body, FILES, Kind, Range, Row, SINKS, Write, mix};

/// Files of attempts, two bits an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Files(u32);

impl Files {
    fn bit(attempt: Attempt, file: u8) -> u32 {
        1 << (attempt.id() * 2 + file)
    }

    /// No file at all.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the file is here.
    pub fn has(self, attempt: Attempt, file: u8) -> bool {
        self.0 & Self::bit(attempt, file) != 0
    }

    /// Puts a file here; no effect if it is.
    pub fn add(&mut self, attempt: Attempt, file: u8) {
        self.0 |= Self::bit(attempt, file);
    }

    /// Takes a file away; no effect if it is not here.
    pub fn remove(&mut self, attempt: Attempt, file: u8) {
        self.0 &= !Self::bit(attempt, file);
    }

    /// The files of both.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Everything durable, and what may still go wrong.
#[derive(Clone, Copy)]
pub struct Store {
    /// `offsets/N`: a row a batch, a lane a revision.
    pub offsets: [Row; BATCHES],
    /// `acks/N`: a row a batch, a lane a revision.
    pub acks: [Row; BATCHES],
    /// `commits/N`: a lane a batch.
    pub commits: Row,
    /// A row a sink, a lane a batch.
    pub manifests: [Row; SINKS],
    /// The range that the direct sink holds: a lane a batch.
    pub markers: Row,
    /// What the first `commits/N` ever created named, kept through purges. No driver sees it.
    pub first: Row,
    /// The attempts that have files somewhere: lane by identity.
    attempts: [Row; ATTEMPTS / 4],
    /// Files written and invisible.
    pub staged: Files,
    /// Files visible under their final names.
    pub visible: Files,
    /// Files visible as part of a compacted one, their own names gone.
    pub compacted: Files,
    /// Creates sent and undecided, in ascending order.
    pub flying: [Option<Write>; 2],
    /// The highest boundary, −1 for none.
    pub boundary: i8,
    /// Something tore or was removed: from here on a driver may ask for a person.
    pub damaged: bool,
    /// Identity of the next attempt.
    pub next_id: u8,
    /// Driver starts left.
    pub starts: u8,
    /// Crashes left.
    pub crashes: u8,
    /// Undecided creates left.
    pub in_flight: u8,
    /// Entries that may still tear.
    pub torn: u8,
    /// Staged files that may still be removed.
    pub vanish: u8,
}

impl Store {
    /// An empty store.
    pub fn new(bounds: &Bounds) -> Self {
        let none = Row::default();
        Self {
            offsets: [none; BATCHES],
            acks: [none; BATCHES],
            commits: none,
            manifests: [none; SINKS],
            markers: none,
            first: none,
            attempts: [none; ATTEMPTS / 4],
            staged: Files::default(),
            visible: Files::default(),
            compacted: Files::default(),
            flying: [None; 2],
            boundary: -1,
            damaged: false,
            next_id: 0,
            starts: bounds.drivers + bounds.crashes + bounds.in_flight,
            crashes: bounds.crashes,
            in_flight: bounds.in_flight,
            torn: bounds.torn,
            vanish: bounds.vanish,
        }
    }

    /// What stands under a name.
    pub fn get(&self, kind: Kind, batch_id: u8, lane: u8) -> Body {
        match kind {
            Kind::Offsets => self.offsets[batch_id as usize].get(lane),
            Kind::Acks => self.acks[batch_id as usize].get(lane),
            Kind::Manifest => self.manifests[lane as usize].get(batch_id),
            Kind::Commits => self.commits.get(batch_id),
        }
    }

    /// Puts a body under a name, whatever stood there.
    pub fn put(&mut self, write: Write) {
        let Write { kind, batch_id, lane, body } = write;
        match kind {
            Kind::Offsets => self.offsets[batch_id as usize].set(lane, body),
            Kind::Acks => self.acks[batch_id as usize].set(lane, body),
            Kind::Manifest => self.manifests[lane as usize].set(batch_id, body),
            Kind::Commits => {
                self.commits.set(batch_id, body);
                if self.first.get(batch_id).is_absent() {
                    self.first.set(batch_id, body);
                }
            }
        }
    }

    /// Removes the entries of one kind up to and including `boundary`.
    pub fn delete_through(&mut self, kind: Kind, boundary: u8) {
        for batch_id in 0..=boundary {
            match kind {
                Kind::Offsets => self.offsets[batch_id as usize] = Row::default(),
                Kind::Acks => self.acks[batch_id as usize] = Row::default(),
                Kind::Commits => self.commits.set(batch_id, Body::ABSENT),
                Kind::Manifest => unreachable!("manifests are never deleted"),
            }
        }
    }

    /// A create leaves the driver's hands undecided.
    pub fn send(&mut self, write: Write) {
        self.in_flight -= 1;
        if self.flying.contains(&Some(write)) {
            return;
        }
        let free = self.flying.iter().position(Option::is_none).expect("at most two creates are in flight");
        self.flying[free] = Some(write);
        self.flying.sort_by_key(|write| write.map_or(u64::MAX, Write::bits));
    }

    /// An undecided create is applied, or fails if the name is taken by now.
    pub fn land(&mut self, place: usize) {
        let write = self.flying[place].take().expect("only a create in flight can land");
        self.flying.sort_by_key(|write| write.map_or(u64::MAX, Write::bits));
        if self.get(write.kind, write.batch_id, write.lane).is_absent() {
            self.put(write);
        }
    }

    /// A new attempt writes its files, invisible.
    pub fn stage(&mut self, batch_id: u8, range: Range) -> Attempt {
        let attempt = Attempt::new(batch_id, range, self.next_id);
        self.next_id += 1;
        self.attempts[attempt.id() as usize / 4].set(attempt.id() % 4, attempt.into());
        for file in FILES {
            self.staged.add(attempt, file);
        }
        attempt
    }

    /// A staged file goes. The last trace of an attempt takes its description along, so that equal stores compare so.
    pub fn unstage(&mut self, attempt: Attempt, file: u8) {
        self.staged.remove(attempt, file);
        let left = self.staged.union(self.visible).union(self.compacted);
        if !left.has(attempt, FILES[0]) && !left.has(attempt, FILES[1]) {
            self.attempts[attempt.id() as usize / 4].set(attempt.id() % 4, Body::ABSENT);
        }
    }

    /// A file appears under its final name.
    pub fn show(&mut self, attempt: Attempt, file: u8) {
        self.attempts[attempt.id() as usize / 4].set(attempt.id() % 4, attempt.into());
        self.visible.add(attempt, file);
    }

    /// The attempt with this identity, if it has files anywhere.
    pub fn attempt(&self, id: u8) -> Option<Attempt> {
        let body = self.attempts[id as usize / 4].get(id % 4);
        body.is_readable().then(|| body.attempt())
    }

    /// A word for everything that a fresh driver alone can see or the invariants look at.
    pub fn durable_fingerprint(&self) -> u64 {
        let mut hash = mix(mix(0, self.boundary as u64), u64::from(self.damaged));
        let mut batch = 0;
        while batch < BATCHES {
            hash = mix(mix(hash, self.offsets[batch].bits()), self.acks[batch].bits());
            batch += 1;
        }
        let mut four = 0;
        while four < ATTEMPTS / 4 {
            hash = mix(hash, self.attempts[four].bits());
            four += 1;
        }
        hash = mix(mix(hash, self.manifests[0].bits()), self.manifests[1].bits());
        hash = mix(mix(mix(hash, self.commits.bits()), self.markers.bits()), self.first.bits());
        mix(mix(hash, u64::from(self.staged.0) << 32 | u64::from(self.visible.0)), self.compacted.0.into())
    }

    /// Extends [`Store::durable_fingerprint`] by what is still to come.
    pub fn fingerprint(&self, durable: u64) -> u64 {
        let flying = |place: usize| match self.flying[place] {
            Some(write) => write.bits(),
            None => u64::from(u32::MAX),
        };
        let left = [self.next_id, self.starts, self.crashes, self.in_flight, self.torn, self.vanish, 0, 0];
        mix(mix(durable, flying(0) << 32 | flying(1)), u64::from_le_bytes(left))
    }
}

/// Where a driver is. Between any two of these it may crash, and the others may move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Not running.
    Down,
    /// Reads one section after the other, then decides.
    Recovering(View),
    /// Chooses what a batch reads.
    Planning { batch_id: u8, start: u8, revision: u8 },
    /// Creates a name if it is absent.
    Creating(Write),
    /// Got no clear answer, and reads the name back.
    ReadingBack(Write),
    /// The name is decided, `body` by whoever came first; looks at the boundary.
    Created(Write),
    /// Executes a batch; `revision` of `acks` is what it will create.
    Staging { batch_id: u8, range: Range, revision: u8 },
    /// Writes the direct sink's transaction; then creates `acks` of that revision, or publishes.
    WritingDirect { attempt: Attempt, acks: Option<u8> },
    /// Brings one file to its final name.
    Publishing(Attempt, u8),
    /// A copy has read its source and has not landed.
    Copying(Attempt, u8),
    /// The file is at its target; its stage goes now.
    Unlinking(Attempt, u8),
    /// Found the file missing once; looks again.
    Looking(Attempt, u8),
    /// Removes the stages of attempts that lost.
    Sweeping(Attempt),
    /// Moves the boundary.
    Purging(Attempt),
    /// Deletes entries at or below the boundary, a kind a step, then plans the next batch.
    Deleting { kind: Kind, boundary: u8, batch_id: u8, start: u8 },
    /// Every batch is committed.
    Done,
    /// Waits for a person.
    Refused(Reason),
}

/// Names of the places a driver can be at, by [`Driver::place`].
pub const PLACES: [&str; 33] = [
    "down",
    "done",
    "refused",
    "nothing read",
    "one section read",
    "two sections read",
    "three sections read",
    "four sections read",
    "all sections read",
    "planning",
    "staging",
    "writing the direct sink",
    "publishing",
    "copying",
    "unlinking a stage",
    "looking again",
    "sweeping",
    "purging",
    "creating offsets",
    "creating acks",
    "creating a manifest",
    "creating commits",
    "reading offsets back",
    "reading acks back",
    "reading a manifest back",
    "reading commits back",
    "offsets created",
    "acks created",
    "manifest created",
    "commits created",
    "deleting offsets",
    "deleting acks",
    "deleting commits",
];

impl Driver {
    /// Has something left to do, so that a crash would change it.
    pub fn is_running(&self) -> bool {
        !matches!(self, Self::Down | Self::Done | Self::Refused(_))
    }

    /// Which step is next: an index into [`PLACES`].
    pub fn place(&self) -> u8 {
        match self {
            Self::Down => 0,
            Self::Done => 1,
            Self::Refused(_) => 2,
            Self::Recovering(view) => 3 + view.reads,
            Self::Planning { .. } => 9,
            Self::Staging { .. } => 10,
            Self::WritingDirect { .. } => 11,
            Self::Publishing(..) => 12,
            Self::Copying(..) => 13,
            Self::Unlinking(..) => 14,
            Self::Looking(..) => 15,
            Self::Sweeping(_) => 16,
            Self::Purging(_) => 17,
            Self::Creating(write) => 18 + write.kind as u8,
            Self::ReadingBack(write) => 22 + write.kind as u8,
            Self::Created(write) => 26 + write.kind as u8,
            Self::Deleting { kind: Kind::Offsets, .. } => 30,
            Self::Deleting { kind: Kind::Acks, .. } => 31,
            Self::Deleting { .. } => 32,
        }
    }

    /// A word for the place and everything the driver remembers.
    pub fn fingerprint(&self) -> u64 {
        let bytes = |a: u8, b: u8, c: u8| u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c);
        let file = |attempt: Attempt, file: u8| Body::from(attempt).bits() << 8 | u64::from(file);
        let memory = match *self {
            Self::Down | Self::Done => 0,
            Self::Recovering(view) => view.fingerprint(),
            Self::Planning { batch_id, start, revision } => bytes(batch_id, start, revision),
            Self::Creating(write) | Self::ReadingBack(write) | Self::Created(write) => write.bits(),
            Self::Staging { batch_id, range, revision } => {
                bytes(batch_id, revision, 0) << 16 | Body::from(range).bits()
            }
            Self::WritingDirect { attempt, acks } => file(attempt, acks.unwrap_or(u8::MAX)),
            Self::Publishing(attempt, f) | Self::Copying(attempt, f) => file(attempt, f),
            Self::Unlinking(attempt, f) | Self::Looking(attempt, f) => file(attempt, f),
            Self::Sweeping(attempt) | Self::Purging(attempt) => file(attempt, 0),
            Self::Deleting { kind, boundary, batch_id, start } => bytes(boundary, batch_id, start) << 8 | kind as u64,
            Self::Refused(reason) => reason.bits(),
        };
        mix(mix(0, u64::from(self.place()) + 1), memory)
    }
}

/// A store and the drivers at work on it. A place beyond the bounds is filled by a driver that is done.
#[derive(Clone, Copy)]
pub struct State {
    /// What they share.
    pub store: Store,
    /// Where they are.
    pub drivers: [Driver; 2],
}

impl State {
    /// Nothing exists and nobody runs.
    pub fn new(bounds: &Bounds) -> Self {
        let second = if bounds.drivers == 2 { Driver::Down } else { Driver::Done };
        Self { store: Store::new(bounds), drivers: [Driver::Down, second] }
    }

    /// Extends the store's [`Store::durable_fingerprint`] to the whole state; the drivers' order does not matter.
    pub fn fingerprint(&self, durable: u64) -> u64 {
        let (a, b) = (self.drivers[0].fingerprint(), self.drivers[1].fingerprint());
        let store = self.store.fingerprint(durable);
        if a <= b { mix(mix(store, a), b) } else { mix(mix(store, b), a) }
    }
}
