//! Tests without a real broker: options and properties, planning, and reading from librdkafka's mock cluster.

mod mock;
mod options;
mod planning;
