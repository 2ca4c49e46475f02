//! Rules of the protocol that a test can break, to show that the suite would notice.
//!
//! With feature `testing`, `TIDEMILL_BREAK=rule` leaves that rule out for the life of the process. Without the feature
//! every rule is kept, and asking costs nothing.

/// What makes output exactly-once, one rule at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `AlreadyExists` decides nothing: what is there is read back.
    ReadBack,
    /// A batch counts only after its sinks show it.
    PublishBeforeCommit,
    /// Whoever creates an entry looks at the boundary afterwards.
    LookAtBoundary,
    /// A write is synced before it is reported.
    Sync,
    /// A store that overwrites what must not be overwritten is refused at the first start.
    TryStoreOut,
    /// An attempt counts only if its receipts are its plan.
    CheckReceipts,
    /// Stages of other attempts stay until the batch is committed.
    KeepStages,
}

impl Rule {
    /// All of them, with their names in `TIDEMILL_BREAK`.
    pub const ALL: &[(Rule, &str)] = &[
        (Rule::ReadBack, "read-back"),
        (Rule::PublishBeforeCommit, "publish-before-commit"),
        (Rule::LookAtBoundary, "look-at-boundary"),
        (Rule::Sync, "sync"),
        (Rule::TryStoreOut, "try-store-out"),
        (Rule::CheckReceipts, "check-receipts"),
        (Rule::KeepStages, "keep-stages"),
    ];
}

/// Whether a rule is left out in this process.
#[inline]
pub fn is_broken(rule: Rule) -> bool {
    #[cfg(feature = "testing")]
    return testing::broken() == Some(rule);
    #[cfg(not(feature = "testing"))]
    {
        let _ = rule;
        false
    }
}

#[cfg(feature = "testing")]
mod testing {
    use std::sync::OnceLock;

    use super::Rule;

    pub(super) fn broken() -> Option<Rule> {
        static BROKEN: OnceLock<Option<Rule>> = OnceLock::new();
        *BROKEN.get_or_init(|| {
            let wanted = std::env::var("TIDEMILL_BREAK").ok()?;
            let rule = Rule::ALL.iter().find(|(_, name)| *name == wanted);
            Some(rule.expect("TIDEMILL_BREAK names a rule").0)
        })
    }
}
