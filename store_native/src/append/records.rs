//! Records behind the log's end: requests, changes of state, and deliveries.
//!
//! Invariants: a store timestamp is never below the one before it, but where the clock was set back by more than
//! `MAX_STAMP_LEAD_MS`. A write that failed makes the store read-only. A delivered message carries the schedule
//! entry it came from, so that one record is both the delivery and its progress.
//! Threads: those that append and the scheduler, one at a time under the append lock.

use super::topic_table::TopicState;
use super::{Appender, LogEnd, Placed};
use crate::commitlog::batch::Batch;
use crate::commitlog::epochs::fenced;
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::message::record::{Place, Plan, crc31};
use crate::message::{RecordView, properties, sys_flag};
use crate::state::{Op, names};

/// How far the clock may be set back before stamps follow it.
const MAX_STAMP_LEAD_MS: i64 = 60_000;

/// Where a message goes: a delayed one into the schedule.
pub(super) struct Target<'a> {
    pub topic: &'a str,
    pub queue_id: u32,
}

/// Where a message was put. What the caller is given is made of it when the lock is given back.
pub(super) struct Put {
    pub queue_id: u32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    scheduled: bool,
}

impl Put {
    pub fn placed(&self, batch: &Batch<'_>, at: usize) -> Placed {
        Placed {
            message_id: batch.message_id(at).to_owned(),
            physical_offset: self.physical_offset,
            queue_id: self.queue_id,
            queue_offset: self.queue_offset,
            scheduled: self.scheduled,
        }
    }
}

/// Properties of the delayed record that the delivered one does not have.
const NOT_DELIVERED: [&str; 7] = [
    properties::DELAY,
    properties::REAL_TOPIC,
    properties::REAL_QID,
    properties::CRC32,
    properties::BATCH,
    properties::IDEMPOTENCE_KEY,
    properties::DIGEST,
];

impl Appender {
    /// Encodes the records behind the log's end. Returns the place of each.
    pub(super) fn put_records(
        &self,
        end: &mut LogEnd,
        plans: &[Plan<'_>],
        properties: &[u8],
        targets: &[Target<'_>],
    ) -> Result<Vec<Put>> {
        let store_host = self.options.store_host;
        let sizes: Vec<usize> = plans.iter().map(|p| p.size(store_host)).collect();
        let total: usize = sizes.iter().sum();
        let start = end.writer.reserve(total)?;
        let store_timestamp = self.stamp(end);
        if targets.iter().any(|t| t.topic == names::SCHEDULE_TOPIC) {
            self.delays.stored(start, store_timestamp);
        }
        let mut out = Vec::with_capacity(plans.len());
        let mut physical_offset = start;
        let mut of_topic: Option<(&str, &mut TopicState)> = None;
        for ((plan, size), target) in plans.iter().zip(&sizes).zip(targets) {
            if of_topic.as_ref().is_none_or(|(topic, _)| *topic != target.topic) {
                of_topic = end.topics.get_mut(target.topic).map(|state| (target.topic, state));
            }
            let queue_offset = match &mut of_topic {
                Some((_, state)) => state.take_offset(target.queue_id),
                None => return Err(StoreError::no_topic(target.topic)),
            };
            let place = Place { queue_offset, physical_offset, store_timestamp, store_host };
            let put = end.writer.put(*size, |region| plan.encode(region, properties, &place));
            put.map_err(|error| self.write_failed(&error))?;
            let scheduled = target.topic == names::SCHEDULE_TOPIC;
            out.push(Put { queue_id: target.queue_id, queue_offset, physical_offset, scheduled });
            physical_offset += *size as i64;
        }
        end.writer.finish().map_err(|error| self.write_failed(&error))?;
        self.counters.bytes.fetch_add(total as u64, std::sync::atomic::Ordering::Relaxed);
        self.marks.set_appended(end.writer.end());
        if end.writer.wants_next() {
            self.lifecycle.maintenance_wanted.set();
        }
        Ok(out)
    }

    /// The stamp of what is stored now. It follows the clock, but does not go back by a little.
    fn stamp(&self, end: &mut LogEnd) -> i64 {
        let now = self.environment.clock.now_ms();
        let back = end.last_store_timestamp - now;
        if back > MAX_STAMP_LEAD_MS {
            self.environment
                .events
                .warn(format!("the clock was set back by {} s, store timestamps follow it", back / 1000));
        }
        if back <= 0 || back > MAX_STAMP_LEAD_MS {
            end.last_store_timestamp = now;
        }
        end.last_store_timestamp
    }

    /// Makes the store read-only: what stands behind the log's end now is unknown.
    pub(super) fn write_failed(&self, error: &std::io::Error) -> StoreError {
        let reason = format!("writing the commit log: {error}");
        self.lifecycle.poison(reason.clone());
        StoreError::poisoned(&reason)
    }

    /// Appends a change of state that needs nothing from this side. Returns the offset to wait for.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn append_op(&self, op: &Op) -> Result<i64> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_master()?;
        self.put_op(&mut end, op)?;
        let offset = end.writer.end();
        drop(end);
        self.wake_flusher();
        Ok(offset)
    }

    /// Puts a change of state under the append lock. The caller changes the topic table.
    pub(super) fn put_op(&self, end: &mut LogEnd, op: &Op) -> Result<()> {
        let body = op.encode()?;
        if body.len() > self.options.commitlog_file_size as usize / 2 {
            return Err(StoreError::invalid("REQUEST_TOO_LARGE", "the change does not fit a log file"));
        }
        let plan = Plan {
            topic: names::META_TOPIC,
            body: &body,
            body_crc: crc31(&body),
            properties: 0..0,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: self.environment.clock.now_ms(),
            born_host: self.options.store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
        };
        let target = Target { topic: names::META_TOPIC, queue_id: 0 };
        self.put_records(end, &[plan], &[], &[target]).map(|_| ())
    }

    /// Puts the delayed message of entry (level, offset) under its real topic. False when it cannot be, because its
    /// record is damaged (`None`) or its topic is gone: that is noted, and the level goes on. `epoch` is the one in
    /// which it was found to be due: in another one somebody else may have delivered it.
    ///
    /// The record put says which entry it came from. Progress is therefore in the log with the message itself: a
    /// crash neither loses a delivery nor repeats one.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn deliver(
        &self,
        record: Option<&RecordView<'_>>,
        (level, offset): (u32, i64),
        epoch: i64,
    ) -> Result<bool> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_master()?;
        if end.epochs.seen() != epoch {
            return Err(fenced(epoch, end.epochs.seen()));
        }
        let target = record.and_then(|record| {
            let topic = record.property(properties::REAL_TOPIC)?;
            let queue_id: u32 = record.property(properties::REAL_QID)?.parse().ok()?;
            let queues = end.topics.get(topic)?.config.write_queue_nums;
            (queues > 0).then(|| (topic.to_owned(), queue_id % queues))
        });
        let (Some(record), Some((topic, queue_id))) = (record, target) else {
            self.put_op(&mut end, &Op::DelayProgress { offsets: vec![(level, offset + 1)] })?;
            return Ok(false);
        };
        let mut kept = Vec::with_capacity(record.properties.len() + 32);
        for (name, value) in properties::iter(record.properties).filter(|(n, _)| !NOT_DELIVERED.contains(n)) {
            properties::push(&mut kept, name, value);
        }
        properties::push(&mut kept, properties::DELIVERED_FROM, &format!("{level}:{offset}"));
        let plan = Plan {
            topic: &topic,
            body: record.body,
            body_crc: record.body_crc,
            properties: 0..kept.len(),
            queue_id: queue_id as i32,
            flag: record.flag,
            sys_flag: record.sys_flag & !(sys_flag::STORE_HOST_V6),
            born_timestamp: record.born_timestamp,
            born_host: record.born_host,
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: 0,
        };
        let target = Target { topic: &topic, queue_id };
        self.put_records(&mut end, &[plan], &kept, &[target])?;
        drop(end);
        self.wake_flusher();
        Ok(true)
    }
}
