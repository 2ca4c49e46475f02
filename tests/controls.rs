//! Negative controls: with one rule of the protocol left out, tests that guard it must fail. A suite that cannot go red
//! proves nothing.

use std::process::{Command, Output};

use tidemill_core::rules::Rule;

/// Runs tests of this binary in a process that leaves a rule out.
fn without(rule: Rule, tests: &[&str]) -> Output {
    let (_, name) = Rule::ALL.iter().find(|(known, _)| *known == rule).expect("every rule has a name");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(tests).args(["--exact", "--test-threads", "1"]);
    command.env("TIDEMILL_BREAK", name).env("TIDEMILL_SEEDS", "40").output().unwrap()
}

/// Each of these tests must fail without the rule.
fn goes_red(rule: Rule, tests: &[&str]) {
    for test in tests {
        let output = without(rule, &[test]);
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("running 1 test"), "{test} is gone:\n{told}");
        assert!(!output.status.success() && told.contains("FAILED"), "{test} is green without {rule:?}:\n{told}");
    }
}

const SIMULATION: &str = "simulation::every_seed_ends_with_each_row_once_and_tells_the_same_story_twice";

#[test]
fn already_exists_taken_as_ours_goes_red() {
    let test = "faults::every_create_may_be_answered_with_a_conflict_though_nothing_is_there";
    goes_red(Rule::ReadBack, &[test, SIMULATION]);
}

#[test]
fn commit_before_publish_goes_red() {
    goes_red(Rule::PublishBeforeCommit, &["faults::the_process_may_die_after_every_operation", SIMULATION]);
}

#[test]
fn no_look_at_the_boundary_goes_red() {
    goes_red(Rule::LookAtBoundary, &["schedules::a_driver_that_creates_a_purged_name_again_stops_right_there"]);
}

#[test]
fn no_sync_goes_red() {
    goes_red(Rule::Sync, &["disk::files_are_synced_before_they_have_a_name_and_folders_before_the_next_step"]);
}

#[test]
fn a_store_that_ignores_conditions_goes_red() {
    goes_red(Rule::TryStoreOut, &[SIMULATION]);
}

#[test]
fn receipts_that_nobody_checks_go_red() {
    goes_red(
        Rule::CheckReceipts,
        &["lifecycle::an_attempt_whose_receipt_is_refused_does_not_count_and_the_range_is_read_again"],
    );
}

#[test]
fn stages_swept_before_the_commit_go_red() {
    let test = "schedules::the_attempt_that_wins_is_adopted_and_published_by_the_driver_that_lost";
    goes_red(Rule::KeepStages, &[test, SIMULATION]);
}
