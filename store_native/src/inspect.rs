//! Looking at a store directory from outside: verifying it, and dumping its records.
//!
//! Invariants: nothing is written and no lock is taken.
//! Threads: the caller's; the owner may run in another process, and only what it flushed is looked at by a
//! verification.

use std::path::Path;
use std::sync::Arc;

use crate::commitlog::CommitLog;
use crate::commitlog::scan::{Scanned, next_record_after_damage, scan_at};
use crate::consumequeue::files::found_file_bytes;
use crate::consumequeue::{QueueFiles, QueueTable};
use crate::directory::refuse_unfinished;
use crate::environment::RealDisk;
use crate::error::Result;
use crate::message::RecordView;
use crate::paths::StorePaths;
use crate::watermarks::Watermarks;

/// What a verification found.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Verification {
    pub ok: bool,
    pub log_min_offset: i64,
    pub log_end_offset: i64,
    pub records: u64,
    /// Ranges of the log that hold no valid record although later bytes do.
    pub damaged_ranges: Vec<(i64, i64)>,
    pub queues: u64,
    pub queue_entries: u64,
    /// Entries whose record is missing or another one: (topic, queue id, queue offset).
    pub bad_entries: Vec<(String, u32, i64)>,
    pub bad_entry_count: u64,
}

/// Bad entries listed one by one at most.
const LISTED: usize = 100;

/// Reads every record and every queue entry of a store. Changes nothing; beside a running owner it looks
/// at what is flushed.
///
/// # Errors
/// `ARGUMENT_ILLEGAL` when the directory holds no store; `DATA_CORRUPT` where one is still being made from a master's;
/// any I/O error.
pub fn verify(root: &Path) -> Result<Verification> {
    let paths = StorePaths::new(root);
    refuse_unfinished(&paths, &RealDisk)?;
    paths.require_store(&RealDisk)?;
    let log = CommitLog::open_for_reading(&paths.commitlog())?;
    let marks = Watermarks::open_for_reading(&paths.watermarks())?;
    let mut out = Verification { log_min_offset: log.min_offset(), ..Verification::default() };
    let limit = marks.as_ref().map_or_else(|| log.capacity_end(), Watermarks::flushed);
    let mut offset = log.min_offset();
    while offset < limit {
        let Some(file) = log.file_at(offset) else {
            // A file is gone, although the next one or the watermarks say that it was written.
            let next = log.files().iter().map(|f| f.base).find(|base| *base > offset);
            let next = next.map_or(limit, |base| base.min(limit));
            out.damaged_ranges.push((offset, next));
            offset = next;
            continue;
        };
        match scan_at(&file, offset) {
            Scanned::Roll(next) => offset = next,
            Scanned::Record(record) => {
                out.records += 1;
                offset = record.end_offset();
                out.log_end_offset = offset;
            }
            Scanned::Nothing { .. } => match next_record_after_damage(&log, offset + 1, limit) {
                Some(next) => {
                    out.damaged_ranges.push((offset, next));
                    offset = next;
                }
                None => {
                    if marks.is_some() {
                        out.damaged_ranges.push((offset, limit));
                    }
                    break;
                }
            },
        }
    }
    let readable = marks.as_ref().map_or(i64::MAX, Watermarks::dispatched);
    verify_queues(&paths, &log, readable, &mut out)?;
    out.ok = out.damaged_ranges.is_empty() && out.bad_entry_count == 0;
    Ok(out)
}

fn verify_queues(paths: &StorePaths, log: &CommitLog, readable: i64, out: &mut Verification) -> Result<()> {
    let directory = paths.consumequeue();
    let Some(file_bytes) = found_file_bytes(&directory, &RealDisk)? else { return Ok(()) };
    let table = QueueTable::new(Arc::new(QueueFiles::for_reading(&directory, file_bytes)));
    table.load_all()?;
    for queue in table.all() {
        out.queues += 1;
        let (min, max) = queue.bounds_on_disk(log.min_offset(), readable)?;
        queue.walk(min, max, |offset, entry| {
            out.queue_entries += 1;
            let located = log.locate(entry.physical_offset);
            let fits = located.as_ref().and_then(|l| l.record().ok()).is_some_and(|record| {
                record.topic == &**queue.topic()
                    && record.queue_id == queue.queue_id() as i32
                    && record.queue_offset == offset
            });
            if !fits {
                out.bad_entry_count += 1;
                if out.bad_entries.len() < LISTED {
                    out.bad_entries.push((queue.topic().to_string(), queue.queue_id(), offset));
                }
            }
            Ok(true)
        })?;
    }
    Ok(())
}

/// Records of a log as JSON, from an offset on.
#[derive(Debug)]
pub struct Dump {
    log: CommitLog,
    broker_name: String,
    offset: i64,
    left: u64,
}

impl Dump {
    /// Starts at the first record at or behind `from_offset`; ends after `limit` records.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` when the directory holds no store; any I/O error.
    pub fn open(root: &Path, from_offset: i64, limit: Option<u64>) -> Result<Self> {
        let paths = StorePaths::new(root);
        paths.require_store(&RealDisk)?;
        let log = CommitLog::open_for_reading(&paths.commitlog())?;
        let identity = crate::identity::Identity::read(&paths, &RealDisk)?;
        let mut offset = log.min_offset();
        if from_offset > offset {
            offset =
                next_record_after_damage(&log, from_offset, log.capacity_end()).unwrap_or(log.capacity_end());
        }
        let broker_name = identity.map_or_else(|| "broker-a".into(), |i| i.broker_name);
        Ok(Self { log, broker_name, offset, left: limit.unwrap_or(u64::MAX) })
    }

    /// Shows the next record, and the broker's name; `None` at the end.
    ///
    /// # Errors
    /// The error of `each`.
    pub fn next_record<T>(
        &mut self,
        each: impl FnOnce(&RecordView<'_>, &str) -> Result<T>,
    ) -> Result<Option<T>> {
        while self.left > 0 {
            let Some(file) = self.log.file_at(self.offset) else { return Ok(None) };
            match scan_at(&file, self.offset) {
                Scanned::Roll(next) => self.offset = next,
                Scanned::Record(record) => {
                    self.offset = record.end_offset();
                    self.left -= 1;
                    return each(&record, &self.broker_name).map(Some);
                }
                Scanned::Nothing { .. } => {
                    let end = self.log.capacity_end();
                    match next_record_after_damage(&self.log, self.offset + 1, end) {
                        Some(next) => self.offset = next,
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(None)
    }
}
