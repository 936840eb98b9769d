//! The log file behind the last one: made ahead under a name of its own, and given its real one at the roll.
//!
//! Invariants: whether a file is made, named or deleted is decided under one lock, and only a file that has no name
//! in the log is deleted.
//! Threads: the maintenance thread makes it, the appender takes it, the one that closes the store drops it.

use crate::sync::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::{CommitLog, LogFile};
use crate::environment::{Disk, Environment};
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::mapped_file::MappedFile;
use crate::paths;

/// A file of full length with all its blocks, under its first name.
#[derive(Debug)]
struct Made {
    base: i64,
    file: MappedFile,
}

/// The next file, if it is made; see the module.
#[derive(Debug)]
pub struct NextFile {
    /// Where it lies until it is named; on the log's file system.
    directory: PathBuf,
    size: u64,
    made: Mutex<Option<Made>>,
}

impl NextFile {
    /// Deletes what an unclean stop left.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(directory: &Path, size: u64, disk: &dyn Disk) -> Result<Self> {
        let left = paths::next_files(directory, disk)
            .map_err(|e| StoreError::io("listing log files made ahead", e))?;
        for path in left {
            disk.remove(&path).map_err(|e| StoreError::io("removing a log file made ahead", e))?;
        }
        Ok(Self { directory: directory.to_owned(), size, made: Mutex::default() })
    }

    /// Makes the file behind the log's last one, unless it is made. Who needs it meanwhile waits for it.
    ///
    /// # Errors
    /// As [`NextFile::make`].
    pub fn make_ahead(&self, log: &CommitLog, environment: &Environment) -> Result<()> {
        // The log gets no file while this lock is held: the offset stays the next one.
        let mut made = self.lock();
        self.make_locked(&mut made, log.capacity_end(), environment)
    }

    /// Makes the file that will start at `base`, unless it is made.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; no file is left then.
    pub fn make(&self, base: i64, environment: &Environment) -> Result<()> {
        self.make_locked(&mut self.lock(), base, environment)
    }

    fn make_locked(&self, made: &mut Option<Made>, base: i64, environment: &Environment) -> Result<()> {
        if made.as_ref().is_some_and(|made| made.base == base) {
            return Ok(());
        }
        drop_made(made, &*environment.disk);
        let path = self.directory.join(paths::next_file_name(base));
        let disk = &*environment.disk;
        let create = || MappedFile::create_owned(&path, self.size, self.size, disk);
        let file = match create() {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                // A try before failed and could not take it away again. Nothing points at it.
                let context = |e| StoreError::io(format!("removing {}", path.display()), e);
                disk.remove(&path).map_err(context)?;
                create()?
            }
            made => made?,
        };
        *made = Some(Made { base, file });
        environment.faults.pass(Point::NextMade);
        Ok(())
    }

    /// Gives the file made for `base` its name and puts it at the end of the log. The name is durable with
    /// the first flush of what is written to it.
    ///
    /// # Errors
    /// Any I/O error; the log is as it was then.
    pub fn enter(&self, base: i64, log: &CommitLog, environment: &Environment) -> Result<LogFile> {
        let mut made = self.lock();
        self.make_locked(&mut made, base, environment)?;
        environment.faults.pass(Point::Roll);
        let path = log.directory().join(paths::file_name(base));
        let context = |e| StoreError::io(format!("naming {}", path.display()), e);
        let Some(mut next) = made.take() else {
            return Err(StoreError::corrupt("the next log file is gone"));
        };
        if let Err(error) = next.file.rename(&path, &*environment.disk) {
            *made = Some(next);
            if error.kind() != std::io::ErrorKind::CrossesDevices {
                return Err(context(error));
            }
            // The log lies on a file system of its own: the file is made in its place.
            drop_made(&mut made, &*environment.disk);
            let file = MappedFile::create_owned(&path, self.size, self.size, &*environment.disk)?;
            next = Made { base, file };
        }
        environment.faults.pass(Point::RollNamed);
        let file = LogFile { base, file: Arc::new(next.file) };
        log.push(file.clone());
        Ok(file)
    }

    /// Deletes the file if it was not needed.
    pub fn discard(&self, disk: &dyn Disk) {
        drop_made(&mut self.lock(), disk);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn drop_made(made: &mut Option<Made>, disk: &dyn Disk) {
    if let Some(made) = made.take() {
        let _ = disk.remove(made.file.path());
    }
}
