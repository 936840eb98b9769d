//! One change of the store's state, as it stands in the log: the body of a META_TOPIC record, in JSON.

use serde::{Deserialize, Serialize};

use super::state::{GroupConfig, TopicConfig};

/// A change. Applied in log order; applying the same log twice from the same start gives the same state.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    PutTopic {
        topic: String,
        config: TopicConfig,
    },
    DeleteTopic {
        topic: String,
    },
    PutGroup {
        group: String,
        config: GroupConfig,
    },
    DeleteGroup {
        group: String,
    },
    /// (topic, queue id, next offset).
    CommitOffsets {
        group: String,
        offsets: Vec<(String, u32, i64)>,
    },
    /// Who holds a group, and its fencing epoch.
    Lease {
        group: String,
        owner: String,
        epoch: i64,
    },
    /// Delivered up to here: (level, next offset of its queue).
    DelayProgress {
        offsets: Vec<(u32, i64)>,
    },
}

impl Op {
    /// The record's body.
    pub fn encode(&self) -> Vec<u8> {
        // Maps with string keys and plain fields always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record's body; `None` for one written by a later version.
    pub fn decode(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }
}
