//! Bringing a store directory back: after a clean stop, a crash, or with parts of it missing.
//!
//! The commit log decides. From the snapshot's offset every record is read, checked and dispatched again; before
//! it, only for those queues and index files that do not stand as the snapshot says (`repair.rs`).
//! Invariants: the first invalid place behind what was known to be flushed ends the log; the tail is erased durably
//! before anything is written there (on a slave, when its master's log is known). An invalid place before it is
//! damage: it is quarantined, counted and passed over, never cut off.
//! Threads: the one that opens the store, before the others start. Readers in other processes see by the watermarks
//! that it is under way.

mod keys;
mod repair;

use std::sync::Arc;

use crate::commitlog::CommitLog;
use crate::commitlog::scan::{Scanned, next_record_after_damage, request_is_whole, scan_at};
use crate::commitlog::tail::erase_behind;
use crate::consumequeue::QueueTable;
use crate::dispatch::Dispatcher;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::idempotence::IdempotenceTable;
use crate::index::Index;
use crate::options::{Options, Role};
use crate::paths::{self, StorePaths};
use crate::snapshot::Snapshot;
use crate::state::{Op, names, rocketmq_files};
use crate::watermarks::Watermarks;
use repair::Repair;

/// Bytes of the log walked between two writes of queue entries.
const STORE_ENTRIES_EVERY: i64 = 1 << 20;

/// What a recovery found and did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// The last stop was clean.
    pub clean: bool,
    /// All queues and the index were built again from the log's start.
    pub rebuilt: bool,
    /// Queues that were built again because their files were not as the snapshot says.
    pub repaired_queues: u64,
    pub from_offset: i64,
    pub end_offset: i64,
    pub records: u64,
    pub truncated_bytes: u64,
    pub quarantined_bytes: u64,
    pub elapsed_ms: i64,
}

/// The parts that recovery works on.
pub struct Parts<'a> {
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
pub struct Recovered {
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
        let rebuild = self.rebuild || !known;
        let mut repair = if rebuild {
            let floors = known.then_some(&snapshot);
            Repair::of_everything(self.queues, floors, durable, log_min)?
        } else {
            self.look_at_parts(&snapshot, log_min)?
        };
        if repair.queues() > 0 && !rebuild {
            self.leave_out_deleted(&mut repair, applied);
        }
        if repair.is_needed() {
            // Otherwise nothing changes that a reader may look at: it lies behind what was confirmed.
            self.marks.begin_recovery();
            self.begin_repair(&repair, &snapshot, known, rebuild)?;
        }
        self.index.remove_given_up(&*self.environment.disk)?;
        let (mut keys, key_file) = self.keys(&snapshot, log_min)?;
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
        dispatcher.ages_at = snapshot.ages_at;
        dispatcher.quarantine.0 = snapshot.quarantine.clone();
        dispatcher.quarantine.0.retain(|(_, to)| *to > log_min);
        let from_offset = repair.from.min(applied);
        let mut report = Report {
            clean: self.clean,
            rebuilt: rebuild,
            repaired_queues: repair.queues() as u64,
            from_offset,
            ..Report::default()
        };
        // Without a snapshot all records are new, and what the files told counts at the end.
        let known_to = if known { applied } else { i64::MAX };
        let end = self.walk(&mut dispatcher, &repair, (from_offset, known_to), durable, &mut report)?;
        self.settle(&mut dispatcher, (durable, end), rebuild || repair.is_needed(), &mut report)?;
        for path in rocketmq_files::put_aside_unreadable(self.paths, &*self.environment.disk)? {
            self.environment.events.error(format!(
                "{} is not readable; it was put aside and is written anew from the log",
                path.display()
            ));
        }
        rocketmq_files::take_over(self.paths, dispatcher.state_mut(), &*self.environment.disk)?;
        for (key, place) in dispatcher.take_unknown_keys() {
            keys.insert(&key, place);
        }
        // In a new store there was nothing to build it from.
        report.rebuilt &= end > log_min;
        report.end_offset = end;
        report.elapsed_ms = self.environment.clock.now_ms() - started;
        Ok(Recovered { dispatcher, keys, report })
    }

    /// The snapshot, or a substitute that starts at the log's beginning with what RocketMQ's files say.
    fn load_snapshot(&self, log_min: i64) -> Result<(Snapshot, bool)> {
        let disk = &*self.environment.disk;
        let Some(mut snapshot) = Snapshot::read(self.paths, disk)? else {
            return Ok((Snapshot::empty(log_min, rocketmq_files::read(self.paths, disk)?), false));
        };
        let end = self.log.capacity_end();
        if snapshot.applied_offset > end && !self.rebuild {
            return Err(StoreError::corrupt(format!(
                "the commit log ends at {end}, but it was known to reach {}: files are missing, {} the first",
                snapshot.applied_offset,
                self.log.directory().join(paths::file_name(end)).display()
            )));
        }
        snapshot.applied_offset = snapshot.applied_offset.max(log_min).min(self.log.capacity_end());
        Ok((snapshot, true))
    }

    /// Takes queues and index to the snapshot, and finds what of them does not stand as it says.
    fn look_at_parts(&self, snapshot: &Snapshot, log_min: i64) -> Result<Repair> {
        for (at, (topic, queue_id, min, max)) in snapshot.queues.iter().enumerate() {
            let queue = self.queues.get_or_create(topic, *queue_id);
            queue.set_bounds(*min, *max);
            queue.set_log_start(snapshot.queue_starts.get(at).copied().unwrap_or(0));
        }
        // After a clean stop all of it was on the disk.
        let durable = if self.clean { snapshot.applied_offset } else { snapshot.queues_durable_offset };
        let mut repair = Repair::of_queues(self.queues, snapshot, durable, self.clean, self.log)?;
        let lost = self.index.restore(&snapshot.index, self.clean, log_min, &*self.environment.disk)?;
        // A start before this one may have ended while it was built again.
        for from in [lost, snapshot.index_from.map(|from| from.max(log_min))].into_iter().flatten() {
            repair.index_from(from);
        }
        Ok(repair)
    }

    /// Queues of a topic that the log deletes behind the snapshot need no repair.
    fn leave_out_deleted(&self, repair: &mut Repair, applied: i64) {
        let mut offset = applied;
        while let Some(file) = self.log.file_at(offset) {
            match scan_at(&file, offset) {
                Scanned::Roll(next) => offset = next,
                Scanned::Record(record) => {
                    offset = record.end_offset();
                    if record.topic == names::META_TOPIC
                        && let Ok(Op::DeleteTopic { topic }) = Op::decode(record.body, record.physical_offset)
                    {
                        repair.forget_topic(&topic);
                    }
                }
                Scanned::Nothing { .. } => return,
            }
        }
    }

    /// Empties what is to be filled again, after the snapshot on the disk says that it is not to be trusted:
    /// a crash in the middle of the repair must not take half of it for whole.
    fn begin_repair(&self, repair: &Repair, snapshot: &Snapshot, known: bool, rebuild: bool) -> Result<()> {
        if known {
            let doubtful = Snapshot {
                queues_durable_offset: snapshot.queues_durable_offset.min(repair.from),
                index: if rebuild { Vec::new() } else { self.index.state() },
                index_from: repair.index_from,
                ..snapshot.clone()
            };
            doubtful.write(self.paths, &*self.environment.disk, || ())?;
        }
        if rebuild {
            self.index.clear();
        }
        repair.clear(self.queues)
    }

    /// Reads records from `from` and dispatches them, those before `known_to` only to what is repaired, and those
    /// behind what is confirmed not at all; returns the log's end.
    fn walk(
        &self,
        dispatcher: &mut Dispatcher,
        repair: &Repair,
        (from, known_to): (i64, i64),
        durable: i64,
        report: &mut Report,
    ) -> Result<i64> {
        let mut offset = from;
        let mut unstored = from;
        let mut repairing = repair.is_needed();
        let confirmed = match self.options.confirms_alone() {
            true => i64::MAX,
            false => self.marks.confirmed().min(durable).max(dispatcher.offset),
        };
        while let Some(file) = self.log.file_at(offset) {
            if repairing && offset >= known_to {
                repair.finish(self.queues, dispatcher)?;
                repairing = false;
            }
            if let Some(to) = dispatcher.quarantine.end_of(offset) {
                offset = to;
                continue;
            }
            match scan_at(&file, offset) {
                Scanned::Roll(next) => offset = next,
                Scanned::Record(record) => {
                    if offset >= durable && !request_is_whole(&file, &record) {
                        break;
                    }
                    if offset < known_to && known_to < i64::MAX {
                        repair.take(&record, self.queues, dispatcher)?;
                    } else if offset < confirmed {
                        dispatcher.dispatch(&record)?;
                        dispatcher.offset = record.end_offset();
                    }
                    report.records += 1;
                    offset = record.end_offset();
                }
                Scanned::Nothing { .. } if offset < durable => {
                    let next = next_record_after_damage(self.log, offset + 1, durable).unwrap_or(durable);
                    dispatcher.quarantine.0.push((offset, next));
                    report.quarantined_bytes += (next - offset) as u64;
                    offset = next;
                }
                Scanned::Nothing { .. } => break,
            }
            if offset - unstored >= STORE_ENTRIES_EVERY {
                dispatcher.store()?;
                unstored = offset;
            }
        }
        dispatcher.store()?;
        if repairing {
            repair.finish(self.queues, dispatcher)?;
        }
        Ok(offset)
    }

    /// Erases what lies behind the end, makes all of the log durable, and sets the marks.
    fn settle(
        &self,
        dispatcher: &mut Dispatcher,
        (durable, end): (i64, i64),
        repaired: bool,
        report: &mut Report,
    ) -> Result<()> {
        let disk = &*self.environment.disk;
        match self.options.role {
            // Where it parts from its master's log is not known yet.
            Role::Slave => {}
            Role::Master if self.clean => {
                self.log.remove_behind(end, disk)?;
            }
            Role::Master => report.truncated_bytes = erase_behind(self.log, self.paths, end, disk)?,
        }
        let context = |e| StoreError::io("syncing the recovered log", e);
        let flushed = self.marks.flushed();
        for file in self.log.files() {
            let (from, to) = (durable.max(file.base), end.min(file.end()));
            if !self.clean && from < to {
                // The stop may have been a failed sync, which leaves pages that look clean.
                let (from, to) = ((from - file.base) as usize, (to - file.base) as usize);
                file.file.rewrite(from, to, disk).map_err(context)?;
            }
            if file.end() > flushed.min(report.from_offset) {
                file.file.sync(disk).map_err(context)?;
            }
        }
        if !self.clean {
            self.log.sync_names(disk).map_err(context)?;
        }
        if !self.clean || repaired {
            self.clear_queue_ends()?;
        }
        self.queues.store().sweep();
        if self.options.confirms_alone() {
            dispatcher.offset = end;
        }
        self.marks.reset(end, dispatcher.offset);
        self.marks.end_recovery();
        self.marks.set_log_min(self.log.min_offset());
        Ok(())
    }

    /// Clears what stands behind the queues' ends, and takes away queues that nothing in the log speaks of.
    fn clear_queue_ends(&self) -> Result<()> {
        let store = self.queues.store();
        for topic in store.topics()? {
            let known = self.queues.of_topic(&topic);
            if known.is_empty() {
                store.remove_topic(&topic)?;
                continue;
            }
            for queue_id in store.queues(&topic)? {
                let queue = self.queues.get_or_create(&topic, queue_id);
                queue.truncate(queue.max_offset())?;
            }
        }
        self.queues.collect_dirty();
        Ok(())
    }
}
