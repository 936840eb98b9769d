//! One consume queue: its files, its bounds, and reading and writing entries.
//!
//! The dispatcher alone writes. `max_offset` is published with release order after the entry stands, so
//! a reader in this process that loads it sees whole entries. A reader in another process finds the end
//! itself, bounded by the watermark.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::entry::{ENTRY_BYTES, Entry};
use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::mapped_file::MappedFile;
use crate::paths;

/// Blocks reserved ahead of the writer at first: a queue costs what it holds.
const FIRST_CHUNK: u64 = 16 * 1024;
/// And at most, for queues that grow.
const LAST_CHUNK: u64 = 1024 * 1024;

/// How a queue's files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Created and written by the owner; the length of a file in bytes.
    Owned { file_bytes: u64 },
    /// Mapped as found.
    ReadOnly,
}

#[derive(Debug, Default)]
struct Files {
    /// Byte offset of each file's start, in order, and its mapping while open.
    list: Vec<(i64, Option<Arc<MappedFile>>)>,
}

/// A consume queue.
#[derive(Debug)]
pub struct Queue {
    directory: PathBuf,
    access: Access,
    files: Mutex<Files>,
    min_offset: AtomicI64,
    max_offset: AtomicI64,
    /// Written since the last checkpoint.
    dirty: AtomicBool,
    /// The table's tick when it was last used, for closing those long unused.
    last_used: AtomicI64,
}

impl Queue {
    /// A queue over the files found in `directory` (none is fine).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(directory: &Path, access: Access) -> Result<Self> {
        let queue = Self {
            directory: directory.to_owned(),
            access,
            files: Mutex::default(),
            min_offset: AtomicI64::new(0),
            max_offset: AtomicI64::new(0),
            dirty: AtomicBool::new(false),
            last_used: AtomicI64::new(0),
        };
        queue.refresh()?;
        Ok(queue)
    }

    /// Takes up files that appeared and lets go of those that vanished.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn refresh(&self) -> Result<()> {
        let listed = paths::numbered_files(&self.directory)
            .map_err(|e| StoreError::io(format!("listing {}", self.directory.display()), e))?;
        let mut files = self.lock();
        let mut next = Vec::with_capacity(listed.len());
        for (base, path) in listed {
            let known = files.list.iter().find(|(b, _)| *b == base).and_then(|(_, f)| f.clone());
            if known.is_some() || path.metadata().is_ok_and(|m| m.len() > 0) {
                next.push((base, known));
            }
        }
        files.list = next;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First offset that can be read.
    pub fn min_offset(&self) -> i64 {
        self.min_offset.load(Ordering::Acquire)
    }

    /// Offset behind the last entry.
    pub fn max_offset(&self) -> i64 {
        self.max_offset.load(Ordering::Acquire)
    }

    /// Sets both bounds (recovery and readers).
    pub fn set_bounds(&self, min: i64, max: i64) {
        self.min_offset.store(min, Ordering::Release);
        self.max_offset.store(max, Ordering::Release);
    }

    /// Notes a use at `tick`.
    pub fn touch(&self, tick: i64) {
        self.last_used.store(tick, Ordering::Relaxed);
    }

    /// The tick of the last use.
    pub fn last_used(&self) -> i64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// How many of its files are mapped.
    pub fn open_files(&self) -> usize {
        self.lock().list.iter().filter(|(_, f)| f.is_some()).count()
    }

    /// Unmaps its files; they are mapped again when needed. A dirty queue stays open.
    pub fn close_files(&self) {
        if !self.dirty.load(Ordering::Acquire) {
            for (_, file) in &mut self.lock().list {
                *file = None;
            }
        }
    }

    fn open_file(&self, base: i64, disk: Option<&dyn Disk>) -> Result<Arc<MappedFile>> {
        let path = self.directory.join(paths::file_name(base));
        let file = match (self.access, disk) {
            (Access::Owned { file_bytes }, Some(disk)) => {
                MappedFile::open_owned(&path, file_bytes, FIRST_CHUNK.min(file_bytes), disk)?
            }
            _ => MappedFile::open_for_reading(&path)?,
        };
        Ok(Arc::new(file))
    }

    /// The open file that holds byte `at`, and the place in it.
    fn file_for(&self, at: i64) -> Result<Option<(Arc<MappedFile>, usize)>> {
        let mut files = self.lock();
        let Some(index) = files.list.partition_point(|(base, _)| *base <= at).checked_sub(1) else {
            return Ok(None);
        };
        let (base, open) = &mut files.list[index];
        let base = *base;
        let file = match open {
            Some(file) => Arc::clone(file),
            None => {
                // The owner maps for writing, because the dispatcher may be the next to ask.
                let disk = crate::environment::RealDisk;
                match self.open_file(base, Some(&disk)) {
                    Ok(file) => Arc::clone(open.insert(file)),
                    Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let place = (at - base) as usize;
        Ok((place < file.len()).then_some((file, place)))
    }

    /// The entry at `offset`, or `None` when no file has one there.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn entry(&self, offset: i64) -> Result<Option<Entry>> {
        let Some((file, at)) = self.file_for(offset * ENTRY_BYTES as i64)? else { return Ok(None) };
        Ok(Entry::read(&file, at / ENTRY_BYTES))
    }

    /// Calls `each` with (offset, entry) from `offset` up to `end`, until it returns false.
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
        while offset < end {
            let Some((file, at)) = self.file_for(offset * ENTRY_BYTES as i64)? else { return Ok(()) };
            let first = at / ENTRY_BYTES;
            let count = ((file.len() / ENTRY_BYTES - first) as i64).min(end - offset);
            for step in 0..count {
                let Some(entry) = Entry::read(&file, first + step as usize) else { return Ok(()) };
                if !each(offset + step, entry)? {
                    return Ok(());
                }
            }
            offset += count;
        }
        Ok(())
    }

    /// Writes the entry of `offset`; writing the same again changes nothing. Publishes the new maximum.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn put(&self, offset: i64, entry: Entry, disk: &dyn Disk) -> Result<()> {
        let Access::Owned { file_bytes } = self.access else {
            return Err(StoreError::closed());
        };
        let at = offset * ENTRY_BYTES as i64;
        let base = at - at % file_bytes as i64;
        let mut files = self.lock();
        let index = files.list.partition_point(|(b, _)| *b < base);
        if files.list.get(index).is_none_or(|(b, _)| *b != base) {
            std::fs::create_dir_all(&self.directory)
                .map_err(|e| StoreError::io(format!("creating {}", self.directory.display()), e))?;
            let file = self.open_file(base, Some(disk))?;
            if files.list.is_empty() && at > base {
                fill_front(&file, (at - base) as usize / ENTRY_BYTES, disk)?;
            }
            files.list.insert(index, (base, Some(file)));
        }
        let slot = &mut files.list[index].1;
        let file = match slot {
            Some(file) => Arc::clone(file),
            None => Arc::clone(slot.insert(self.open_file(base, Some(disk))?)),
        };
        drop(files);
        let place = (at - base) as usize;
        let chunk = (place as u64).next_power_of_two().clamp(FIRST_CHUNK, LAST_CHUNK);
        file.ensure_allocated((place + ENTRY_BYTES) as u64, chunk, disk)?;
        entry.write(&file, place / ENTRY_BYTES);
        self.dirty.store(true, Ordering::Release);
        if self.max_offset.load(Ordering::Relaxed) <= offset {
            if self.max_offset.load(Ordering::Relaxed) == 0 && self.min_offset.load(Ordering::Relaxed) == 0 {
                self.min_offset.store(offset, Ordering::Release);
            }
            self.max_offset.store(offset + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Syncs what was written since the last call.
    ///
    /// # Errors
    /// The disk's error.
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let open: Vec<_> = self.lock().list.iter().filter_map(|(_, f)| f.clone()).collect();
        for file in open {
            file.sync(disk).map_err(|e| StoreError::io(format!("syncing {}", file.path().display()), e))?;
        }
        Ok(())
    }

    /// Zeroes every entry from `offset` on and drops the files behind it (recovery only).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn truncate(&self, offset: i64, disk: &dyn Disk) -> Result<()> {
        let at = offset * ENTRY_BYTES as i64;
        let mut files = self.lock();
        let keep = files.list.partition_point(|(base, _)| *base < at);
        for (base, _) in files.list.split_off(keep) {
            let path = self.directory.join(paths::file_name(base));
            std::fs::remove_file(&path)
                .map_err(|e| StoreError::io(format!("removing {}", path.display()), e))?;
        }
        if let Some((base, slot)) = files.list.last_mut() {
            let file = match slot {
                Some(file) => Arc::clone(file),
                None => Arc::clone(slot.insert(self.open_file(*base, Some(disk))?)),
            };
            let from = (at - *base) as usize;
            if from < file.len() {
                file.erase_from(from, disk)?;
            }
        }
        Ok(())
    }

    /// Deletes files whose last entry lies before `log_min`, and moves the minimum offset to the first
    /// entry that does not. Returns how many files went.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn expire(&self, log_min: i64) -> Result<usize> {
        let (min, max) = (self.min_offset(), self.max_offset());
        let first = self.first_at_or_behind(log_min, min, max)?;
        self.min_offset.store(first, Ordering::Release);
        let mut files = self.lock();
        let keep_from = files.list.partition_point(|(base, _)| *base <= first * ENTRY_BYTES as i64);
        let gone: Vec<_> = files.list.drain(..keep_from.saturating_sub(1)).collect();
        drop(files);
        for (base, _) in &gone {
            let path = self.directory.join(paths::file_name(*base));
            std::fs::remove_file(&path)
                .map_err(|e| StoreError::io(format!("removing {}", path.display()), e))?;
        }
        Ok(gone.len())
    }

    /// First offset in `[min, max)` whose message lies at or behind `log_min`; `max` when there is none.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn first_at_or_behind(&self, log_min: i64, min: i64, max: i64) -> Result<i64> {
        self.partition(min, max, |entry| entry.is_some_and(|e| e.is_blank() || e.physical_offset < log_min))
    }

    /// The bounds as the files tell them: for a reader that has no owner to ask. Entries whose record
    /// ends beyond `limit` do not count.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn bounds_on_disk(&self, log_min: i64, limit: i64) -> Result<(i64, i64)> {
        self.refresh()?;
        let (first, last) = {
            let files = self.lock();
            match (files.list.first(), files.list.last()) {
                (Some((first, _)), Some((last, _))) => (*first, *last),
                _ => return Ok((0, 0)),
            }
        };
        let entry_bytes = ENTRY_BYTES as i64;
        let Some((tail, _)) = self.file_for(last)? else { return Ok((0, 0)) };
        let low = first / entry_bytes;
        let high = (last + tail.len() as i64) / entry_bytes;
        let max = self.partition(low, high, |e| e.is_some_and(|e| e.is_blank() || e.end() <= limit))?;
        let min = self.first_at_or_behind(log_min, low, max)?;
        Ok((min, max))
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
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.entry(middle)?) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Whether the files hold a whole entry at `offset` that ends no later than `limit`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn holds(&self, offset: i64, limit: i64) -> Result<bool> {
        Ok(self.entry(offset)?.is_some_and(|e| e.end() <= limit))
    }

    /// Whether there is a file for every byte between two offsets.
    pub fn covers(&self, min: i64, max: i64) -> bool {
        let Access::Owned { file_bytes } = self.access else { return true };
        let (from, to) = (min * ENTRY_BYTES as i64, max * ENTRY_BYTES as i64);
        let bases: Vec<i64> = self.lock().list.iter().map(|(b, _)| *b).collect();
        let mut base = from - from % file_bytes as i64;
        while base < to {
            if bases.binary_search(&base).is_err() {
                return false;
            }
            base += file_bytes as i64;
        }
        true
    }
}

/// Marks the places in front of a queue's first message as RocketMQ does.
fn fill_front(file: &MappedFile, count: usize, disk: &dyn Disk) -> Result<()> {
    file.ensure_allocated((count * ENTRY_BYTES) as u64, FIRST_CHUNK, disk)?;
    for index in 0..count {
        Entry::BLANK.write(file, index);
    }
    Ok(())
}
