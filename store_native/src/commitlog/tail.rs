//! What lies behind the log's end: erased durably before anything is written there.
//!
//! Invariants: from before the first zero until after the sync a mark stands on the disk; where one is found, all
//! zeros are written again.

use super::CommitLog;
use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::paths::{self, StorePaths};

/// Removes the files behind the one that holds `end`, and erases the rest of that one. Returns the bytes that were
/// not zero.
///
/// A sync that failed may have left the zeros in memory only, and the tail on the disk: the next start would
/// see zeros and a later one, after a power cut, the tail. So a mark stands from before the first zero until
/// after the sync, and where it is found, all zeros are written again.
///
/// # Errors
/// Any I/O error; it has to be done again then.
pub fn erase_behind(log: &CommitLog, paths: &StorePaths, end: i64, disk: &dyn Disk) -> Result<u64> {
    log.remove_behind(end, disk)?;
    let Some(file) = log.file_at(end) else { return Ok(0) };
    let (mark, context) = (paths.erasing(), |e| StoreError::io("erasing the log's tail", e));
    let again = disk.exists(&mark).map_err(context)?;
    if !again {
        paths::replace_file(&mark, b"", disk).map_err(context)?;
    }
    let from = (end - file.base) as usize;
    let again_until = if again { file.file.len() } else { 0 };
    let erased = file.file.erase_from(from, again_until, disk)?;
    // Should its removal be lost in a power cut, the next start erases once more.
    disk.remove(&mark).map_err(context)?;
    Ok(erased)
}
