//! Groups: their settings and where they are, as changes of state in the log.
//!
//! Invariants: a group that is made has a retry topic. No group commits an offset behind its queue's end.
//! Threads: those of callers.

use std::collections::BTreeMap;

use super::Store;
use crate::append::TopicChange;
use crate::error::{Result, StoreError};
use crate::state::{GroupConfig, Op, names};

impl Store {
    /// Creates or changes a group, and its retry topic.
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`, `ARGUMENT_ILLEGAL` for settings that are not readable.
    pub fn put_group(&self, group: &str, config_json: &str) -> Result<i64> {
        names::validate_group(group)?;
        let config: GroupConfig = serde_json::from_str(config_json)
            .map_err(|e| StoreError::invalid("ARGUMENT_ILLEGAL", format!("the group's settings: {e}")))?;
        let retry_topic = format!("{}{group}", names::RETRY_PREFIX);
        let missing = self.appender.topic(&retry_topic).is_none();
        if missing {
            let change =
                TopicChange { read_queue_nums: Some(1), write_queue_nums: Some(1), ..TopicChange::default() };
            self.put_topic(&retry_topic, &change)?;
        }
        self.appender.append_op(&Op::PutGroup { group: group.into(), config })
    }

    /// Forgets a group, its offsets and its lease.
    ///
    /// # Errors
    /// `GROUP_NOT_EXIST`.
    pub fn delete_group(&self, group: &str) -> Result<i64> {
        names::validate_group(group)?;
        let known = {
            let dispatcher = self.dispatch.applied();
            dispatcher.state().groups.contains_key(group) || dispatcher.state().offsets.contains_key(group)
        };
        if !known {
            return Err(StoreError::invalid("GROUP_NOT_EXIST", format!("group[{group}] does not exist")));
        }
        let offset = self.appender.append_op(&Op::DeleteGroup { group: group.into() })?;
        self.leases.end(group);
        Ok(offset)
    }

    /// All groups as applied: those created, and those that only committed offsets.
    pub fn groups(&self) -> BTreeMap<String, GroupConfig> {
        let dispatcher = self.dispatch.applied();
        let mut groups = dispatcher.state().groups.clone();
        for group in dispatcher.state().offsets.keys() {
            groups.entry(group.clone()).or_default();
        }
        groups
    }

    /// Notes where a group stands: (topic, queue id, next offset).
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`, `TOPIC_NOT_EXIST`, `OFFSET_ILLEGAL` for a negative offset.
    pub fn commit_offsets(&self, group: &str, offsets: Vec<(String, u32, i64)>) -> Result<i64> {
        names::validate_group(group)?;
        self.appender.check_offsets(group, &offsets)?;
        if offsets.is_empty() {
            return Ok(self.marks.appended());
        }
        self.appender.append_op(&Op::CommitOffsets { group: group.into(), offsets })
    }

    /// Where a group stands, as applied.
    pub fn group_offsets(&self, group: &str) -> Vec<(String, u32, i64)> {
        let dispatcher = self.dispatch.applied();
        let topics = dispatcher.state().offsets.get(group).into_iter().flat_map(|topics| topics.iter());
        topics
            .flat_map(|(topic, queues)| queues.iter().map(|(queue, offset)| (topic.clone(), *queue, *offset)))
            .collect()
    }
}
