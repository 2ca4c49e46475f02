//! Breadth first through every state that the bounds allow, with the invariants looked at in each.
//!
//! Visited states are kept as 64-bit fingerprints, so a violation is always real, and the chance that a
//! state is missed is below one in 10⁷ for a million states. The shortest schedule to a violation is printed.

use std::collections::VecDeque;
use std::fmt;

use super::decide::{Decision, View};
use super::driver::{Move, Moves};
use super::invariants::{Harm, broken};
use super::rules::{Bounds, Rules};
use super::state::{Driver, PLACES, State, Store};
use super::step::{Actor, Created, Step};
use super::words::{Kind, mix};
use super::world;

/// More states than this are a mistake in the bounds.
const STATES_MAX: usize = 8_000_000;

/// Sees each different complete view that any driver decided on, once.
pub trait Observer {
    /// A driver read `view` and decided `decision`.
    fn on_view(&mut self, view: &View, decision: Decision);
}

/// Looks away.
impl Observer for () {
    fn on_view(&mut self, _: &View, _: Decision) {}
}

/// What an exploration found.
pub struct Outcome {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// Different stores from which a fresh driver was seen to finish.
    pub stores: usize,
    /// Different views that were decided on.
    pub views: usize,
    /// What was met on the way.
    pub coverage: Coverage,
    /// The shortest schedule that breaks a promise.
    pub violation: Option<Schedule>,
}

/// Places that crashed and answers that creates got.
#[derive(Clone, Copy, Default)]
pub struct Coverage {
    places: u64,
    crashes: u64,
    answers: u32,
    adopted: u8,
    landed: u8,
}

/// The steps to a violation.
pub struct Schedule {
    /// What went wrong.
    pub harm: Harm,
    /// The particulars.
    pub detail: String,
    /// From the beginning.
    pub steps: Vec<(Actor, Step)>,
}

/// Explores everything within `bounds` under `rules`; ends at the first violation.
pub fn explore(bounds: Bounds, rules: Rules) -> Outcome {
    explore_with(bounds, rules, &mut ())
}

/// As [`explore`], and shows `observer` each view that was decided on.
pub fn explore_with(bounds: Bounds, rules: Rules, observer: &mut dyn Observer) -> Outcome {
    let mut explorer = Explorer {
        bounds,
        rules,
        observer,
        seen: Fingerprints::default(),
        sound: Fingerprints::default(),
        finishing: Fingerprints::default(),
        views: Fingerprints::default(),
        parents: Vec::new(),
        frontier: VecDeque::new(),
        coverage: Coverage::default(),
        steps: 0,
        violation: None,
    };
    explorer.visit(0, Actor::World, Step::Begin, &State::new(&bounds));
    explorer.steps = 0;
    explorer.run();
    Outcome {
        states: explorer.seen.len,
        steps: explorer.steps,
        stores: explorer.sound.len,
        views: explorer.views.len,
        coverage: explorer.coverage,
        violation: explorer.violation,
    }
}

struct Explorer<'a> {
    bounds: Bounds,
    rules: Rules,
    observer: &'a mut dyn Observer,
    seen: Fingerprints,
    /// Stores that keep the invariants and let a fresh driver finish.
    sound: Fingerprints,
    /// A store and a lone driver at some place, known to finish.
    finishing: Fingerprints,
    views: Fingerprints,
    /// By the order of discovery: the state before, and the step from it.
    parents: Vec<(u32, Actor, Step)>,
    /// States whose steps were not followed yet, with their place in `parents`.
    frontier: VecDeque<(State, u32)>,
    coverage: Coverage,
    steps: usize,
    violation: Option<Schedule>,
}

impl Explorer<'_> {
    fn run(&mut self) {
        let mut moves = Vec::new();
        while let Some((state, index)) = self.frontier.pop_front() {
            let bounds = self.bounds;
            world::events(&bounds, &state, &mut |actor, step, next| self.visit(index, actor, step, &next));
            for who in 0..2 {
                let driver = &state.drivers[who];
                if who == 1 && *driver == state.drivers[0] {
                    continue; // two drivers at one place: one is enough
                }
                self.coverage.places |= 1 << driver.place();
                Moves::collect(&self.bounds, &self.rules, true, (&state.store, driver), &mut moves);
                self.show(driver, &moves);
                for Move { step, store, driver } in &moves {
                    let mut next = State { store: *store, drivers: state.drivers };
                    next.drivers[who] = *driver;
                    self.visit(index, Actor::Driver(who as u8), *step, &next);
                }
            }
            if self.violation.is_some() {
                return;
            }
        }
    }

    /// Follows one step to a state; looks at the state if it is new.
    fn visit(&mut self, from: u32, actor: Actor, step: Step, state: &State) {
        if self.violation.is_some() {
            return;
        }
        self.steps += 1;
        self.coverage.note(step);
        let durable = state.store.durable_fingerprint();
        if !self.seen.insert(state.fingerprint(durable)) {
            return;
        }
        assert!(self.seen.len <= STATES_MAX, "the bounds are too wide: {:?}", self.bounds);
        let index = u32::try_from(self.parents.len()).expect("bounded by STATES_MAX");
        self.parents.push((from, actor, step));
        if let Some((harm, detail)) = self.look(state, durable) {
            self.violation = Some(Schedule { harm, detail, steps: self.steps_to(index) });
        }
        self.frontier.push_back((*state, index));
    }

    /// The promise that this state breaks.
    fn look(&mut self, state: &State, durable: u64) -> Option<(Harm, String)> {
        let new = self.sound.insert(durable);
        if new && let Some(harm) = broken(&self.bounds, &self.rules, &state.store) {
            return Some(harm);
        }
        for driver in &state.drivers {
            if let (Driver::Refused(reason), false) = (driver, state.store.damaged) {
                return Some((Harm::RefusedWithoutDamage, format!("{reason:?}")));
            }
        }
        if new { self.stuck(&state.store) } else { None }
    }

    /// A fresh driver alone, with every create in flight lost: it must finish, or after damage may refuse.
    fn stuck(&mut self, store: &Store) -> Option<(Harm, String)> {
        let (mut store, mut driver, mut moves, mut walk) = (*store, Driver::Down, Vec::new(), Vec::new());
        for _ in 0..200 {
            let here = mix(store.durable_fingerprint(), driver.fingerprint());
            let asks = matches!(driver, Driver::Refused(_));
            if driver == Driver::Done || asks && store.damaged || self.finishing.contains(here) {
                for step in walk {
                    self.finishing.insert(step);
                }
                return None;
            }
            if let Driver::Refused(reason) = driver {
                return Some((Harm::Stuck, format!("a fresh driver refuses: {reason:?}")));
            }
            walk.push(here);
            Moves::collect(&self.bounds, &self.rules, false, (&store, &driver), &mut moves);
            self.show(&driver, &moves);
            (store, driver) = (moves[0].store, moves[0].driver);
        }
        Some((Harm::Stuck, format!("a fresh driver goes round for ever, now {}", PLACES[driver.place() as usize])))
    }

    fn show(&mut self, driver: &Driver, moves: &[Move]) {
        if let Driver::Recovering(view) = driver
            && let Some(Move { step: Step::Decide(decision), .. }) = moves.first()
            && self.views.insert(view.fingerprint())
        {
            self.observer.on_view(view, *decision);
        }
    }

    fn steps_to(&self, index: u32) -> Vec<(Actor, Step)> {
        let (mut steps, mut index) = (Vec::new(), index);
        while index != 0 {
            let (from, actor, step) = self.parents[index as usize];
            steps.push((actor, step));
            index = from;
        }
        steps.reverse();
        steps
    }
}

impl Coverage {
    fn note(&mut self, step: Step) {
        match step {
            Step::Crash(place) => self.crashes |= 1 << place,
            Step::Create(write, answer) => self.answers |= 1 << (write.kind as u8 * 8 + answer as u8),
            Step::ReadBack(write, found) if found.is_readable() && found != write.body => {
                self.adopted |= 1 << write.kind as u8;
            }
            Step::Land(write, true) => self.landed |= 1 << write.kind as u8,
            _ => {}
        }
    }

    /// What was met in either.
    pub fn union(self, other: Self) -> Self {
        Self {
            places: self.places | other.places,
            crashes: self.crashes | other.crashes,
            answers: self.answers | other.answers,
            adopted: self.adopted | other.adopted,
            landed: self.landed | other.landed,
        }
    }

    /// Places that some driver was at.
    pub fn places(self) -> Vec<&'static str> {
        named(self.places)
    }

    /// Places at which some driver crashed.
    pub fn crashes(self) -> Vec<&'static str> {
        named(self.crashes)
    }

    /// Whether a create of this kind was ever answered so.
    pub fn answered(self, kind: Kind, answer: Created) -> bool {
        self.answers & 1 << (kind as u8 * 8 + answer as u8) != 0
    }

    /// Whether a driver ever went on with another's entry of this kind.
    pub fn adopted(self, kind: Kind) -> bool {
        self.adopted & 1 << kind as u8 != 0
    }

    /// Whether an undecided create of this kind ever took effect later.
    pub fn landed(self, kind: Kind) -> bool {
        self.landed & 1 << kind as u8 != 0
    }
}

fn named(places: u64) -> Vec<&'static str> {
    (0..PLACES.len()).filter(|place| places & 1 << place != 0).map(|place| PLACES[place]).collect()
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.harm, self.detail)?;
        for (number, (actor, step)) in self.steps.iter().enumerate() {
            writeln!(f, "  {:2}  {actor} {step}", number + 1)?;
        }
        Ok(())
    }
}

/// A set of fingerprints: open addressing in one vector, because an unoptimised `HashSet` is most of the run.
#[derive(Default)]
struct Fingerprints {
    slots: Vec<u64>,
    len: usize,
}

impl Fingerprints {
    /// Whether the fingerprint is new.
    fn insert(&mut self, fingerprint: u64) -> bool {
        if self.len * 2 >= self.slots.len() {
            let larger = vec![0; (self.slots.len() * 2).max(1024)];
            let old = std::mem::replace(&mut self.slots, larger);
            for fingerprint in old {
                if fingerprint != 0 {
                    let slot = self.slot(fingerprint);
                    self.slots[slot] = fingerprint;
                }
            }
        }
        let fingerprint = fingerprint.max(1); // 0 marks a free slot
        let slot = self.slot(fingerprint);
        let new = self.slots[slot] == 0;
        if new {
            self.slots[slot] = fingerprint;
            self.len += 1;
        }
        new
    }

    fn contains(&self, fingerprint: u64) -> bool {
        !self.slots.is_empty() && self.slots[self.slot(fingerprint.max(1))] != 0
    }

    /// Where the fingerprint is, or belongs.
    fn slot(&self, fingerprint: u64) -> usize {
        let slots = self.slots.as_slice();
        let mask = slots.len() - 1;
        let mut slot = fingerprint as usize & mask;
        while slots[slot] != 0 && slots[slot] != fingerprint {
            slot = (slot + 1) & mask;
        }
        slot
    }
}
