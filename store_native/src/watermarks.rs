//! How far the log is appended, flushed, confirmed and dispatched: one mapped page, each field eight bytes in
//! native order (`Mark` has the layout).
//!
//! Invariants: dispatched <= confirmed <= flushed <= appended, but while a recovery sets them. Readers go by the
//! dispatched mark: all before it is confirmed, and stands in queues and index.
//! Threads: the owner's write with release stores; any reads with acquire loads, also in other processes.

use std::path::Path;

use crate::environment::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::page::Page;
use crate::sync::atomic::Ordering;

const BYTES: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"LAKEMQW1");

/// The marks. dispatched <= confirmed <= flushed <= appended.
#[derive(Debug)]
pub struct Watermarks(Page);

#[derive(Debug, Clone, Copy)]
enum Mark {
    Magic = 0,
    Appended = 8,
    Flushed = 16,
    Dispatched = 24,
    Confirmed = 32,
    LogMin = 40,
    TopicChanges = 48,
    Generation = 56,
    Recoveries = 64,
}

impl Watermarks {
    /// Opens or makes the file for the owner.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn open_owned(path: &Path, disk: &dyn Disk) -> Result<Self> {
        let marks = Self(Page::open_owned(path, BYTES, BYTES, disk)?);
        marks.0.ensure_allocated(BYTES, BYTES, disk)?;
        if marks.get(Mark::Magic) != MAGIC as i64 {
            for mark in [Mark::Appended, Mark::Flushed, Mark::Dispatched, Mark::Confirmed, Mark::LogMin] {
                marks.set(mark, 0);
            }
            marks.set(Mark::Magic, MAGIC as i64);
        }
        Ok(marks)
    }

    /// Maps the file for reading; `None` when the store has none (RocketMQ wrote it).
    ///
    /// # Errors
    /// `DATA_CORRUPT` when it is no watermarks file; any I/O error.
    pub fn open_for_reading(path: &Path) -> Result<Option<Self>> {
        if !RealDisk.exists(path).map_err(|e| StoreError::io("opening the watermarks", e))? {
            return Ok(None);
        }
        let marks = Self(Page::open_for_reading(path)?);
        if marks.0.len() as u64 != BYTES || marks.get(Mark::Magic) != MAGIC as i64 {
            return Err(StoreError::corrupt(format!("{} is no watermarks file", path.display())));
        }
        Ok(Some(marks))
    }

    /// Whether the file's name still leads to these: another store may have taken its place.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    fn get(&self, mark: Mark) -> i64 {
        self.0.atomic_u64(mark as usize).load(Ordering::Acquire) as i64
    }

    fn set(&self, mark: Mark, value: i64) {
        self.0.atomic_u64(mark as usize).store(value as u64, Ordering::Release);
    }

    pub fn appended(&self) -> i64 {
        self.get(Mark::Appended)
    }
    pub fn flushed(&self) -> i64 {
        self.get(Mark::Flushed)
    }
    /// Nothing behind it is shown to a reader.
    pub fn dispatched(&self) -> i64 {
        self.get(Mark::Dispatched)
    }
    /// What lies before it is never taken back.
    pub fn confirmed(&self) -> i64 {
        self.get(Mark::Confirmed)
    }
    pub fn log_min(&self) -> i64 {
        self.get(Mark::LogMin)
    }
    /// Grows with every change of the topic table that is dispatched.
    pub fn topic_changes(&self) -> i64 {
        self.get(Mark::TopicChanges)
    }
    /// Grows with every opening by an owner, before anything it writes is confirmed: files that a reader
    /// mapped under an earlier one may have been replaced.
    pub fn generation(&self) -> i64 {
        self.get(Mark::Generation)
    }
    /// Odd while a recovery changes queues that were readable: what they show then is not what holds.
    pub fn recoveries(&self) -> i64 {
        self.get(Mark::Recoveries)
    }
    /// Says that queues are being changed; one that a crash ended is begun again.
    pub fn begin_recovery(&self) {
        self.set(Mark::Recoveries, (self.recoveries() | 1).wrapping_add(2 * (self.recoveries() & 1)));
    }
    /// Says that queues hold again.
    pub fn end_recovery(&self) {
        self.set(Mark::Recoveries, self.recoveries().wrapping_add(self.recoveries() & 1));
    }
    pub fn set_appended(&self, offset: i64) {
        self.set(Mark::Appended, offset);
    }
    pub fn set_flushed(&self, offset: i64) {
        self.set(Mark::Flushed, offset);
    }
    /// Raises the confirmed mark; false when it was there already.
    pub fn raise_confirmed(&self, offset: i64) -> bool {
        let mark = self.0.atomic_u64(Mark::Confirmed as usize);
        (mark.fetch_max(offset.max(0) as u64, Ordering::AcqRel) as i64) < offset
    }
    pub fn set_dispatched(&self, offset: i64) {
        self.set(Mark::Dispatched, offset);
    }
    pub fn set_log_min(&self, offset: i64) {
        self.set(Mark::LogMin, offset);
    }
    pub fn set_topic_changes(&self, changes: i64) {
        self.set(Mark::TopicChanges, changes);
    }

    /// Sets all marks, lowest first, the log ending at `end` and being dispatched to `dispatched`, and begins a
    /// generation (recovery only, when the files are settled).
    pub fn reset(&self, end: i64, dispatched: i64) {
        self.begin_generation();
        self.set_dispatched(dispatched);
        self.set(Mark::Confirmed, dispatched);
        self.set_flushed(end);
        self.set_appended(end);
    }

    /// Says that files a reader mapped may be replaced.
    pub fn begin_generation(&self) {
        self.set(Mark::Generation, self.generation().wrapping_add(1));
    }

    /// Lowers what is appended and flushed to `end`, durably, before the log is cut there.
    ///
    /// # Errors
    /// Any I/O error; the marks are lowered in memory all the same.
    pub fn lower(&self, end: i64, disk: &dyn Disk) -> Result<()> {
        self.set_flushed(self.flushed().min(end));
        self.set_appended(end);
        self.0.sync(disk).map_err(|e| StoreError::io("syncing the watermarks", e))
    }
}
