//! What the store knows beside messages: topics, groups, group offsets, delay progress, leases.
//!
//! Invariants: all of it is written as records of the topic [`names::META_TOPIC`], or told by delivered messages,
//! and applied in log order by the dispatcher, so whoever has the log has the state. `rocketmq_files.rs` turns it
//! into RocketMQ's JSON files.

mod config;
mod meta_state;
pub mod names;
mod op;
pub mod rocketmq_files;

pub use config::{GroupConfig, Lease, PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig};
pub use meta_state::MetaState;
pub use op::Op;
