//! One driver: every step it can take next.
//!
//! A step touches the store at most once, so any crash point and any interleaving lies between two steps. Where an
//! answer is not ours to choose (a create, a plan), there is a move for each.

use super::decide::{Decision, Reason, Section, View, decide};
use super::rules::{Bounds, Direct, EndsFrom, Look, LostAttempt, Rules};
use super::state::{Driver, Store};
use super::step::{Created, Step};
use super::words::{ATTEMPTS, Attempt, Body, FILES, Kind, Range, Write};

/// One step and where it leads.
#[derive(Clone, Copy)]
pub struct Move {
    /// What happened.
    pub step: Step,
    /// The store afterwards.
    pub store: Store,
    /// The driver afterwards.
    pub driver: Driver,
}

/// The moves of one driver on one store.
pub struct Moves<'a> {
    bounds: &'a Bounds,
    rules: &'a Rules,
    /// Unfavourable answers are possible. Without them the first move is the only one.
    faults: bool,
    store: &'a Store,
    out: &'a mut Vec<Move>,
}

impl<'a> Moves<'a> {
    /// Collects the moves of `driver` in `out`, which is emptied first.
    pub fn collect(
        bounds: &'a Bounds,
        rules: &'a Rules,
        faults: bool,
        (store, driver): (&'a Store, &Driver),
        out: &'a mut Vec<Move>,
    ) {
        out.clear();
        Self { bounds, rules, faults, store, out }.step(driver);
    }

    /// The store stays as it is.
    fn stay(&mut self, step: Step, driver: Driver) {
        self.out.push(Move { step, store: *self.store, driver });
    }

    /// The store changes.
    fn change(&mut self, step: Step, driver: Driver, change: impl FnOnce(&mut Store)) {
        let mut store = *self.store;
        change(&mut store);
        self.out.push(Move { step, store, driver });
    }

    fn step(&mut self, driver: &Driver) {
        match *driver {
            Driver::Done | Driver::Refused(_) => {}
            Driver::Down => self.start(),
            Driver::Recovering(view) if view.reads < 5 => self.read(view),
            Driver::Recovering(view) => self.decided(decide(&view, self.rules)),
            Driver::Planning { batch_id, start, revision } => self.plan(batch_id, start, revision),
            Driver::Creating(write) => self.create(write),
            Driver::ReadingBack(write) => self.read_back(write),
            Driver::Created(write) => self.look_at_boundary(write),
            Driver::Staging { batch_id, range, revision } => self.stage(batch_id, range, revision),
            Driver::WritingDirect { attempt, acks } => self.write_direct(attempt, acks),
            Driver::Publishing(attempt, file) => self.publish(attempt, file),
            Driver::Copying(attempt, file) => {
                let next = Driver::Unlinking(attempt, file);
                self.change(Step::CopyLands(attempt, file), next, |store| store.show(attempt, file));
            }
            Driver::Unlinking(attempt, file) => self.unlink(attempt, file),
            Driver::Looking(attempt, file) => self.look_again(attempt, file),
            Driver::Sweeping(attempt) => self.sweep(attempt),
            Driver::Purging(attempt) => self.purge(attempt),
            Driver::Deleting { kind, boundary, batch_id, start } => self.delete(kind, boundary, batch_id, start),
        }
    }

    // Recovery.

    fn start(&mut self) {
        let next = Driver::Recovering(View::unread(self.bounds.sinks));
        if !self.faults {
            self.stay(Step::Start, next);
        } else if self.store.starts > 0 {
            self.change(Step::Start, next, |store| store.starts -= 1);
        }
    }

    fn read(&mut self, mut view: View) {
        let (store, section) = (self.store, self.rules.read_order[view.reads as usize]);
        match section {
            Section::Commits => view.commits = store.commits,
            Section::Sinks => (view.manifests, view.markers) = (store.manifests, store.markers),
            Section::Acks => view.acks = store.acks,
            Section::Offsets => view.offsets = store.offsets,
            Section::Boundary => view.boundary = store.boundary,
        }
        view.reads += 1;
        self.stay(Step::Read(section), Driver::Recovering(view));
    }

    fn decided(&mut self, decision: Decision) {
        let next = match decision {
            Decision::Reread => Driver::Recovering(View::unread(self.bounds.sinks)),
            Decision::Refuse(reason) => Driver::Refused(reason),
            Decision::RollForward(attempt) => self.direct_or_publish(attempt),
            Decision::Run { batch_id, range, revision } => Driver::Staging { batch_id, range, revision },
            Decision::Plan { batch_id, start, revision } => Driver::Planning { batch_id, start, revision },
        };
        if let (true, Decision::Run { batch_id, revision: 0, .. }) = (self.rules.sweep_by_absence, decision) {
            // No acks, so whatever is staged must be dead: the wrong conclusion that this switch stands for.
            return self.change(Step::Decide(decision), next, |store| {
                sweep(store, |attempt| attempt.batch_id() == batch_id);
            });
        }
        self.stay(Step::Decide(decision), next);
    }

    // From the plan to the acknowledgement.

    fn plan(&mut self, batch_id: u8, start: u8, revision: u8) {
        if batch_id >= self.bounds.batches {
            return self.stay(Step::Finish, Driver::Done);
        }
        let longest = if self.faults { 2 } else { 1 };
        for rows in 1..=longest {
            let range = Range::new(start, start + rows);
            let write = Write { kind: Kind::Offsets, batch_id, lane: revision, body: range.into() };
            self.stay(Step::Plan(batch_id, range), Driver::Creating(write));
        }
    }

    fn create(&mut self, write: Write) {
        let Write { kind, batch_id, lane, .. } = write;
        if !self.store.get(kind, batch_id, lane).is_absent() {
            let trusted = self.rules.already_exists_is_mine;
            let next = if trusted { Driver::Created(write) } else { Driver::ReadingBack(write) };
            return self.stay(Step::Create(write, Created::LostRace), next);
        }
        self.change(Step::Create(write, Created::Done), Driver::Created(write), |store| store.put(write));
        if !self.faults {
            return;
        }
        let unclear = Driver::ReadingBack(write);
        self.change(Step::Create(write, Created::AppliedThenError), unclear, |store| store.put(write));
        if self.bounds.refused {
            self.stay(Step::Create(write, Created::Refused), unclear);
        }
        if self.store.in_flight > 0 {
            self.change(Step::Create(write, Created::Unknown), Driver::Down, |store| store.send(write));
        }
    }

    fn read_back(&mut self, write: Write) {
        let Write { kind, batch_id, lane, body } = write;
        let found = self.store.get(kind, batch_id, lane);
        let next = match (found, kind) {
            (Body::ABSENT, _) => Driver::Creating(write),
            (Body::TORN, _) => Driver::Down,
            (_, Kind::Manifest) if found != body => Driver::Refused(Reason::ForeignManifest),
            (_, Kind::Commits) if found != body => Driver::Refused(Reason::ForeignCommit),
            _ => Driver::Created(Write { body: found, ..write }),
        };
        self.stay(Step::ReadBack(write, found), next);
    }

    /// The boundary is looked at after every create: below it a name means nothing, whoever created it.
    fn look_at_boundary(&mut self, write: Write) {
        let boundary = self.store.boundary;
        let dead = write.batch_id as i8 <= boundary && write.kind != Kind::Manifest;
        if dead && !self.rules.no_boundary_check {
            return self.stay(Step::Fenced(boundary), Driver::Down);
        }
        let next = self.after(write);
        self.stay(Step::BoundaryOk, next);
    }

    /// What follows a name that is decided, by us or by another.
    fn after(&self, write: Write) -> Driver {
        let Write { kind, batch_id, lane, body } = write;
        let commit = Driver::Creating(Write { kind: Kind::Commits, batch_id, lane: 0, body });
        let early = self.rules.commit_before_publish;
        match kind {
            Kind::Offsets => Driver::Staging { batch_id, range: body.range(), revision: 0 },
            Kind::Acks if early => commit,
            Kind::Acks => self.direct_or_publish(body.attempt()),
            Kind::Manifest if lane + 1 < self.bounds.sinks => Driver::Publishing(body.attempt(), lane + 1),
            Kind::Manifest if early => Driver::Sweeping(body.attempt()),
            Kind::Manifest => commit,
            Kind::Commits if early => Driver::Publishing(body.attempt(), 0),
            Kind::Commits => Driver::Sweeping(body.attempt()),
        }
    }

    fn direct_or_publish(&self, attempt: Attempt) -> Driver {
        match self.rules.direct {
            Direct::After => Driver::WritingDirect { attempt, acks: None },
            Direct::None | Direct::Before => Driver::Publishing(attempt, 0),
        }
    }

    fn stage(&mut self, batch_id: u8, range: Range, revision: u8) {
        let mut store = *self.store;
        let attempt = store.stage(batch_id, range);
        let driver = match self.rules.direct {
            Direct::Before => Driver::WritingDirect { attempt, acks: Some(revision) },
            Direct::None | Direct::After => acknowledge(attempt, revision),
        };
        self.out.push(Move { step: Step::Stage(attempt), store, driver });
    }

    /// Rows and marker in one transaction, and marker N only once.
    fn write_direct(&mut self, attempt: Attempt, acks: Option<u8>) {
        let (batch_id, body) = (attempt.batch_id(), attempt.range().into());
        let next = acks.map_or(Driver::Publishing(attempt, 0), |revision| acknowledge(attempt, revision));
        let held = self.store.markers.get(batch_id);
        if held.is_absent() {
            self.change(Step::WriteDirect(batch_id), next, |store| store.markers.set(batch_id, body));
        } else if self.rules.direct_nonce && held != body {
            self.stay(Step::DirectHolds(batch_id), Driver::Refused(Reason::ForeignMarker));
        } else {
            self.stay(Step::DirectHolds(batch_id), next);
        }
    }

    // Publishing: judged by looking at both places, never by an error.

    fn publish(&mut self, attempt: Attempt, file: u8) {
        let sink = self.sink(file);
        let manifest = self.store.manifests[sink as usize].get(attempt.batch_id());
        if manifest == attempt.into() && !self.rules.manifest_last {
            let next = self.record(attempt, sink);
            return self.stay(Step::ManifestStands(attempt.batch_id()), next);
        }
        let unlink = Driver::Unlinking(attempt, file);
        if self.store.visible.has(attempt, file) {
            return self.stay(Step::TargetThere(attempt, file), unlink);
        }
        let staged = self.store.staged.has(attempt, file);
        if staged && self.rules.slow_copy {
            self.stay(Step::CopyStarts(attempt, file), Driver::Copying(attempt, file));
        } else if staged {
            self.change(Step::Link(attempt, file), unlink, |store| store.show(attempt, file));
        }
        // Two looks are two moments: with the target looked at first, the file may move to it in between.
        if !staged || self.rules.look == Look::TargetFirst {
            self.stay(Step::FirstLook(attempt, file), Driver::Looking(attempt, file));
        }
    }

    fn look_again(&mut self, attempt: Attempt, file: u8) {
        let place = match self.rules.look {
            Look::StageFirst => self.store.visible,
            Look::TargetFirst => self.store.staged,
        };
        let found = place.has(attempt, file);
        let batch_id = attempt.batch_id();
        let next = match self.rules.lost_attempt {
            _ if found => Driver::Publishing(attempt, file),
            LostAttempt::Refuse => Driver::Refused(Reason::StagedFileGone),
            LostAttempt::RunAgain => {
                let revision = self.store.acks[batch_id as usize].len();
                Driver::Staging { batch_id, range: attempt.range(), revision }
            }
        };
        self.stay(Step::SecondLook(attempt, file, found), next);
    }

    fn unlink(&mut self, attempt: Attempt, file: u8) {
        let last_of_its_sink = self.bounds.sinks == 2 || file == FILES[1];
        let record = self.record(attempt, self.sink(file));
        let next = if last_of_its_sink { record } else { Driver::Publishing(attempt, FILES[1]) };
        self.change(Step::Unlink(attempt, file), next, |store| store.unstage(attempt, file));
    }

    fn sink(&self, file: u8) -> u8 {
        if self.bounds.sinks == 2 { file } else { 0 }
    }

    fn record(&self, attempt: Attempt, sink: u8) -> Driver {
        let (kind, batch_id) = (Kind::Manifest, attempt.batch_id());
        Driver::Creating(Write { kind, batch_id, lane: sink, body: attempt.into() })
    }

    // After the commit.

    fn sweep(&mut self, attempt: Attempt) {
        let batch_id = attempt.batch_id();
        let mut store = *self.store;
        let files =
            sweep(&mut store, |other| other.batch_id() < batch_id || other.batch_id() == batch_id && other != attempt);
        self.out.push(Move { step: Step::Sweep(files), store, driver: Driver::Purging(attempt) });
    }

    /// The boundary first, then the entries, so that a purge that dies half-way leaves no hole.
    fn purge(&mut self, attempt: Attempt) {
        let batch_id = attempt.batch_id();
        let planned = self.store.offsets[batch_id as usize].binding();
        let start = match (self.rules.ends_from, planned) {
            (EndsFrom::Offsets, Some(range)) => range.range().end(),
            _ => attempt.range().end(),
        };
        let next = batch_id + 1;
        match batch_id.checked_sub(self.bounds.keep) {
            Some(boundary) if boundary as i8 > self.store.boundary => {
                let delete = Driver::Deleting { kind: Kind::Offsets, boundary, batch_id: next, start };
                self.change(Step::Boundary(boundary), delete, |store| store.boundary = boundary as i8);
            }
            _ => self.stay(Step::NothingToPurge, Driver::Planning { batch_id: next, start, revision: 0 }),
        }
    }

    fn delete(&mut self, kind: Kind, boundary: u8, batch_id: u8, start: u8) {
        let next = match kind {
            Kind::Offsets => Driver::Deleting { kind: Kind::Acks, boundary, batch_id, start },
            Kind::Acks => Driver::Deleting { kind: Kind::Commits, boundary, batch_id, start },
            Kind::Commits | Kind::Manifest => Driver::Planning { batch_id, start, revision: 0 },
        };
        self.change(Step::Delete(kind, boundary), next, |store| store.delete_through(kind, boundary));
    }
}

fn acknowledge(attempt: Attempt, revision: u8) -> Driver {
    let (kind, batch_id) = (Kind::Acks, attempt.batch_id());
    Driver::Creating(Write { kind, batch_id, lane: revision, body: attempt.into() })
}

/// Removes the staged files of the attempts that are `dead`, and counts them.
fn sweep(store: &mut Store, dead: impl Fn(Attempt) -> bool) -> u8 {
    let mut files = 0;
    for id in 0..ATTEMPTS.min(store.next_id as usize) as u8 {
        let Some(attempt) = store.attempt(id).filter(|attempt| dead(*attempt)) else { continue };
        for file in FILES {
            if store.staged.has(attempt, file) {
                store.unstage(attempt, file);
                files += 1;
            }
        }
    }
    files
}
