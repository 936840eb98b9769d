//! Changes of groups: each is laid over what the one before it in the log left.
//!
//! Invariants: two changes at once are both kept: they are merged under the append lock, with the group as the log's
//! end has it, not as it was dispatched. A group that is made has a retry topic.
//! Threads: those of callers, under the append lock.

use std::collections::BTreeMap;

use super::topics::TopicChange;
use super::{Appender, LogEnd};
use crate::error::Result;
use crate::lock::lock;
use crate::message::RecordView;
use crate::state::{GroupConfig, MetaState, Op, names};

/// What to change of a group; what is `None` stays (or takes its default on creation).
#[derive(Debug, Clone, Default)]
pub struct GroupChange {
    pub retry_max_times: Option<i32>,
    pub consume_enable: Option<bool>,
    pub consume_broadcast_enable: Option<bool>,
    pub attributes: Option<BTreeMap<String, String>>,
}

impl GroupChange {
    /// The settings with this laid over them.
    fn over(&self, mut config: GroupConfig) -> GroupConfig {
        config.retry_max_times = self.retry_max_times.unwrap_or(config.retry_max_times);
        config.consume_enable = self.consume_enable.unwrap_or(config.consume_enable);
        config.consume_broadcast_enable =
            self.consume_broadcast_enable.unwrap_or(config.consume_broadcast_enable);
        if let Some(attributes) = &self.attributes {
            config.attributes = attributes.clone();
        }
        config
    }
}

/// The append side's view of groups: it runs ahead of the applied state by what is appended and not yet dispatched.
#[derive(Debug, Default)]
pub struct GroupTable(BTreeMap<String, GroupConfig>);

impl GroupTable {
    /// From the recovered state.
    pub fn new(state: &MetaState) -> Self {
        Self(state.groups.clone())
    }

    /// Takes a change that is in the log and not dispatched.
    pub fn follow(&mut self, change: Option<&Op>) {
        match change {
            Some(Op::PutGroup { group, config }) => {
                self.0.insert(group.clone(), config.clone());
            }
            Some(Op::DeleteGroup { group }) => {
                self.0.remove(group);
            }
            _ => {}
        }
    }
}

/// The change of state that a record is, if it is one that this version knows.
pub(super) fn change_of(record: &RecordView<'_>) -> Option<Op> {
    (record.topic == names::META_TOPIC)
        .then(|| Op::decode(record.body, record.physical_offset).ok())
        .flatten()
}

impl Appender {
    /// Creates or changes a group, and makes its retry topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`; as [`Appender::append`].
    pub fn put_group(&self, group: &str, change: &GroupChange) -> Result<i64> {
        self.change_group(group, |end| {
            let retry_topic = format!("{}{group}", names::RETRY_PREFIX);
            if end.topics.get(&retry_topic).is_none() {
                let one = TopicChange {
                    read_queue_nums: Some(1),
                    write_queue_nums: Some(1),
                    ..TopicChange::default()
                };
                self.put_topic_locked(end, &retry_topic, &one)?;
            }
            let config = change.over(end.groups.0.get(group).cloned().unwrap_or_default());
            self.put_op(end, &Op::PutGroup { group: group.into(), config: config.clone() })?;
            end.groups.0.insert(group.into(), config);
            Ok(())
        })
    }

    /// Forgets a group's settings and offsets. Returns the offset to wait for.
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`; as [`Appender::append`].
    pub fn delete_group(&self, group: &str) -> Result<i64> {
        self.change_group(group, |end| {
            self.put_op(end, &Op::DeleteGroup { group: group.into() })?;
            end.groups.0.remove(group);
            Ok(())
        })
    }

    /// Whether a group was created, also a moment ago.
    pub fn has_group(&self, group: &str) -> bool {
        lock(&self.end).groups.0.contains_key(group)
    }

    fn change_group(&self, group: &str, change: impl FnOnce(&mut LogEnd) -> Result<()>) -> Result<i64> {
        names::validate_group(group)?;
        self.change(change)
    }
}
