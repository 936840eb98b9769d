//! Bringing a store directory back: after a clean stop, a crash, or with parts of it missing.
//!
//! The commit log decides. From the snapshot's offset (or, where queues or index cannot be trusted, from
//! the log's start) every record is read, checked and dispatched again. The first invalid place behind
//! what was known to be flushed ends the log: the tail is erased durably before a write is accepted.
//! An invalid place before it is damage: it is quarantined, counted and passed over, never cut off.

use std::sync::Arc;

use super::options::Options;
use crate::commitlog::CommitLog;
use crate::commitlog::scan::{Found, look, next_record_after_damage, request_is_whole};
use crate::consumequeue::QueueTable;
use crate::dispatch::{Dispatcher, Target};
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::idempotence::{IdempotenceTable, KeyFile};
use crate::index::Index;
use crate::meta::config;
use crate::paths::StorePaths;
use crate::snapshot::Snapshot;
use crate::watermarks::Watermarks;

/// What a recovery found and did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// The last stop was clean.
    pub clean: bool,
    /// Queues and index were built again from the log's start.
    pub rebuilt: bool,
    pub from_offset: i64,
    pub end_offset: i64,
    pub records: u64,
    pub truncated_bytes: u64,
    pub quarantined_bytes: u64,
    pub elapsed_ms: i64,
}

/// The parts that recovery works on.
pub(super) struct Parts<'a> {
    pub paths: &'a StorePaths,
    pub options: &'a Options,
    pub environment: &'a Environment,
    pub log: &'a CommitLog,
    pub queues: &'a Arc<QueueTable>,
    pub index: &'a Arc<Index>,
    pub marks: &'a Watermarks,
    pub clean: bool,
    /// Build queues and index again whatever the snapshot says.
    pub rebuild: bool,
}

/// What recovery hands on.
pub(super) struct Recovered {
    pub dispatcher: Dispatcher,
    pub keys: IdempotenceTable,
    pub report: Report,
}

impl Parts<'_> {
    /// Recovers; see the module.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when the log is shorter than the snapshot; `DISK_FULL`; any I/O error.
    pub fn recover(&self) -> Result<Recovered> {
        let started = self.environment.clock.now_ms();
        let log_min = self.log.min_offset();
        let (snapshot, known) = self.load_snapshot(log_min)?;
        let applied = snapshot.applied_offset;
        let durable = applied.max(self.marks.flushed().min(self.log.capacity_end()));
        let rebuild = self.rebuild || !known || !self.parts_hold(&snapshot)?;
        if rebuild {
            self.index.clear()?;
            for (_, _, queue) in self.queues.all() {
                queue.set_bounds(0, 0);
            }
        }
        let mut keys = IdempotenceTable::new(
            self.options.idempotence_max_keys,
            self.options.idempotence_hours as i64 * 3_600_000,
        );
        let mut key_file = KeyFile::new(self.paths);
        key_file.load(log_min, applied, &mut keys)?;
        let mut dispatcher = Dispatcher::new(
            snapshot.state.clone(),
            applied,
            Arc::clone(self.queues),
            Arc::clone(self.index),
            key_file,
            self.environment.clone(),
            self.options.delay_levels_ms.clone(),
        );
        dispatcher.store_timestamp = snapshot.store_timestamp;
        dispatcher.quarantine = snapshot.quarantine.clone();
        dispatcher.quarantine.retain(|(_, to)| *to > log_min);
        let from_offset = if rebuild { log_min } else { applied };
        let mut report = Report { clean: self.clean, rebuilt: rebuild, from_offset, ..Report::default() };
        let end = self.walk(&mut dispatcher, from_offset, applied, durable, &mut report)?;
        self.settle(&mut dispatcher, end, rebuild, &mut report)?;
        config::take_over(self.paths, &mut dispatcher.state)?;
        for (key, place) in dispatcher.recovered() {
            keys.insert(&key, place);
        }
        report.end_offset = end;
        report.elapsed_ms = self.environment.clock.now_ms() - started;
        Ok(Recovered { dispatcher, keys, report })
    }

    /// The snapshot, or a substitute that starts at the log's beginning with what RocketMQ's files say.
    fn load_snapshot(&self, log_min: i64) -> Result<(Snapshot, bool)> {
        let Some(mut snapshot) = Snapshot::read(self.paths) else {
            return Ok((Snapshot::empty(log_min, config::read(self.paths)?), false));
        };
        if snapshot.applied_offset > self.log.capacity_end() && !self.rebuild {
            return Err(StoreError::corrupt(format!(
                "the commit log ends at {}, but it was known to reach {}: files are missing",
                self.log.capacity_end(),
                snapshot.applied_offset
            )));
        }
        snapshot.applied_offset = snapshot.applied_offset.max(log_min).min(self.log.capacity_end());
        Ok((snapshot, true))
    }

    /// Whether queues and index stand as the snapshot says; takes them back to it where they went on.
    fn parts_hold(&self, snapshot: &Snapshot) -> Result<bool> {
        for (topic, queue_id, min, max) in &snapshot.queues {
            let queue = self.queues.get_or_create(topic, *queue_id)?;
            queue.set_bounds(*min, *max);
            if max > min
                && (!queue.covers(*min, *max)
                    || !queue.holds(*max - 1, snapshot.applied_offset)?
                    || !queue.holds(*min, snapshot.applied_offset)?)
            {
                return Ok(false);
            }
        }
        self.index.restore(&snapshot.index, self.clean)
    }

    /// Reads and dispatches records from `from`; returns the log's end.
    fn walk(
        &self,
        dispatcher: &mut Dispatcher,
        from: i64,
        applied: i64,
        durable: i64,
        report: &mut Report,
    ) -> Result<i64> {
        let mut offset = from;
        while let Some(file) = self.log.file_at(offset) {
            if let Some((_, to)) = dispatcher.quarantine.iter().find(|(a, b)| (*a..*b).contains(&offset)) {
                offset = *to;
                continue;
            }
            match look(&file, offset) {
                Found::Roll(next) => offset = next,
                Found::Record(record) => {
                    if offset >= durable && !request_is_whole(&file, &record) {
                        break;
                    }
                    let target = if offset < applied { Target::QueuesAndIndex } else { Target::All };
                    dispatcher.dispatch(&record, target)?;
                    report.records += 1;
                    offset = record.end_offset();
                }
                Found::Nothing { .. } if offset < durable => {
                    let next = next_record_after_damage(self.log, offset + 1, durable).unwrap_or(durable);
                    dispatcher.quarantine.push((offset, next));
                    report.quarantined_bytes += (next - offset) as u64;
                    offset = next;
                }
                Found::Nothing { .. } => break,
            }
        }
        Ok(offset)
    }

    /// Erases what lies behind the end, makes all of the log durable, and sets the marks.
    fn settle(
        &self,
        dispatcher: &mut Dispatcher,
        end: i64,
        rebuild: bool,
        report: &mut Report,
    ) -> Result<()> {
        let disk = &*self.environment.disk;
        self.log.remove_behind(end)?;
        if let Some(file) = self.log.file_at(end) {
            report.truncated_bytes = file.file.erase_from((end - file.base) as usize, disk)?;
        }
        let flushed = self.marks.flushed();
        for file in self.log.files() {
            if file.end() > flushed.min(report.from_offset) {
                file.file.sync(disk).map_err(|e| StoreError::io("syncing the recovered log", e))?;
            }
        }
        if !self.clean || rebuild {
            for (_, _, queue) in self.queues.all() {
                if queue.max_offset() == 0 && rebuild {
                    // Every message expired: the queue goes on where its files say.
                    let (min, max) = queue.bounds_on_disk(self.log.min_offset(), end)?;
                    queue.set_bounds(min, max);
                }
                queue.truncate(queue.max_offset(), disk)?;
            }
        }
        dispatcher.offset = end;
        self.marks.reset(end);
        self.marks.set_log_min(self.log.min_offset());
        Ok(())
    }
}
