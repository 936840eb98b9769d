//! A disk that refuses some of what is asked of it, with the error that it is told.

use std::fs::{DirEntry, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lakemq_store::environment::{Disk, RealDisk};

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    List,
    Metadata,
    Open,
    Read,
    ReadAt,
    Remove,
    Rename,
    Sync,
    SyncDirectory,
    SyncFileSystem,
    Write,
}

/// The real disk, but for what it was told to refuse.
#[derive(Default)]
pub struct RefusingDisk {
    /// What is refused, how, and how many times yet.
    refused: Mutex<Option<(Call, ErrorKind, usize)>>,
    /// Bytes that a read gives at most; 0 for all that are asked for.
    pub at_once: AtomicUsize,
    /// (offset, length) of what was to begin its way to the disk, and of each write.
    pub begun: Mutex<Vec<(u64, u64)>>,
    pub written: Mutex<Vec<(u64, usize)>>,
    pub directories: AtomicU64,
}

impl RefusingDisk {
    /// Refuses the next `times` calls of this kind, and nothing that it was told to before.
    pub fn refuse(&self, call: Call, error: ErrorKind, times: usize) {
        *self.refused.lock().expect("no panic") = Some((call, error, times));
    }

    /// Refuses nothing any more.
    pub fn heal(&self) {
        *self.refused.lock().expect("no panic") = None;
    }

    fn asked(&self, of: Call) -> io::Result<()> {
        let mut refused = self.refused.lock().expect("no panic");
        match &mut *refused {
            Some((call, error, times)) if *call == of && *times > 0 => {
                *times -= 1;
                Err(io::Error::from(*error))
            }
            _ => Ok(()),
        }
    }
}

impl Disk for RefusingDisk {
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        self.asked(Call::Open)?;
        RealDisk.open(options, path)
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<File> {
        self.asked(Call::Open)?;
        RealDisk.open_for_reading(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.asked(Call::Read)?;
        RealDisk.read(path)
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.asked(Call::ReadAt)?;
        let count = match self.at_once.load(Ordering::SeqCst) {
            0 => bytes.len(),
            most => most.min(bytes.len()),
        };
        RealDisk.read_at(file, &mut bytes[..count], offset)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        self.asked(Call::List)?;
        RealDisk.list(directory)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.asked(Call::Metadata)?;
        RealDisk.metadata(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.asked(Call::Remove)?;
        RealDisk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.asked(Call::Rename)?;
        RealDisk.rename(from, to)
    }

    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.asked(Call::Write)?;
        self.written
            .lock()
            .expect("no panic")
            .push((offset, bytes.len()));
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.asked(Call::Sync)?;
        RealDisk.sync(file)
    }

    fn begin_writeback(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        self.begun.lock().expect("no panic").push((offset, length));
        RealDisk.begin_writeback(file, offset, length)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.asked(Call::SyncDirectory)?;
        self.directories.fetch_add(1, Ordering::SeqCst);
        RealDisk.sync_directory(directory)
    }

    fn sync_file_system(&self, any: &File) -> io::Result<()> {
        self.asked(Call::SyncFileSystem)?;
        RealDisk.sync_file_system(any)
    }
}
