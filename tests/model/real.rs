//! The engine's own recovery decision, put to every view that the exploration meets.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::Nonce;
use tidemill_runtime::checkpoint::recovery::{self, AcksSeen, BoundarySeen, CommitSeen, OffsetsSeen, Revisions, Seen};

use super::decide::{Decision, Reason, View};
use super::explore::{Observer, explore_with};
use super::rules::{Bounds, Rules};
use super::words::{Attempt, BATCHES, Body, Range};

fn plan_nonce(range: Range) -> Nonce {
    Nonce::from_text(format!("{}-{}", range.start(), range.end()))
}

fn acks_nonce(attempt: Attempt) -> Nonce {
    Nonce::from_text(format!("{}", attempt.id()))
}

fn seen<T>(body: Body, whole: impl Fn(Body) -> T) -> Option<Seen<T>> {
    match body {
        absent if absent.is_absent() => None,
        Body::TORN => Some(Seen::Torn),
        readable => Some(Seen::Whole(whole(readable))),
    }
}

/// The model's view in the engine's words.
fn translate(view: &View) -> recovery::View {
    let boundary = BoundarySeen { dead: u64::try_from(view.boundary).ok(), ..BoundarySeen::default() };
    let mut real = recovery::View { boundary, ..recovery::View::default() };
    for sink in 0..view.sinks {
        let newest = (0..BATCHES as u8).rev().find(|n| !view.manifests[sink as usize].get(*n).is_absent());
        real.sinks.insert(sink.to_string(), newest.map(u64::from));
    }
    let all: BTreeSet<String> = real.sinks.keys().cloned().collect();
    for n in 0..BATCHES as u8 {
        let before = n.checked_sub(1).and_then(|before| view.acks[before as usize].binding());
        let previous_acks = before.map(|body| acks_nonce(body.attempt()));
        for revision in 0..4 {
            let plan = seen(view.offsets[n as usize].get(revision), |body| OffsetsSeen {
                nonce: plan_nonce(body.range()),
                previous_acks: previous_acks.clone(),
                sources: BTreeSet::new(),
            });
            insert(&mut real.offsets, n, revision, plan);
            let acks = seen(view.acks[n as usize].get(revision), |body| AcksSeen {
                nonce: acks_nonce(body.attempt()),
                offsets_nonce: plan_nonce(body.attempt().range()),
                sinks: all.clone(),
            });
            insert(&mut real.acks, n, revision, acks);
        }
        let commit = seen(view.commits.get(n), |body| CommitSeen { acks_nonce: acks_nonce(body.attempt()) });
        insert(&mut real.commits, n, 0, commit);
    }
    real
}

fn insert<T>(log: &mut BTreeMap<u64, Revisions<T>>, n: u8, revision: u8, seen: Option<Seen<T>>) {
    if let Some(seen) = seen {
        log.entry(u64::from(n)).or_default().found.insert(u32::from(revision), seen);
    }
}

/// Compares decision with decision.
#[derive(Default)]
struct Compare {
    views: usize,
    reread: usize,
}

impl Observer for Compare {
    fn on_view(&mut self, view: &View, decision: Decision) {
        self.views += 1;
        let real = recovery::decide(&translate(view));
        let agree = match (decision, &real) {
            // The engine reads again what the model reads again or refuses at once.
            (Decision::Reread | Decision::Refuse(_), recovery::Decision::Unsound(_)) => true,
            (Decision::RollForward(attempt), recovery::Decision::RollForward { batch_id, commit_revision: 0 }) => {
                u64::from(attempt.batch_id()) == batch_id.0
            }
            (Decision::Run { batch_id, .. }, recovery::Decision::Run { batch_id: real }) => {
                u64::from(batch_id) == real.0
            }
            (
                Decision::Plan { batch_id, revision, .. },
                recovery::Decision::Plan { batch_id: real, revision: of_real },
            ) => (u64::from(batch_id), u32::from(revision)) == (real.0, *of_real),
            // Stricter after damage: what is torn and decided is refused by name, though something else would be enough.
            (_, recovery::Decision::Unsound(recovery::Reason::Damaged { path })) => {
                let batch_id: usize = path[path.len() - 20..].parse().unwrap();
                let log = if path.starts_with("offsets/") { &view.offsets } else { &view.acks };
                log[batch_id].get(0) == Body::TORN && log[batch_id].binding().is_none()
            }
            // Stricter on a view of no single moment: others went on while it was read.
            (_, recovery::Decision::Unsound(recovery::Reason::Missing { .. } | recovery::Reason::Unrelated { .. })) => {
                self.reread += 1;
                true
            }
            _ => false,
        };
        assert!(agree, "model: {decision:?}\nengine: {real:?}\nview: {view:?}");
        if let Decision::Refuse(Reason::AcksDamaged(n)) = decision {
            let damaged = matches!(&real, recovery::Decision::Unsound(recovery::Reason::Damaged { path })
                if path.ends_with(&n.to_string()));
            assert!(damaged, "{real:?}");
        }
    }
}

#[test]
fn the_engine_decides_as_the_model_does_on_every_view_it_meets() {
    let base = Bounds { crashes: 1, ..Bounds::default() };
    for bounds in [
        Bounds { drivers: 1, sinks: 2, ..base },
        Bounds { drivers: 2, crashes: 0, ..base },
        Bounds { drivers: 1, torn: 1, ..base },
        Bounds { drivers: 1, vanish: 1, ..base },
        Bounds { drivers: 1, in_flight: 1, ..base },
        Bounds { drivers: 1, batches: 3, ..base },
    ] {
        let mut compare = Compare::default();
        let outcome = explore_with(bounds, Rules::default(), &mut compare);
        assert!(outcome.violation.is_none());
        println!("{bounds:?}: {} views, {} of them read again by the engine alone", compare.views, compare.reread);
        assert!(compare.views > 50, "{}", compare.views);
        assert!(compare.reread * 5 < compare.views, "{} of {}", compare.reread, compare.views);
    }
}
