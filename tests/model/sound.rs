//! Under the rules of the protocol nothing goes wrong: no schedule within these bounds breaks a promise.
//!
//! Compaction nearly trebles the states, so the widest runs do without; each hazard meets it in a narrower one, and in
//! the ignored test, which takes minutes.

use super::decide::{Decision, View, decide};
use super::explore::{Coverage, Observer, Outcome, explore, explore_with};
use super::rules::{Bounds, Direct, Rules};
use super::state::PLACES;
use super::step::Created;
use super::words::{Body, Kind, Row};

/// Explores, prints the size, and fails with the schedule if there is a violation.
fn sound(bounds: Bounds, rules: Rules) -> Outcome {
    let outcome = explore(bounds, rules);
    let Outcome { states, steps, stores, views, violation, .. } = &outcome;
    println!("{states} states, {steps} steps, {stores} stores, {views} views: {bounds:?}");
    if let Some(schedule) = violation {
        panic!("{bounds:?} {rules:?}\n{schedule}");
    }
    outcome
}

/// Every place that was reached was crashed at.
fn crashed_everywhere(coverage: Coverage) {
    let reached: Vec<_> = coverage.places().into_iter().filter(|place| !PLACES[..3].contains(place)).collect();
    assert_eq!(coverage.crashes(), reached);
}

fn one_driver() -> Bounds {
    Bounds { drivers: 1, ..Bounds::default() }
}

fn without_compaction() -> Bounds {
    Bounds { compaction: false, ..Bounds::default() }
}

fn direct_after() -> Rules {
    Rules { direct: Direct::After, ..Rules::default() }
}

#[test]
fn one_driver_is_sound_with_each_number_of_sinks_and_crashes() {
    for sinks in [1, 2] {
        for crashes in [0, 1, 2] {
            let outcome = sound(Bounds { sinks, crashes, ..one_driver() }, Rules::default());
            if crashes > 0 {
                crashed_everywhere(outcome.coverage);
            }
        }
    }
}

#[test]
fn two_drivers_are_sound_with_one_sink_and_with_two() {
    for sinks in [1, 2] {
        sound(Bounds { sinks, ..Bounds::default() }, Rules::default());
    }
}

#[test]
fn two_drivers_and_a_crash_anywhere_are_sound() {
    let outcome = sound(Bounds { crashes: 1, ..Bounds::default() }, Rules::default());
    crashed_everywhere(outcome.coverage);
}

#[test]
fn two_drivers_two_sinks_and_a_crash_anywhere_are_sound() {
    let outcome = sound(Bounds { sinks: 2, crashes: 1, ..Bounds::default() }, Rules::default());
    crashed_everywhere(outcome.coverage);
}

#[test]
fn create_that_lands_after_its_run_has_ended_is_sound() {
    sound(Bounds { crashes: 1, in_flight: 1, ..one_driver() }, Rules::default());
    sound(Bounds { sinks: 2, crashes: 1, in_flight: 1, ..one_driver() }, Rules::default());
    for sinks in [1, 2] {
        sound(Bounds { sinks, in_flight: 1, ..without_compaction() }, Rules::default());
    }
}

#[test]
fn two_creates_in_flight_at_once_are_sound() {
    sound(Bounds { in_flight: 2, ..one_driver() }, Rules::default());
}

#[test]
fn torn_newest_entry_is_superseded_or_refused() {
    sound(Bounds { crashes: 1, torn: 1, ..one_driver() }, Rules::default());
    sound(Bounds { torn: 1, ..Bounds::default() }, Rules::default());
}

#[test]
fn staged_file_that_vanishes_is_refused() {
    sound(Bounds { crashes: 1, vanish: 1, ..one_driver() }, Rules::default());
    sound(Bounds { vanish: 1, ..Bounds::default() }, Rules::default());
}

#[test]
fn direct_sink_that_writes_after_the_decision_is_sound() {
    sound(Bounds::default(), direct_after());
    sound(Bounds { crashes: 1, ..one_driver() }, direct_after());
    sound(Bounds { torn: 1, ..without_compaction() }, direct_after());
}

#[test]
fn marker_that_names_its_offsets_never_differs_after_the_decision() {
    sound(without_compaction(), Rules { direct_nonce: true, ..direct_after() });
}

#[test]
fn three_batches_are_sound() {
    sound(Bounds { batches: 3, crashes: 1, ..one_driver() }, Rules::default());
    sound(Bounds { batches: 3, ..without_compaction() }, Rules::default());
}

#[test]
fn everything_that_can_go_wrong_at_once_is_sound_for_one_driver() {
    sound(Bounds { crashes: 1, in_flight: 1, torn: 1, vanish: 1, ..one_driver() }, direct_after());
}

#[test]
#[ignore = "minutes: for a change of the protocol"]
fn wider_bounds_are_sound() {
    sound(Bounds { in_flight: 1, ..Bounds::default() }, Rules::default());
    sound(Bounds { batches: 3, ..Bounds::default() }, Rules::default());
    sound(Bounds { crashes: 1, torn: 1, ..Bounds::default() }, direct_after());
    sound(Bounds { crashes: 1, in_flight: 1, ..without_compaction() }, Rules::default());
}

/// What makes a slow copy harmful is that its target may have been compacted away: see the same rule in `broken.rs`.
#[test]
fn slow_copy_is_sound_as_long_as_nothing_is_compacted() {
    sound(without_compaction(), Rules { slow_copy: true, ..Rules::default() });
}

#[test]
fn every_place_is_crashed_at_and_every_answer_is_met() {
    let crash = Bounds { crashes: 1, in_flight: 1, ..one_driver() };
    let lost = Bounds { vanish: 1, crashes: 1, ..one_driver() };
    let slow = Rules { slow_copy: true, ..Rules::default() };
    let met = sound(crash, direct_after())
        .coverage
        .union(sound(lost, Rules::default()).coverage)
        .union(sound(Bounds { crashes: 1, compaction: false, ..one_driver() }, slow).coverage);

    assert_eq!(met.crashes(), PLACES[3..], "all but down, done and refused");
    for kind in Kind::ALL {
        for answer in Created::ALL {
            assert!(met.answered(kind, answer), "a create of {kind:?} was never answered {answer:?}");
        }
        assert!(met.landed(kind), "no create of {kind:?} landed late");
    }
    assert!(met.adopted(Kind::Offsets) && met.adopted(Kind::Acks), "no driver went on with another's entry");
    assert!(!met.adopted(Kind::Manifest) && !met.adopted(Kind::Commits), "these two are another's attempt: refused");
}

/// Decides on each view a second time with everything at or below the boundary removed.
struct DeadNames {
    met: [u32; 5],
    below_a_boundary: u32,
}

impl Observer for DeadNames {
    fn on_view(&mut self, view: &View, decision: Decision) {
        let kind = match decision {
            Decision::Reread => 0,
            Decision::Refuse(_) => 1,
            Decision::RollForward(_) => 2,
            Decision::Run { .. } => 3,
            Decision::Plan { .. } => 4,
        };
        self.met[kind] += 1;
        let mut living = *view;
        for batch_id in 0..(view.boundary + 1) as u8 {
            living.offsets[batch_id as usize] = Row::default();
            living.acks[batch_id as usize] = Row::default();
            living.commits.set(batch_id, Body::ABSENT);
        }
        assert_eq!(decide(&living, &Rules::default()), decision, "{view:?}");
        self.below_a_boundary += u32::from(living != *view);
    }
}

#[test]
fn names_at_or_below_the_boundary_decide_nothing() {
    let mut seen = DeadNames { met: [0; 5], below_a_boundary: 0 };
    let bounds = Bounds { torn: 1, ..without_compaction() };
    let outcome = explore_with(bounds, Rules::default(), &mut seen);
    println!("{} views, {:?} of each decision", outcome.views, seen.met);
    assert!(seen.met.iter().all(|views| *views > 0), "a decision was never met: {:?}", seen.met);
    assert!(seen.below_a_boundary > 0, "no view held a dead name");
    assert_eq!(seen.met.iter().sum::<u32>() as usize, outcome.views);
}
