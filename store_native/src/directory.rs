//! The directory as a whole: who owns it, and whether it was closed.
//!
//! Invariants: one process owns it at a time; the abort file stands while it does. One that is being made from a
//! master's (`bootstrap.rs`) is no store yet.

use std::fs::{File, OpenOptions};

use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::paths::StorePaths;
use crate::sys;

/// That the directory is this process's; given back with it.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
    /// The directory itself, where its file system can lock one: the file may be removed by who takes it for stale.
    _directory: Option<File>,
}

/// Takes the directory.
///
/// # Errors
/// `STORE_LOCKED`; any I/O error.
pub fn take_lock(paths: &StorePaths, disk: &dyn Disk) -> Result<DirectoryLock> {
    let context = |e| StoreError::io("locking the store", e);
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let file = disk.open(&options, &paths.lock()).map_err(context)?;
    let directory = disk.open_for_reading(paths.root()).ok();
    let free = directory.as_ref().is_none_or(|it| sys::try_flock(it).unwrap_or(true));
    if !free || !sys::try_lock(&file).map_err(context)? {
        return Err(StoreError::Unavailable {
            code: "STORE_LOCKED",
            detail: format!("{} belongs to another process", paths.root().display()),
        });
    }
    disk.write(&file, 0, b"lock").map_err(context)?;
    Ok(DirectoryLock { _file: file, _directory: directory })
}

/// Says, durably, that the directory is in use, or was not closed.
///
/// # Errors
/// Any I/O error.
pub fn write_abort(paths: &StorePaths, disk: &dyn Disk) -> Result<()> {
    let context = |e| StoreError::io("writing the abort file", e);
    let options = OpenOptions::new().write(true).create(true).truncate(true).clone();
    let file = disk.open(&options, &paths.abort()).map_err(context)?;
    disk.write(&file, 0, std::process::id().to_string().as_bytes()).map_err(context)?;
    disk.sync(&file).map_err(context)?;
    disk.sync_directory(paths.root()).map_err(context)
}

/// Refuses a directory in which a bootstrap was begun and not finished.
///
/// # Errors
/// `DATA_CORRUPT`; any I/O error: what is not known is refused.
pub fn refuse_unfinished(paths: &StorePaths, disk: &dyn Disk) -> Result<()> {
    let begun = disk.exists(&paths.bootstrap());
    if begun.map_err(|e| StoreError::io("looking for an unfinished store", e))? {
        return Err(StoreError::corrupt(format!(
            "{} was being made from its master's store: start it as a slave, which begins that anew",
            paths.root().display()
        )));
    }
    Ok(())
}
