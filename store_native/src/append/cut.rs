//! The log cut where it parts from the master's.
//!
//! Invariants: nothing that was confirmed is cut; what is cut is kept aside first, and what was not erased behind the
//! end is erased before anything is written there.

use std::fs::File;

use super::groups::{GroupTable, change_of};
use super::topic_table::TopicTable;
use super::{Appender, LogEnd};
use crate::commitlog::scan::{Scanned, request_size, scan_at};
use crate::commitlog::tail::erase_behind;
use crate::dispatch::Dispatcher;
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::paths;

/// Cuts whose bytes are kept at most; the oldest goes.
const KEPT_CUTS: usize = 8;

impl Appender {
    /// Cuts the log at `offset`, where it parts from the master's. What is cut is kept aside, for a person to look at.
    /// The caller holds the flushed and the confirmed mark, and tells what is dispatched.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a master; `ARGUMENT_ILLEGAL` when something confirmed would go, or `offset` is no
    /// end of a request; any I/O error. What is not cut then is cut when it is asked again.
    pub fn truncate_to(&self, offset: i64, applied: &mut Dispatcher) -> Result<()> {
        // Queues are as long as what is dispatched says.
        applied.store()?;
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        let seen = end.epochs.seen();
        end.check_slave(seen)?;
        let (confirmed, old_end) = (self.marks.confirmed(), end.writer.end());
        let illegal = |detail: String| Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        if offset < confirmed {
            return illegal(format!("the log cannot be cut at {offset}: it is confirmed up to {confirmed}"));
        }
        if offset > old_end {
            return illegal(format!("the log cannot be cut at {offset}: it ends at {old_end}"));
        }
        let mut topics =
            TopicTable::new(applied.state(), applied.queues(), self.options.delay_levels_ms.len() as u32);
        let mut groups = GroupTable::new(applied.state());
        let mut stamp = applied.store_timestamp;
        let mut at = applied.offset;
        let mut whole_to = at;
        while at < offset {
            if let Some(behind) = applied.quarantine.end_of(at) {
                at = behind;
                continue;
            }
            let Some(file) = self.log.file_at(at) else { break };
            match scan_at(&file, at) {
                Scanned::Roll(next) => at = next,
                Scanned::Record(record) => {
                    if at >= whole_to {
                        whole_to = at + request_size(&file, at).unwrap_or(0) as i64;
                    }
                    let change = change_of(&record);
                    topics.follow(&record, change.as_ref());
                    groups.follow(change.as_ref());
                    (stamp, at) = (record.store_timestamp, record.end_offset());
                }
                Scanned::Nothing { .. } => break,
            }
        }
        if at != offset || whole_to > offset {
            return illegal(format!("the log cannot be cut at {offset}: no request ends there"));
        }
        if let Err(error) = self.keep_cut(offset, old_end) {
            // A full disk is what a cut may mend.
            self.environment.events.error(format!("what is cut at {offset} is not kept: {error}"));
        }
        let disk = &*self.environment.disk;
        // First of all: whatever ends this, nothing behind the cut counts as flushed.
        if let Err(error) = self.marks.lower(offset, disk) {
            self.marks.set_appended(old_end);
            return Err(error);
        }
        (end.tail_erased, end.agreed) = (false, offset);
        self.lifecycle.note_cut();
        self.delays.forget_from(offset);
        end.writer.cut(offset);
        (end.topics, end.groups, end.last_store_timestamp) = (topics, groups, stamp);
        end.keys.forget_from(offset);
        self.marks.begin_generation();
        self.clear_tail(&mut end)?;
        // Last: until its bytes are gone, an epoch is what says whose they are.
        end.epochs.truncate(offset)
    }

    /// Erases what lies behind the end, if that was not done: before anything is written there.
    pub(super) fn clear_tail(&self, end: &mut LogEnd) -> Result<()> {
        if !end.tail_erased {
            erase_behind(&self.log, &self.paths, end.writer.end(), &*self.environment.disk)?;
            self.log
                .sync_names(&*self.environment.disk)
                .map_err(|e| StoreError::io("syncing the log's directory", e))?;
            end.writer.cut(end.writer.end());
            end.tail_erased = true;
        }
        Ok(())
    }

    /// Copies `[from, to)` of the log to a file of its own.
    fn keep_cut(&self, from: i64, to: i64) -> Result<()> {
        let context = |e| StoreError::io("keeping what is cut off the log", e);
        if from == to {
            return Ok(());
        }
        let directory = self.paths.cut();
        let disk = &*self.environment.disk;
        paths::create_directory(&directory, disk).map_err(context)?;
        let mut number = 0;
        let kept = loop {
            let path = directory.join(format!("{}.{number}", paths::file_name(from)));
            match disk.open(File::options().write(true).create_new(true), &path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                outcome => break outcome.map_err(context)?,
            }
        };
        let mut at = 0;
        for file in self.log.files() {
            let (begin, end) = (from.max(file.base), to.min(file.end()));
            if begin < end {
                let bytes = file.file.bytes((begin - file.base) as usize, (end - begin) as usize);
                disk.write(&kept, at, bytes).map_err(context)?;
                at += bytes.len() as u64;
            }
        }
        disk.sync(&kept).map_err(context)?;
        disk.sync_directory(&directory).map_err(context)?;
        let mut cuts = Vec::new();
        for entry in disk.list(&directory).map_err(context)? {
            let path = entry.path();
            cuts.push((disk.metadata(&path).and_then(|m| m.modified()).map_err(context)?, path));
        }
        cuts.sort();
        for (_, path) in cuts.iter().take(cuts.len().saturating_sub(KEPT_CUTS)) {
            disk.remove(path).map_err(context)?;
        }
        Ok(())
    }
}
