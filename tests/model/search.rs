//! Breadth first through the states of a small model, and the shortest way to harm.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// Visits every state that can be reached; gives their number, or the way to the first state that `harm` names.
pub fn search<S: Copy + Eq + Hash + Debug>(
    first: S,
    next: impl Fn(S, &mut Vec<S>),
    harm: impl Fn(&S) -> Option<&'static str>,
) -> Result<usize, String> {
    let mut from = HashMap::from([(first, None)]);
    let mut queue = VecDeque::from([first]);
    let mut out = Vec::new();
    while let Some(state) = queue.pop_front() {
        if let Some(harm) = harm(&state) {
            let way = std::iter::successors(Some(state), |state| from[state]);
            let mut way: Vec<String> = way.map(|state| format!("{state:?}")).collect();
            way.reverse();
            return Err(format!("{}\n{harm}, after {} steps", way.join("\n"), way.len() - 1));
        }
        out.clear();
        next(state, &mut out);
        for next in out.iter().copied() {
            from.entry(next).or_insert_with(|| {
                queue.push_back(next);
                Some(state)
            });
        }
    }
    Ok(from.len())
}
