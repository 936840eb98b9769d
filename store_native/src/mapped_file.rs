//! A file of fixed length, mapped into memory. The `unsafe` of the store lives here and in `sys.rs`.
//!
//! Invariants:
//! * a byte is written only after its block was allocated, so a full disk is an error and never SIGBUS;
//! * a mapped file is never shrunk (expired ones are unlinked; the mapping stays good until dropped);
//! * one thread writes a region at a time (the owner's append, dispatch and recovery each hold a lock of their
//!   own), and readers look only at bytes published to them through an atomic with release order.
//!
//! Threads: one writer a region, any number of readers, in this process and others.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::environment::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::mapping::Mapping;
use crate::sys::next_data;

/// A mapped file; see the module for what holds.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Mapping,
    file: File,
    /// Bytes from the start whose blocks exist (owner only).
    allocated: AtomicU64,
    writable: bool,
}

impl MappedFile {
    /// Opens or creates a file of `length` bytes for the owner. `allocate` bytes from the start get their
    /// blocks at once.
    ///
    /// # Errors
    /// `DISK_FULL`; `DATA_CORRUPT` when the file exists with another length; any I/O error. A file that was
    /// there before the call is there after it.
    pub fn open_owned(path: &Path, length: u64, allocate: u64, disk: &dyn Disk) -> Result<Self> {
        let context = |e| StoreError::io(format!("opening {}", path.display()), e);
        match Self::create_owned(path, length, allocate, disk) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let file = disk.open(OpenOptions::new().read(true).write(true), path).map_err(context)?;
        let actual = file.metadata().map_err(context)?.len();
        if actual != length && actual != 0 {
            return Err(StoreError::corrupt(format!(
                "{} has {actual} bytes where {length} were expected",
                path.display()
            )));
        }
        let mut allocated = 0;
        if actual == 0 {
            // Made, but a crash came before its length.
            disk.set_len(&file, length).map_err(context)?;
            disk.allocate(&file, 0, allocate).map_err(context)?;
            allocated = allocate;
        }
        Self::map_owned(path, file, allocated)
    }

    /// Makes a file of `length` bytes that was not there.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; what this call made is gone again then. `AlreadyExists` when the file
    /// was there: it is left alone.
    pub fn create_owned(path: &Path, length: u64, allocate: u64, disk: &dyn Disk) -> Result<Self> {
        let context = |e| StoreError::io(format!("making {}", path.display()), e);
        let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
        let file = disk.open(&options, path).map_err(context)?;
        let made = disk
            .set_len(&file, length)
            .and_then(|()| disk.allocate(&file, 0, allocate))
            .map_err(context)
            .and_then(|()| Self::map_owned(path, file, allocate));
        if made.is_err() {
            // This call made the name, and nothing points at it yet.
            let _ = disk.remove(path);
        }
        made
    }

    fn map_owned(path: &Path, file: File, allocated: u64) -> Result<Self> {
        let context = |e| StoreError::io(format!("mapping {}", path.display()), e);
        let map = Mapping::writable(&file).map_err(context)?;
        Ok(Self { path: path.to_owned(), map, file, allocated: AtomicU64::new(allocated), writable: true })
    }

    /// Gives the file another name, which nothing may have yet.
    ///
    /// # Errors
    /// `AlreadyExists`; any I/O error. The file has its old name then.
    pub fn rename(&mut self, to: &Path, disk: &dyn Disk) -> io::Result<()> {
        disk.rename_new(&self.path, to)?;
        to.clone_into(&mut self.path);
        Ok(())
    }

    /// Maps an existing file for reading, at the length it has.
    ///
    /// # Errors
    /// Any I/O error; an empty file is `DATA_CORRUPT`.
    pub fn open_for_reading(path: &Path) -> Result<Self> {
        let context = |e| StoreError::io(format!("opening {}", path.display()), e);
        let file = RealDisk.open_for_reading(path).map_err(context)?;
        if file.metadata().map_err(context)?.len() == 0 {
            return Err(StoreError::corrupt(format!("{} is empty", path.display())));
        }
        let map = Mapping::for_reading(&file).map_err(context)?;
        Ok(Self { path: path.to_owned(), map, file, allocated: AtomicU64::new(0), writable: false })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its name is known to lead to it still: another file may have taken its place.
    pub fn is_current(&self) -> bool {
        self.has_its_name(&RealDisk).unwrap_or(false)
    }

    /// Whether its name leads to it; not when nothing, or another file, has the name.
    ///
    /// # Errors
    /// Where that is not known.
    pub fn has_its_name(&self, disk: &dyn Disk) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        match disk.metadata(&self.path) {
            Ok(named) => Ok(identity(named) == identity(self.file.metadata()?)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it is known to have become shorter than it was mapped.
    pub fn is_cut_short(&self) -> bool {
        self.file.metadata().is_ok_and(|now| now.len() < self.len() as u64)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Never true: an empty file cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// The bytes from `from` to the end.
    pub fn tail(&self, from: usize) -> &[u8] {
        self.bytes(from, self.len().saturating_sub(from))
    }

    /// `length` bytes from `from`, cut at the end of the file.
    pub fn bytes(&self, from: usize, length: usize) -> &[u8] {
        let from = from.min(self.len());
        let length = length.min(self.len() - from);
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; writers touch only
        // bytes that were not published to readers yet (module contract).
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(from), length) }
    }

    /// Whether all of these bytes lie in the file, whatever the numbers.
    fn holds(&self, from: usize, length: usize) -> bool {
        from.checked_add(length).is_some_and(|end| end <= self.len())
    }

    /// Lets `write` fill `length` bytes from `from`. The caller holds the lock of this file's writer and
    /// has made sure of the blocks ([`MappedFile::ensure_allocated`]).
    ///
    /// # Panics
    /// When the range lies outside the file or the file was opened for reading: a defect of the caller.
    pub fn write<R>(&self, from: usize, length: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(self.writable && self.holds(from, length), "a write outside {}", self.path.display());
        // SAFETY: inside a writable mapping (asserted); the caller is the only writer of this range, and
        // readers do not look at it before it is published (module contract).
        let region = unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(from), length) };
        write(region)
    }

    /// Writes a big-endian i32 so that a reader, in another process too, sees it only after what was written before
    /// it.
    ///
    /// # Panics
    /// As [`MappedFile::write`], and where the place is not divisible by four.
    pub fn publish_i32(&self, at: usize, value: i32) {
        assert!(self.writable, "a write to {}", self.path.display());
        self.atomic_u32(at).store(u32::from_ne_bytes(value.to_be_bytes()), Ordering::Release);
    }

    /// Reads what [`MappedFile::publish_i32`] wrote.
    ///
    /// # Panics
    /// When the place is not divisible by four, or outside: a defect of the caller.
    pub fn published_i32(&self, at: usize) -> i32 {
        i32::from_be_bytes(self.atomic_u32(at).load(Ordering::Acquire).to_ne_bytes())
    }

    fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && self.holds(at, 4), "no atomic at {at}");
        // SAFETY: inside the mapping, aligned (mappings start at a page), and accesses to these bytes that another
        // may meet are atomic.
        unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// An atomic view of eight bytes at `at` (native byte order), which must be divisible by eight.
    ///
    /// # Panics
    /// When the place is not aligned or outside: a defect of the caller.
    pub fn atomic_u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && self.holds(at, 8), "no atomic at {at}");
        // SAFETY: inside the mapping, aligned (mappings start at a page), and every access to these bytes,
        // in this process and others, is atomic.
        unsafe { &*self.map.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Makes sure that the blocks of the first `end` bytes exist, `chunk` bytes ahead at a time.
    ///
    /// # Errors
    /// `DISK_FULL` or an I/O error; the file is as it was.
    pub fn ensure_allocated(&self, end: u64, chunk: u64, disk: &dyn Disk) -> Result<()> {
        let have = self.allocated.load(Ordering::Relaxed);
        if end <= have {
            return Ok(());
        }
        let want = end.next_multiple_of(chunk).min(self.len() as u64);
        disk.allocate(&self.file, have, want - have)
            .map_err(|e| StoreError::io(format!("allocating {}", self.path.display()), e))?;
        self.allocated.store(want, Ordering::Relaxed);
        Ok(())
    }

    /// Writes `bytes` at `from` through the file instead of the mapping, which shows them when the call is
    /// back. Whole blocks cost a fraction of the page faults that writing to the mapping takes. The caller
    /// holds what [`MappedFile::write`] asks for.
    ///
    /// # Errors
    /// Any I/O error; a part of the bytes may stand there then.
    ///
    /// # Panics
    /// As [`MappedFile::write`].
    pub fn write_through(&self, from: usize, bytes: &[u8], disk: &dyn Disk) -> io::Result<()> {
        let inside = self.writable && self.holds(from, bytes.len());
        assert!(inside, "a write outside {}", self.path.display());
        disk.write(&self.file, from as u64, bytes)
    }

    /// Has what was written to `length` bytes from `from` begin its way to the disk.
    ///
    /// # Errors
    /// As [`Disk::begin_writeback`].
    pub fn begin_writeback(&self, from: usize, length: usize, disk: &dyn Disk) -> io::Result<()> {
        disk.begin_writeback(&self.file, from as u64, length as u64)
    }

    /// Has the system's memory let go of what stands in `[from, to)`, whole pages of it: what was read once, and by
    /// nobody soon again, takes no place from what is read now. What is not on the disk yet stays.
    ///
    /// # Errors
    /// The system's; nothing is lost by it.
    pub fn let_go(&self, from: usize, to: usize) -> io::Result<()> {
        const PAGE: usize = 4096;
        let (from, to) = (from.next_multiple_of(PAGE), to.min(self.len()) / PAGE * PAGE);
        if from >= to {
            return Ok(());
        }
        self.map.let_go(from, to - from)?;
        crate::sys::let_go(&self.file, from as u64, (to - from) as u64)
    }

    /// Returns when all that was written is on the disk.
    ///
    /// # Errors
    /// The disk's error, which is final (see [`Disk::sync`]).
    pub fn sync(&self, disk: &dyn Disk) -> io::Result<()> {
        disk.sync(&self.file)
    }

    /// Writes again what stands in `[from, to)`: after a sync that failed the kernel may hold pages for clean
    /// that the disk lacks, and no later sync would write them.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn rewrite(&self, from: usize, to: usize, disk: &dyn Disk) -> io::Result<()> {
        self.each_written(from, to, |at, bytes| {
            let bytes = bytes.to_vec();
            disk.write(&self.file, at as u64, &bytes)
        })
    }

    /// Zeroes what lies behind `from`, where anything was written, durably; before `again_until` also where zeros
    /// stand already: a failed sync may have left them in memory only. Returns the bytes that were not zero, in
    /// pages.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn erase_from(&self, from: usize, again_until: usize, disk: &dyn Disk) -> Result<u64> {
        let context = |e| StoreError::io(format!("erasing the tail of {}", self.path.display()), e);
        let (erased, written) = self.zero_behind(from, again_until, disk).map_err(context)?;
        if written {
            disk.sync(&self.file).map_err(context)?;
        }
        Ok(erased)
    }

    /// Zeroes what lies behind `from`, where anything was written.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn clear_from(&self, from: usize, disk: &dyn Disk) -> io::Result<()> {
        self.zero_behind(from, 0, disk).map(drop)
    }

    /// Returns the bytes that were not zero, in pages, and whether any were written.
    fn zero_behind(&self, from: usize, again_until: usize, disk: &dyn Disk) -> io::Result<(u64, bool)> {
        let (mut erased, mut written) = (0u64, false);
        let zeros = [0u8; 4096];
        self.each_written(from, self.len(), |at, bytes| {
            for (number, chunk) in bytes.chunks(zeros.len()).enumerate() {
                let empty = chunk.iter().all(|b| *b == 0);
                if !empty {
                    erased += chunk.len() as u64;
                }
                let place = at + number * zeros.len();
                if !empty || place < again_until {
                    disk.write(&self.file, place as u64, zeros.get(..chunk.len()).unwrap_or(&zeros))?;
                    written = true;
                }
            }
            Ok(())
        })?;
        Ok((erased, written))
    }

    /// Shows what was ever written in `[from, to)`, in pieces that are no longer than a mebibyte.
    fn each_written(
        &self,
        from: usize,
        to: usize,
        mut each: impl FnMut(usize, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        const PIECE: usize = 1 << 20;
        // All found before any is read: the kernel reads ahead into blocks that were reserved and never written,
        // and then takes them for written.
        let mut written = Vec::new();
        let mut at = from;
        while let Some((start, end)) = next_data(self.file.as_raw_fd(), at as u64)? {
            let (start, end) = ((start as usize).max(from), (end as usize).min(to));
            if start >= end {
                break;
            }
            written.push((start, end));
            at = end;
        }
        for (start, end) in written {
            for piece in (start..end).step_by(PIECE) {
                each(piece, self.bytes(piece, PIECE.min(end - piece)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RealDisk;

    const LENGTH: u64 = 32 << 20;

    /// A disk that counts the bytes written through it.
    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Disk for Counted {
        fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
            RealDisk.allocate(file, offset, length)
        }

        fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            RealDisk.write(file, offset, bytes)
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            RealDisk.sync(file)
        }
    }

    fn written(bytes: &[u8]) -> (tempfile::TempDir, MappedFile) {
        let dir = tempfile::tempdir().expect("a directory");
        let file =
            MappedFile::create_owned(&dir.path().join("f"), LENGTH, LENGTH, &RealDisk).expect("a file");
        file.write_through(0, bytes, &RealDisk).expect("written");
        file.sync(&RealDisk).expect("synced");
        (dir, file)
    }

    #[test]
    fn test_erasing_reads_and_writes_what_was_written_and_not_what_was_reserved() {
        let (_dir, file) = written(&vec![1; 300_000]);
        // SAFETY: a plain system call on an open descriptor; the kernel then reads from the disk, and ahead.
        let outcome = unsafe { libc::posix_fadvise(file.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(outcome, 0);
        let disk = Counted::default();
        file.erase_from(0, usize::MAX, &disk).expect("erased");
        let count = disk.0.load(Ordering::Relaxed);
        assert!((300_000..2_000_000).contains(&count), "{count} bytes written");
        assert!(file.tail(0).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn test_zeros_are_written_again_as_far_as_they_may_be_in_memory_only() {
        let (_dir, file) = written(&vec![0; 400_000]);
        let disk = Counted::default();
        assert_eq!(file.erase_from(0, 65_536, &disk).expect("erased"), 0);
        assert_eq!(disk.0.load(Ordering::Relaxed), 65_536);
    }
}
