//! What a run may meet ([`Bounds`]) and which rules its drivers keep ([`Rules`]).
//!
//! The defaults of [`Rules`] are the protocol. Every other value is a way to get it wrong that was considered, and has
//! a test that shows the harm.

use super::decide::Section;

/// How much there is to do, and how much may go wrong. The exploration is exhaustive within these.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Micro-batches until a driver is finished.
    pub batches: u8,
    /// Drivers that are alive at the same time, none of them fenced: safety may not rest on fences.
    pub drivers: u8,
    /// Sinks that publish files.
    pub sinks: u8,
    /// Crashes, at any step of any driver.
    pub crashes: u8,
    /// Creates that are still undecided at the deadline, and land later or never.
    pub in_flight: u8,
    /// Newest entries that tear.
    pub torn: u8,
    /// Staged files that someone removes.
    pub vanish: u8,
    /// Batches whose entries are kept before a purge.
    pub keep: u8,
    /// A create may be refused with nothing written.
    pub refused: bool,
    /// The files of a committed batch may be compacted.
    pub compaction: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            batches: 2,
            drivers: 2,
            sinks: 1,
            crashes: 0,
            in_flight: 0,
            torn: 0,
            vanish: 0,
            keep: 1,
            refused: true,
            compaction: true,
        }
    }
}

/// When the one sink that cannot stage writes its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// There is no such sink.
    None,
    /// Before `acks/N`: the sink may hold rows of an attempt that loses.
    Before,
    /// After `acks/N`, with the marker in the same transaction.
    After,
}

/// Where batch N+1 learns where batch N ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndsFrom {
    /// From what was written.
    Acks,
    /// From what was planned, which another revision may have replaced.
    Offsets,
}

/// What happens to a batch whose `acks` are torn, or whose staged files are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostAttempt {
    /// A person decides.
    Refuse,
    /// It is executed again under a new revision of `acks/N`.
    RunAgain,
}

/// What recovery does with a view in which others went on while it read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// It reads again.
    Reread,
    /// It takes the view for a damaged log.
    Refuse,
}

/// Which of its two places a file is looked for in first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Files move from the stage to the target, so a file missing at both looks was at neither place.
    StageFirst,
    /// A file that moves between the two looks is missed at both.
    TargetFirst,
}

/// One switch a rule.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The order in which recovery reads.
    pub read_order: [Section; 5],
    /// Where the next batch starts.
    pub ends_from: EndsFrom,
    /// What becomes of an acknowledged attempt that is damaged.
    pub lost_attempt: LostAttempt,
    /// What becomes of an impossible view.
    pub stale: Stale,
    /// The order of the two looks.
    pub look: Look,
    /// Whether there is a direct sink, and when it writes.
    pub direct: Direct,
    /// A direct sink may be one batch ahead of `acks`.
    pub direct_may_lead: bool,
    /// The marker of a direct sink names the offsets, and they are compared.
    pub direct_nonce: bool,
    /// Files are looked for before the manifest is.
    pub manifest_last: bool,
    /// A name that was taken is trusted to be ours: nothing is read back.
    pub already_exists_is_mine: bool,
    /// A stage without `acks` is taken for dead and swept at the start.
    pub sweep_by_absence: bool,
    /// `commits/N` is created before the files are published.
    pub commit_before_publish: bool,
    /// The boundary is not looked at after a create.
    pub no_boundary_check: bool,
    /// A copy lands at its target some time after it read its source.
    pub slow_copy: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            read_order: [Section::Commits, Section::Sinks, Section::Acks, Section::Offsets, Section::Boundary],
            ends_from: EndsFrom::Acks,
            lost_attempt: LostAttempt::Refuse,
            stale: Stale::Reread,
            look: Look::StageFirst,
            direct: Direct::None,
            direct_may_lead: false,
            direct_nonce: false,
            manifest_last: false,
            already_exists_is_mine: false,
            sweep_by_absence: false,
            commit_before_publish: false,
            no_boundary_check: false,
            slow_copy: false,
        }
    }
}
