//! What tests of sources, sinks and the engine share: time that is moved by hand, and the promise suites that every
//! source and every sink runs. Faulty stores are in [`crate::store::faulty`].

mod clock;
pub mod sink_promises;
pub mod source_promises;

pub use clock::ManualClock;
