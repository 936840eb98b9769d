//! Queue entries of records: staged one by one, stored a queue at a time.
//!
//! Invariants: who watches a queue is notified only after its entries are stored. A record whose offset cannot be
//! is passed over with an event, and stops nothing.
//! Threads: who holds the dispatch lock.

use std::sync::Arc;
use std::time::Duration;

use super::queue_notifications::QueueNotifications;
use super::sink::{Dispatched, Sink};
use crate::consumequeue::{Entry, Queue, QueueTable, Staged};
use crate::environment::Environment;
use crate::error::Result;
use crate::faults::Point;
use crate::message::hash;
use crate::state::{Op, names};

/// Owns what is staged; the queues themselves are shared with those who read.
pub(super) struct QueueSink {
    pub notifications: Arc<QueueNotifications>,
    pub queues: Arc<QueueTable>,
    environment: Environment,
    delay_levels_ms: Vec<i64>,
    /// Queues with entries staged and not stored yet.
    staged: Vec<Arc<Queue>>,
}

impl QueueSink {
    pub fn new(queues: Arc<QueueTable>, environment: Environment, delay_levels_ms: Vec<i64>) -> Self {
        Self { notifications: Arc::default(), queues, environment, delay_levels_ms, staged: Vec::new() }
    }

    /// Stages a record's entry.
    pub fn stage(&mut self, dispatched: &Dispatched<'_>) -> Result<()> {
        let record = dispatched.record;
        let Ok(queue_id) = u32::try_from(record.queue_id) else { return Ok(()) };
        if !record.is_visible() || names::validate_topic(record.topic).is_err() {
            return Ok(());
        }
        let queue = self.queues.get_or_create(record.topic, queue_id);
        let tags_code = match dispatched.delay.and_then(|d| d.parse::<usize>().ok()) {
            Some(level) if record.topic == names::SCHEDULE_TOPIC && level > 0 => {
                record.store_timestamp + self.level_ms(level)
            }
            _ => hash::tags_code(dispatched.tags),
        };
        let entry =
            Entry { physical_offset: record.physical_offset, size: record.total_size as i32, tags_code };
        let damage = |from, to| dispatched.quarantine.between(from, to);
        match queue.stage(record.queue_offset, entry, damage)? {
            Staged::First => self.staged.push(queue),
            Staged::Next | Staged::Known => {}
            Staged::Impossible => self.environment.events.error(format!(
                "the record at {} says it is message {} of topic[{}] queue {queue_id}, which cannot be: \
                 it is passed over",
                record.physical_offset, record.queue_offset, record.topic
            )),
        }
        Ok(())
    }

    /// Queues for whose staged entries files may have to be made.
    pub fn to_reserve(&self) -> Vec<Arc<Queue>> {
        self.staged.iter().filter(|queue| queue.wants_reserve()).map(Arc::clone).collect()
    }

    fn level_ms(&self, level: usize) -> i64 {
        let last = self.delay_levels_ms.len();
        self.delay_levels_ms.get(level.min(last).saturating_sub(1)).copied().unwrap_or(1000)
    }
}

impl Sink for QueueSink {
    fn take(&mut self, dispatched: &Dispatched<'_>) -> Result<()> {
        if let Some(Op::DeleteTopic { topic }) = &dispatched.op {
            self.staged.retain(|queue| **queue.topic() != **topic);
            self.queues.remove_topic(topic)?;
        }
        self.stage(dispatched)
    }

    fn store(&mut self, limit: Duration) -> Result<bool> {
        let started = self.environment.timer();
        while let Some(queue) = self.staged.last() {
            if queue.flush()? {
                self.queues.note_dirty(Arc::clone(queue));
            }
            self.notifications.notify(queue.topic(), queue.queue_id());
            self.staged.pop();
            self.environment.faults.pass(Point::DispatchMid);
            if started.elapsed() > limit {
                break;
            }
        }
        Ok(self.staged.is_empty())
    }
}
