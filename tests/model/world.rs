//! What happens without any driver: crashes, late creates, compaction and damage.

use super::rules::Bounds;
use super::state::{Driver, State};
use super::step::{Actor, Step};
use super::words::{BATCHES, Body, FILES, Kind, Write};

/// Calls `each` for everything that may happen to `state`.
pub fn events(bounds: &Bounds, state: &State, each: &mut impl FnMut(Actor, Step, State)) {
    land(state, each);
    crash(state, each);
    for batch_id in 0..bounds.batches {
        compact(bounds, state, batch_id, each);
        tear(bounds, state, batch_id, each);
    }
    remove(state, each);
}

/// A create that was undecided at its deadline is applied after all, unless the name is taken by now.
fn land(state: &State, each: &mut impl FnMut(Actor, Step, State)) {
    for place in 0..2 {
        let Some(write) = state.store.flying[place] else { continue };
        let mut next = *state;
        let free = next.store.get(write.kind, write.batch_id, write.lane).is_absent();
        next.store.land(place);
        each(Actor::World, Step::Land(write, free), next);
    }
}

fn crash(state: &State, each: &mut impl FnMut(Actor, Step, State)) {
    if state.store.crashes == 0 {
        return;
    }
    for who in 0..2 {
        let driver = &state.drivers[who];
        if driver.is_running() {
            let step = Step::Crash(driver.place());
            let mut next = *state;
            next.store.crashes -= 1;
            next.drivers[who] = Driver::Down;
            each(Actor::Driver(who as u8), step, next);
        }
    }
}

/// The files of a committed batch become part of a larger one; their own names go. Once a batch.
fn compact(bounds: &Bounds, state: &State, batch_id: u8, each: &mut impl FnMut(Actor, Step, State)) {
    let store = &state.store;
    if !bounds.compaction || store.visible.is_empty() || store.commits.get(batch_id).is_absent() {
        return;
    }
    let mut next = *state;
    let mut found = false;
    for id in 0..store.next_id {
        let Some(attempt) = store.attempt(id).filter(|attempt| attempt.batch_id() == batch_id) else { continue };
        for file in FILES {
            if store.compacted.has(attempt, file) {
                return;
            }
            if store.visible.has(attempt, file) {
                next.store.visible.remove(attempt, file);
                next.store.compacted.add(attempt, file);
                found = true;
            }
        }
    }
    if found {
        each(Actor::World, Step::Compact(batch_id), next);
    }
}

/// A newest `offsets/N` or `acks/N`, with no commit at or above it and nothing planned above it, cannot be read.
fn tear(bounds: &Bounds, state: &State, batch_id: u8, each: &mut impl FnMut(Actor, Step, State)) {
    let store = &state.store;
    if store.torn == 0 {
        return;
    }
    let committed = (batch_id..bounds.batches).any(|n| !store.commits.get(n).is_absent());
    let planned = (batch_id as usize + 1..BATCHES).any(|n| !store.offsets[n].is_empty());
    if committed || planned {
        return;
    }
    for (kind, row) in [(Kind::Offsets, store.offsets), (Kind::Acks, store.acks)] {
        let row = row[batch_id as usize];
        if row.is_empty() || !row.get(row.len() - 1).is_readable() {
            continue;
        }
        let mut next = *state;
        next.store.put(Write { kind, batch_id, lane: row.len() - 1, body: Body::TORN });
        next.store.torn -= 1;
        next.store.damaged = true;
        each(Actor::World, Step::Tear(kind, batch_id), next);
    }
}

/// Someone removes a staged file that `acks/N` names and that was not published.
fn remove(state: &State, each: &mut impl FnMut(Actor, Step, State)) {
    let store = &state.store;
    if store.vanish == 0 {
        return;
    }
    for attempt in store.acks.iter().filter_map(|row| row.binding()).map(Body::attempt) {
        for file in FILES {
            if store.staged.has(attempt, file) && !store.visible.has(attempt, file) {
                let mut next = *state;
                next.store.unstage(attempt, file);
                next.store.vanish -= 1;
                next.store.damaged = true;
                each(Actor::World, Step::Remove(attempt, file), next);
            }
        }
    }
}
