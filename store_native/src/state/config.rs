//! Settings of topics and groups, and who holds a group: the values that changes of state carry.
//!
//! Invariants: a setting that this version does not know is an error, not passed over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub const PERM_READ: u32 = 4;
pub const PERM_WRITE: u32 = 2;
pub const PERM_INHERIT: u32 = 1;

/// A topic's settings.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TopicConfig {
    /// New for each creation, so that a topic created again is told from the one before. Empty for one
    /// that RocketMQ made.
    #[serde(default)]
    pub topic_id: String,
    pub read_queue_nums: u32,
    pub write_queue_nums: u32,
    /// Bits: 4 read, 2 write, 1 inherit.
    pub perm: u32,
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// A consumer group's settings.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    #[serde(default = "sixteen")]
    pub retry_max_times: i32,
    #[serde(default = "yes")]
    pub consume_enable: bool,
    #[serde(default = "yes")]
    pub consume_broadcast_enable: bool,
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

fn sixteen() -> i32 {
    16
}

fn yes() -> bool {
    true
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            retry_max_times: sixteen(),
            consume_enable: true,
            consume_broadcast_enable: true,
            attributes: BTreeMap::new(),
        }
    }
}

/// Who holds a group. Its expiry is the broker's affair; the epoch is what the log keeps.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq, Default)]
pub struct Lease {
    pub owner: String,
    pub epoch: i64,
}
