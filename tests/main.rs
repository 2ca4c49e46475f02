//! The one binary of integration tests: stories told to the real engine, on real files and a real broker.

// Tests wait for real processes; time that can be moved is moved by `ManualClock` instead.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(clippy::disallowed_methods, reason = "tests wait for other processes")]

mod broker;
mod controls;
mod damage;
mod disk;
mod docs;
mod examples;
mod faults;
mod fixtures;
mod house;
mod kafka_source;
mod kafka_stories;
mod kill;
mod lifecycle;
mod long_run;
mod model;
mod resume;
mod roll_forward;
mod schedules;
mod security;
mod simulation;
mod stores;
mod support;
