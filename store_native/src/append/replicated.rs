//! What a slave appends: bytes of its master's log as they are.
//!
//! Invariants: they are the next ones of the log, whole requests of an epoch that is not over; all of them are stored,
//! or none.

use super::groups::change_of;
use super::{Appender, LogEnd};
use crate::commitlog::{LogRange, is_end_marker};
use crate::error::{Result, StoreError};
use crate::idempotence::KeyPlace;
use crate::lock::lock;
use crate::message::record::END_OF_FILE_BYTES;
use crate::message::{RecordView, properties};
use crate::state::names;

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
}

impl Appender {
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
