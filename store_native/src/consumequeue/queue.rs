//! One consume queue: its bounds, the entries of the round under way, and reading what is stored.
//!
//! Invariants: `max_offset` is published with release order after the entries are stored, so a reader in this
//! process that loads it finds them. What could not be stored stays staged; what could not be synced counts as
//! dirty. A queue holds no file: memory is all it costs.
//! Threads: the dispatcher, under its lock, stages and flushes; checkpoints sync, expiry raises the minimum; any
//! reads. A reader in another process finds the end itself (`tail.rs`), bounded by the watermark.

use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

use super::entry::{ENTRY_BYTES, Entry};
use super::store::{QueueKey, QueueStore};
use crate::error::Result;

/// Entries read at a time, at first and at most.
const FIRST_CHUNK: usize = 64;
pub(super) const LAST_CHUNK: usize = 4096;
/// The fixed part of a record: no two records lie closer together.
const LEAST_RECORD_BYTES: i64 = 91;
/// Tombstones written for one gap at a time.
const TOMBSTONES: i64 = 4096;

/// What became of an entry that was to be staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staged {
    /// The first since the last flush.
    First,
    Next,
    /// It is in already.
    Known,
    /// No queue that grows with the log has a message there.
    Impossible,
}

/// What only the dispatcher and checkpoints look at.
#[derive(Debug, Default)]
struct Tail {
    /// Encoded entries from queue offset `first` on that are not stored yet.
    staged: Vec<u8>,
    first: i64,
    /// Queue offset and log offset of the first entry stored since the last sync.
    dirty: Option<(i64, i64)>,
}

/// A consume queue.
#[derive(Debug)]
pub struct Queue {
    key: QueueKey,
    store: Arc<dyn QueueStore>,
    min_offset: AtomicI64,
    max_offset: AtomicI64,
    /// No record of the queue lies before this log offset.
    log_start: AtomicI64,
    tail: Mutex<Tail>,
}

impl Queue {
    /// A queue without entries.
    pub fn new(key: QueueKey, store: Arc<dyn QueueStore>) -> Self {
        let zero = || AtomicI64::new(0);
        let (min_offset, max_offset, log_start) = (zero(), zero(), zero());
        Self { key, store, min_offset, max_offset, log_start, tail: Mutex::default() }
    }

    pub fn topic(&self) -> &Arc<str> {
        &self.key.topic
    }

    pub fn queue_id(&self) -> u32 {
        self.key.queue_id
    }

    /// Tells the queue from one made again.
    pub fn serial(&self) -> u64 {
        self.key.serial
    }

    pub(super) fn key(&self) -> &QueueKey {
        &self.key
    }

    pub(super) fn store(&self) -> &dyn QueueStore {
        &*self.store
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First offset that can be read.
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last entry.
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// Log offset that no record of the queue lies before: where a repair begins to read.
    pub fn log_start(&self) -> i64 {
        self.log_start.load(Ordering::Acquire)
    }

    /// Sets it (recovery).
    pub fn set_log_start(&self, offset: i64) {
        self.log_start.store(offset, Ordering::Release);
    }

    /// Sets both bounds (recovery, expiry and readers).
    pub fn set_bounds(&self, min: i64, max: i64) {
        self.min_offset.store(min, Ordering::Release);
        self.max_offset.store(max, Ordering::Release);
    }

    /// Takes the entry of `offset` for the next flush. One that is in already changes nothing. Where
    /// offsets before it are missing, their records are damaged (`damaged` finds the range that lies
    /// between two log offsets) and get tombstones.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn stage(
        &self,
        offset: i64,
        entry: Entry,
        damaged: impl Fn(i64, i64) -> (i64, i64),
    ) -> Result<Staged> {
        let mut tail = self.tail();
        let first = tail.staged.is_empty();
        if first {
            tail.first = self.max_offset();
        }
        let next = tail.first + (tail.staged.len() / ENTRY_BYTES) as i64;
        if offset < next {
            return Ok(Staged::Known);
        }
        if offset > next {
            let before = match tail.staged.len().checked_sub(ENTRY_BYTES) {
                Some(at) => tail.staged.get(at..).and_then(Entry::decode),
                None if self.min_offset() < self.max_offset() => self.entry(next - 1)?,
                None => None,
            };
            match before {
                None if first => tail.first = offset,
                None => return Ok(Staged::Impossible),
                Some(before) => {
                    let room = entry.physical_offset.saturating_sub(before.end()) / LEAST_RECORD_BYTES;
                    if offset - next > room {
                        return Ok(Staged::Impossible);
                    }
                    let (from, to) = damaged(before.end(), entry.physical_offset);
                    let tombstone = Entry::tombstone(from, to).encode();
                    for _ in next..offset {
                        tail.staged.extend_from_slice(&tombstone);
                    }
                }
            }
        }
        tail.staged.extend_from_slice(&entry.encode());
        Ok(if first { Staged::First } else { Staged::Next })
    }

    /// The offsets of what was staged, where storage may have to be made for it.
    fn reserve_wanted(&self) -> Option<(i64, i64)> {
        let tail = self.tail();
        let (from, to) = (tail.first, tail.first + (tail.staged.len() / ENTRY_BYTES) as i64);
        let first_ever = self.min_offset() >= self.max_offset();
        (from < to && (first_ever || self.store.begins_storage(from, to))).then_some((from, to))
    }

    /// Whether storage may have to be made for what was staged.
    pub fn wants_reserve(&self) -> bool {
        self.reserve_wanted().is_some()
    }

    /// Makes storage for what was staged. Needs no lock of the dispatcher's; another thread may store it meanwhile.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; storing tries again.
    pub fn reserve(&self) -> Result<()> {
        match self.reserve_wanted() {
            Some((from, to)) => self.store.reserve(&self.key, from, to),
            None => Ok(()),
        }
    }

    /// Stores what was staged and publishes the new maximum. True when the queue was on the disk before and
    /// is no longer. What could not be stored stays staged.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn flush(&self) -> Result<bool> {
        let mut tail = self.tail();
        let Some(entry) = Entry::decode(&tail.staged) else { return Ok(false) };
        self.store.write(&self.key, tail.first, &tail.staged)?;
        let clean = tail.dirty.is_none();
        if clean {
            tail.dirty = Some((tail.first, entry.physical_offset));
        }
        let staged = std::mem::take(&mut tail.staged);
        if self.min_offset() >= self.max_offset() {
            self.set_log_start(entry.physical_offset);
            self.min_offset.store(tail.first, Ordering::Release);
        }
        self.max_offset.store(tail.first + (staged.len() / ENTRY_BYTES) as i64, Ordering::Release);
        Ok(clean)
    }

    /// Forgets what was staged (recovery only).
    pub fn unstage(&self) {
        self.tail().staged.clear();
    }

    /// Gives every offset from the end up to `end` a tombstone for the damaged log range `[from, to)`
    /// (recovery only).
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn fill(&self, end: i64, from: i64, to: i64) -> Result<()> {
        let mut at = self.max_offset();
        while at < end {
            let count = (end - at).min(TOMBSTONES);
            let entries = Entry::tombstone(from, to).encode().repeat(count as usize);
            self.store.write(&self.key, at, &entries)?;
            at += count;
            self.max_offset.store(at, Ordering::Release);
        }
        Ok(())
    }

    /// Log offset of the first entry that may not be on the disk; `None` when all are.
    pub fn dirty_from(&self) -> Option<i64> {
        self.tail().dirty.map(|(_, physical_offset)| physical_offset)
    }

    /// Says that places from `offset` on, of records from `physical_offset` on, may not be on the disk, beside those of
    /// which that is known.
    pub fn note_dirty(&self, offset: i64, physical_offset: i64) {
        let dirty = &mut self.tail().dirty;
        let (first, lowest) = dirty.unwrap_or((offset, physical_offset));
        *dirty = Some((offset.min(first), physical_offset.min(lowest)));
    }

    /// Says that all entries are on the disk.
    pub fn note_clean(&self) {
        self.tail().dirty = None;
    }

    /// Brings what was stored since the last call to the disk. After an error it is stored again and stays
    /// to be synced: the pages the error was about may be gone.
    ///
    /// # Errors
    /// The disk's error.
    pub fn sync(&self) -> Result<()> {
        let Some((from, physical_offset)) = self.tail().dirty.take() else { return Ok(()) };
        let to = self.max_offset();
        let Err(error) = self.store.sync(&self.key, from, to) else { return Ok(()) };
        self.note_dirty(from, physical_offset);
        let mut at = from;
        let mut chunk = vec![0; LAST_CHUNK * ENTRY_BYTES];
        while at < to {
            let wanted = chunk.len().min((to - at) as usize * ENTRY_BYTES);
            let Some(out) = chunk.get_mut(..wanted) else { break };
            let count = self.store.read(&self.key, at, out)?;
            let Some(stored) = chunk.get(..count * ENTRY_BYTES).filter(|s| !s.is_empty()) else { break };
            self.store.write(&self.key, at, stored)?;
            at += count as i64;
        }
        Err(error)
    }

    /// The entry at `offset`, or `None` when none is stored there.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn entry(&self, offset: i64) -> Result<Option<Entry>> {
        let mut bytes = [0; ENTRY_BYTES];
        let count = self.store.read(&self.key, offset, &mut bytes)?;
        Ok(if count == 0 { None } else { Entry::decode(&bytes) })
    }

    /// Calls `each` with (offset, entry) from `offset` up to `end`, until it returns false or an entry is
    /// missing.
    ///
    /// # Errors
    /// Any I/O error, or the first error of `each`.
    pub fn walk(
        &self,
        offset: i64,
        end: i64,
        mut each: impl FnMut(i64, Entry) -> Result<bool>,
    ) -> Result<()> {
        let mut offset = offset;
        let mut chunk = Vec::new();
        let mut wanted = FIRST_CHUNK;
        while offset < end {
            chunk.resize(wanted.min((end - offset) as usize) * ENTRY_BYTES, 0);
            let count = self.store.read(&self.key, offset, &mut chunk)?;
            for bytes in chunk.chunks_exact(ENTRY_BYTES).take(count) {
                let Some(entry) = Entry::decode(bytes) else { return Ok(()) };
                if !each(offset, entry)? {
                    return Ok(());
                }
                offset += 1;
            }
            if count == 0 {
                return Ok(());
            }
            wanted = (wanted * 4).min(LAST_CHUNK);
        }
        Ok(())
    }

    /// First offset in `[low, high)` for which `before` is false; `high` when it never is.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn partition(
        &self,
        low: i64,
        high: i64,
        mut before: impl FnMut(Option<Entry>) -> bool,
    ) -> Result<i64> {
        first_without(low, high, |offset| Ok(before(self.entry(offset)?)))
    }

    /// First offset in `[min, max)` whose message lies at or behind `log_min`; `max` when there is none.
    /// Offsets that nothing is stored for have expired.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn first_at_or_behind(&self, log_min: i64, min: i64, max: i64) -> Result<i64> {
        let gone = |e: &Entry| e.is_blank() || e.physical_offset < log_min;
        if min < max && self.entry(min)?.is_some_and(|e| !gone(&e)) {
            return Ok(min);
        }
        self.partition(min, max, |entry| entry.is_none_or(|e| gone(&e)))
    }

    /// Moves the minimum to the first message that the log, which starts at `log_min`, still has. True when
    /// it moved.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn raise_min(&self, log_min: i64) -> Result<bool> {
        let (min, max) = (self.min_offset(), self.max_offset());
        let first = self.first_at_or_behind(log_min, min, max)?;
        if first > min {
            self.set_log_start(self.log_start().max(log_min));
            self.min_offset.store(first, Ordering::Release);
        }
        Ok(first > min)
    }

    /// Gives back the space of entries before the minimum, but of the last one: it tells readers in other processes
    /// where the queue ends, and what has expired before an epoch began. Returns how many files went.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn drop_expired(&self) -> Result<usize> {
        self.store.expire(&self.key, self.min_offset().min(self.max_offset() - 1).max(0))
    }

    /// Clears every place from `offset` on (recovery only).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn truncate(&self, offset: i64) -> Result<()> {
        self.store.truncate(&self.key, offset)
    }
}

/// First offset in `[low, high)` for which `before` is false; `high` when it never is.
pub(super) fn first_without(
    mut low: i64,
    mut high: i64,
    mut before: impl FnMut(i64) -> Result<bool>,
) -> Result<i64> {
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle)? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}
