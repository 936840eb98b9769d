//! A slave's store made from its master's, whose log does not begin at 0 any more: the log's files as they come, then
//! the snapshot they belong to.
//!
//! Invariants: from [`Bootstrap::begin`] to [`Bootstrap::finish`] a marker stands, and nobody opens the directory as
//! a store; what was begun and not finished is begun anew. A directory that holds messages is never begun. What
//! `finish` leaves is a store after a crash: its queues, index and keys are made of the log when it is opened.
//! Threads: one, the owner's.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::commitlog::epochs::{EpochFile, EpochStart};
use crate::directory::{DirectoryLock, take_lock, write_abort};
use crate::environment::{Disk, Environment, RealDisk};
use crate::error::{Result, StoreError};
use crate::paths::{self, StorePaths};
use crate::snapshot::Snapshot;

/// A store being made.
pub struct Bootstrap {
    paths: StorePaths,
    environment: Environment,
    file_size: u64,
    first: i64,
    end: i64,
    file: Option<(i64, File)>,
    _lock: DirectoryLock,
}

impl Bootstrap {
    /// Whether the directory holds no message: nothing is in it, or a bootstrap that was not finished.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn is_wanted(root: &Path) -> Result<bool> {
        Self::is_wanted_at(&StorePaths::new(root), &RealDisk)
    }

    fn is_wanted_at(paths: &StorePaths, disk: &dyn Disk) -> Result<bool> {
        let context = |e| StoreError::io("listing the commit log", e);
        if disk.exists(&paths.bootstrap()).map_err(context)? {
            return Ok(true);
        }
        if !disk.exists(&paths.commitlog()).map_err(context)? {
            return Ok(true);
        }
        let files = paths::numbered_files(&paths.commitlog(), disk).map_err(context)?;
        Ok(files.is_empty())
    }

    /// Begins with an empty log whose first file is the one that `first` lies in.
    ///
    /// # Errors
    /// `STORE_LOCKED`; `ARGUMENT_ILLEGAL` when the directory holds messages; any I/O error.
    pub fn begin(root: &Path, file_size: u64, first: i64, environment: Environment) -> Result<Self> {
        let paths = StorePaths::new(root);
        let disk = &*environment.disk;
        let context = |e| StoreError::io("beginning a store of the master's", e);
        paths::create_directory(root, disk)
            .and_then(|()| paths::create_directory(&paths.lakemq(), disk))
            .and_then(|()| paths::create_directory(&paths.commitlog(), disk))
            .map_err(context)?;
        let lock = take_lock(&paths, disk)?;
        if !Self::is_wanted_at(&paths, disk)? {
            let detail =
                format!("{} holds messages: only an empty store becomes its master's", root.display());
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        paths::replace_file(&paths.bootstrap(), b"", disk).map_err(context)?;
        let bootstrap = Self { paths, environment, file_size, first, end: first, file: None, _lock: lock };
        bootstrap.remove_leftovers().map_err(context)?;
        Ok(bootstrap)
    }

    /// The log's end.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Appends bytes of the master's log; it goes on at `next_offset`, behind them or at the next file.
    ///
    /// # Errors
    /// `OFFSET_ILLEGAL` for a range that is not the next one, or not of one file; `DISK_FULL`; any I/O error.
    pub fn append(&mut self, offset: i64, bytes: &[u8], next_offset: i64) -> Result<()> {
        let size = self.file_size as i64;
        let base = offset - offset.rem_euclid(size);
        let behind = offset + bytes.len() as i64;
        let goes_on = next_offset == behind || next_offset == base + size;
        if offset != self.end || behind > base + size || behind > next_offset || !goes_on {
            let detail = format!("[{offset}, {behind}), then {next_offset}: the log ends at {}", self.end);
            return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
        }
        let disk = std::sync::Arc::clone(&self.environment.disk);
        let context = |e| StoreError::io("writing the log of the master's", e);
        let place = (offset - base) as u64;
        if !bytes.is_empty() {
            let file = self.file_of(base)?;
            disk.allocate(file, place, bytes.len() as u64)
                .and_then(|()| disk.write(file, place, bytes))
                .map_err(context)?;
        }
        self.end = next_offset;
        Ok(())
    }

    /// Makes it a store: `snapshot` is what [`crate::store::Store::bootstrap_snapshot`] of the master gave, `epochs`
    /// the master's.
    ///
    /// # Errors
    /// `DATA_CORRUPT` for a snapshot that is none, or of another part of the log; any I/O error. It is begun anew then.
    pub fn finish(mut self, snapshot: &[u8], epochs: Vec<EpochStart>) -> Result<()> {
        let disk = std::sync::Arc::clone(&self.environment.disk);
        let context = |e| StoreError::io("finishing a store of the master's", e);
        let snapshot =
            Snapshot::decode(snapshot).ok_or_else(|| StoreError::corrupt("the snapshot is not readable"))?;
        if !(self.first..=self.end).contains(&snapshot.applied_offset) {
            return Err(StoreError::corrupt(format!(
                "the snapshot is of {}, the log holds [{}, {})",
                snapshot.applied_offset, self.first, self.end
            )));
        }
        self.close_file().map_err(context)?;
        disk.sync_directory(&self.paths.commitlog()).map_err(context)?;
        EpochFile::adopt(&self.paths, epochs, self.end, std::sync::Arc::clone(&disk))?;
        snapshot.write(&self.paths, &*disk, || ())?;
        write_abort(&self.paths, &*disk)?;
        disk.remove(&self.paths.bootstrap())
            .and_then(|()| disk.sync_directory(&self.paths.lakemq()))
            .map_err(context)
    }

    /// Leaves an empty directory: what was begun is not needed.
    ///
    /// # Errors
    /// Any I/O error; it is begun anew then.
    pub fn abandon(mut self) -> Result<()> {
        let context = |e| StoreError::io("giving up a store of the master's", e);
        self.file = None;
        self.remove_leftovers().map_err(context)?;
        let disk = &*self.environment.disk;
        disk.remove(&self.paths.bootstrap())
            .and_then(|()| disk.sync_directory(&self.paths.lakemq()))
            .map_err(context)
    }

    fn file_of(&mut self, base: i64) -> Result<&File> {
        let context = |e| StoreError::io("making a file of the master's log", e);
        if self.file.as_ref().is_none_or(|(known, _)| *known != base) {
            self.close_file().map_err(context)?;
            let path = self.paths.commitlog().join(paths::file_name(base));
            let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
            let file = self.environment.disk.open(&options, &path).map_err(context)?;
            self.environment.disk.set_len(&file, self.file_size).map_err(context)?;
            self.file = Some((base, file));
        }
        match &self.file {
            Some((_, file)) => Ok(file),
            None => Err(StoreError::corrupt("no log file is open")),
        }
    }

    fn close_file(&mut self) -> std::io::Result<()> {
        match self.file.take() {
            Some((_, file)) => self.environment.disk.sync(&file),
            None => Ok(()),
        }
    }

    /// Removes what an empty store, or a bootstrap before this one, left.
    fn remove_leftovers(&self) -> std::io::Result<()> {
        let (paths, disk) = (&self.paths, &*self.environment.disk);
        let mut leftovers: Vec<PathBuf> =
            paths::numbered_files(&paths.commitlog(), disk)?.into_iter().map(|(_, path)| path).collect();
        leftovers.extend([
            paths.identity(),
            paths.snapshot(),
            paths.snapshot_before(),
            paths.snapshot().with_extension("new"),
            paths.idempotence_keys(),
            paths.epochs(),
            paths.watermarks(),
            paths.checkpoint(),
            paths.abort(),
        ]);
        for path in &leftovers {
            if disk.exists(path)? {
                disk.remove(path)?;
            }
        }
        // Made of a log that is gone; begun anew until it is.
        for tree in [paths.consumequeue(), paths.index()] {
            if disk.exists(&tree)? {
                disk.remove_tree(&tree)?;
            }
        }
        for directory in [paths.commitlog(), paths.lakemq(), paths.root().to_owned()] {
            disk.sync_directory(&directory)?;
        }
        Ok(())
    }
}
