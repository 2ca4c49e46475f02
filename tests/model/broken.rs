//! Every rule is needed: switched off, it leads to harm within these bounds, and to the harm one would expect.
//!
//! These are also the negative controls of `sound.rs`: invariants that saw nothing here would prove nothing there.

use super::decide::Section;
use super::explore::explore;
use super::invariants::Harm;
use super::rules::{Bounds, Direct, EndsFrom, Look, LostAttempt, Rules, Stale};

/// Explores, prints the schedule, and fails if there is none or if it does another harm.
fn does(expected: Harm, bounds: Bounds, rules: Rules) {
    let outcome = explore(bounds, rules);
    let Some(schedule) = outcome.violation else {
        panic!("expected {expected:?}; {} states are sound: {bounds:?} {rules:?}", outcome.states);
    };
    println!("{} states\n{schedule}", outcome.states);
    assert_eq!(schedule.harm, expected, "{schedule}");
}

fn torn() -> Bounds {
    Bounds { torn: 1, ..Bounds::default() }
}

#[test]
fn taken_name_trusted_to_be_ours_mixes_two_attempts() {
    does(Harm::Mixed, Bounds::default(), Rules { already_exists_is_mine: true, ..Rules::default() });
}

#[test]
fn commit_before_publishing_loses_rows() {
    does(Harm::Loss, Bounds::default(), Rules { commit_before_publish: true, ..Rules::default() });
}

#[test]
fn commit_before_publishing_loses_rows_of_a_lone_driver_too() {
    let bounds = Bounds { drivers: 1, crashes: 1, ..Bounds::default() };
    does(Harm::Loss, bounds, Rules { commit_before_publish: true, ..Rules::default() });
}

#[test]
fn sweeping_stages_because_acks_are_absent_loses_the_winner() {
    does(Harm::Stuck, Bounds::default(), Rules { sweep_by_absence: true, ..Rules::default() });
}

#[test]
fn sweeping_stages_because_acks_are_absent_loses_a_create_in_flight() {
    let bounds = Bounds { drivers: 1, in_flight: 1, ..Bounds::default() };
    does(Harm::Stuck, bounds, Rules { sweep_by_absence: true, ..Rules::default() });
}

#[test]
fn boundary_not_looked_at_brings_a_purged_batch_back() {
    does(Harm::Mixed, Bounds::default(), Rules { no_boundary_check: true, ..Rules::default() });
}

#[test]
fn slow_copy_that_lands_after_a_compaction_doubles_rows() {
    does(Harm::Duplicate, Bounds::default(), Rules { slow_copy: true, ..Rules::default() });
}

#[test]
fn next_batch_planned_from_torn_offsets_overlaps() {
    does(Harm::Duplicate, torn(), Rules { ends_from: EndsFrom::Offsets, ..Rules::default() });
}

#[test]
fn torn_acks_executed_again_mix_two_attempts() {
    does(Harm::Mixed, torn(), Rules { lost_attempt: LostAttempt::RunAgain, ..Rules::default() });
}

#[test]
fn vanished_stage_executed_again_mixes_two_attempts() {
    let bounds = Bounds { vanish: 1, ..Bounds::default() };
    does(Harm::Mixed, bounds, Rules { lost_attempt: LostAttempt::RunAgain, ..Rules::default() });
}

#[test]
fn target_looked_at_before_the_stage_takes_a_moving_file_for_lost() {
    does(Harm::RefusedWithoutDamage, Bounds::default(), Rules { look: Look::TargetFirst, ..Rules::default() });
}

#[test]
fn manifest_looked_at_last_takes_a_compacted_file_for_lost() {
    does(Harm::RefusedWithoutDamage, Bounds::default(), Rules { manifest_last: true, ..Rules::default() });
}

#[test]
fn stale_view_taken_for_a_hole_is_refused_without_damage() {
    does(Harm::RefusedWithoutDamage, Bounds::default(), Rules { stale: Stale::Refuse, ..Rules::default() });
}

#[test]
fn sinks_read_before_commits_seem_to_be_behind() {
    let read_order = [Section::Sinks, Section::Commits, Section::Acks, Section::Offsets, Section::Boundary];
    does(Harm::RefusedWithoutDamage, Bounds::default(), Rules { read_order, ..Rules::default() });
}

#[test]
fn direct_sink_written_before_the_decision_is_ahead_for_ever() {
    does(Harm::Stuck, Bounds::default(), Rules { direct: Direct::Before, ..Rules::default() });
}

#[test]
fn direct_sink_that_may_lead_holds_rows_of_an_attempt_that_lost() {
    does(Harm::Loss, torn(), Rules { direct: Direct::Before, direct_may_lead: true, ..Rules::default() });
}
