//! The engine of Tidemill: what a user holds, and how a micro-batch becomes exactly-once output.
//!
//! From the top floor down; arrows point down only:
//!
//! * what a user holds: [`session`], [`frame`], [`query`]
//! * the data path, one file a step: [`micro_batch`]
//! * mechanisms: [`trigger`], [`checkpoint`], [`dataflow`]

pub mod checkpoint;
pub mod dataflow;
pub mod frame;
pub mod micro_batch;
pub mod query;
pub mod session;
pub mod trigger;
