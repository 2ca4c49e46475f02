//! What the end-to-end tests share: a real broker, rows for its topics, and readers of tables that are not ours.

pub mod broker;
pub mod child;
pub mod loader;
pub mod pipeline;
pub mod table;
#[cfg(test)]
mod tests;
