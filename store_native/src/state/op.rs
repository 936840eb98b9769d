//! One change of the store's state, as it stands in the log: the body of a META_TOPIC record, in JSON.
//!
//! Invariants: a change that this version does not know, or knows only in part, is refused and never passed over:
//! two versions that read the same log would come to two states.

use serde::{Deserialize, Serialize};

use super::config::{GroupConfig, TopicConfig};
use crate::error::{Result, StoreError};

/// A change. Applied in log order; applying the same log twice from the same start gives the same state.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
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
    ///
    /// # Errors
    /// `SYSTEM_ERROR` when it cannot be written in JSON; no record may be made of it then.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| StoreError::io("encoding a change of state", std::io::Error::other(error)))
    }

    /// Reads the body of the record at `physical_offset`.
    ///
    /// # Errors
    /// `DATA_CORRUPT` for a change of a later version, or what is none.
    pub fn decode(body: &[u8], physical_offset: i64) -> Result<Self> {
        serde_json::from_slice(body).map_err(|error| {
            StoreError::corrupt(format!(
                "the change of state at offset {physical_offset} is not one of this version ({error}): open \
                 the store with the version that wrote it"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_change_reads_back_and_one_of_a_later_version_is_refused() {
        let op = Op::Lease { group: "g".into(), owner: "o".into(), epoch: 3 };
        let body = op.encode().expect("encoded");
        assert_eq!(Op::decode(&body, 0).expect("known"), op);
        let text = String::from_utf8(body).expect("text");
        for later in [
            text.replace("lease", "borrow"),
            text.replace("\"epoch\":3", "\"epoch\":3,\"until\":9"),
            text.replace("\"epoch\":3", "\"epoch\":\"3\""),
            r#"{"op":"put_topic","topic":"t","config":{"read_queue_nums":1,"write_queue_nums":1,"perm":6,"order":true}}"#.into(),
            String::new(),
        ] {
            let refused = Op::decode(later.as_bytes(), 77).expect_err("of a later version");
            assert_eq!(refused.code(), "DATA_CORRUPT");
            assert!(refused.detail().contains("offset 77"), "{refused}");
        }
    }
}
