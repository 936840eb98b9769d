//! RocketMQ's files of a queue: `<topic>/<queue>/<byte offset>`, each of full length, sparse.
//!
//! Invariants: to the owner, a file of another length counts as none; blanks stand in front of a first entry before
//! the file gets its length. Entries are written with `pwrite`, which says where no space is left, and read with
//! `pread`: no file is mapped, none can be torn from under a reader.
//! Threads: the dispatcher writes, checkpoints sync, expiry removes, any reads. Readers in other processes open the
//! files for themselves.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry::{ENTRY_BYTES, Entry};
use super::handles::Handles;
use super::store::{QueueKey, QueueStore};
use crate::environment::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::message::MAX_FOREIGN_QUEUE_ID;
use crate::paths;
use crate::sys::has_data_behind;

const ENTRY: i64 = ENTRY_BYTES as i64;
/// A directory of a higher number is no queue: memory is kept by number.
const MAX_QUEUE_ID: u32 = MAX_FOREIGN_QUEUE_ID as u32;

/// The files below one directory.
pub struct QueueFiles {
    directory: PathBuf,
    /// Length of each file in bytes.
    file_bytes: i64,
    disk: Arc<dyn Disk>,
    /// Where files go that are to be deleted; `None` for a reader, which changes nothing.
    trash: Option<PathBuf>,
    handles: Handles,
    removed: AtomicU64,
}

impl std::fmt::Debug for QueueFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueFiles").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Bytes that a disk writes as a whole.
const SECTOR: u64 = 512;

impl QueueFiles {
    /// For the owner. `trash` is a directory of the same file system.
    pub fn owned(directory: &Path, file_bytes: u64, trash: &Path, disk: Arc<dyn Disk>) -> Self {
        Self { disk, trash: Some(trash.to_owned()), ..Self::for_reading(directory, file_bytes) }
    }

    /// For a reader beside the owner.
    pub fn for_reading(directory: &Path, file_bytes: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            file_bytes: (file_bytes as i64).max(ENTRY),
            disk: Arc::new(RealDisk),
            trash: None,
            handles: Handles::new(),
            removed: AtomicU64::new(0),
        }
    }

    /// The owner's disk, to change something there.
    fn disk(&self) -> Result<&dyn Disk> {
        self.trash.as_ref().map(|_| &*self.disk).ok_or_else(StoreError::closed)
    }

    fn queue_directory(&self, queue: &QueueKey) -> PathBuf {
        self.directory.join(&*queue.topic).join(queue.queue_id.to_string())
    }

    fn path(&self, queue: &QueueKey, base: i64) -> PathBuf {
        self.queue_directory(queue).join(paths::file_name(base))
    }

    /// The byte offset of the file that holds `offset`, and the place in it.
    fn place(&self, offset: i64) -> (i64, u64) {
        let at = offset.saturating_mul(ENTRY);
        (at - at.rem_euclid(self.file_bytes), at.rem_euclid(self.file_bytes) as u64)
    }

    fn files(&self, queue: &QueueKey) -> Result<Vec<(i64, PathBuf)>> {
        let directory = self.queue_directory(queue);
        paths::numbered_files(&directory, &*self.disk)
            .map_err(|e| StoreError::io(format!("listing {}", directory.display()), e))
    }

    /// Length of a file; 0 for one that is missing.
    fn length(&self, path: &Path) -> Result<u64> {
        match self.disk.metadata(path) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(StoreError::io(format!("reading {}", path.display()), error)),
        }
    }

    /// The file as it is, or `None`. To the owner, one of a wrong length is none.
    fn file(&self, queue: &QueueKey, base: i64) -> Result<Option<Arc<File>>> {
        let path = self.path(queue, base);
        let owned = self.trash.is_some();
        let found = || match owned {
            true => self.disk.open(OpenOptions::new().read(true).write(true), &path),
            false => self.disk.open_for_reading(&path),
        };
        let open = || match found() {
            Ok(file) if owned && file.metadata()?.len() != self.file_bytes as u64 => Ok(None),
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        self.handles
            .get((queue.serial, base), open)
            .map_err(|e| StoreError::io(format!("opening {}", path.display()), e))
    }

    /// The file, made when there is none. `first` is the place its first entry goes to.
    fn file_to_write(&self, queue: &QueueKey, base: i64, first: u64) -> Result<Arc<File>> {
        if let Some(file) = self.file(queue, base)? {
            return Ok(file);
        }
        let path = self.path(queue, base);
        let disk = self.disk()?;
        let make = || {
            paths::create_directories(&self.queue_directory(queue), disk)?;
            let file =
                disk.open(OpenOptions::new().read(true).write(true).create(true).truncate(false), &path)?;
            // Blanks first: a file that has its length is taken for a whole one.
            let entry = ENTRY_BYTES as u64;
            let stands = file.metadata()?.len() / entry;
            let blanks = Entry::BLANK.encode().repeat((first / entry).saturating_sub(stands) as usize);
            if !blanks.is_empty() {
                disk.write(&file, stands * entry, &blanks)?;
            }
            disk.set_len(&file, self.file_bytes as u64)?;
            Ok(Some(file))
        };
        let context = |e| StoreError::io(format!("making {}", path.display()), e);
        self.handles.get((queue.serial, base), make).map_err(context)?.ok_or_else(StoreError::closed)
    }

    fn remove_file(&self, queue: &QueueKey, base: i64) -> Result<()> {
        self.handles.close((queue.serial, base));
        let path = self.path(queue, base);
        match self.disk()?.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io(format!("removing {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Clears a file from `place` on and gives it its length. A file that is right is left alone.
    fn clear_file(&self, path: &Path, file: &File, place: u64) -> Result<()> {
        let context = |e| StoreError::io(format!("clearing {}", path.display()), e);
        let length = file.metadata().map_err(context)?.len();
        if length == self.file_bytes as u64 {
            let mut near = [0u8; 4096];
            let count = self.disk.read_at(file, &mut near, place).map_err(context)?;
            let behind = place + count as u64;
            let clear = near.iter().take(count).all(|b| *b == 0);
            if clear && (behind >= length || !has_data_behind(file, behind).map_err(context)?) {
                return Ok(());
            }
        }
        let disk = self.disk()?;
        disk.set_len(file, place).and_then(|()| disk.set_len(file, self.file_bytes as u64)).map_err(context)
    }
}

impl QueueStore for QueueFiles {
    fn write(&self, queue: &QueueKey, offset: i64, entries: &[u8]) -> Result<()> {
        let (mut offset, mut left) = (offset, entries);
        while !left.is_empty() {
            let (base, place) = self.place(offset);
            let room = (self.file_bytes as u64 - place) as usize;
            let (now, later) = left.split_at_checked(room).unwrap_or((left, &[]));
            let file = self.file_to_write(queue, base, place)?;
            self.disk()?
                .write(&file, place, now)
                .map_err(|e| StoreError::io(format!("writing {}", self.path(queue, base).display()), e))?;
            offset += (now.len() / ENTRY_BYTES) as i64;
            left = later;
        }
        Ok(())
    }

    fn begins_storage(&self, from: i64, to: i64) -> bool {
        from < to && (self.place(from).1 == 0 || self.place(from).0 != self.place(to - 1).0)
    }

    fn reserve(&self, queue: &QueueKey, from: i64, to: i64) -> Result<()> {
        let mut offset = from;
        while offset < to {
            let (base, place) = self.place(offset);
            self.file_to_write(queue, base, place)?;
            offset = (base + self.file_bytes) / ENTRY;
        }
        Ok(())
    }

    fn read(&self, queue: &QueueKey, offset: i64, out: &mut [u8]) -> Result<usize> {
        if offset < 0 {
            return Ok(0);
        }
        let (base, place) = self.place(offset);
        let Some(file) = self.file(queue, base)? else { return Ok(0) };
        let room = ((self.file_bytes as u64 - place) as usize).min(out.len());
        let out = out.get_mut(..room).unwrap_or_default();
        let mut count = 0;
        while let Some(rest) = out.get_mut(count..).filter(|r| !r.is_empty()) {
            match self.disk.read_at(&file, rest, place + count as u64) {
                Ok(0) => break,
                Ok(read) => count += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let path = self.path(queue, base);
                    return Err(StoreError::io(format!("reading {}", path.display()), error));
                }
            }
        }
        Ok(count / ENTRY_BYTES)
    }

    fn extent(&self, queue: &QueueKey) -> Result<Option<(i64, i64)>> {
        let files = self.files(queue)?;
        let (Some((first, _)), Some((last, path))) = (files.first(), files.last()) else { return Ok(None) };
        let length = self.length(path)?.min(self.file_bytes as u64) as i64;
        Ok(Some((first / ENTRY, (last + length) / ENTRY)))
    }

    fn intact_until(&self, queue: &QueueKey, from: i64, to: i64) -> Result<i64> {
        let mut offset = from;
        while offset < to {
            let (base, _) = self.place(offset);
            let length = self.length(&self.path(queue, base))?;
            if length != self.file_bytes as u64 {
                return Ok(offset);
            }
            offset = (base + self.file_bytes) / ENTRY;
        }
        Ok(to)
    }

    fn can_be_torn(&self, offset: i64) -> bool {
        let (_, place) = self.place(offset);
        place / SECTOR != (place + ENTRY as u64 - 1) / SECTOR
    }

    fn truncate(&self, queue: &QueueKey, offset: i64) -> Result<()> {
        let (base, place) = self.place(offset);
        for (found, path) in self.files(queue)?.into_iter().filter(|(found, _)| *found >= base) {
            let context = |e| StoreError::io(format!("clearing {}", path.display()), e);
            let file =
                self.disk()?.open(OpenOptions::new().read(true).write(true), &path).map_err(context)?;
            let from = if found == base { place } else { 0 };
            self.clear_file(&path, &file, from)?;
            if from == 0 {
                // A file of this name is made again when entries come so far. A power cut that takes both back
                // must not bring the old entries under what was synced since.
                self.disk()?.sync(&file).map_err(context)?;
                self.remove_file(queue, found)?;
            }
        }
        Ok(())
    }

    fn expire(&self, queue: &QueueKey, offset: i64) -> Result<usize> {
        let (keep, _) = self.place(offset);
        let mut gone = 0;
        for (base, _) in self.files(queue)? {
            if base < keep {
                self.remove_file(queue, base)?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    fn sync(&self, queue: &QueueKey, from: i64, to: i64) -> Result<()> {
        let mut offset = from;
        while offset < to {
            let (base, _) = self.place(offset);
            if let Some(file) = self.file(queue, base)? {
                self.disk()?.sync(&file).map_err(|e| {
                    StoreError::io(format!("syncing {}", self.path(queue, base).display()), e)
                })?;
            }
            offset = (base + self.file_bytes) / ENTRY;
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        let context = |e| StoreError::io("syncing the consume queues", e);
        match self.disk.open_for_reading(&self.directory) {
            Ok(directory) => self.disk()?.sync_file_system(&directory).map_err(context),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(context(error)),
        }
    }

    fn remove_topic(&self, topic: &str) -> Result<()> {
        let context = |e| StoreError::io(format!("removing the queues of {topic}"), e);
        self.handles.clear();
        let Some(trash) = &self.trash else { return Err(StoreError::closed()) };
        let disk = &*self.disk;
        paths::create_directories(trash, disk).map_err(context)?;
        loop {
            let number = self.removed.fetch_add(1, Ordering::Relaxed);
            match disk.rename(&self.directory.join(topic), &trash.join(number.to_string())) {
                Ok(()) => return disk.sync_directory(&self.directory).map_err(context),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // A try before may have come so far: a power cut would bring it back.
                    return match disk.sync_directory(&self.directory) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                        outcome => outcome.map_err(context),
                    };
                }
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(context(error)),
            }
        }
    }

    fn sweep(&self) {
        let Some(trash) = &self.trash else { return };
        let mut left: Vec<_> =
            self.disk.list(trash).into_iter().flatten().map(|entry| entry.path()).collect();
        left.sort_unstable();
        // The directory itself stays: a topic may be on its way into it.
        for path in left {
            // What cannot be deleted now is tried again by the next sweep.
            let _ = self.disk.remove_tree(&path);
        }
    }

    fn topics(&self) -> Result<Vec<String>> {
        subdirectories(&self.directory, &*self.disk)
    }

    fn queues(&self, topic: &str) -> Result<Vec<u32>> {
        let names = subdirectories(&self.directory.join(topic), &*self.disk)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).filter(|id| *id <= MAX_QUEUE_ID).collect())
    }

    fn let_go(&self) {
        self.handles.clear();
    }

    fn open_files(&self) -> usize {
        self.handles.len()
    }
}

/// Length of the first queue file found below `directory`: that of all files of its store.
///
/// # Errors
/// Any I/O error.
pub fn found_file_bytes(directory: &Path, disk: &dyn Disk) -> Result<Option<u64>> {
    for topic in subdirectories(directory, disk)? {
        let topic = directory.join(topic);
        for queue in subdirectories(&topic, disk)? {
            let found = paths::found_length(&topic.join(queue), disk)
                .map_err(|e| StoreError::io("reading the consume queues", e))?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

fn subdirectories(directory: &Path, disk: &dyn Disk) -> Result<Vec<String>> {
    let context = |e| StoreError::io(format!("listing {}", directory.display()), e);
    let mut out = Vec::new();
    for entry in paths::list_if_there(directory, disk).map_err(context)? {
        if entry.file_type().map_err(context)?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            out.push(name);
        }
    }
    out.sort_unstable();
    Ok(out)
}
