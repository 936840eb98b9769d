//! The end of the log: where the next record goes, and rolling to the next file.
//!
//! There is one writer, held under the append lock. It reserves the bytes of a whole request in one
//! file, so that a request is contiguous and never split; callers then encode into the reserved bytes.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{CommitLog, LogFile};
use crate::environment::{Environment, Point};
use crate::error::{Result, StoreError};
use crate::mapped_file::MappedFile;
use crate::message::record::{END_OF_FILE_BYTES, end_of_file};
use crate::paths;

/// Writes at the end of the log.
pub struct LogWriter {
    log: Arc<CommitLog>,
    environment: Environment,
    current: Option<LogFile>,
    /// Physical offset of the next byte.
    end: i64,
    /// The next file, made ahead by the janitor.
    prepared: Arc<Mutex<Option<LogFile>>>,
}

impl LogWriter {
    /// A writer that goes on at `end`.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error while making sure of the current file's blocks.
    pub fn new(log: Arc<CommitLog>, environment: Environment, end: i64) -> Result<Self> {
        let current = log.file_at(end);
        if let Some(current) = &current {
            let size = current.file.len() as u64;
            current.file.ensure_allocated(size, size, &*environment.disk)?;
        }
        Ok(Self { log, environment, current, end, prepared: Arc::default() })
    }

    /// Physical offset of the next byte.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Where the janitor puts a file made ahead.
    pub fn prepared(&self) -> Arc<Mutex<Option<LogFile>>> {
        Arc::clone(&self.prepared)
    }

    /// Share of the current file that is written, 0 to 1.
    pub fn fill(&self) -> f64 {
        self.current.as_ref().map_or(1.0, |f| (self.end - f.base) as f64 / f.file.len() as f64)
    }

    /// Makes room for `size` contiguous bytes, rolling when they do not fit the current file.
    ///
    /// # Errors
    /// `REQUEST_TOO_LARGE` when no file could hold them, `DISK_FULL` when the next file cannot be had.
    /// Nothing was written then.
    pub fn reserve(&mut self, size: usize) -> Result<LogFile> {
        let limit = self.log.file_size() as usize - END_OF_FILE_BYTES;
        if size > limit {
            return Err(StoreError::invalid(
                "REQUEST_TOO_LARGE",
                format!("the request takes {size} bytes of the log, a file holds {limit}"),
            ));
        }
        if let Some(current) = &self.current {
            let left = (current.end() - self.end) as usize;
            if size + END_OF_FILE_BYTES <= left {
                return Ok(current.clone());
            }
        }
        self.roll()
    }

    fn roll(&mut self) -> Result<LogFile> {
        let base = self.log.capacity_end().max(self.next_base());
        let prepared = self.prepared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let next = match prepared.filter(|f| f.base == base) {
            Some(file) => file,
            None => create_file(self.log.directory(), base, self.log.file_size(), &self.environment)?,
        };
        if let Some(current) = self.current.take() {
            let at = (self.end - current.base) as usize;
            let left = current.file.len() - at;
            if left >= END_OF_FILE_BYTES {
                current.file.write(at, END_OF_FILE_BYTES, |out| out.copy_from_slice(&end_of_file(left)));
            }
        }
        self.environment.faults.pass(Point::Roll);
        self.log.push(next.clone());
        self.end = base;
        self.current = Some(next.clone());
        Ok(next)
    }

    /// Offset at which the file behind the current end starts.
    fn next_base(&self) -> i64 {
        let size = self.log.file_size() as i64;
        (self.end + size - 1) / size * size
    }

    /// Moves the end behind what was encoded.
    pub fn advance(&mut self, size: usize) {
        self.end += size as i64;
    }
}

/// Makes a log file of full length with all its blocks.
///
/// # Errors
/// `DISK_FULL` or any I/O error; no file is left then.
pub fn create_file(directory: &Path, base: i64, size: u64, environment: &Environment) -> Result<LogFile> {
    let path = directory.join(paths::file_name(base));
    let file = MappedFile::open_owned(&path, size, size, &*environment.disk)?;
    file.ensure_allocated(size, size, &*environment.disk)?;
    paths::sync_directory(directory).map_err(|e| StoreError::io("syncing the commit log's directory", e))?;
    Ok(LogFile { base, file: Arc::new(file) })
}
