//! What replication needs of the end of the log: bytes of the master appended as they are, a cut where the two logs
//! part, and roles with their epochs.
//!
//! Invariants: only a master takes messages, only a slave takes bytes; a master whose epoch is over is refused;
//! nothing that was confirmed is cut.

use std::fs::File;

use super::groups::{GroupTable, change_of};
use super::topic_table::TopicTable;
use super::{Appender, LogEnd};
use crate::commitlog::epochs::{EpochStart, fenced};
use crate::commitlog::scan::{Scanned, request_size, scan_at};
use crate::commitlog::tail::erase_behind;
use crate::commitlog::{LogRange, is_end_marker};
use crate::dispatch::Dispatcher;
use crate::error::{Result, StoreError};
use crate::idempotence::KeyPlace;
use crate::lock::lock;
use crate::message::record::END_OF_FILE_BYTES;
use crate::message::{RecordView, properties};
use crate::options::Role;
use crate::paths;
use crate::state::names;

/// Cuts whose bytes are kept at most; the oldest goes.
const KEPT_CUTS: usize = 8;

impl LogEnd {
    /// Takes a record that is in the log already: whoever appends next goes on from there.
    pub(super) fn follow(&mut self, record: &RecordView<'_>) {
        let change = change_of(record);
        self.topics.follow(record, change.as_ref());
        self.groups.follow(change.as_ref());
        if let Some(key) = record.property(properties::IDEMPOTENCE_KEY) {
            let place =
                KeyPlace { physical_offset: record.physical_offset, store_timestamp: record.store_timestamp };
            self.keys.insert(key, place);
        }
    }

    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a slave.
    pub(super) fn check_master(&self) -> Result<()> {
        match self.role {
            Role::Master => Ok(()),
            Role::Slave => {
                let detail = format!(
                    "this broker is a slave in epoch {}: its master takes messages",
                    self.epochs.seen()
                );
                Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail })
            }
        }
    }

    fn check_slave(&self, epoch: i64) -> Result<()> {
        if epoch < self.epochs.seen() {
            return Err(fenced(epoch, self.epochs.seen()));
        }
        match self.role {
            Role::Slave => Ok(()),
            Role::Master => {
                let detail = format!(
                    "this broker is the master of epoch {}, it takes no bytes of another",
                    self.epochs.last()
                );
                Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail })
            }
        }
    }
}

impl Appender {
    /// What it is now, and the highest epoch it heard of.
    pub fn role(&self) -> (Role, i64) {
        let end = lock(&self.end);
        (end.role, end.epochs.seen())
    }

    /// The epochs of its log, oldest first.
    pub fn epochs(&self) -> Vec<EpochStart> {
        lock(&self.end).epochs.epochs().to_vec()
    }

    /// The epoch that wrote the byte at `offset`, and where its bytes end at the latest.
    pub fn epoch_at(&self, offset: i64) -> (i64, i64) {
        lock(&self.end).epochs.at(offset)
    }

    /// The epoch that this broker is the master of, and the log offset from which on it writes in it; `None` on a slave.
    pub fn mastership(&self) -> Option<(i64, i64)> {
        *lock(&self.mastership)
    }

    /// Up to which offset the log is known to be the master's; `i64::MAX` on a master.
    pub fn agreed(&self) -> i64 {
        lock(&self.end).agreed
    }

    /// Whether nothing lies behind the log's end.
    pub fn tail_is_erased(&self) -> bool {
        lock(&self.end).tail_erased
    }

    /// Up to which offset this log is the same as another one with these epochs; see
    /// [`EpochFile::common_end`](crate::commitlog::epochs::EpochFile::common_end).
    pub fn common_end(&self, others: &[EpochStart], others_end: i64) -> Option<i64> {
        let end = lock(&self.end);
        end.epochs.common_end(end.writer.end(), others, others_end)
    }

    /// Becomes the master of `epoch`: takes messages from here on. Returns the offset at which the epoch begins.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` unless the epoch is higher than all that were heard of; any I/O error. The role is as it
    /// was then.
    pub fn become_master(&self, epoch: i64) -> Result<i64> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        self.clear_tail(&mut end)?;
        let offset = end.writer.end();
        end.epochs.rule(epoch, offset)?;
        (end.role, end.agreed) = (Role::Master, i64::MAX);
        *lock(&self.mastership) = Some((epoch, offset));
        // A cut that did not get to its end may have left it behind.
        self.marks.set_appended(offset);
        self.lifecycle.schedule_changed.set();
        Ok(offset)
    }

    /// Becomes a slave: takes no message from here on, and no bytes of a master before `epoch`.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` when a higher epoch was heard of; any I/O error.
    pub fn become_slave(&self, epoch: i64) -> Result<()> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.epochs.hear_of(epoch)?;
        // Behind what is confirmed the log may part from that of the new master.
        end.agreed = self.marks.confirmed();
        end.role = Role::Slave;
        *lock(&self.mastership) = None;
        self.lifecycle.schedule_changed.set();
        Ok(())
    }

    /// Appends bytes of the master's log as they are: whole requests, perhaps followed by the end marker of a file.
    /// `master_epoch` is the epoch of who sends them. Returns the log's end, all or nothing.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a master, and for a master whose epoch is over; `OFFSET_ILLEGAL` when they are not
    /// the next ones; `DATA_CORRUPT` when they are not whole, valid requests; as [`Appender::append`].
    pub fn append_replicated(&self, master_epoch: i64, range: &LogRange) -> Result<i64> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_slave(master_epoch)?;
        if end.writer.left() < END_OF_FILE_BYTES && range.offset > end.writer.end() {
            // Too little was left in the file for a marker.
            self.clear_tail(&mut end)?;
            end.writer.close_file()?;
        }
        if range.offset != end.writer.end() {
            let detail = format!("the log goes on at {}, not at {}", end.writer.end(), range.offset);
            return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
        }
        if range.epoch > master_epoch {
            let detail = format!("a master of epoch {master_epoch} has no bytes of epoch {}", range.epoch);
            return Err(StoreError::corrupt(detail));
        }
        let records = read_range(range, end.writer.left(), self.log.file_size() as usize)?;
        end.epochs.hear_of(master_epoch)?;
        if range.epoch > end.epochs.last() {
            end.epochs.begin(range.epoch, range.offset)?;
        } else if range.epoch < end.epochs.last() {
            return Err(StoreError::corrupt(format!(
                "bytes of epoch {} cannot follow epoch {}",
                range.epoch,
                end.epochs.last()
            )));
        }
        self.clear_tail(&mut end)?;
        if let Some(last) = records.last() {
            end.writer.reserve((last.end_offset() - range.offset) as usize)?;
            let mut rest = &*range.bytes;
            for record in &records {
                let (bytes, behind) =
                    rest.split_at_checked(record.total_size as usize).unwrap_or((rest, &[]));
                end.writer
                    .put(bytes.len(), |region| region.copy_from_slice(bytes))
                    .map_err(|e| self.write_failed(&e))?;
                rest = behind;
            }
            end.writer.finish().map_err(|e| self.write_failed(&e))?;
            end.last_store_timestamp = last.store_timestamp;
        }
        for record in &records {
            end.follow(record);
            if record.topic == names::SCHEDULE_TOPIC {
                // When it is due goes by this clock from now on. Where the master's is ahead, its stamp is later than it
                // can be; no message is held longer than its delay.
                let now_ms = self.environment.clock.now_ms();
                self.delays.stored(record.physical_offset, record.store_timestamp.max(now_ms));
            }
        }
        if range.next_offset > end.writer.end()
            && let Err(error) = end.writer.close_file()
        {
            // The records are stored; the marker is asked for again.
            self.environment.events.warn(format!("a log file cannot be closed yet: {error}"));
        }
        end.agreed = end.writer.end();
        self.marks.set_appended(end.writer.end());
        if end.writer.wants_next() {
            self.lifecycle.maintenance_wanted.set();
        }
        let offset = end.writer.end();
        drop(end);
        self.wake_flusher();
        Ok(offset)
    }

    /// Notes on a slave, durably, that `epoch` goes on at the log's end, before it has a byte of it: whoever has all that a
    /// master wrote is known by that from one who lacks its last epoch.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a master, and for a master whose epoch is over; `OFFSET_ILLEGAL` when the log ends
    /// elsewhere; any I/O error.
    pub fn begin_epoch(&self, epoch: i64, offset: i64) -> Result<()> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_slave(epoch)?;
        if offset != end.writer.end() {
            let detail = format!("the log ends at {}, not at {offset}", end.writer.end());
            return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
        }
        if epoch <= end.epochs.last() {
            return Ok(());
        }
        end.epochs.begin(epoch, offset)
    }

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
    fn clear_tail(&self, end: &mut LogEnd) -> Result<()> {
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
        for entry in std::fs::read_dir(&directory).map_err(context)? {
            let path = entry.map_err(context)?.path();
            cuts.push((path.metadata().and_then(|m| m.modified()).map_err(context)?, path));
        }
        cuts.sort();
        for (_, path) in cuts.iter().take(cuts.len().saturating_sub(KEPT_CUTS)) {
            disk.remove(path).map_err(context)?;
        }
        Ok(())
    }
}

/// The records of a range that goes to the log's end, where `left` bytes are left in the file (0: the next one
/// begins there).
fn read_range(range: &LogRange, left: usize, file_size: usize) -> Result<Vec<RecordView<'_>>> {
    let corrupt = |at: usize, reason: &str| {
        StoreError::corrupt(format!("the bytes for offset {}: {reason}", range.offset + at as i64))
    };
    let left = if left == 0 { file_size } else { left };
    let mut records = Vec::new();
    let (mut at, mut of_request) = (0, 0u32);
    while let Some(rest) = range.bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if is_end_marker(rest) {
            let whole =
                rest.len() == END_OF_FILE_BYTES && rest.starts_with(&((left - at) as u32).to_be_bytes());
            let goes_on = range.next_offset == range.offset + left as i64;
            return match of_request {
                0 if whole && goes_on => Ok(records),
                _ => Err(corrupt(at, "an end marker where no file ends")),
            };
        }
        let record = RecordView::parse_checked(rest, range.offset + at as i64)
            .map_err(|error| corrupt(at, &format!("no record: {error:?}")))?;
        if of_request == 0 {
            of_request = record.property(properties::BATCH).and_then(|c| c.parse().ok()).unwrap_or(1);
            if of_request == 0 {
                return Err(corrupt(at, "a request of no records"));
            }
        }
        of_request -= 1;
        at += record.total_size as usize;
        if at + END_OF_FILE_BYTES > left {
            return Err(corrupt(at, "they do not fit the file"));
        }
        records.push(record);
    }
    if of_request != 0 {
        return Err(corrupt(at, "they end inside a request"));
    }
    if range.next_offset != range.offset + at as i64 {
        return Err(corrupt(at, "the next ones do not follow them"));
    }
    Ok(records)
}
