//! Changes of topics: who appends next goes by them at once.
//!
//! Invariants: the change is a record in the log before the table has it. Fewer read than write queues, which would
//! strand messages, need `force`.
//! Threads: those of callers, under the append lock.

use std::collections::BTreeMap;

use super::request::system_topic;
use super::topic_table::MAX_QUEUES;
use super::{Appender, LogEnd};
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::state::{Op, PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig, names};

/// What to change of a topic; what is `None` stays (or takes its default on creation).
#[derive(Debug, Clone, Default)]
pub struct TopicChange {
    pub read_queue_nums: Option<u32>,
    pub write_queue_nums: Option<u32>,
    pub perm: Option<u32>,
    pub attributes: Option<BTreeMap<String, String>>,
    /// Allows fewer read than write queues, which strands messages.
    pub force: bool,
}

impl Appender {
    /// Creates or changes a topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`, `NO_PERMISSION` for system topics, `ARGUMENT_ILLEGAL` for numbers out of range,
    /// `TOPIC_CONFLICT` where messages would be stranded.
    pub fn put_topic(&self, topic: &str, change: &TopicChange) -> Result<i64> {
        self.change_topic(topic, |end| self.put_topic_locked(end, topic, change))
    }

    pub(super) fn put_topic_locked(&self, end: &mut LogEnd, topic: &str, change: &TopicChange) -> Result<()> {
        let known = end.topics.get(topic).map(|state| state.config.clone());
        let config = self.changed_topic(topic, known, change)?;
        self.put_op(end, &Op::PutTopic { topic: topic.into(), config: config.clone() })?;
        end.topics.put(topic, config);
        Ok(())
    }

    /// Deletes a topic: its queues go, its records stay in the log until they expire. Returns the offset to wait
    /// for.
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `NO_PERMISSION` for system topics.
    pub fn delete_topic(&self, topic: &str) -> Result<i64> {
        self.change_topic(topic, |end| {
            if end.topics.get(topic).is_none() {
                return Err(StoreError::no_topic(topic));
            }
            self.put_op(end, &Op::DeleteTopic { topic: topic.into() })?;
            end.topics.remove(topic);
            Ok(())
        })
    }

    fn change_topic(&self, topic: &str, change: impl FnOnce(&mut LogEnd) -> Result<()>) -> Result<i64> {
        names::validate_topic(topic)?;
        if names::is_system(topic) {
            return Err(system_topic(topic));
        }
        self.change(change)
    }

    /// Makes a change of state under the append lock. Returns the offset to wait for.
    pub(super) fn change(&self, change: impl FnOnce(&mut LogEnd) -> Result<()>) -> Result<i64> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_master()?;
        change(&mut end)?;
        let offset = end.writer.end();
        drop(end);
        self.wake_flusher();
        Ok(offset)
    }

    fn changed_topic(
        &self,
        topic: &str,
        known: Option<TopicConfig>,
        change: &TopicChange,
    ) -> Result<TopicConfig> {
        let way_out = if known.is_none() {
            "give it as many read queues"
        } else {
            "shrink write_queue_nums first, or force"
        };
        let mut config = known.unwrap_or_else(|| TopicConfig {
            topic_id: self.new_topic_id(),
            read_queue_nums: change.write_queue_nums.unwrap_or(self.options.default_queue_nums),
            write_queue_nums: change.read_queue_nums.unwrap_or(self.options.default_queue_nums),
            perm: PERM_READ | PERM_WRITE,
            attributes: BTreeMap::new(),
        });
        config.read_queue_nums = change.read_queue_nums.unwrap_or(config.read_queue_nums);
        config.write_queue_nums = change.write_queue_nums.unwrap_or(config.write_queue_nums);
        config.perm = change.perm.unwrap_or(config.perm);
        if let Some(attributes) = &change.attributes {
            config.attributes = attributes.clone();
        }
        for (name, queues) in
            [("read_queue_nums", config.read_queue_nums), ("write_queue_nums", config.write_queue_nums)]
        {
            if !(1..=MAX_QUEUES).contains(&queues) {
                let detail = format!("{name} is {queues}, it lies between 1 and {MAX_QUEUES}");
                return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
            }
        }
        if config.perm & !(PERM_READ | PERM_WRITE | PERM_INHERIT) != 0 {
            let detail = format!("perm is {}, its bits are 4 read, 2 write, 1 inherit", config.perm);
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        if config.read_queue_nums < config.write_queue_nums && !change.force {
            let detail = format!(
                "topic[{topic}] would have {} read and {} write queues: messages in the queues that are not \
                 read would be stranded; {way_out}",
                config.read_queue_nums, config.write_queue_nums
            );
            return Err(StoreError::invalid("TOPIC_CONFLICT", detail));
        }
        Ok(config)
    }

    /// What a topic that does not exist is made with by its first message.
    pub(super) fn topic_on_first_use(&self, topic: &str) -> Result<TopicConfig> {
        let group_topic = names::is_group_topic(topic);
        if !self.options.auto_create_topics && !group_topic {
            return Err(StoreError::no_topic(topic));
        }
        let queues = if group_topic { 1 } else { self.options.default_queue_nums };
        Ok(TopicConfig {
            topic_id: self.new_topic_id(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: PERM_READ | PERM_WRITE,
            attributes: BTreeMap::new(),
        })
    }

    fn new_topic_id(&self) -> String {
        String::from_utf8_lossy(&self.ids.next(self.environment.clock.now_ms())).into_owned()
    }

    /// A topic's settings, system topics included. A topic that was created a moment ago is known here
    /// before its record is dispatched.
    pub fn topic(&self, topic: &str) -> Option<TopicConfig> {
        lock(&self.end).topics.get(topic).map(|state| state.config.clone())
    }

    /// Refuses places that no group can be at: (topic, queue id, next offset).
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `OFFSET_ILLEGAL`.
    pub fn check_offsets(&self, group: &str, offsets: &[(String, u32, i64)]) -> Result<()> {
        let end = lock(&self.end);
        for (topic, queue_id, offset) in offsets {
            let state = end.topics.get(topic).ok_or_else(|| StoreError::no_topic(topic))?;
            let next = state.next_offset(*queue_id);
            if *queue_id >= MAX_QUEUES || *offset < 0 || *offset > next {
                let detail = format!(
                    "group[{group}] cannot stand at {offset} of topic[{topic}] queue {queue_id}, which ends at {next}"
                );
                return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
            }
        }
        Ok(())
    }
}
