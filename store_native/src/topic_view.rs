//! The topic table as a reader beside the owner sees it: what `config/topics.json` says, and the changes in the log
//! since.
//!
//! Invariants: the file is written behind the acknowledgement of a change; the log is not, so that a reader knows
//! each change that it can read messages after.

use std::collections::BTreeMap;

use crate::environment::RealDisk;
use crate::error::Result;
use crate::filter::Filter;
use crate::paths::StorePaths;
use crate::read::{Bounds, QueueReader, SliceRequest};
use crate::state::{Op, TopicConfig, names, rocketmq_files};

/// The topics, and how far the changes of them are in.
#[derive(Debug, Clone, Default)]
pub struct TopicView {
    pub topics: BTreeMap<String, TopicConfig>,
    /// Changes so far, as the watermarks count them.
    pub changes: i64,
    /// Where in the meta topic's queue the next change may stand.
    next: i64,
}

impl TopicView {
    /// Reads the file.
    ///
    /// # Errors
    /// `DATA_CORRUPT`; any I/O error.
    pub fn read(paths: &StorePaths) -> Result<Self> {
        let state = rocketmq_files::read_topics(paths, &RealDisk)?;
        let changes = i64::try_from(state.topics_version.counter).unwrap_or(i64::MAX);
        Ok(Self { topics: state.topics, changes, next: state.topics_at })
    }

    /// Applies the changes that the log holds behind those that are in, as far as `readable`.
    ///
    /// # Errors
    /// `DATA_CORRUPT` for a change of a later version; any I/O error.
    pub fn follow(&mut self, side: &QueueReader, log_min: i64, readable: i64) -> Result<()> {
        let queues = side.queues();
        if queues.get(names::META_TOPIC, 0).is_none() {
            queues.load_topic(names::META_TOPIC)?;
        }
        let Some(queue) = queues.get(names::META_TOPIC, 0) else { return Ok(()) };
        let (min, max) = queue.bounds_on_disk(log_min, readable)?;
        self.next = self.next.max(min);
        while self.next < max {
            let request = SliceRequest {
                offset: self.next,
                end_offset: Some(max),
                max_messages: usize::MAX,
                max_bytes: usize::MAX,
                filter: Filter::All,
            };
            let bounds = Bounds { min, max };
            let (topics, changes) = (&mut self.topics, &mut self.changes);
            let slice = side.read(names::META_TOPIC, 0, &queue, bounds, &request, |record, _| {
                match Op::decode(record.body, record.physical_offset)? {
                    Op::PutTopic { topic, config } => {
                        topics.insert(topic, config);
                        *changes += 1;
                    }
                    Op::DeleteTopic { topic } => {
                        topics.remove(&topic);
                        *changes += 1;
                    }
                    _ => {}
                }
                Ok(())
            })?;
            if slice.next_offset <= self.next {
                break;
            }
            self.next = slice.next_offset;
        }
        Ok(())
    }
}
