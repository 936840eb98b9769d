//! What the store knows beside messages: topics, groups, group offsets, delay progress, leases.
//!
//! All of it is written as records of the topic [`names::META_TOPIC`] and applied in log order by the
//! dispatcher, so whoever has the log has the state. `config.rs` turns it into RocketMQ's JSON files.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::expect_used)
)]

pub mod names;
mod op;
pub mod rocketmq_files;
mod state;

pub use op::Op;
pub use state::{GroupConfig, Lease, MetaState, TopicConfig};
