//! Delayed messages: each level is a queue of SCHEDULE_TOPIC whose entries carry their due time; when it
//! has come, the message is put under its real topic.
//!
//! The record put there says which entry it came from. Progress is therefore in the log with the message
//! itself: a crash neither loses a delivery nor repeats one.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Shared, lock};
use crate::consumequeue::Entry;
use crate::error::{Result, StoreError};
use crate::message::properties;
use crate::meta::{Op, names};

/// Entries delivered before looking at the next level.
const ROUND: i64 = 1024;
const IDLE_MS: i64 = 60_000;
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Properties of the delayed record that the delivered one does not have.
const DROPPED: [&str; 7] = [
    properties::DELAY,
    properties::REAL_TOPIC,
    properties::REAL_QID,
    properties::CRC32,
    properties::BATCH,
    properties::IDEMPOTENCE_KEY,
    properties::DIGEST,
];

impl Shared {
    /// Delivers due messages until the store stops.
    pub(super) fn run_scheduler(&self) {
        let mut next: BTreeMap<u32, i64> = lock(&self.dispatcher).state.delay.clone();
        while !self.stopping() {
            match self.deliver_due(&mut next) {
                Ok(wait_ms) => self.schedule_changed.wait(Duration::from_millis(wait_ms.max(1) as u64)),
                Err(StoreError::Closed { .. }) => return,
                Err(error) => {
                    eprintln!("lakemq store: delivering delayed messages failed, trying again: {error}");
                    self.schedule_changed.wait(AFTER_ERROR);
                }
            }
        }
    }

    /// Delivers what is due on every level. Returns the milliseconds until the next entry is.
    fn deliver_due(&self, next: &mut BTreeMap<u32, i64>) -> Result<i64> {
        let mut wait_ms = IDLE_MS;
        for level in 1..=self.options.delay_levels_ms.len() as u32 {
            let Some(queue) = self.queues.get(names::SCHEDULE_TOPIC, level - 1) else { continue };
            let from = (*next.entry(level).or_insert(0)).max(queue.min_offset());
            let end = queue.max_offset().min(from + ROUND);
            if queue.max_offset() > end {
                wait_ms = 0;
            }
            let now = self.environment.clock.now_ms();
            queue.walk(from, end, |offset, entry| {
                let due_in = entry.tags_code - now;
                // A clock set back must not hold a message longer than its level.
                if due_in > 0 && due_in <= self.options.delay_levels_ms[level as usize - 1] {
                    wait_ms = wait_ms.min(due_in);
                    return Ok(false);
                }
                if self.stopping() {
                    return Ok(false);
                }
                self.deliver(level, offset, entry)?;
                next.insert(level, offset + 1);
                Ok(true)
            })?;
        }
        Ok(wait_ms)
    }

    fn deliver(&self, level: u32, offset: i64, entry: Entry) -> Result<()> {
        let located = self.log.locate(entry.physical_offset);
        let record = located.as_ref().and_then(|l| l.record().ok());
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        let target = record.as_ref().and_then(|record| {
            let topic = record.property(properties::REAL_TOPIC)?;
            let queue_id: u32 = record.property(properties::REAL_QID)?.parse().ok()?;
            let queues = appender.routing.get(topic)?.config.write_queue_nums;
            (queues > 0).then(|| (topic.to_owned(), queue_id % queues))
        });
        let (Some(record), Some((topic, queue_id))) = (record, target) else {
            // The record is damaged or its topic is gone: it stays in the log, the level goes on.
            self.counters.delayed_dropped.fetch_add(1, Ordering::Relaxed);
            return self.append_op(&mut appender, &Op::DelayProgress { offsets: vec![(level, offset + 1)] });
        };
        let mut kept = Vec::with_capacity(record.properties.len() + 32);
        for (name, value) in properties::iter(record.properties).filter(|(n, _)| !DROPPED.contains(n)) {
            properties::push(&mut kept, name, value);
        }
        properties::push(&mut kept, properties::DELIVERED_FROM, &format!("{level}:{offset}"));
        self.append_delivery(&mut appender, &record, &topic, queue_id, &kept)?;
        drop(appender);
        self.counters.delayed_delivered.fetch_add(1, Ordering::Relaxed);
        self.wake_flusher();
        Ok(())
    }

    /// (level, next offset, max offset) of every level with entries.
    pub fn delay_progress(&self) -> Vec<(u32, i64, i64)> {
        let state = lock(&self.dispatcher).state.delay.clone();
        let levels = 1..=self.options.delay_levels_ms.len() as u32;
        levels
            .filter_map(|level| {
                let queue = self.queues.get(names::SCHEDULE_TOPIC, level - 1)?;
                Some((level, state.get(&level).copied().unwrap_or(0), queue.max_offset()))
            })
            .collect()
    }
}
