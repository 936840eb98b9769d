//! What the store knows beside messages: topics, groups, group offsets, delay progress, leases.
//!
//! All of it is written as records of the topic [`names::META_TOPIC`] and applied in log order by the
//! dispatcher, so whoever has the log has the state. `config.rs` turns it into RocketMQ's JSON files.

pub mod config;
pub mod names;
mod op;
mod state;

pub use op::Op;
pub use state::{GroupConfig, Lease, MetaState, TopicConfig};
