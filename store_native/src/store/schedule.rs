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
use crate::environment::Point;
use crate::error::{Result, StoreError};
use crate::message::properties;
use crate::meta::{Op, names};

/// Entries delivered before looking at the next level.
const ROUND: i64 = 1024;
const IDLE_MS: i64 = 60_000;
/// As many levels as the settings may have.
const MAX_LEVELS: u32 = 64;
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
                    let text = format!("delivering delayed messages failed, trying again: {error}");
                    self.environment.events.error(text);
                    self.schedule_changed.wait(AFTER_ERROR);
                }
            }
        }
    }

    /// The levels that have a queue: those of the settings, and those of earlier settings.
    fn levels(&self) -> u32 {
        let configured = self.options.delay_levels_ms.len() as u32;
        let used = self.queues.of_topic(names::SCHEDULE_TOPIC).last().map_or(0, |(id, _)| *id + 1);
        configured.max(used.min(MAX_LEVELS))
    }

    /// The delay of a level; one that the settings no longer have counts as the last.
    fn delay_ms(&self, level: u32) -> i64 {
        let levels = &self.options.delay_levels_ms;
        levels.get(level as usize - 1).or_else(|| levels.last()).copied().unwrap_or(0)
    }

    /// The longest delay there is.
    pub(super) fn longest_delay_ms(&self) -> i64 {
        self.options.delay_levels_ms.iter().copied().max().unwrap_or(0)
    }

    /// Log offset of the oldest delayed record that is not delivered yet; `i64::MAX` without one. Expiry
    /// keeps the log from there on.
    pub(super) fn undelivered_from(&self) -> Result<i64> {
        let reached = lock(&self.dispatcher).state.delay.clone();
        let mut lowest = i64::MAX;
        for level in 1..=self.levels() {
            let Some(queue) = self.queues.get(names::SCHEDULE_TOPIC, level - 1) else { continue };
            let from = reached.get(&level).copied().unwrap_or(0).max(queue.min_offset());
            queue.walk(from, queue.max_offset().min(from + 1), |_, entry| {
                lowest = lowest.min(entry.physical_offset);
                Ok(false)
            })?;
        }
        Ok(lowest)
    }

    /// Delivers what is due on every level. Returns the milliseconds until the next entry is.
    fn deliver_due(&self, next: &mut BTreeMap<u32, i64>) -> Result<i64> {
        let mut wait_ms = IDLE_MS;
        for level in 1..=self.levels() {
            let Some(queue) = self.queues.get(names::SCHEDULE_TOPIC, level - 1) else { continue };
            let reached = *next.entry(level).or_insert(0);
            let from = reached.max(queue.min_offset());
            if from > reached {
                self.note_expired(level, from - reached, from)?;
                next.insert(level, from);
            }
            let end = queue.max_offset().min(from + ROUND);
            if queue.max_offset() > end {
                wait_ms = 0;
            }
            let delay = self.delay_ms(level);
            queue.walk(from, end, |offset, entry| {
                let due = lock(&self.delays).due(entry.physical_offset, entry.tags_code, delay);
                let due_in = due - self.environment.clock.monotonic_ms();
                if due_in > 0 {
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

    /// Delayed messages went before their time, because the disk was too full to keep the log.
    fn note_expired(&self, level: u32, count: i64, reached: i64) -> Result<()> {
        self.counters.delayed_dropped.fetch_add(count as u64, Ordering::Relaxed);
        self.environment.events.error(format!(
            "{count} delayed messages of level {level} expired before they were due and are lost"
        ));
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        self.append_op(&mut appender, &Op::DelayProgress { offsets: vec![(level, reached)] })
    }

    fn deliver(&self, level: u32, offset: i64, entry: Entry) -> Result<()> {
        self.environment.faults.pass(Point::DeliverBefore);
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
