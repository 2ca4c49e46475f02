//! What must hold in every state, whatever happened before it.

use super::rules::{Bounds, Direct, Rules};
use super::state::Store;
use super::words::{Body, FILES};

/// Which promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// An offset is visible twice.
    Duplicate,
    /// Files of one batch come from two attempts.
    Mixed,
    /// A batch is committed and not all of its rows are visible in every sink.
    Loss,
    /// Two entries that must agree do not: a batch does not begin where the one before ended, or a manifest and a
    /// commit name different attempts.
    Meaning,
    /// A driver asks for a person, and nothing was damaged.
    RefusedWithoutDamage,
    /// A fresh driver, alone, does not finish.
    Stuck,
}

/// The first promise that the store breaks, with the particulars.
pub fn broken(bounds: &Bounds, rules: &Rules, store: &Store) -> Option<(Harm, String)> {
    twice_or_mixed(bounds, store).or_else(|| lost_or_misnamed(bounds, rules, store))
}

fn twice_or_mixed(bounds: &Bounds, store: &Store) -> Option<(Harm, String)> {
    for batch_id in 0..bounds.batches {
        let mut owner = None;
        for id in 0..store.next_id {
            let Some(attempt) = store.attempt(id).filter(|attempt| attempt.batch_id() == batch_id) else { continue };
            let shown = store.visible.union(store.compacted);
            if !shown.has(attempt, FILES[0]) && !shown.has(attempt, FILES[1]) {
                continue;
            }
            if let Some(other) = owner.replace(attempt) {
                return Some((Harm::Mixed, format!("files of {other} and of {attempt} are visible")));
            }
        }
    }
    let mut seen = [0_u16; FILES.len()];
    for attempt in (0..store.next_id).filter_map(|id| store.attempt(id)) {
        let range = attempt.range();
        let rows = (1 << range.end()) - (1 << range.start());
        for file in FILES {
            for place in [store.visible, store.compacted] {
                if place.has(attempt, file) {
                    if seen[file as usize] & rows != 0 {
                        return Some((Harm::Duplicate, format!("rows of file {file}, {attempt}, are visible twice")));
                    }
                    seen[file as usize] |= rows;
                }
            }
        }
    }
    None
}

fn lost_or_misnamed(bounds: &Bounds, rules: &Rules, store: &Store) -> Option<(Harm, String)> {
    let shown = store.visible.union(store.compacted);
    let mut next = 0;
    for batch_id in 0..bounds.batches {
        let commit = store.first.get(batch_id);
        if commit.is_absent() {
            break;
        }
        let attempt = commit.attempt();
        if attempt.range().start() != next {
            return Some((Harm::Meaning, format!("{attempt} is committed, the batch before ended at {next}")));
        }
        next = attempt.range().end();
        if !FILES.iter().all(|file| shown.has(attempt, *file)) {
            return Some((Harm::Loss, format!("{attempt} is committed, not all of its files are visible")));
        }
        let held = store.markers.get(batch_id);
        if rules.direct != Direct::None && held != Body::from(attempt.range()) {
            return Some((Harm::Loss, format!("{attempt} is committed, the direct sink holds {held}")));
        }
        for manifests in store.manifests {
            let manifest = manifests.get(batch_id);
            if !manifest.is_absent() && manifest != commit {
                return Some((Harm::Meaning, format!("{attempt} is committed, a manifest names {manifest}")));
            }
        }
    }
    None
}
