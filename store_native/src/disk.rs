//! What the store asks of the disk, call by call.
//!
//! Invariants: no other module changes a file, a name or a directory; what a start and the store's threads read of
//! files is asked here too. So a test makes any call fail. Past it go the mapped bytes (a page that the disk cannot
//! read ends the process), the lock file, and what is asked of a file that is open already: its length, its holes.
//! What a signal interrupts is done again here, or by the standard library. But for a name that is made, changed or
//! removed: that may have been done, so `Interrupted` is an error like any other there, as it is from any disk to
//! those who ask.
//! Threads: all of them share one.

use std::fs::{DirEntry, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The calls that change what is on the disk or decide whether it is there, and those that read it.
#[allow(clippy::disallowed_methods, reason = "this is where the disk is asked")]
pub trait Disk: Send + Sync {
    /// Opens a file that is to be changed, or makes it.
    ///
    /// # Errors
    /// Any I/O error.
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        options.open(path)
    }

    /// Gives the file a length.
    ///
    /// # Errors
    /// Any I/O error.
    fn set_len(&self, file: &File, length: u64) -> io::Result<()> {
        file.set_len(length)
    }

    /// Renames a file or a directory; a file that has the new name is gone then.
    ///
    /// # Errors
    /// Any I/O error; the old names hold.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    /// Renames a file unless the new name is taken.
    ///
    /// # Errors
    /// `AlreadyExists`; any I/O error. The old name holds.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        crate::sys::rename_new(from, to)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Any I/O error.
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    /// Makes a directory in one that is there.
    ///
    /// # Errors
    /// `AlreadyExists`; any I/O error.
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    /// Removes a directory and all that is in it.
    ///
    /// # Errors
    /// Any I/O error; a part of it may be gone then.
    fn remove_tree(&self, directory: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(directory)
    }

    /// Reserves blocks for `length` bytes from `offset`, inside the file's length.
    ///
    /// # Errors
    /// ENOSPC where the disk is full; nothing was reserved then that a later call could not use.
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. In the log the blocks were reserved before.
    ///
    /// # Errors
    /// Any I/O error; a part may stand in the file then.
    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the file's data is on the disk.
    ///
    /// # Errors
    /// Any error is final for the caller: the pages it was about may be gone.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Has `length` bytes from `offset`, written before, begin their way to the disk, and does not wait for
    /// them: a [`Disk::sync`] that follows finds less to do. Promises nothing; where the system has no such
    /// call, nothing happens.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn begin_writeback(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        again(|| crate::sys::begin_writeback(file, offset, length))
    }

    /// Used share of the file system that holds `path`, 0 to 1.
    ///
    /// # Errors
    /// When the file system does not say.
    fn used_ratio(&self, path: &Path) -> io::Result<f64> {
        again(|| crate::sys::disk_used_ratio(path))
    }

    /// Returns when the names in `directory` are on the disk.
    ///
    /// # Errors
    /// Any I/O error; a name made since the last call may be gone after a power loss.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        crate::sys::sync_directory(directory)
    }

    /// Returns when everything written to the file system that holds `any` is on the disk: one call for
    /// ten thousand files.
    ///
    /// # Errors
    /// As [`Disk::sync`].
    fn sync_file_system(&self, any: &File) -> io::Result<()> {
        again(|| crate::sys::sync_file_system(any))
    }

    /// Opens a file or a directory that is not to be changed.
    ///
    /// # Errors
    /// `NotFound`; any I/O error.
    fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    /// The content of a small file.
    ///
    /// # Errors
    /// `NotFound`; any I/O error.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    /// Reads some of the bytes from `offset` on, and says how many: none behind the end.
    ///
    /// # Errors
    /// Any I/O error.
    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        again(|| file.read_at(bytes, offset))
    }

    /// What is in a directory, in no order.
    ///
    /// # Errors
    /// `NotFound`; any I/O error, also of a part.
    fn list(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        again(|| std::fs::read_dir(directory)?.collect())
    }

    /// What stands about a name.
    ///
    /// # Errors
    /// `NotFound`; any I/O error.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        again(|| std::fs::metadata(path))
    }

    /// Whether the name is there.
    ///
    /// # Errors
    /// Where that is not known.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            // What lies above it may be a file: then it is not there either.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// Does what changes nothing more when it is done twice, until no signal interrupts it.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// The machine's disk.
#[derive(Debug, Default)]
pub struct RealDisk;

#[allow(clippy::disallowed_methods, reason = "this is where the disk is asked")]
impl Disk for RealDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        again(|| crate::sys::allocate(file.as_raw_fd(), offset, length))
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_what_a_signal_interrupts_is_done_again_and_another_error_is_told() {
        let mut answers = vec![Ok(7), Err(libc::EINTR), Err(libc::EINTR)];
        let mut answer = || answers.pop().unwrap_or(Ok(0)).map_err(io::Error::from_raw_os_error);
        assert_eq!(again(&mut answer).expect("the third answer"), 7);
        let refused = again(|| Err::<(), _>(io::Error::from_raw_os_error(libc::EIO)));
        assert_eq!(refused.expect_err("an error").raw_os_error(), Some(libc::EIO));
    }
}
