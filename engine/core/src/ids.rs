//! The numbers and names that Tidemill counts with. Each has a type of its own, so that they cannot be confused.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// The number of a micro-batch of a query: from 0, without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The batch after this one.
    pub fn next(self) -> BatchId {
        BatchId(self.0 + 1)
    }

    /// The batch before this one; none before batch 0.
    pub fn previous(self) -> Option<BatchId> {
        self.0.checked_sub(1).map(BatchId)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a driver start on one checkpoint: from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! random_name {
    ($(#[$doc:meta])+ $name:ident) => {
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// A new one, different from every other: 32 hexadecimal digits.
            pub fn random(rng: &dyn Rng) -> Self {
                $name(format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()))
            }

            /// The one with this text.
            pub fn from_text(text: impl Into<String>) -> Self {
                $name(text.into())
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

random_name! {
    /// What a query is called for ever: made with its checkpoint, kept over restarts, the first half of every sink's key.
    QueryId
}
random_name! {
    /// One start of a query: new every time.
    RunId
}
random_name! {
    /// One execution of one batch. Staged and final files carry it, so two executions never share a name.
    AttemptId
}
random_name! {
    /// What tells our own write from another's under the same name.
    Nonce
}
