//! One table under two checkpoints, of which one is a copy of the other, or under one that was robbed of its acks: explored
//! exhaustively within bounds.
//!
//! Then a batch has two attempts that both believe to have won. The table decides: whoever publishes reads the manifest,
//! creates the claim if it is absent, reads the manifest *once more* (claims are swept when their manifest is there), and
//! only then gives the first name. In every state the visible files of a batch are of one attempt, and nobody is refused
//! while there is one whole checkpoint.

use super::search::search;

/// Batches.
const BATCHES: u8 = 2;
/// Attempts: one a batch for each checkpoint, and one more.
const ATTEMPTS: u8 = 5;

/// The rules, each with a switch.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A batch is claimed before its first file has a name.
    claim: bool,
    /// The manifest is read again after the claim.
    look_behind: bool,
    /// Claims stay until the batch's manifest is there.
    sweep_late: bool,
}

const ALL: Rules = Rules { claim: true, look_behind: true, sweep_late: true };

/// What a driver does next, with its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Down,
    Acks(u8),
    Look(u8),
    Claim(u8),
    LookBehind(u8),
    Show(u8, u8),
    Manifest(u8),
    Commit(u8),
    Sweep(u8),
    Done,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Checkpoint {
    acks: [Option<u8>; BATCHES as usize],
    committed: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The second one is a copy, once it is made.
    checkpoints: [Option<Checkpoint>; 2],
    drivers: [At; 2],
    /// The attempt that each driver holds for the winner.
    held: [Option<u8>; 2],
    claims: [Option<u8>; BATCHES as usize],
    manifests: [Option<u8>; BATCHES as usize],
    /// A bit for each attempt's two files.
    shown: u16,
    /// Of which batch each attempt is.
    attempts: [Option<u8>; ATTEMPTS as usize],
    crashes: u8,
    robberies: u8,
}

impl State {
    fn new() -> State {
        State {
            checkpoints: [Some(Checkpoint { acks: [None; BATCHES as usize], committed: 0 }), None],
            drivers: [At::Down; 2],
            held: [None; 2],
            claims: [None; BATCHES as usize],
            manifests: [None; BATCHES as usize],
            shown: 0,
            attempts: [None; ATTEMPTS as usize],
            crashes: 1,
            robberies: 1,
        }
    }

    /// Whether files of two attempts of one batch are visible.
    fn is_mixed(&self) -> bool {
        let visible = |attempt: usize| self.shown & (0b11 << (2 * attempt)) != 0;
        (0..BATCHES).any(|batch| {
            let of_batch = |attempt: &usize| self.attempts[*attempt] == Some(batch) && visible(*attempt);
            (0..ATTEMPTS as usize).filter(of_batch).count() > 1
        })
    }

    /// What the driver of this checkpoint does next, and every state that follows.
    fn steps(self, rules: Rules, who: usize, out: &mut Vec<State>) {
        let Some(checkpoint) = self.checkpoints[who] else { return };
        let go = |at: At, change: &dyn Fn(&mut State)| {
            let mut state = self;
            change(&mut state);
            state.drivers[who] = at;
            state
        };
        // Ours, or nobody's yet, or another's.
        let held = self.held[who];
        let meets = |there: Option<u8>, ours: At, nobodys: At| match there {
            None => nobodys,
            Some(_) if there == held => ours,
            Some(_) => At::Refused,
        };
        let start = |batch: u8| if batch == BATCHES { At::Done } else { At::Acks(batch) };
        let next = match self.drivers[who] {
            At::Done | At::Refused => return,
            At::Down => go(start(checkpoint.committed), &|_| {}),
            At::Acks(batch) if checkpoint.acks[batch as usize].is_some() => {
                go(At::Look(batch), &|state| state.held[who] = checkpoint.acks[batch as usize])
            }
            At::Acks(batch) => {
                let free = self.attempts.iter().position(Option::is_none).expect("there are enough");
                go(At::Look(batch), &|state| {
                    state.attempts[free] = Some(batch);
                    state.held[who] = Some(free as u8);
                    let acks = state.checkpoints[who].as_mut().map(|checkpoint| &mut checkpoint.acks[batch as usize]);
                    *acks.expect("it is there") = Some(free as u8);
                })
            }
            At::Look(batch) => {
                let next = if rules.claim { At::Claim(batch) } else { At::Show(batch, 0) };
                go(meets(self.manifests[batch as usize], At::Commit(batch), next), &|_| {})
            }
            At::Claim(batch) => {
                let next = if rules.look_behind { At::LookBehind(batch) } else { At::Show(batch, 0) };
                let claim = self.claims[batch as usize];
                go(meets(claim, next, next), &|state| {
                    let _ = state.claims[batch as usize].get_or_insert(held.expect("it has acks"));
                })
            }
            At::LookBehind(batch) => {
                let there = self.manifests[batch as usize];
                go(meets(there, At::Commit(batch), At::Show(batch, 0)), &|_| {})
            }
            At::Show(batch, file) => {
                let next = if file == 0 { At::Show(batch, 1) } else { At::Manifest(batch) };
                let bit = 1 << (2 * held.expect("it has acks") + file);
                go(next, &|state| state.shown |= bit)
            }
            At::Manifest(batch) => {
                let there = self.manifests[batch as usize];
                go(meets(there, At::Commit(batch), At::Commit(batch)), &|state| {
                    let _ = state.manifests[batch as usize].get_or_insert(held.expect("it has acks"));
                })
            }
            At::Commit(batch) => go(At::Sweep(batch), &|state| {
                state.checkpoints[who].as_mut().expect("it is there").committed = batch + 1;
            }),
            At::Sweep(batch) => go(start(batch + 1), &|state| state.claims[batch as usize] = None),
        };
        out.push(next);
        if let (At::Claim(batch), false) = (self.drivers[who], rules.sweep_late) {
            out.push(go(At::Claim(batch), &|state| state.claims[batch as usize] = None));
        }
    }

    /// What others do: a driver dies, somebody copies the first checkpoint, or deletes acks from it.
    fn others(self, out: &mut Vec<State>) {
        for who in 0..2 {
            if self.crashes > 0 && !matches!(self.drivers[who], At::Down | At::Refused) {
                let mut state = State { crashes: self.crashes - 1, ..self };
                (state.drivers[who], state.held[who]) = (At::Down, None);
                out.push(state);
            }
        }
        if self.checkpoints[1].is_none() {
            out.push(State { checkpoints: [self.checkpoints[0]; 2], ..self });
        }
        if let Some(first) = self.checkpoints[0].filter(|_| self.robberies > 0) {
            for batch in first.committed..BATCHES {
                let mut robbed = first;
                robbed.acks[batch as usize] = None;
                let checkpoints = [Some(robbed), self.checkpoints[1]];
                out.push(State { checkpoints, robberies: 0, ..self });
            }
        }
    }
}

fn explore(rules: Rules) -> Result<usize, String> {
    let next = |state: State, out: &mut Vec<State>| {
        for who in 0..2 {
            state.steps(rules, who, out);
        }
        state.others(out);
    };
    search(State::new(), next, |state| {
        let was_refused = state.drivers.contains(&At::Refused);
        let is_whole = state.checkpoints[1].is_none() && state.robberies == 1;
        match () {
            () if state.is_mixed() => Some("files of two attempts are visible"),
            () if was_refused && is_whole => Some("refused, though there is one whole checkpoint"),
            () => None,
        }
    })
}

#[test]
fn a_batch_shows_one_attempt_under_two_checkpoints() {
    let states = explore(ALL).unwrap_or_else(|way| panic!("{way}"));
    println!("{states} states");
    assert!(states > 10_000, "{states}");
}

/// Each rule is there for something.
#[test]
fn without_a_rule_of_the_claim_there_is_harm() {
    for (what, rules) in [
        ("no claim", Rules { claim: false, ..ALL }),
        ("no look behind the claim", Rules { look_behind: false, ..ALL }),
        ("claims are swept before their manifest is there", Rules { sweep_late: false, ..ALL }),
    ] {
        let way = explore(rules).expect_err(what);
        println!("{what}:\n{way}\n");
    }
}
