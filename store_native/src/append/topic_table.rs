//! The append side's view of topics: which queues take messages, and each queue's next offset.
//!
//! Invariants: it runs ahead of the applied state by what is appended and not yet dispatched. A queue's next offset
//! only grows while its topic exists, but for a cut of the log.
//! Threads: those that append, under the append lock.

use std::collections::HashMap;

use crate::consumequeue::QueueTable;
use crate::error::{Result, StoreError};
use crate::message::{NewMessage, RecordView, java_hash};
use crate::state::{MetaState, Op, PERM_READ, PERM_WRITE, TopicConfig, names};

/// Queues of a topic at most.
pub const MAX_QUEUES: u32 = 1024;

/// A topic's settings and the next offset of each of its queues.
#[derive(Debug, Clone)]
pub struct TopicState {
    pub config: TopicConfig,
    next: Vec<i64>,
    round_robin: u32,
}

impl TopicState {
    pub fn new(config: TopicConfig) -> Self {
        Self { config, next: Vec::new(), round_robin: 0 }
    }

    /// The queue of a message: the one it names, the one of its sharding key, else the next in turn.
    ///
    /// # Errors
    /// `QUEUE_NOT_EXIST`, `NO_PERMISSION`.
    pub fn choose(&mut self, topic: &str, message: &NewMessage<'_>) -> Result<u32> {
        let queues = self.config.write_queue_nums;
        if self.config.perm & PERM_WRITE == 0 || queues == 0 {
            return Err(StoreError::invalid("NO_PERMISSION", format!("topic[{topic}] is not writable")));
        }
        if let Some(queue_id) = message.queue_id {
            if queue_id >= queues {
                let detail = format!("topic[{topic}] has write queues 0 to {}, not {queue_id}", queues - 1);
                return Err(StoreError::invalid("QUEUE_NOT_EXIST", detail));
            }
            return Ok(queue_id);
        }
        if let Some(key) = message.sharding_key.as_deref() {
            return Ok(java_hash(key).rem_euclid(queues as i32) as u32);
        }
        let turn = self.round_robin;
        self.round_robin = self.round_robin.wrapping_add(1);
        Ok(turn % queues)
    }

    /// The next offset of a queue.
    pub fn next_offset(&self, queue_id: u32) -> i64 {
        self.next.get(queue_id as usize).copied().unwrap_or(0)
    }

    /// Takes the next offset of a queue.
    pub fn take_offset(&mut self, queue_id: u32) -> i64 {
        let next = self.next_of(queue_id);
        *next += 1;
        *next - 1
    }

    /// No message gets an offset below this one.
    pub fn raise(&mut self, queue_id: u32, offset: i64) {
        let next = self.next_of(queue_id);
        *next = offset.max(*next);
    }

    #[allow(clippy::indexing_slicing, reason = "the vector was made long enough")]
    fn next_of(&mut self, queue_id: u32) -> &mut i64 {
        let index = queue_id as usize;
        if self.next.len() <= index {
            self.next.resize(index + 1, 0);
        }
        &mut self.next[index]
    }
}

/// All topics.
#[derive(Debug, Default)]
pub struct TopicTable {
    topics: HashMap<Box<str>, TopicState>,
}

impl TopicTable {
    /// From the recovered state and queues.
    pub fn new(state: &MetaState, queues: &QueueTable, delay_levels: u32) -> Self {
        let mut topics: HashMap<Box<str>, TopicState> = HashMap::new();
        for (topic, config) in &state.topics {
            topics.insert(topic.as_str().into(), TopicState::new(config.clone()));
        }
        for system in [names::SCHEDULE_TOPIC, names::META_TOPIC] {
            if let Some(config) = MetaState::system_topic(system, delay_levels) {
                topics.entry(system.into()).or_insert_with(|| TopicState::new(config));
            }
        }
        for queue in queues.all() {
            // A queue of a topic that no table knows keeps its place, but takes nothing.
            let of_queue = topics.entry(Box::from(&**queue.topic())).or_insert_with(|| {
                TopicState::new(TopicConfig {
                    topic_id: String::new(),
                    read_queue_nums: 0,
                    write_queue_nums: 0,
                    perm: PERM_READ,
                    attributes: std::collections::BTreeMap::new(),
                })
            });
            of_queue.raise(queue.queue_id(), queue.max_offset());
        }
        Self { topics }
    }

    /// Takes a record that is in the log and not dispatched: whoever appends behind it goes on from there.
    /// `change` is the change of state that the record is.
    pub fn follow(&mut self, record: &RecordView<'_>, change: Option<&Op>) {
        match change {
            Some(Op::PutTopic { topic, config }) => self.put(topic, config.clone()),
            Some(Op::DeleteTopic { topic }) => self.remove(topic),
            _ => {}
        }
        if let (Ok(queue_id), Some(state)) =
            (u32::try_from(record.queue_id), self.topics.get_mut(record.topic))
            && queue_id < MAX_QUEUES
        {
            state.raise(queue_id, record.queue_offset + 1);
        }
    }

    pub fn get(&self, topic: &str) -> Option<&TopicState> {
        self.topics.get(topic)
    }

    pub fn get_mut(&mut self, topic: &str) -> Option<&mut TopicState> {
        self.topics.get_mut(topic)
    }

    /// Creates the topic or changes its settings.
    pub fn put(&mut self, topic: &str, config: TopicConfig) {
        match self.topics.get_mut(topic) {
            Some(state) => state.config = config,
            None => {
                self.topics.insert(topic.into(), TopicState::new(config));
            }
        }
    }

    /// Adds a topic that messages were chosen queues of already.
    pub fn insert(&mut self, topic: &str, state: TopicState) {
        self.topics.insert(topic.into(), state);
    }

    pub fn remove(&mut self, topic: &str) {
        self.topics.remove(topic);
    }
}
