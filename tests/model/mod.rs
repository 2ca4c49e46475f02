//! The micro-batch protocol as a small state machine, explored exhaustively within bounds.
//!
//! ```text
//! offsets/N → stage files → acks/N → publish each file → manifest N → commits/N → sweep → boundary, purge
//! ```
//!
//! One or two drivers run this without fences, since safety may not rest on them. Each may crash between any two steps
//! and start again. Every create-if-absent has five answers: done; applied, then an error; refused with nothing
//! written; name taken by another; undecided at the deadline, to land later or never. Beside them committed files are
//! compacted, and within a budget newest entries tear and staged files are removed.
//!
//! In every state: no offset is visible twice, the files of a batch come from one attempt, what is committed is visible
//! everywhere, batches join without gap or overlap, no driver asks for a person while nothing was damaged, and a fresh
//! driver alone finishes. `sound.rs` finds no violation; `broken.rs` switches each rule off and finds one, so that no
//! rule is there for nothing and the invariants are known to see.
//!
//! | file | what |
//! | --- | --- |
//! | `words.rs` | ranges, attempts, entries, packed into machine words |
//! | `rules.rs` | the bounds of a run, and a switch for every rule |
//! | `decide.rs` | recovery as a pure function of a view |
//! | `state.rs` | the store, and the places a driver can be at |
//! | `driver.rs`, `world.rs` | every next step, of a driver and of everything else |
//! | `step.rs` | the labels of a schedule |
//! | `invariants.rs` | what must hold |
//! | `explore.rs` | breadth first; the shortest schedule to a violation |
//! | `hundreds.rs`, `forks.rs`, `search.rs` | two small models of their own: boundaries that are purged themselves; a table under two checkpoints |
//!
//! A change of the protocol changes this first. It leaves out: rows, schemas, sources, state files, clocks, fences, a
//! torn `commits/N`, and the second reading before a refusal. Drivers here refuse at once: if that is sound, so is more
//! patience.

pub mod decide;
pub mod explore;
pub mod rules;
pub mod words;

mod broken;
mod driver;
mod forks;
mod hundreds;
mod invariants;
mod real;
mod search;
mod sound;
mod state;
mod step;
mod world;
