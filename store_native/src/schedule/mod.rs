//! Delayed messages: each level is a queue of SCHEDULE_TOPIC whose entries carry their due time; when it
//! has come, the message is put under its real topic.
//!
//! Invariants: progress is in the log with the message that was delivered, so a crash neither loses a delivery nor
//! repeats one; what expired undelivered is counted and logged.
//! Threads: one of its own; `undelivered_from` is asked by the one that expires files.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::append::Appender;
use crate::commitlog::CommitLog;
use crate::consumequeue::{Entry, QueueTable};
use crate::delay_times::DelayTimes;
use crate::dispatch::Dispatch;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::lifecycle::Lifecycle;
use crate::lock::lock;
use crate::state::{Op, names};
use crate::watermarks::Watermarks;

/// Entries delivered before looking at the next level.
const ROUND: i64 = 1024;
const IDLE_MS: i64 = 60_000;
/// As many levels as the settings may have.
const MAX_LEVELS: u32 = 64;
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How soon it is looked again whether this broker is the master.
const NOT_YET_MASTER: Duration = Duration::from_millis(100);

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct ScheduleCounters {
    pub delivered: AtomicU64,
    pub dropped: AtomicU64,
}

/// Owns the delivery of delayed messages; see the module.
pub struct Scheduler {
    delay_levels_ms: Vec<i64>,
    environment: Environment,
    log: Arc<CommitLog>,
    marks: Arc<Watermarks>,
    queues: Arc<QueueTable>,
    appender: Arc<Appender>,
    dispatch: Arc<Dispatch>,
    lifecycle: Arc<Lifecycle>,
    delays: Arc<DelayTimes>,
    /// How far each level is delivered, in the epoch that it was found out in.
    reached: Mutex<Option<(i64, BTreeMap<u32, i64>)>>,
    pub counters: ScheduleCounters,
}

impl Scheduler {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        delay_levels_ms: Vec<i64>,
        environment: Environment,
        log: Arc<CommitLog>,
        marks: Arc<Watermarks>,
        queues: Arc<QueueTable>,
        appender: Arc<Appender>,
        dispatch: Arc<Dispatch>,
        lifecycle: Arc<Lifecycle>,
        delays: Arc<DelayTimes>,
    ) -> Self {
        Self {
            delay_levels_ms,
            environment,
            log,
            marks,
            queues,
            appender,
            dispatch,
            lifecycle,
            delays,
            reached: Mutex::default(),
            counters: ScheduleCounters::default(),
        }
    }

    /// Delivers due messages until the store stops, while the broker is a master.
    pub fn run(&self) {
        while !self.lifecycle.stopping() {
            match self.deliver_all_due() {
                Ok(wait) => self.lifecycle.schedule_changed.wait(wait),
                Err(StoreError::Closed { .. }) => return,
                Err(error) => {
                    let text = format!("delivering delayed messages failed, trying again: {error}");
                    self.environment.events.error(text);
                    self.lifecycle.schedule_changed.wait(AFTER_ERROR);
                }
            }
        }
    }

    /// Delivers what is due. Returns how soon it is worth looking again.
    ///
    /// # Errors
    /// As [`Appender::append`]; what was delivered before stays so.
    pub fn deliver_all_due(&self) -> Result<Duration> {
        let mastership = self.appender.mastership();
        let Some((epoch, _)) = mastership.filter(|(_, from)| self.marks.dispatched() >= *from) else {
            // Who was master before may have delivered what is not dispatched yet.
            return Ok(NOT_YET_MASTER);
        };
        let mut reached = lock(&self.reached);
        let (_, next) = match reached.take().filter(|(of, _)| *of == epoch) {
            Some(known) => reached.insert(known),
            None => reached.insert((epoch, self.dispatch.applied().state().delay.clone())),
        };
        match self.deliver_due(epoch, next) {
            Ok(wait_ms) => Ok(Duration::from_millis(wait_ms.max(1) as u64)),
            Err(error @ StoreError::Closed { .. }) => Err(error),
            Err(_) if self.appender.mastership().is_none_or(|(now, _)| now != epoch) => Ok(Duration::ZERO),
            Err(error) => Err(error),
        }
    }

    /// The levels that have a queue: those of the settings, and those of earlier settings.
    fn levels(&self) -> u32 {
        let configured = self.delay_levels_ms.len() as u32;
        let used = self.queues.of_topic(names::SCHEDULE_TOPIC).last().map_or(0, |(id, _)| *id + 1);
        configured.max(used.min(MAX_LEVELS))
    }

    /// The delay of a level; one that the settings no longer have counts as the last.
    fn delay_ms(&self, level: u32) -> i64 {
        let levels = &self.delay_levels_ms;
        levels.get(level as usize - 1).or_else(|| levels.last()).copied().unwrap_or(0)
    }

    /// Log offset of the oldest delayed record that is not delivered yet; `i64::MAX` without one. Expiry
    /// keeps the log from there on.
    pub fn undelivered_from(&self) -> Result<i64> {
        let reached = self.dispatch.applied().state().delay.clone();
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
    fn deliver_due(&self, epoch: i64, next: &mut BTreeMap<u32, i64>) -> Result<i64> {
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
                let due_in = self.delays.due_in(entry.physical_offset, entry.tags_code, delay);
                if due_in > 0 {
                    wait_ms = wait_ms.min(due_in);
                    return Ok(false);
                }
                if self.lifecycle.stopping() {
                    return Ok(false);
                }
                self.deliver((level, offset), entry, epoch)?;
                next.insert(level, offset + 1);
                Ok(true)
            })?;
        }
        Ok(wait_ms)
    }

    /// Delayed messages went before their time, because the disk was too full to keep the log.
    fn note_expired(&self, level: u32, count: i64, reached: i64) -> Result<()> {
        self.counters.dropped.fetch_add(count as u64, Ordering::Relaxed);
        self.environment.events.error(format!(
            "{count} delayed messages of level {level} expired before they were due and are lost"
        ));
        self.appender.append_op(&Op::DelayProgress { offsets: vec![(level, reached)] }).map(drop)
    }

    fn deliver(&self, place: (u32, i64), entry: Entry, epoch: i64) -> Result<()> {
        self.environment.faults.pass(Point::DeliverBefore);
        let located = self.log.locate(entry.physical_offset);
        let record = located.as_ref().and_then(|l| l.record().ok());
        let delivered = self.appender.deliver(record.as_ref(), place, epoch)?;
        let counter = if delivered { &self.counters.delivered } else { &self.counters.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// (level, next offset, max offset) of every level with entries.
    pub fn progress(&self) -> Vec<(u32, i64, i64)> {
        let state = self.dispatch.applied().state().delay.clone();
        let levels = 1..=self.delay_levels_ms.len() as u32;
        levels
            .filter_map(|level| {
                let queue = self.queues.get(names::SCHEDULE_TOPIC, level - 1)?;
                Some((level, state.get(&level).copied().unwrap_or(0), queue.max_offset()))
            })
            .collect()
    }
}
