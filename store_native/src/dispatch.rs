//! The dispatcher: takes records in log order and makes of them queue entries, index entries and state.
//!
//! One dispatcher exists, behind the dispatch lock. Recovery drives it over the tail of the log, the
//! dispatch thread over what was flushed; both do the same, so a rebuilt queue equals the first one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arrivals::Arrivals;
use crate::consumequeue::{Entry, Queue, QueueTable, Staged};
use crate::environment::{Environment, Point};
use crate::error::Result;
use crate::idempotence::{KeyFile, KeyPlace};
use crate::index::Index;
use crate::message::{RecordView, hash, properties};
use crate::meta::{MetaState, Op, names};

/// Applies records; see the module.
pub struct Dispatcher {
    pub state: MetaState,
    /// Log offset up to which records were dispatched.
    pub offset: i64,
    pub store_timestamp: i64,
    /// The time at which ages were taken last before the start; 0 where it is not known.
    pub ages_at: i64,
    pub quarantine: Vec<(i64, i64)>,
    pub keys: KeyFile,
    /// Keys applied and not yet handed to the append side (recovery).
    pub recovered_keys: Vec<(String, KeyPlace)>,
    collect_keys: bool,
    pub arrivals: Arc<Arrivals>,
    queues: Arc<QueueTable>,
    index: Arc<Index>,
    environment: Environment,
    delay_levels_ms: Vec<i64>,
    /// Queues with entries staged and not stored yet.
    staged: Vec<Arc<Queue>>,
}

impl Dispatcher {
    pub fn new(
        state: MetaState,
        offset: i64,
        queues: Arc<QueueTable>,
        index: Arc<Index>,
        keys: KeyFile,
        environment: Environment,
        delay_levels_ms: Vec<i64>,
    ) -> Self {
        Self {
            state,
            offset,
            store_timestamp: 0,
            ages_at: 0,
            quarantine: Vec::new(),
            keys,
            recovered_keys: Vec::new(),
            collect_keys: true,
            arrivals: Arc::default(),
            queues,
            index,
            environment,
            delay_levels_ms,
            staged: Vec::new(),
        }
    }

    /// Ends recovery: keys are known to the append side before they come here from now on.
    pub fn recovered(&mut self) -> Vec<(String, KeyPlace)> {
        self.collect_keys = false;
        std::mem::take(&mut self.recovered_keys)
    }

    /// Applies one record. Its queue entry is staged: the caller calls [`Dispatcher::flush_entries`] before
    /// it announces anything. The caller moves `offset` behind it.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; the record can be dispatched again.
    pub fn dispatch(&mut self, record: &RecordView<'_>) -> Result<()> {
        let meta = record.topic == names::META_TOPIC;
        let op = if meta { Some(Op::decode(record.body, record.physical_offset)?) } else { None };
        if let Some(Op::DeleteTopic { topic }) = &op {
            self.staged.retain(|queue| **queue.topic() != **topic);
            self.queues.remove_topic(topic)?;
        }
        let parts = Parts::of(record);
        self.stage_entry(record, &parts)?;
        self.index.put(record, &*self.environment.disk)?;
        self.store_timestamp = record.store_timestamp;
        if let Some(key) = parts.idempotence_key {
            let place =
                KeyPlace { physical_offset: record.physical_offset, store_timestamp: record.store_timestamp };
            self.keys.note(key, place);
            if self.collect_keys {
                self.recovered_keys.push((key.to_owned(), place));
            }
        }
        if let Some((level, offset)) = parts.delivered_from.and_then(parse_delivered_from) {
            self.state.delay_reached(level, offset + 1, record.store_timestamp);
        }
        if let Some(op) = op {
            if matches!(op, Op::PutTopic { .. } | Op::DeleteTopic { .. }) {
                self.state.topics_at = record.queue_offset + 1;
            }
            self.state.apply(op, record.store_timestamp);
        }
        Ok(())
    }

    /// Stages a record's entry again, for a queue that is being repaired (recovery only).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn stage_again(&mut self, record: &RecordView<'_>) -> Result<()> {
        self.stage_entry(record, &Parts::of(record))
    }

    /// Indexes a record again (recovery only).
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn index_again(&self, record: &RecordView<'_>) -> Result<()> {
        self.index.put(record, &*self.environment.disk)
    }

    fn stage_entry(&mut self, record: &RecordView<'_>, parts: &Parts<'_>) -> Result<()> {
        let Ok(queue_id) = u32::try_from(record.queue_id) else { return Ok(()) };
        if !record.is_visible() || names::validate_topic(record.topic).is_err() {
            return Ok(());
        }
        let queue = self.queues.get_or_create(record.topic, queue_id);
        let tags_code = match parts.delay.and_then(|d| d.parse::<usize>().ok()) {
            Some(level) if record.topic == names::SCHEDULE_TOPIC && level > 0 => {
                record.store_timestamp + self.level_ms(level)
            }
            _ => hash::tags_code(parts.tags),
        };
        let entry =
            Entry { physical_offset: record.physical_offset, size: record.total_size as i32, tags_code };
        let staged = queue.stage(record.queue_offset, entry, |from, to| self.damaged_between(from, to))?;
        match staged {
            Staged::First => self.staged.push(queue),
            Staged::Next | Staged::Known => {}
            Staged::Impossible => {
                self.environment.events.error(format!(
                    "the record at {} says it is message {} of topic[{}] queue {queue_id}, which cannot be: \
                     it is passed over",
                    record.physical_offset, record.queue_offset, record.topic
                ));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Queues for whose staged entries files may have to be made.
    pub fn queues_without_room(&self) -> Vec<Arc<Queue>> {
        self.staged.iter().filter(|queue| queue.wants_room()).map(Arc::clone).collect()
    }

    /// Stores what was staged, each queue's entries at once; then anyone can read them. What could not be
    /// stored stays staged, and nothing may be announced.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn flush_entries(&mut self) -> Result<()> {
        while !self.flush_entries_for(Duration::MAX)? {}
        Ok(())
    }

    /// As [`Dispatcher::flush_entries`], until it took longer than `limit`; false when some are left.
    ///
    /// # Errors
    /// As [`Dispatcher::flush_entries`].
    pub fn flush_entries_for(&mut self, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        while let Some(queue) = self.staged.last() {
            if queue.flush()? {
                self.queues.note_dirty(Arc::clone(queue));
            }
            self.arrivals.note(queue.topic(), queue.queue_id());
            self.staged.pop();
            self.environment.faults.pass(Point::DispatchMid);
            if started.elapsed() > limit {
                break;
            }
        }
        Ok(self.staged.is_empty())
    }

    /// The damaged range between two log offsets that lies last; what lies between them when none is known.
    pub fn damaged_between(&self, from: i64, to: i64) -> (i64, i64) {
        let inside = |(a, b): &&(i64, i64)| *a >= from && *b <= to;
        self.quarantine.iter().rev().find(inside).copied().unwrap_or((from, to))
    }

    fn level_ms(&self, level: usize) -> i64 {
        let last = self.delay_levels_ms.len();
        self.delay_levels_ms.get(level.min(last).saturating_sub(1)).copied().unwrap_or(1000)
    }
}

/// The properties a dispatch looks at, found in one pass.
#[derive(Default)]
struct Parts<'a> {
    tags: Option<&'a str>,
    delay: Option<&'a str>,
    idempotence_key: Option<&'a str>,
    delivered_from: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(record: &RecordView<'a>) -> Self {
        let mut out = Self::default();
        for (name, value) in properties::iter(record.properties) {
            match name {
                properties::TAGS => out.tags = Some(value),
                properties::DELAY => out.delay = Some(value),
                properties::IDEMPOTENCE_KEY => out.idempotence_key = Some(value),
                properties::DELIVERED_FROM => out.delivered_from = Some(value),
                _ => {}
            }
        }
        out
    }
}

/// Reads `level:queue_offset`.
pub fn parse_delivered_from(text: &str) -> Option<(u32, i64)> {
    let (level, offset) = text.split_once(':')?;
    Some((level.parse().ok()?, offset.parse().ok()?))
}
