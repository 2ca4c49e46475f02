//! Sources of Tidemill.
//!
//! * [`Kafka`]: topics of a Kafka broker, format `kafka`
//! * [`Rate`]: rows made by the clock, for trying things out, formats `rate` and `rate-micro-batch`
//! * [`MemorySource`]: rows that a test adds, format `memory`
//!
//! A connector never sees the engine's log, nor another connector.

pub mod kafka;
pub mod memory;
pub mod rate;

use std::sync::Arc;

use tidemill_core::Registry;

pub use kafka::{Kafka, Start, WithoutMatch};
pub use memory::MemorySource;
pub use rate::Rate;

/// Adds every source of this crate to a registry.
pub fn register(registry: &mut Registry) {
    registry.add_source(Arc::new(kafka::KafkaFormat));
    registry.add_source(Arc::new(memory::MemoryFormat));
    registry.add_source(Arc::new(rate::RateFormat));
    registry.add_source(Arc::new(rate::RateMicroBatchFormat));
}
