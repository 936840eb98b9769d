//! What the system is asked directly: calls that the standard library has no name for.
//!
//! Invariants: nothing of the store is known here.
//! Threads: any.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

/// Makes names created, renamed or removed in `directory` durable.
///
/// # Errors
/// Any I/O error.
#[allow(clippy::disallowed_methods, reason = "this is where the disk is asked")]
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The next stretch of a sparse file, from `from`, that holds data.
pub(crate) fn next_data(fd: RawFd, from: u64) -> io::Result<Option<(u64, u64)>> {
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

/// Has the system's memory let go of a range of a file, as far as nobody maps it and it is on the disk.
#[cfg(target_os = "linux")]
pub(crate) fn let_go(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let (offset, length) = (offset as libc::off_t, length as libc::off_t);
    // SAFETY: a plain system call on an open descriptor.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, length, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn let_go(_file: &File, _offset: u64, _length: u64) -> io::Result<()> {
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
#[allow(clippy::disallowed_methods, reason = "this is where the disk is asked")]
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
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
    // SAFETY: a plain system call on a descriptor the caller holds open.
    if unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, offset, length) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
        return Err(error);
    }
    // SAFETY: as above; it returns the error number instead of setting errno.
    match unsafe { libc::posix_fallocate(fd, offset, length) } {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Takes `flock`'s exclusive lock on an open file or directory without waiting.
pub(crate) fn try_flock(file: &File) -> io::Result<bool> {
    // SAFETY: a plain system call on an open descriptor.
    taken(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
}

/// Takes both exclusive locks on an open file without waiting: `flock`, and a record lock on its first
/// byte, which is the one a RocketMQ broker takes.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    if !try_flock(file)? {
        return Ok(false);
    }
    let first_byte = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: a plain system call on an open descriptor; the structure outlives it. An open-file-description
    // lock, because a plain one would be lost when any other descriptor of the file is closed.
    taken(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const first_byte) })
}

/// What a system call that takes a lock without waiting says.
fn taken(outcome: libc::c_int) -> io::Result<bool> {
    if outcome == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EWOULDBLOCK | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
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
    pub fn new() -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: creates a descriptor that nobody else owns.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
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
