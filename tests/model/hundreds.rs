//! How boundaries are deleted themselves, explored exhaustively within bounds.
//!
//! A driver keeps the number of the first boundary that it has not seen. Whoever slept must learn that it was outrun
//! although that boundary is gone: so boundaries go by hundreds (here: pairs), `purged/<j>` is created before any of the
//! j-th hundred is deleted and stays for ever, and an absent boundary is believed only if its hundred is not purged, looked
//! at *afterwards*. Each driver here creates names one after another, purges where it likes, and sleeps or dies between any
//! two steps.
//!
//! In every state: nobody goes on with a name that it created again after a purge, and the newest boundary names
//! whatever is dead.

use super::search::search;

/// Boundaries in a "hundred".
const HUNDRED: u8 = 2;
/// Most names of batches, and of boundaries.
const NAMES: u8 = 8;

/// The rules, each with a switch.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// An absent boundary is believed only if its hundred is not purged.
    look_at_purged: bool,
    /// …which is looked at after the boundary, not before it.
    boundary_first: bool,
    /// The creator of a boundary looks whether its hundred is purged.
    look_after_boundary: bool,
    /// `purged/<j>` is there before the first delete.
    purged_first: bool,
    /// Drivers stop before the batch of this number.
    batches: u8,
}

const ALL: Rules =
    Rules { look_at_purged: true, boundary_first: true, look_after_boundary: true, purged_first: true, batches: 6 };

/// What a driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    Down,
    /// Knows its batch; lists the boundaries.
    Listing,
    /// Reads the newest boundary that it listed.
    Reading {
        newest: u8,
    },
    /// Creates the name of its batch.
    Creating,
    /// Has created the name, or adopted it; looks at the next boundary, then at its hundred.
    Looking {
        reborn: bool,
        is_free: bool,
    },
    /// Looked at the hundred before the boundary: the wrong order.
    LookingLate {
        reborn: bool,
    },
    /// Went on with a name that it created again after a purge.
    Reborn,
    /// Goes on, or purges first.
    Passed,
    /// Has created a boundary; looks at its hundred.
    Bounding {
        last: u8,
    },
    /// Deletes the names up to its boundary's.
    Deleting {
        name: u8,
        last: u8,
    },
    /// Creates `purged`, then deletes.
    Purging {
        boundary: u8,
        is_marked: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Driver {
    at: At,
    batch: u8,
    /// The first boundary that it has not seen.
    next: u8,
    /// The oldest boundary that it knows of.
    oldest: u8,
    /// Names below this are dead, as far as it has seen.
    dead: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Store {
    /// A bit a name.
    names: u16,
    /// Names that have been deleted, ever.
    deleted: u16,
    /// By number, one more than the highest dead batch; 0 if it is not there.
    boundaries: [u8; NAMES as usize],
    /// A bit a hundred.
    purged: u8,
}

impl Store {
    fn is_purged(&self, boundary: u8) -> bool {
        self.purged & (1 << (boundary / HUNDRED)) != 0
    }

    fn has(&self, name: u8) -> bool {
        self.names & (1 << name) != 0
    }

    fn newest(&self) -> Option<u8> {
        (0..NAMES).rev().find(|number| self.boundaries[*number as usize] > 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct State<const N: usize> {
    store: Store,
    drivers: [Driver; N],
    crashes: u8,
}

/// Every next step of one driver: a store and a driver afterwards.
fn steps(rules: Rules, store: Store, driver: Driver, out: &mut Vec<(Store, Driver)>) {
    let mut go = |store: Store, at: At, change: &dyn Fn(&mut Driver)| {
        let mut driver = Driver { at, ..driver };
        change(&mut driver);
        out.push((store, driver));
    };
    match driver.at {
        At::Down => {
            let newest = (0..NAMES).rev().find(|name| store.has(*name)).unwrap_or(0);
            go(store, At::Listing, &|driver| *driver = Driver { batch: newest, ..*driver });
        }
        At::Listing => match store.newest() {
            None => go(store, At::Creating, &|driver| (driver.next, driver.oldest, driver.dead) = (0, 0, 0)),
            Some(newest) => {
                let oldest = (0..NAMES).find(|number| store.boundaries[*number as usize] > 0).unwrap_or(0);
                go(store, At::Reading { newest }, &|driver| (driver.next, driver.oldest) = (newest + 1, oldest));
            }
        },
        At::Reading { newest } => match store.boundaries[newest as usize] {
            0 => go(store, At::Listing, &|_| {}),
            dead if dead > driver.batch => go(store, At::Down, &|_| {}),
            dead => go(store, At::Creating, &|driver| driver.dead = dead),
        },
        At::Reborn => {}
        At::Creating if driver.batch == rules.batches => {}
        At::Creating => {
            let bit = 1 << driver.batch;
            let reborn = !store.has(driver.batch) && store.deleted & bit != 0;
            let created = Store { names: store.names | bit, ..store };
            if rules.boundary_first {
                go(created, At::Looking { reborn, is_free: true }, &|_| {});
            } else {
                go(created, At::LookingLate { reborn }, &|_| {});
            }
        }
        At::LookingLate { .. } if store.is_purged(driver.next) => go(store, At::Down, &|_| {}),
        At::LookingLate { reborn } => go(store, At::Looking { reborn, is_free: true }, &|_| {}),
        At::Looking { reborn, is_free: true } => match store.boundaries.get(driver.next as usize).copied().unwrap_or(0)
        {
            0 => go(store, At::Looking { reborn, is_free: false }, &|_| {}),
            dead if dead > driver.batch => go(store, At::Down, &|_| {}),
            dead => {
                let at = if rules.boundary_first { driver.at } else { At::LookingLate { reborn } };
                go(store, at, &|driver| (driver.next, driver.dead) = (driver.next + 1, driver.dead.max(dead)));
            }
        },
        At::Looking { is_free: false, .. }
            if rules.look_at_purged && rules.boundary_first && store.is_purged(driver.next) =>
        {
            go(store, At::Down, &|_| {});
        }
        At::Looking { reborn: true, .. } => go(store, At::Reborn, &|_| {}),
        At::Looking { .. } => go(store, At::Passed, &|_| {}),
        At::Passed => {
            go(store, At::Creating, &|driver| driver.batch += 1);
            // Names below the batch in hand are committed; two of them stay.
            let last = driver.batch.saturating_sub(2);
            if driver.batch >= 2 && last >= driver.dead && driver.next < NAMES {
                let slot = driver.next as usize;
                if store.boundaries[slot] > 0 {
                    go(store, At::Creating, &|driver| driver.batch += 1);
                } else {
                    let mut store = store;
                    store.boundaries[slot] = last + 1;
                    go(store, At::Bounding { last }, &|_| {});
                }
            }
        }
        At::Bounding { .. } if rules.look_after_boundary && store.is_purged(driver.next) => {
            go(store, At::Down, &|_| {});
        }
        At::Bounding { last } => go(store, At::Deleting { name: driver.dead, last }, &|driver| {
            (driver.next, driver.dead) = (driver.next + 1, last + 1);
        }),
        At::Deleting { name, last } if name <= last => {
            let bit = 1 << name;
            let gone = store.names & bit;
            let store = Store { names: store.names & !bit, deleted: store.deleted | gone, ..store };
            go(store, At::Deleting { name: name + 1, last }, &|_| {});
        }
        At::Deleting { .. } => {
            let first = driver.oldest / HUNDRED * HUNDRED;
            if driver.next > first + HUNDRED {
                go(store, At::Purging { boundary: first, is_marked: false }, &|_| {});
            } else {
                go(store, At::Creating, &|driver| driver.batch += 1);
            }
        }
        At::Purging { boundary, is_marked } => {
            let marked = Store { purged: store.purged | 1 << (boundary / HUNDRED), ..store };
            let is_last = boundary % HUNDRED == HUNDRED - 1;
            if rules.purged_first && !is_marked {
                go(marked, At::Purging { boundary, is_marked: true }, &|_| {});
            } else if !rules.purged_first && is_marked {
                go(marked, At::Creating, &|driver| (driver.batch, driver.oldest) = (driver.batch + 1, boundary + 1));
            } else {
                let mut store = store;
                store.boundaries[boundary as usize] = 0;
                match (is_last, rules.purged_first) {
                    (false, _) => go(store, At::Purging { boundary: boundary + 1, is_marked }, &|_| {}),
                    (true, false) => go(store, At::Purging { boundary, is_marked: true }, &|_| {}),
                    (true, true) => go(store, At::Creating, &|driver| {
                        (driver.batch, driver.oldest) = (driver.batch + 1, boundary + 1);
                    }),
                }
            }
        }
    }
}

/// Whatever is deleted is named dead by the newest boundary, for a start that reads now.
fn is_named(store: &Store) -> bool {
    let dead = store.newest().map_or(0, |newest| store.boundaries[newest as usize]);
    store.deleted >> dead == 0
}

fn explore<const N: usize>(rules: Rules, crashes: u8) -> Result<usize, String> {
    let asleep = Driver { at: At::Down, batch: 0, next: 0, oldest: 0, dead: 0 };
    let store = Store { names: 0, deleted: 0, boundaries: [0; NAMES as usize], purged: 0 };
    let next = |state: State<N>, out: &mut Vec<State<N>>| {
        let mut moves = Vec::new();
        for (at, driver) in state.drivers.into_iter().enumerate() {
            let is_restart = driver.at == At::Down && driver != asleep;
            moves.clear();
            // A driver that ended starts again only while there are crashes left, so that the world is finite.
            if !is_restart || state.crashes > 0 {
                steps(rules, state.store, driver, &mut moves);
            }
            if driver.at != At::Down && state.crashes > 0 {
                moves.push((state.store, Driver { at: At::Down, ..driver }));
            }
            for (store, driver) in moves.drain(..) {
                let mut next = State { store, crashes: state.crashes - u8::from(is_restart), ..state };
                next.drivers[at] = driver;
                // Drivers are alike.
                next.drivers.sort_unstable();
                out.push(next);
            }
        }
    };
    search(State { store, drivers: [asleep; N], crashes }, next, |state| match () {
        () if state.drivers.iter().any(|driver| driver.at == At::Reborn) => Some("a purged name counts again"),
        () if !is_named(&state.store) => Some("a start would miss what is purged"),
        () => None,
    })
}

#[test]
fn boundaries_go_by_hundreds_and_nobody_misses_one() {
    let states = explore::<2>(Rules { batches: 7, ..ALL }, 1).unwrap_or_else(|way| panic!("{way}"));
    println!("{states} states");
    assert!(states > 100_000, "{states}");
}

#[test]
fn three_drivers_miss_none_either() {
    let states = explore::<3>(Rules { batches: 5, ..ALL }, 0).unwrap_or_else(|way| panic!("{way}"));
    println!("{states} states");
    assert!(states > 50_000, "{states}");
}

/// Each rule is there for something.
#[test]
fn without_a_rule_there_is_harm() {
    for (what, rules) in [
        ("no look at the hundred", Rules { look_at_purged: false, ..ALL }),
        ("the hundred is looked at first", Rules { boundary_first: false, ..ALL }),
        ("a boundary's creator does not look", Rules { look_after_boundary: false, ..ALL }),
        ("deleted before it is said", Rules { purged_first: false, ..ALL }),
    ] {
        let way = explore::<2>(rules, 1).expect_err(what);
        println!("{what}:\n{way}\n");
    }
}
