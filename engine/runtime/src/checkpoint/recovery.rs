//! What a checkpoint means: the decision that every start of a query begins with.
//!
//! [`decide`] is pure: a [`View`] in, a [`Decision`] out. It neither reads nor writes, so every schedule of crashes can be
//! put to it as a table. It is asked twice before anything is refused, see [`Decision::Unsound`].

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{BatchId, Nonce};

use super::Log;

/// What reading a file gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    /// A whole entry.
    Whole(T),
    /// Not what somebody wrote.
    Torn,
    /// It is there, and so old that a start does not read it.
    Unread,
}

/// One entry of a log with all its revisions: what is whole binds, what is torn counts by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions<T> {
    /// By revision number, from 0. A gap in the numbers is a missing file.
    pub found: BTreeMap<u32, Seen<T>>,
}

impl<T> Default for Revisions<T> {
    fn default() -> Self {
        Revisions { found: BTreeMap::new() }
    }
}

impl<T> Revisions<T> {
    /// The lowest whole revision.
    pub fn binding(&self) -> Option<&T> {
        self.found.values().find_map(|seen| match seen {
            Seen::Whole(entry) => Some(entry),
            Seen::Torn | Seen::Unread => None,
        })
    }

    /// The number that a new revision takes: one above the highest.
    pub fn next_revision(&self) -> u32 {
        self.found.keys().next_back().map_or(0, |revision| revision + 1)
    }

    fn all_torn(&self) -> bool {
        !self.found.is_empty() && self.found.values().all(|seen| matches!(seen, Seen::Torn))
    }

    fn all_whole(&self) -> bool {
        self.found.values().all(|seen| matches!(seen, Seen::Whole(_)))
    }

    fn any_torn(&self) -> bool {
        self.found.values().any(|seen| matches!(seen, Seen::Torn))
    }
}

/// What matters of `offsets/<N>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsSeen {
    /// Its nonce.
    pub nonce: Nonce,
    /// The nonce of `acks/<N-1>` that it was planned from.
    pub previous_acks: Option<Nonce>,
    /// The sources it names.
    pub sources: BTreeSet<String>,
}

/// What matters of `acks/<N>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcksSeen {
    /// Its nonce.
    pub nonce: Nonce,
    /// The nonce of the `offsets/<N>` that ran.
    pub offsets_nonce: Nonce,
    /// The sinks it names.
    pub sinks: BTreeSet<String>,
}

/// What matters of `commits/<N>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSeen {
    /// The nonce of `acks/<N>`.
    pub acks_nonce: Nonce,
}

/// What matters of the boundaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundarySeen {
    /// The highest batch whose names are dead.
    pub dead: Option<u64>,
    /// The newest boundary is torn: a purge took place, nobody can say up to where.
    pub is_torn: bool,
    /// The number of the oldest that is there.
    pub oldest: u64,
    /// The number that the next one takes.
    pub next: u64,
}

/// Everything that a start read, in the stated order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// `boundary/`
    pub boundary: BoundarySeen,
    /// `commits/`
    pub commits: BTreeMap<u64, Revisions<CommitSeen>>,
    /// The newest batch that each sink with a memory shows.
    pub sinks: BTreeMap<String, Option<u64>>,
    /// `acks/`
    pub acks: BTreeMap<u64, Revisions<AcksSeen>>,
    /// `offsets/`
    pub offsets: BTreeMap<u64, Revisions<OffsetsSeen>>,
}

impl View {
    /// The first batch whose names count.
    pub fn first_alive(&self) -> u64 {
        let stated = self.boundary.dead.map_or(0, |dead| dead + 1);
        if !self.boundary.is_torn {
            return stated;
        }
        // A purge up to some batch that nobody can name any more: what lies below the newest unbroken run is dead.
        let mut first = self.offsets.keys().chain(self.commits.keys()).max().copied().unwrap_or(stated);
        let whole =
            |n: u64| self.commits.contains_key(&n) && self.acks.contains_key(&n) && self.offsets.contains_key(&n);
        while first > stated && whole(first - 1) {
            first -= 1;
        }
        first
    }

    /// The files of the batches' logs: log, batch, revision.
    pub fn files(&self) -> impl Iterator<Item = (Log, BatchId, u32)> {
        fn of<T>(log: Log, entries: &BTreeMap<u64, Revisions<T>>) -> impl Iterator<Item = (Log, BatchId, u32)> {
            entries.iter().flat_map(move |(n, entry)| entry.found.keys().map(move |r| (log, BatchId(*n), *r)))
        }
        of(Log::Offsets, &self.offsets).chain(of(Log::Acks, &self.acks)).chain(of(Log::Commits, &self.commits))
    }
}

/// What a start does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is pending: plan this batch, from `acks/<N-1>` (batch 0: from the sources' own start).
    Plan {
        /// N.
        batch_id: BatchId,
        /// The revision that `offsets/<N>` will have: above 0 if what is there is torn.
        revision: u32,
    },
    /// `offsets/<N>` binds: run N over exactly its ranges.
    Run {
        /// N.
        batch_id: BatchId,
    },
    /// `acks/<N>` binds: publish its attempt and commit. Nothing is read again.
    RollForward {
        /// N.
        batch_id: BatchId,
        /// The revision that `commits/<N>` will have: above 0 if what is there is torn.
        commit_revision: u32,
    },
    /// The view does not hold together. If others went on while it was read, it does on a second reading; if it is the
    /// same then, it is refused for this reason.
    Unsound(Reason),
}

/// Why a view does not hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A file that must be there is not.
    Missing {
        /// Its path, relative to the checkpoint.
        path: String,
        /// What is there that needs it.
        needed_by: String,
    },
    /// A file is torn that may not be.
    Damaged {
        /// Its path, relative to the checkpoint.
        path: String,
    },
    /// Two files do not belong together.
    Unrelated {
        /// The later file.
        path: String,
        /// The earlier file that it does not refer to.
        earlier: String,
    },
    /// A sink shows a batch that the checkpoint knows nothing of.
    SinkAhead {
        /// The sink's name.
        sink: String,
        /// The newest batch that it shows.
        shows: u64,
        /// The newest batch that it may show.
        known: Option<u64>,
    },
    /// A sink lacks a batch that is committed.
    SinkBehind {
        /// The sink's name.
        sink: String,
        /// The newest batch that it shows.
        shows: Option<u64>,
        /// The newest committed batch that wrote to it.
        committed: u64,
    },
}

impl Reason {
    /// The sink that this is about.
    pub fn sink(&self) -> Option<&String> {
        match self {
            Reason::SinkAhead { sink, .. } | Reason::SinkBehind { sink, .. } => Some(sink),
            Reason::Missing { .. } | Reason::Damaged { .. } | Reason::Unrelated { .. } => None,
        }
    }
}

/// Decides what a view means.
pub fn decide(view: &View) -> Decision {
    match check(view) {
        Ok(decision) => decision,
        Err(reason) => Decision::Unsound(reason),
    }
}

fn check(view: &View) -> Result<Decision, Reason> {
    let first = view.first_alive();
    let top = |numbers: Option<u64>| numbers.filter(|n| *n >= first);
    let offsets = top(view.offsets.keys().next_back().copied());
    let acks = top(view.acks.keys().next_back().copied());
    let named = top(view.commits.keys().next_back().copied());

    // A torn newest commit counts as none, unless something was built on it.
    let torn = named.filter(|n| view.commits[n].all_torn());
    if let Some(n) = torn
        && (view.offsets.contains_key(&(n + 1)) || view.acks.contains_key(&(n + 1)))
    {
        return Err(Reason::Damaged { path: path("commits", n) });
    }
    let commits = match torn {
        Some(n) => n.checked_sub(1).filter(|n| *n >= first),
        None => named,
    };

    if first > 0 && commits.is_none() {
        // A purge always leaves commits: others went on while we read, or somebody deleted them.
        return Err(Reason::Missing { path: path("commits", first), needed_by: "the boundary below it".to_owned() });
    }
    check_run(view, first, commits, acks, offsets)?;
    check_nonces(view, first, acks, offsets)?;
    check_sinks(view, commits, acks)?;

    let next = commits.map_or(0, |n| n + 1);
    if acks.is_some_and(|n| n == next) {
        let commit_revision = view.commits.get(&next).map_or(0, Revisions::next_revision);
        return Ok(Decision::RollForward { batch_id: BatchId(next), commit_revision });
    }
    match view.offsets.get(&next) {
        Some(revisions) if revisions.binding().is_some() => Ok(Decision::Run { batch_id: BatchId(next) }),
        Some(torn) => Ok(Decision::Plan { batch_id: BatchId(next), revision: torn.next_revision() }),
        None => Ok(Decision::Plan { batch_id: BatchId(next), revision: 0 }),
    }
}

/// Every entry from the first that counts up to the newest commit is there, and at most one batch is pending above.
fn check_run(
    view: &View,
    first: u64,
    commits: Option<u64>,
    acks: Option<u64>,
    offsets: Option<u64>,
) -> Result<(), Reason> {
    let highest = [commits, acks, offsets].into_iter().flatten().max();
    let Some(highest) = highest else { return Ok(()) };
    let next = commits.map_or(first, |n| n + 1);
    for n in first..=highest {
        let pending = n >= next;
        let acks_needed = !pending || offsets > Some(n) || view.commits.contains_key(&n);
        let commit_needed = !pending || acks > Some(n) || offsets > Some(n);
        let newest = newest_trace(commits, acks, offsets, n);
        match view.offsets.get(&n) {
            None => return Err(Reason::Missing { path: path("offsets", n), needed_by: newest }),
            // Torn with a later trace of its batch: what N read cannot be known.
            Some(revisions) if revisions.all_torn() && (!pending || view.acks.contains_key(&n)) => {
                return Err(Reason::Damaged { path: path("offsets", n) });
            }
            Some(revisions) => check_revisions("offsets", n, revisions)?,
        }
        match view.acks.get(&n) {
            None if acks_needed => return Err(Reason::Missing { path: path("acks", n), needed_by: newest }),
            Some(revisions) if revisions.any_torn() => return Err(Reason::Damaged { path: path("acks", n) }),
            _ => {}
        }
        match view.commits.get(&n) {
            None if commit_needed => return Err(Reason::Missing { path: path("commits", n), needed_by: newest }),
            Some(revisions) if revisions.all_torn() && !pending => {
                return Err(Reason::Damaged { path: path("commits", n) });
            }
            Some(revisions) => check_revisions("commits", n, revisions)?,
            None => {}
        }
    }
    Ok(())
}

/// A revision exists only above torn ones: a missing lower one is a hole.
fn check_revisions<T>(log: &str, n: u64, revisions: &Revisions<T>) -> Result<(), Reason> {
    for (expected, found) in revisions.found.keys().enumerate() {
        if *found != expected as u32 {
            let needed_by = format!("{}.r{found}", path(log, n));
            let missing = if expected == 0 { path(log, n) } else { format!("{}.r{expected}", path(log, n)) };
            return Err(Reason::Missing { path: missing, needed_by });
        }
    }
    Ok(())
}

fn newest_trace(commits: Option<u64>, acks: Option<u64>, offsets: Option<u64>, n: u64) -> String {
    [("commits", commits), ("acks", acks), ("offsets", offsets)]
        .into_iter()
        .find_map(|(log, top)| top.filter(|top| *top >= n).map(|top| path(log, top)))
        .unwrap_or_default()
}

/// Entries refer to one another by nonce; two that do not were never written by one history.
fn check_nonces(view: &View, first: u64, acks: Option<u64>, offsets: Option<u64>) -> Result<(), Reason> {
    for (n, revisions) in view.acks.range(first..) {
        let Some(entry) = revisions.binding() else { continue };
        let plans = &view.offsets[n];
        // A winner may have run a revision that tore later: only a whole set of plans can tell that none is its own.
        let its_own = |seen: &Seen<OffsetsSeen>| matches!(seen, Seen::Whole(plan) if plan.nonce == entry.offsets_nonce);
        if plans.all_whole() && !plans.found.values().any(its_own) {
            return Err(Reason::Unrelated { path: path("acks", *n), earlier: path("offsets", *n) });
        }
        let commit = view.commits.get(n).and_then(Revisions::binding);
        if commit.is_some_and(|commit| commit.acks_nonce != entry.nonce) {
            return Err(Reason::Unrelated { path: path("commits", *n), earlier: path("acks", *n) });
        }
    }
    let Some(newest) = offsets.max(acks) else { return Ok(()) };
    for n in first.max(1)..=newest {
        let Some(plan) = view.offsets.get(&n).and_then(Revisions::binding) else { continue };
        let Some(before) = view.acks.get(&(n - 1)).filter(|_| n > first).and_then(Revisions::binding) else { continue };
        if plan.previous_acks.as_ref() != Some(&before.nonce) {
            return Err(Reason::Unrelated { path: path("offsets", n), earlier: path("acks", n - 1) });
        }
    }
    Ok(())
}

/// No sink is ahead of what is acknowledged, none is behind what is committed.
fn check_sinks(view: &View, commits: Option<u64>, acks: Option<u64>) -> Result<(), Reason> {
    let known = acks.max(commits);
    for (sink, shows) in &view.sinks {
        if *shows > known {
            return Err(Reason::SinkAhead { sink: sink.clone(), shows: shows.unwrap_or_default(), known });
        }
        // A sink that was added later is compared with the newest committed batch that wrote to it.
        let wrote = |n: &u64| {
            let entry = view.acks.get(n).and_then(Revisions::binding);
            entry.is_some_and(|entry| entry.sinks.contains(sink))
        };
        let committed = view.acks.keys().rev().filter(|n| Some(**n) <= commits).find(|n| wrote(n));
        if let Some(committed) = committed
            && *shows < Some(*committed)
        {
            return Err(Reason::SinkBehind { sink: sink.clone(), shows: *shows, committed: *committed });
        }
    }
    Ok(())
}

fn path(log: &str, n: u64) -> String {
    format!("{log}/{n:020}")
}

#[cfg(test)]
mod tests;
