//! The state that the log's meta records add up to.
//!
//! Invariants: the same changes in the same order give the same state; delay progress never goes back; a lease's
//! epoch outlives its group.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::config::{GroupConfig, Lease, PERM_READ, PERM_WRITE, TopicConfig};
use super::names;
use super::op::Op;

/// RocketMQ's version of a table: changes so far and when the last one came.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct DataVersion {
    pub counter: u64,
    pub timestamp: i64,
}

/// group -> topic -> queue -> next offset.
///
/// A group's are shared with the snapshots that are being written, and copied when it commits meanwhile.
pub type Offsets = BTreeMap<String, Arc<BTreeMap<String, BTreeMap<u32, i64>>>>;

/// Topics, groups, offsets, delay progress and leases, with the versions of the tables.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct MetaState {
    pub topics: BTreeMap<String, TopicConfig>,
    pub groups: BTreeMap<String, GroupConfig>,
    pub offsets: Offsets,
    /// level -> next offset of its queue in SCHEDULE_TOPIC.
    pub delay: BTreeMap<u32, i64>,
    pub leases: BTreeMap<String, Lease>,
    pub topics_version: DataVersion,
    /// Where in the meta topic's queue the last change of a topic ends.
    #[serde(default)]
    pub topics_at: i64,
    pub groups_version: DataVersion,
    pub offsets_version: DataVersion,
    pub delay_version: DataVersion,
}

impl MetaState {
    /// Applies one change that was stored at `timestamp`.
    pub fn apply(&mut self, op: Op, timestamp: i64) {
        match op {
            Op::PutTopic { topic, config } => {
                self.topics.insert(topic, config);
                bump(&mut self.topics_version, timestamp);
            }
            Op::DeleteTopic { topic } => {
                self.topics.remove(&topic);
                for topics in self.offsets.values_mut().filter(|topics| topics.contains_key(&topic)) {
                    Arc::make_mut(topics).remove(&topic);
                }
                bump(&mut self.topics_version, timestamp);
            }
            Op::PutGroup { group, config } => {
                self.groups.insert(group, config);
                bump(&mut self.groups_version, timestamp);
            }
            Op::DeleteGroup { group } => {
                self.groups.remove(&group);
                self.offsets.remove(&group);
                if let Some(lease) = self.leases.get_mut(&group) {
                    // The epoch goes on, so that an owner from before the deletion stays fenced.
                    lease.owner.clear();
                }
                bump(&mut self.groups_version, timestamp);
            }
            Op::CommitOffsets { group, offsets } => {
                let topics = Arc::make_mut(self.offsets.entry(group).or_default());
                for (topic, queue, offset) in offsets {
                    topics.entry(topic).or_default().insert(queue, offset);
                }
                bump(&mut self.offsets_version, timestamp);
            }
            Op::Lease { group, owner, epoch } => {
                self.leases.insert(group, Lease { owner, epoch });
            }
            Op::DelayProgress { offsets } => {
                for (level, offset) in offsets {
                    self.delay_reached(level, offset, timestamp);
                }
            }
        }
    }

    /// Notes that entries of a level before `offset` are delivered.
    pub fn delay_reached(&mut self, level: u32, offset: i64, timestamp: i64) {
        let reached = self.delay.entry(level).or_insert(0);
        *reached = (*reached).max(offset);
        bump(&mut self.delay_version, timestamp);
    }

    /// The settings of the schedule topic when nothing else is known.
    pub fn system_topic(topic: &str, levels: u32) -> Option<TopicConfig> {
        let queues = match topic {
            names::SCHEDULE_TOPIC => levels,
            names::META_TOPIC => 1,
            _ => return None,
        };
        Some(TopicConfig {
            topic_id: format!("system-{topic}"),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: PERM_READ | PERM_WRITE,
            attributes: BTreeMap::new(),
        })
    }
}

fn bump(version: &mut DataVersion, timestamp: i64) {
    version.counter += 1;
    version.timestamp = timestamp;
}
