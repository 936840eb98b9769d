//! Groups: their settings and where they are, as changes of state in the log.
//!
//! Invariants: no group commits an offset behind its queue's end.
//! Threads: those of callers.

use std::collections::BTreeMap;

use super::Store;
use crate::append::GroupChange;
use crate::error::{Result, StoreError};
use crate::state::{GroupConfig, Op, names};

impl Store {
    /// Creates or changes a group, and makes its retry topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// As [`Appender::put_group`](crate::append::Appender::put_group).
    pub fn put_group(&self, group: &str, change: &GroupChange) -> Result<i64> {
        self.appender.put_group(group, change)
    }

    /// Forgets a group, its offsets and its lease.
    ///
    /// # Errors
    /// `GROUP_NOT_EXIST`.
    pub fn delete_group(&self, group: &str) -> Result<i64> {
        names::validate_group(group)?;
        let known = self.appender.has_group(group) || {
            let dispatcher = self.dispatch.applied();
            dispatcher.state().offsets.contains_key(group)
        };
        if !known {
            return Err(StoreError::invalid("GROUP_NOT_EXIST", format!("group[{group}] does not exist")));
        }
        let offset = self.appender.delete_group(group)?;
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
