//! The index: from `topic#key` to the records that may carry the key.
//!
//! Invariants: files are named by the store time of their first entry, and names grow, so that a rebuilt index has
//! the order of the one it replaces. A hit is a hash's: whether the record carries the key is the reader's to
//! check.
//! Threads: the one that dispatches puts, checkpoints sync, expiry removes, any finds. Readers in other processes
//! map the files for themselves.

mod file;

use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

pub use file::{Header, IndexFile, Shape, key_hash};

use crate::environment::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::paths;

/// The files of an index, oldest first.
#[derive(Debug)]
pub struct Index {
    directory: PathBuf,
    shape: Shape,
    owned: bool,
    files: RwLock<Vec<Arc<IndexFile>>>,
    /// Files were made or removed since their directory was synced.
    names_changed: AtomicBool,
}

/// How many keys of the record at `physical_offset`, the newest that is in, the files hold.
fn keys_in(files: &[Arc<IndexFile>], physical_offset: i64) -> usize {
    let mut known = 0;
    for (of, all) in files.iter().rev().map(|f| f.last_of(physical_offset)) {
        known += of;
        if of < all {
            break;
        }
    }
    known
}

/// What a snapshot remembers of the index: the state of each file at its log offset.
pub type IndexState = Vec<(String, Header)>;

impl Index {
    /// Opens the files found. A file that cannot be used is passed over by a reader; the owner's recovery
    /// decides what to rebuild.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn open(directory: &Path, shape: Shape, owned: bool, disk: &dyn Disk) -> Result<Self> {
        if owned {
            paths::create_directories(directory, disk)
                .map_err(|e| StoreError::io("creating the index", e))?;
        }
        let mut files = Vec::new();
        for path in Self::list(directory, disk)? {
            let opened = if owned {
                IndexFile::open_owned(&path, shape, disk)
            } else {
                IndexFile::open_for_reading(&path, shape)
            };
            match opened {
                Ok(file) => files.push(Arc::new(file)),
                Err(StoreError::Corrupt { .. }) if !owned => {}
                Err(StoreError::Corrupt { .. }) => {
                    disk.remove(&path).map_err(|e| StoreError::io("removing a damaged index file", e))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            shape,
            owned,
            files: RwLock::new(files),
            names_changed: AtomicBool::new(true),
        })
    }

    fn list(directory: &Path, disk: &dyn Disk) -> Result<Vec<PathBuf>> {
        let entries = paths::list_if_there(directory, disk)
            .map_err(|error| StoreError::io("listing the index", error))?;
        let mut out: Vec<PathBuf> = entries
            .into_iter()
            .map(|entry| entry.path())
            .filter(|p| {
                p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
            })
            .collect();
        out.sort();
        Ok(out)
    }

    fn read(&self) -> Vec<Arc<IndexFile>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes up files made since, also where they replaced others (readers).
    ///
    /// # Errors
    /// Any I/O error.
    pub fn refresh(&self) -> Result<()> {
        let known = self.read();
        let mut next = Vec::new();
        for path in Self::list(&self.directory, &RealDisk)? {
            if let Some(file) = known.iter().find(|f| f.path() == path && f.is_current()) {
                next.push(Arc::clone(file));
            } else if let Ok(file) = IndexFile::open_for_reading(&path, self.shape) {
                next.push(Arc::new(file));
            }
        }
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Indexes one record's keys. A record that is in already changes nothing; of one that is in with some of
    /// its keys (the disk was full, say) the others are added.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; the record can be put again.
    pub fn put(&self, record: &crate::message::RecordView<'_>, disk: &dyn Disk) -> Result<()> {
        debug_assert!(self.owned);
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let newest = files.iter().rev().map(|f| f.end_physical_offset()).find(|end| *end >= 0).unwrap_or(-1);
        let known = match record.physical_offset.cmp(&newest) {
            std::cmp::Ordering::Less => return Ok(()),
            std::cmp::Ordering::Equal => keys_in(&files, newest),
            std::cmp::Ordering::Greater => 0,
        };
        let mut current = files.last().cloned();
        drop(files);
        let (mut unique, mut keys) = (None, None);
        for (name, value) in crate::message::properties::iter(record.properties) {
            match name {
                crate::message::properties::UNIQ_KEY => unique = Some(value),
                crate::message::properties::KEYS => keys = Some(value),
                _ => {}
            }
        }
        let words = keys.into_iter().flat_map(str::split_ascii_whitespace);
        for key in unique.into_iter().filter(|k| !k.is_empty()).chain(words).skip(known) {
            let file = match current.take() {
                Some(file) if !file.is_full() => file,
                full => self.roll(full.as_deref(), record.store_timestamp, disk)?,
            };
            file.put(key_hash(record.topic, key), record.physical_offset, record.store_timestamp, disk)?;
            current = Some(file);
        }
        Ok(())
    }

    fn roll(&self, before: Option<&IndexFile>, timestamp: i64, disk: &dyn Disk) -> Result<Arc<IndexFile>> {
        // Names grow, also where the clock was set back: the order of the files is the order of their names.
        let before = before.and_then(|f| file::time_of_name(f.path().file_name()?.to_str()?));
        let name_time = before.map_or(timestamp, |before| timestamp.max(before + 1));
        let path = self.directory.join(file::file_name(name_time));
        let made = Arc::new(IndexFile::open_owned(&path, self.shape, disk)?);
        self.names_changed.store(true, Ordering::Release);
        self.files.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&made));
        Ok(made)
    }

    /// Physical offsets of records that may carry `key`, newest first, at most `limit`, stored in
    /// `[begin, end]` (to the second).
    pub fn find(&self, topic: &str, key: &str, begin: i64, end: i64, limit: usize) -> Vec<i64> {
        let hash = key_hash(topic, key);
        let mut out = Vec::new();
        for file in self.read().iter().rev() {
            file.find(hash, begin, end, limit, &mut out);
            if out.len() >= limit {
                break;
            }
        }
        out
    }

    /// As [`Index::find`], of any of the hashes: each file in the time asked for is looked at once for each.
    pub fn find_any(
        &self,
        hashes: impl Iterator<Item = i32> + Clone,
        begin: i64,
        end: i64,
        limit: usize,
    ) -> Vec<i64> {
        let mut out = Vec::new();
        for file in self.read().iter().rev() {
            for hash in hashes.clone() {
                if out.len() >= limit {
                    return out;
                }
                file.find(hash, begin, end, limit, &mut out);
            }
        }
        out
    }

    /// The state to remember in a snapshot.
    pub fn state(&self) -> IndexState {
        self.read().iter().map(|f| (f.name(), f.header())).collect()
    }

    /// Takes the index back to `state`, whatever was written behind it. Files whose records have expired may
    /// be missing. Where another one is missing or damaged, it and those behind it are given up, and the log offset
    /// is given from which records must be indexed again. [`Index::remove_given_up`] deletes them, once no snapshot on
    /// the disk counts on them any more: what is indexed again goes to files of the same names.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn restore(
        &self,
        state: &IndexState,
        trust_entries: bool,
        log_min: i64,
        disk: &dyn Disk,
    ) -> Result<Option<i64>> {
        let files = self.read();
        let mut kept: Vec<Arc<IndexFile>> = Vec::new();
        let mut again = None;
        for (at, (name, header)) in state.iter().enumerate() {
            let found = files.iter().find(|f| f.name() == *name && f.header().count >= header.count);
            match found {
                Some(file) => {
                    // A full file is never written again: only the last can have gone on.
                    let last = at + 1 == state.len();
                    if file.header() != *header || last && !trust_entries {
                        file.restore(header, disk)?;
                    }
                    kept.push(Arc::clone(file));
                }
                None if header.count > 1 && header.end_physical_offset < log_min && kept.is_empty() => {}
                None => {
                    again = Some(kept.last().map_or(log_min, |f| f.end_physical_offset().max(log_min)));
                    break;
                }
            }
        }
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(again)
    }

    /// Gives up every file, to build the index anew.
    pub fn clear(&self) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Deletes the files that were given up, durably.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn remove_given_up(&self, disk: &dyn Disk) -> Result<()> {
        let kept = self.read();
        let mut removed = false;
        for path in Self::list(&self.directory, disk)? {
            if !kept.iter().any(|file| file.path() == path) {
                disk.remove(&path).map_err(|e| StoreError::io("removing an index file", e))?;
                removed = true;
            }
        }
        if removed { self.sync_names(disk) } else { Ok(()) }
    }

    fn sync_names(&self, disk: &dyn Disk) -> Result<()> {
        self.names_changed.store(false, Ordering::Release);
        disk.sync_directory(&self.directory).map_err(|e| {
            self.names_changed.store(true, Ordering::Release);
            StoreError::io("syncing the index's directory", e)
        })
    }

    /// Forgets files whose records have all expired; the caller deletes them.
    pub fn expire(&self, log_min: i64) -> Vec<PathBuf> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let keep = files
            .iter()
            .take(files.len().saturating_sub(1))
            .take_while(|f| f.end_physical_offset() < log_min)
            .count();
        files.drain(..keep).map(|file| file.path().to_owned()).collect()
    }

    /// As [`IndexFile::rewrite_unsynced`], for all files. The caller holds the dispatch lock.
    ///
    /// # Errors
    /// The disk's error.
    pub fn rewrite_unsynced(&self, disk: &dyn Disk) -> Result<()> {
        self.read().iter().try_for_each(|file| file.rewrite_unsynced(disk))
    }

    /// Syncs what was written, and the names of files made since.
    ///
    /// # Errors
    /// The disk's error.
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        for file in self.read() {
            file.sync(disk)?;
        }
        if self.names_changed.load(Ordering::Acquire) { self.sync_names(disk) } else { Ok(()) }
    }
}
