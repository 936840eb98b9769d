//! The commit log: one sequence of records over mapped files of equal length.
//!
//! This file owns the list of files and finding the one that holds an offset. `writer.rs` owns the end of the log,
//! `next_file.rs` the file behind the last one, `tail.rs` what lies behind the end, `epochs.rs` who wrote which
//! part; `scan.rs` walks records, `range.rs` takes raw bytes out, `batch.rs` lays out what is to be appended.
//! Invariants: the owner's files follow each other without a hole, whenever it is stopped: they go from either end,
//! and come at the last one. A file taken off the list stays readable to those who hold it.
//! Threads: any reads the list; the appender adds, expiry takes off the front, a cut and a recovery take off the
//! end. A reader in another process has a list of its own and refreshes it.

pub mod batch;
pub mod epochs;
pub mod next_file;
mod range;
pub mod scan;
pub mod tail;
pub mod writer;

pub use range::LogRange;
pub(crate) use range::is_end_marker;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicI64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::environment::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::mapped_file::MappedFile;
use crate::message::{RecordView, ViewError};
use crate::paths;

/// A file of the log with the physical offset of its first byte.
#[derive(Debug, Clone)]
pub struct LogFile {
    pub base: i64,
    pub file: Arc<MappedFile>,
}

impl LogFile {
    /// Offset behind the file's last byte.
    pub fn end(&self) -> i64 {
        self.base + self.file.len() as i64
    }
}

/// The files of a commit log. The owner appends through `writer::LogWriter`; readers beside it refresh
/// the list when they meet an offset they do not know.
#[derive(Debug)]
pub struct CommitLog {
    directory: PathBuf,
    /// Length of each file; for a reader, of the first file found.
    file_size: u64,
    files: RwLock<Vec<LogFile>>,
    /// The names of files that start before it are on the disk (owner only).
    named_to: AtomicI64,
}

impl CommitLog {
    /// Opens the files for the owner. `may_end_at` is asked of an empty file before others, whether nothing from its start
    /// on is known to have been stored.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when a file has another length than `file_size` or the sequence has a hole.
    pub fn open_owned(
        directory: &Path,
        file_size: u64,
        may_end_at: impl Fn(i64) -> Result<bool>,
        disk: &dyn Disk,
    ) -> Result<Self> {
        paths::create_directory(directory, disk).map_err(|e| StoreError::io("creating the commit log", e))?;
        let mut files = Vec::new();
        let listed = Self::list(directory, disk)?;
        let last = listed.last().map(|(base, _)| *base);
        for (base, path) in listed {
            let found = disk.metadata(&path).map_err(|e| StoreError::io("reading the commit log", e))?;
            let length = found.len();
            if length == 0 && Some(base) != last && !may_end_at(base)? {
                let detail = format!("{} is empty, and log files lie behind it", path.display());
                return Err(StoreError::corrupt(detail));
            }
            if length == 0 && Some(base) == last {
                // Created, but the crash came before its length: nothing was ever written to it.
                disk.remove(&path).map_err(|e| StoreError::io("removing an empty log file", e))?;
                continue;
            }
            // One before others lost its length with the power: it gets it again, and the log ends in it.
            files.push(LogFile { base, file: Arc::new(MappedFile::open_owned(&path, file_size, 0, disk)?) });
        }
        check_sequence(&files)?;
        Ok(Self {
            directory: directory.to_owned(),
            file_size,
            files: RwLock::new(files),
            named_to: AtomicI64::new(0),
        })
    }

    /// Opens the files for reading beside the owner (or a store without one).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open_for_reading(directory: &Path) -> Result<Self> {
        let log = Self {
            directory: directory.to_owned(),
            file_size: 0,
            files: RwLock::default(),
            named_to: AtomicI64::new(0),
        };
        log.refresh()?;
        Ok(log)
    }

    fn list(directory: &Path, disk: &dyn Disk) -> Result<Vec<(i64, PathBuf)>> {
        paths::numbered_files(directory, disk).map_err(|e| StoreError::io("listing the commit log", e))
    }

    /// Takes up new files and lets go of deleted ones, also where a new one has the name of an old one
    /// (reader only).
    ///
    /// # Errors
    /// Any I/O error but a file that vanished in between.
    pub fn refresh(&self) -> Result<()> {
        let listed = Self::list(&self.directory, &RealDisk)?;
        let mut files = self.write_files();
        let mut next: Vec<LogFile> = Vec::with_capacity(listed.len());
        for (base, path) in listed {
            if let Some(known) = files.iter().find(|f| f.base == base && f.file.is_current()) {
                next.push(known.clone());
            } else if RealDisk.metadata(&path).is_ok_and(|m| m.len() > 0) {
                match MappedFile::open_for_reading(&path) {
                    Ok(file) => next.push(LogFile { base, file: Arc::new(file) }),
                    Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        *files = next;
        Ok(())
    }

    /// Length of each file.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Where the files lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All files, oldest first.
    pub fn files(&self) -> Vec<LogFile> {
        self.read_files().clone()
    }

    /// Physical offset of the first byte kept.
    pub fn min_offset(&self) -> i64 {
        self.read_files().first().map_or(0, |f| f.base)
    }

    /// Offset behind the last file's last byte.
    pub fn capacity_end(&self) -> i64 {
        self.read_files().last().map_or(0, LogFile::end)
    }

    /// The file that holds `offset`.
    pub fn file_at(&self, offset: i64) -> Option<LogFile> {
        let files = self.read_files();
        let at = files.partition_point(|f| f.base <= offset).checked_sub(1)?;
        files.get(at).filter(|f| offset < f.end()).cloned()
    }

    /// Adds a file behind the last one (owner only).
    pub fn push(&self, file: LogFile) {
        self.write_files().push(file);
    }

    /// Returns when the names of all files are on the disk (owner only).
    ///
    /// # Errors
    /// As [`Disk::sync_directory`].
    pub fn sync_names(&self, disk: &dyn Disk) -> std::io::Result<()> {
        let end = self.capacity_end();
        disk.sync_directory(&self.directory)?;
        self.named_to.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the name of the file that starts at `base` is known to be on the disk.
    pub fn is_named_for_good(&self, base: i64) -> bool {
        base < self.named_to.load(Ordering::Acquire)
    }

    /// A file that holds something of `[from, to)` and is known not to be found by its name any more, or not whole
    /// (owner only). The store takes a file off the list before it deletes it, or while nobody looks: another hand
    /// removed, moved, replaced or shortened this one, and what is written to it now nobody finds again.
    pub fn astray(&self, from: i64, to: i64, disk: &dyn Disk) -> Option<PathBuf> {
        let files = self.read_files();
        let mut held = files.iter().filter(|f| f.base < to && f.end() > from);
        let gone =
            |file: &MappedFile| file.has_its_name(disk).is_ok_and(|found| !found) || file.is_cut_short();
        held.find(|f| gone(&f.file)).map(|f| f.file.path().to_owned())
    }

    /// Takes the oldest file off the list if it is the one that starts at `base` and not the last (owner
    /// only); the caller deletes it.
    pub fn pop_front(&self, base: i64) -> Option<LogFile> {
        let mut files = self.write_files();
        let expected = files.len() > 1 && files.first().is_some_and(|f| f.base == base);
        expected.then(|| files.remove(0))
    }

    /// Puts a file back that was taken off the front and could not be deleted: a later one must not go before it.
    pub fn put_back(&self, file: LogFile) {
        self.write_files().insert(0, file);
    }

    /// Takes off the list, and deletes, every file that starts behind `end` (owner only).
    ///
    /// # Errors
    /// Any I/O error; no file is missing between two others then.
    pub fn remove_behind(&self, end: i64, disk: &dyn Disk) -> Result<usize> {
        let mut files = self.write_files();
        let keep = files.partition_point(|f| f.base <= end);
        let mut removed = 0;
        // The last first: the log never has a hole, whenever this ends.
        while files.len() > keep
            && let Some(last) = files.last()
        {
            disk.remove(last.file.path()).map_err(|e| StoreError::io("removing a log file", e))?;
            files.pop();
            removed += 1;
            self.named_to.fetch_min(files.last().map_or(0, LogFile::end), Ordering::AcqRel);
            // One after the other on the disk too: a power cut would take them back in any order.
            disk.sync_directory(&self.directory)
                .map_err(|e| StoreError::io("syncing the log's directory", e))?;
        }
        Ok(removed)
    }

    fn read_files(&self) -> crate::sync::RwLockReadGuard<'_, Vec<LogFile>> {
        self.files.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write_files(&self) -> crate::sync::RwLockWriteGuard<'_, Vec<LogFile>> {
        self.files.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn check_sequence(files: &[LogFile]) -> Result<()> {
    for (file, next) in files.iter().zip(files.iter().skip(1)) {
        if file.end() != next.base {
            return Err(StoreError::corrupt(format!(
                "the commit log has a hole: {} is missing, {} ends where it begins and the next file starts at {}",
                file.file.path().with_file_name(paths::file_name(file.end())).display(),
                file.file.path().display(),
                next.base
            )));
        }
    }
    Ok(())
}

/// A file held open with the record at a place in it.
pub struct Located {
    file: LogFile,
    at: usize,
}

impl Located {
    /// The record, its checksum verified.
    ///
    /// # Errors
    /// What stands there instead of a record.
    pub fn record(&self) -> std::result::Result<RecordView<'_>, ViewError> {
        RecordView::parse_checked(self.file.file.tail(self.at), self.file.base + self.at as i64)
    }
}

impl CommitLog {
    /// Holds the place of the record at `offset`, or `None` when no file has it (expired, or not yet).
    pub fn locate(&self, offset: i64) -> Option<Located> {
        let file = self.file_at(offset)?;
        let at = (offset - file.base) as usize;
        Some(Located { file, at })
    }
}
