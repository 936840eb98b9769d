//! One index file: header, hash slots, entries chained from the slots.
//!
//! Invariants: entry, then slot, then header is written, so that a reader never follows a slot to nothing. A chain
//! leads to older entries only.
//! Threads: the one that dispatches puts, checkpoints sync, any finds, also in other processes.

mod restore;

use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::Path;

use crate::calendar::{Date, date_of};
use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::mapped_file::MappedFile;
use crate::message::hash::java_hash_parts;

const HEADER_BYTES: usize = 40;
const SLOT_BYTES: usize = 4;
/// Bytes that are read and written as one.
const WORD: usize = 8;
const ENTRY_BYTES: usize = 20;
/// What an entry says is before it where nothing is. Any reader ends a chain at what is not above zero; a zero
/// would look like a word that was lost with the power (`restore.rs`).
const END_OF_CHAIN: i32 = -1;
/// Blocks reserved ahead of the writer.
const CHUNK: u64 = 1024 * 1024;

/// How many slots and entries a file has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub slots: u32,
    pub entries: u32,
}

impl Shape {
    fn bytes(self) -> u64 {
        HEADER_BYTES as u64
            + u64::from(self.slots) * SLOT_BYTES as u64
            + u64::from(self.entries) * ENTRY_BYTES as u64
    }
}

/// The header's fields, in the order of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    pub begin_timestamp: i64,
    pub end_timestamp: i64,
    pub begin_physical_offset: i64,
    pub end_physical_offset: i64,
    pub used_slots: i32,
    /// Number of the next entry; the first is 1.
    pub count: i32,
}

impl Header {
    #[allow(clippy::indexing_slicing, reason = "a header has HEADER_BYTES")]
    fn decode(bytes: &[u8]) -> Self {
        let long = |at: usize| i64::from_be_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let int = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        Self {
            begin_timestamp: long(0),
            end_timestamp: long(8),
            begin_physical_offset: long(16),
            end_physical_offset: long(24),
            used_slots: int(32),
            count: int(36).max(1),
        }
    }

    #[allow(clippy::indexing_slicing, reason = "a header has HEADER_BYTES")]
    fn encode(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.begin_timestamp.to_be_bytes());
        out[8..16].copy_from_slice(&self.end_timestamp.to_be_bytes());
        out[16..24].copy_from_slice(&self.begin_physical_offset.to_be_bytes());
        out[24..32].copy_from_slice(&self.end_physical_offset.to_be_bytes());
        out[32..36].copy_from_slice(&self.used_slots.to_be_bytes());
        out[36..40].copy_from_slice(&self.count.to_be_bytes());
    }
}

/// |hash| of `topic#key`; 0 where that overflows.
pub fn key_hash(topic: &str, key: &str) -> i32 {
    java_hash_parts(&[topic, "#", key]).checked_abs().unwrap_or(0)
}

/// `yyyyMMddHHmmssSSS` in UTC.
pub fn file_name(epoch_ms: i64) -> String {
    let (Date { year, month, day }, ms) = date_of(epoch_ms);
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}{month:02}{day:02}{h:02}{m:02}{s:02}{:03}", ms % 1000)
}

/// The time that a name says; `None` for one that is no such name.
pub fn time_of_name(name: &str) -> Option<i64> {
    if name.len() != 17 || !name.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| name.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, milliseconds) = (number(8, 10)?, number(10, 12)?, number(12, 17)?);
    // Years that begin in March end with the leap day.
    let years = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400) + day_of_year;
    Some(((days - 719_468) * 24 + hour) * 3_600_000 + minute * 60_000 + milliseconds)
}

/// An index file.
#[derive(Debug)]
pub struct IndexFile {
    file: MappedFile,
    shape: Shape,
    dirty: AtomicBool,
    /// A sync failed: pages that look clean may not be on the disk.
    unsynced: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: i32,
    physical_offset: i64,
    seconds: i32,
    previous: i32,
}

impl IndexFile {
    /// Opens or makes a file for the owner.
    ///
    /// # Errors
    /// `DISK_FULL`; `DATA_CORRUPT` for another length; any I/O error.
    pub fn open_owned(path: &Path, shape: Shape, disk: &dyn Disk) -> Result<Self> {
        let slots_end = HEADER_BYTES as u64 + u64::from(shape.slots) * SLOT_BYTES as u64;
        let file = MappedFile::open_owned(path, shape.bytes(), slots_end, disk)?;
        file.ensure_allocated(slots_end, CHUNK, disk)?;
        Ok(Self { file, shape, dirty: AtomicBool::new(false), unsynced: AtomicBool::new(false) })
    }

    /// Maps a file for reading. A file of another length than `shape` asks for is read with RocketMQ's
    /// default shape when it has that length.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when the length fits no shape.
    pub fn open_for_reading(path: &Path, shape: Shape) -> Result<Self> {
        let file = MappedFile::open_for_reading(path)?;
        let default = Shape { slots: 5_000_000, entries: 20_000_000 };
        let shape = [shape, default]
            .into_iter()
            .find(|s| s.bytes() == file.len() as u64)
            .ok_or_else(|| StoreError::corrupt(format!("{} has an unknown length", path.display())))?;
        Ok(Self { file, shape, dirty: AtomicBool::new(false), unsynced: AtomicBool::new(false) })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// As [`MappedFile::is_current`].
    pub fn is_current(&self) -> bool {
        self.file.is_current()
    }

    /// Its file name.
    pub fn name(&self) -> String {
        self.file.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The header as it stands. Beside a put, its times and offsets may be newer than its count, which no entry is
    /// missing from.
    pub fn header(&self) -> Header {
        let mut bytes = [0; HEADER_BYTES];
        for (number, word) in bytes.as_chunks_mut::<WORD>().0.iter_mut().enumerate().rev() {
            *word = self.file.atomic_u64(number * WORD).load(Ordering::Acquire).to_ne_bytes();
        }
        Header::decode(&bytes)
    }

    /// Writes the header, its count last.
    fn write_header(&self, header: &Header) {
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes);
        for (number, word) in bytes.as_chunks::<WORD>().0.iter().enumerate() {
            self.file.atomic_u64(number * WORD).store(u64::from_ne_bytes(*word), Ordering::Release);
        }
    }

    /// Offset of the newest record indexed here; -1 for none.
    pub fn end_physical_offset(&self) -> i64 {
        let header = self.header();
        if header.count <= 1 { -1 } else { header.end_physical_offset }
    }

    /// How many of the last entries are of the record at `physical_offset`, and how many there are in all.
    pub fn last_of(&self, physical_offset: i64) -> (usize, usize) {
        let count = self.header().count;
        let of = |number: &i32| self.entry(*number).is_some_and(|e| e.physical_offset == physical_offset);
        ((1..count).rev().take_while(of).count(), (count - 1).max(0) as usize)
    }

    /// Whether no further entry fits.
    pub fn is_full(&self) -> bool {
        self.header().count as u32 >= self.shape.entries
    }

    fn slot_at(&self, hash: i32) -> usize {
        HEADER_BYTES + (hash as u32 % self.shape.slots) as usize * SLOT_BYTES
    }

    fn entry_at(&self, number: i32) -> usize {
        HEADER_BYTES + self.shape.slots as usize * SLOT_BYTES + number as usize * ENTRY_BYTES
    }

    fn slot(&self, at: usize, count: i32) -> i32 {
        let value = self.file.published_i32(at);
        if value <= 0 || value >= count { 0 } else { value }
    }

    #[allow(clippy::indexing_slicing, reason = "an array of ENTRY_BYTES")]
    fn entry(&self, number: i32) -> Option<Entry> {
        let bytes: &[u8; ENTRY_BYTES] =
            self.file.bytes(self.entry_at(number), ENTRY_BYTES).try_into().ok()?;
        let int = |at: usize| i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Entry {
            hash: int(0),
            physical_offset: i64::from_be_bytes(bytes[4..12].try_into().ok()?),
            seconds: int(12),
            previous: int(16),
        })
    }

    /// Adds an entry: entry, then slot, then header, so that a reader never follows a slot to nothing.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; nothing was added then.
    #[allow(clippy::indexing_slicing, reason = "the region has ENTRY_BYTES")]
    pub fn put(&self, hash: i32, physical_offset: i64, store_timestamp: i64, disk: &dyn Disk) -> Result<()> {
        let mut header = self.header();
        let at = self.entry_at(header.count);
        self.file.ensure_allocated((at + ENTRY_BYTES) as u64, CHUNK, disk)?;
        let slot_at = self.slot_at(hash);
        let before = self.slot(slot_at, header.count);
        let previous = if before > 0 { before } else { END_OF_CHAIN };
        let seconds = if header.count <= 1 {
            0
        } else {
            ((store_timestamp - header.begin_timestamp) / 1000).clamp(0, i64::from(i32::MAX)) as i32
        };
        self.file.write(at, ENTRY_BYTES, |out| {
            out[..4].copy_from_slice(&hash.to_be_bytes());
            out[4..12].copy_from_slice(&physical_offset.to_be_bytes());
            out[12..16].copy_from_slice(&seconds.to_be_bytes());
            out[16..].copy_from_slice(&previous.to_be_bytes());
        });
        self.file.publish_i32(slot_at, header.count);
        if header.count <= 1 {
            header.begin_timestamp = store_timestamp;
            header.begin_physical_offset = physical_offset;
        }
        header.used_slots += i32::from(before == 0);
        header.count += 1;
        header.end_timestamp = store_timestamp;
        header.end_physical_offset = physical_offset;
        self.write_header(&header);
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Collects offsets of entries with `hash` stored in `[begin, end]`, newest first, up to `limit`.
    pub fn find(&self, hash: i32, begin: i64, end: i64, limit: usize, out: &mut Vec<i64>) {
        let header = self.header();
        if header.end_timestamp < begin || header.begin_timestamp > end {
            return;
        }
        let mut number = self.file.published_i32(self.slot_at(hash));
        while number > 0 && out.len() < limit {
            let Some(entry) = self.entry(number) else { return };
            let second = header.begin_timestamp.saturating_add(i64::from(entry.seconds) * 1000);
            // One that came since the look at the header is passed over: it leads to those that were there.
            let counts = number < header.count;
            if counts && entry.hash == hash && second.saturating_add(999) >= begin && second <= end {
                out.push(entry.physical_offset);
            }
            // Chains lead to older entries; anything else is damage and would be a circle.
            number = if entry.previous < number { entry.previous } else { 0 };
        }
    }

    /// Syncs what was written since the last call.
    ///
    /// # Errors
    /// The disk's error.
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        if self.dirty.swap(false, Ordering::AcqRel)
            && let Err(error) = self.file.sync(disk)
        {
            self.dirty.store(true, Ordering::Release);
            self.unsynced.store(true, Ordering::Release);
            return Err(StoreError::io("syncing the index", error));
        }
        Ok(())
    }

    /// Writes everything again where a sync failed, so that the next one brings it to the disk. The caller
    /// holds the dispatch lock.
    ///
    /// # Errors
    /// The disk's error.
    pub fn rewrite_unsynced(&self, disk: &dyn Disk) -> Result<()> {
        if self.unsynced.swap(false, Ordering::AcqRel)
            && let Err(error) = self.file.rewrite(0, self.file.len(), disk)
        {
            self.unsynced.store(true, Ordering::Release);
            return Err(StoreError::io("writing the index again", error));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RealDisk;

    const SHAPE: Shape = Shape { slots: 7, entries: 20 };

    /// A disk whose next sync fails, and which counts bytes written through it.
    #[derive(Default)]
    struct FailsOnce {
        failed: AtomicBool,
        written: std::sync::atomic::AtomicU64,
    }

    impl Disk for FailsOnce {
        fn allocate(&self, file: &std::fs::File, offset: u64, length: u64) -> std::io::Result<()> {
            RealDisk.allocate(file, offset, length)
        }

        fn write(&self, file: &std::fs::File, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
            self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            RealDisk.write(file, offset, bytes)
        }

        fn sync(&self, file: &std::fs::File) -> std::io::Result<()> {
            if self.failed.swap(true, Ordering::SeqCst) {
                RealDisk.sync(file)
            } else {
                Err(std::io::Error::other("injected"))
            }
        }
    }

    #[test]
    fn test_a_name_reads_back_as_its_time() {
        let mut at = 0i64;
        while at < 253_402_300_799_999 {
            assert_eq!(time_of_name(&file_name(at)), Some(at));
            at += 86_399_000 * 7 + 13;
        }
        for name in ["", "2024", "2024010100000000x", "202401010000000000"] {
            assert_eq!(time_of_name(name), None);
        }
    }

    #[test]
    fn test_a_failed_sync_is_made_good_by_the_next_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = FailsOnce::default();
        let file = IndexFile::open_owned(&dir.path().join("1"), SHAPE, &disk).expect("a file");
        file.put(3, 10, 1000, &disk).expect("disk space");
        file.sync(&disk).expect_err("injected");
        file.rewrite_unsynced(&disk).expect("written");
        let end = file.entry_at(2) as u64;
        assert!(disk.written.load(Ordering::SeqCst) >= end, "what the kernel may hold for clean");
        assert!(file.dirty.load(Ordering::SeqCst), "still to be synced");
        file.sync(&disk).expect("synced");
        assert!(!file.dirty.load(Ordering::SeqCst));
    }

    #[test]
    fn test_names_are_calendar_times() {
        assert_eq!(file_name(0), "19700101000000000");
        assert_eq!(file_name(1_582_934_399_999), "20200228235959999");
        assert_eq!(file_name(1_582_934_400_000), "20200229000000000");
    }

    #[test]
    fn test_chains_give_newest_first_and_restore_forgets_what_came_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = IndexFile::open_owned(&dir.path().join("1"), SHAPE, &RealDisk).expect("a file");
        for (at, hash) in [(10, 3), (20, 10), (30, 3)] {
            file.put(hash, at, 1000 + at, &RealDisk).expect("disk space");
        }
        let then = file.header();
        let mut image = vec![0; file.file.len()];
        image.copy_from_slice(file.file.tail(0));
        file.put(3, 40, 2000, &RealDisk).expect("disk space");
        let mut found = Vec::new();
        file.find(3, 0, i64::MAX, 10, &mut found);
        assert_eq!(found, vec![40, 30, 10]);
        file.restore(&then, &RealDisk).expect("restored");
        assert_eq!(file.file.tail(0), image.as_slice(), "restore gives the bytes of that time");
    }
}
