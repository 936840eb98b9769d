//! A file of fixed length, mapped into memory. Every `unsafe` of the store lives here.
//!
//! What never breaks:
//! * a byte is written only after its block was allocated, so a full disk is an error and never SIGBUS;
//! * a mapped file is never shrunk (expired ones are unlinked; the mapping stays good until dropped);
//! * one thread writes a region at a time (the owner's append, dispatch and recovery each hold a lock of
//!   their own), and readers look only at bytes published to them through an atomic with release order.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::environment::Disk;
use crate::error::{Result, StoreError};

/// A mapped file; see the module for what holds.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: MmapRaw,
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
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(context)?;
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
            file.set_len(length).map_err(context)?;
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
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(context)?;
        let made = file
            .set_len(length)
            .and_then(|()| disk.allocate(&file, 0, allocate))
            .map_err(context)
            .and_then(|()| Self::map_owned(path, file, allocate));
        if made.is_err() {
            // This call made the name, and nothing points at it yet.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn map_owned(path: &Path, file: File, allocated: u64) -> Result<Self> {
        let map = MmapOptions::new()
            .map_raw(&file)
            .map_err(|e| StoreError::io(format!("mapping {}", path.display()), e))?;
        Ok(Self { path: path.to_owned(), map, file, allocated: AtomicU64::new(allocated), writable: true })
    }

    /// Gives the file another name, which nothing may have yet.
    ///
    /// # Errors
    /// `AlreadyExists`; any I/O error. The file has its old name then.
    pub fn rename(&mut self, to: &Path) -> io::Result<()> {
        rename_new(&self.path, to)?;
        to.clone_into(&mut self.path);
        Ok(())
    }

    /// Maps an existing file for reading, at the length it has.
    ///
    /// # Errors
    /// Any I/O error; an empty file is `DATA_CORRUPT`.
    pub fn open_for_reading(path: &Path) -> Result<Self> {
        let context = |e| StoreError::io(format!("opening {}", path.display()), e);
        let file = File::open(path).map_err(context)?;
        if file.metadata().map_err(context)?.len() == 0 {
            return Err(StoreError::corrupt(format!("{} is empty", path.display())));
        }
        let map = MmapOptions::new().map_raw_read_only(&file).map_err(context)?;
        Ok(Self { path: path.to_owned(), map, file, allocated: AtomicU64::new(0), writable: false })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its name still leads to it: another file may have taken its place.
    pub fn is_current(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let named = std::fs::metadata(&self.path).map(identity);
        named.is_ok_and(|named| self.file.metadata().map(identity).is_ok_and(|mapped| mapped == named))
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

    /// Lets `write` fill `length` bytes from `from`. The caller holds the lock of this file's writer and
    /// has made sure of the blocks ([`MappedFile::ensure_allocated`]).
    ///
    /// # Panics
    /// When the range lies outside the file or the file was opened for reading: a defect of the caller.
    pub fn write<R>(&self, from: usize, length: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(self.writable && from + length <= self.len(), "a write outside {}", self.path.display());
        // SAFETY: inside a writable mapping (asserted); the caller is the only writer of this range, and
        // readers do not look at it before it is published (module contract).
        let region = unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(from), length) };
        write(region)
    }

    /// Writes a big-endian i32 so that a reader in another process sees it only after what was written
    /// before it.
    pub fn publish_i32(&self, at: usize, value: i32) {
        std::sync::atomic::fence(Ordering::Release);
        self.write(at, 4, |out| out.copy_from_slice(&value.to_be_bytes()));
    }

    /// An atomic view of eight bytes at `at` (native byte order), which must be divisible by eight.
    ///
    /// # Panics
    /// When the place is not aligned or outside: a defect of the caller.
    pub fn atomic_u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len(), "no atomic at {at}");
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
        let inside = self.writable && from + bytes.len() <= self.len();
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

/// The next stretch of a sparse file, from `from`, that holds data.
fn next_data(fd: RawFd, from: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| {
        // SAFETY: a plain system call on a descriptor the caller holds open.
        let at = unsafe { libc::lseek(fd, offset as libc::off_t, whence) };
        if at >= 0 { Ok(Some(at as u64)) } else { seek_error() }
    };
    let Some(start) = seek(from, libc::SEEK_DATA)? else { return Ok(None) };
    Ok(seek(start, libc::SEEK_HOLE)?.map(|end| (start, end)))
}

/// Whether a sparse file holds data at or behind `from`.
pub(crate) fn has_data_behind(file: &File, from: u64) -> io::Result<bool> {
    next_data(file.as_raw_fd(), from).map(|found| found.is_some())
}

/// How many descriptors the process may have open now.
pub(crate) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a place for the answer.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// Has the dirty pages of a range written back, without waiting for them. A failure of the writing itself is
/// told to the next `fdatasync`, which this call, as it does not wait, takes nothing from.
#[cfg(target_os = "linux")]
pub(crate) fn begin_writeback(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let (offset, length) = (offset as libc::off64_t, length as libc::off64_t);
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                Ok(())
            }
            error => Err(error),
        },
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn begin_writeback(_file: &File, _offset: u64, _length: u64) -> io::Result<()> {
    Ok(())
}

/// Brings all data of the file system that holds `file` to the disk.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn seek_error<T>() -> io::Result<Option<T>> {
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// Renames a file unless the new name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let name = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes());
    let (source, target) = (name(from)?, name(to)?);
    // SAFETY: both names are NUL-terminated and outlive the call.
    let outcome = unsafe {
        let (source, target) = (source.as_ptr(), target.as_ptr());
        libc::renameat2(libc::AT_FDCWD, source, libc::AT_FDCWD, target, libc::RENAME_NOREPLACE)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
        return Err(error);
    }
    // A file system without the flag: a link never replaces a name either.
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

/// Reserves blocks; where the file system cannot, lets the C library write zeros.
pub(crate) fn allocate(fd: RawFd, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let (offset, length) = (offset as libc::off_t, length as libc::off_t);
    loop {
        // SAFETY: a plain system call on a descriptor the caller holds open.
        if unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => break,
            _ => return Err(error),
        }
    }
    // SAFETY: as above; it returns the error number instead of setting errno.
    match unsafe { libc::posix_fallocate(fd, offset, length) } {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Takes both exclusive locks on an open file without waiting: `flock`, and a record lock on its first
/// byte, which is the one a RocketMQ broker takes.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    let taken = |outcome: libc::c_int| {
        if outcome == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EWOULDBLOCK | libc::EACCES) => Ok(false),
            _ => Err(error),
        }
    };
    // SAFETY: a plain system call on an open descriptor.
    if !taken(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })? {
        return Ok(false);
    }
    let first_byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: as above; the structure outlives the call. An open-file-description lock, because a plain
    // one would be lost when any other descriptor of the file is closed.
    taken(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const first_byte) })
}

/// Used share of the file system that holds `path`, 0 to 1.
pub(crate) fn disk_used_ratio(path: &Path) -> io::Result<f64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path is NUL-terminated and `stat` is a place for the answer.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statvfs succeeded and filled it (and it was zeroed before).
    let stat = unsafe { stat.assume_init() };
    // As df does: what is reserved for root or by a quota counts neither as used nor as free.
    let used = stat.f_blocks.saturating_sub(stat.f_bfree) as f64;
    let reach = used + stat.f_bavail as f64;
    if reach == 0.0 { Ok(0.0) } else { Ok(used / reach) }
}

/// An event counter whose descriptor turns readable when [`EventFd::signal`] was called.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// A new one, not blocking.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: creates a descriptor that nobody else owns.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(StoreError::io("creating an eventfd", io::Error::last_os_error()));
        }
        // SAFETY: `fd` is open and owned here alone.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable. Never blocks; a full counter is readable already.
    pub fn signal(&self) {
        let _ = io::Write::write(&mut &self.0, &1u64.to_ne_bytes());
    }

    /// The descriptor, for an event loop.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Ends the process as `kill -9` would.
pub(crate) fn kill_self() -> ! {
    // SAFETY: sends a signal to this very process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    std::process::abort()
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
