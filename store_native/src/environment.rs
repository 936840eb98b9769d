//! What the store takes from outside: disk, clock, random bytes, the operator's events, and (in tests) faults.
//!
//! Invariants: they come in through [`Environment`], so that a test injects a failing fsync, a full disk or a crash
//! at a named point instead of patching code. No other module asks the machine for the time.
//! Threads: all of them share one; what it holds is `Sync`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Result, StoreError};
use crate::events::Events;
use crate::faults::FaultPoints;

/// The calls that change what is on the disk, or decide whether it is there.
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
        crate::sys::begin_writeback(file, offset, length)
    }

    /// Used share of the file system that holds `path`, 0 to 1.
    ///
    /// # Errors
    /// When the file system does not say.
    fn used_ratio(&self, path: &Path) -> io::Result<f64> {
        crate::sys::disk_used_ratio(path)
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
        crate::sys::sync_file_system(any)
    }
}

/// The machine's disk.
#[derive(Debug, Default)]
pub struct RealDisk;

#[allow(clippy::disallowed_methods, reason = "this is where the disk is asked")]
impl Disk for RealDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        crate::sys::allocate(file.as_raw_fd(), offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The time of day, and the time that passes.
pub trait Clock: Send + Sync {
    /// Epoch milliseconds, as the machine believes them now: it may jump either way.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment, at the pace of time: waiting goes by it. A clock whose time of day
    /// never jumps need not tell the two apart.
    fn monotonic_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "this is where the machine is asked")]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }

    fn monotonic_ms(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as i64
    }
}

/// Measures how long something takes, for figures and for threads that wait: never for what a turn of work does or
/// stores, which goes by [`Environment::timer`], so that it is done alike when it is done again.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    #[allow(clippy::disallowed_methods, reason = "this is where the machine is asked")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What has passed since.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Measures the time that passes by the environment's clock.
#[derive(Clone, Copy)]
pub struct Timer<'e> {
    clock: &'e dyn Clock,
    since: i64,
}

impl Timer<'_> {
    /// What has passed since it was started.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis((self.clock.monotonic_ms() - self.since).max(0) as u64)
    }
}

/// Everything from outside, in one value.
#[derive(Clone)]
pub struct Environment {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub faults: Arc<FaultPoints>,
    /// What the operator should know.
    pub events: Arc<Events>,
    /// Random bytes, new at each opening: the prefix of message ids.
    pub random: [u8; 16],
}

impl Environment {
    /// Begins to measure.
    pub fn timer(&self) -> Timer<'_> {
        Timer { clock: &*self.clock, since: self.clock.monotonic_ms() }
    }

    /// The real machine.
    ///
    /// # Errors
    /// When the system has no randomness to give, or `faults` is not readable.
    pub fn real(faults: &str) -> Result<Self> {
        let mut random = [0u8; 16];
        let source = File::open("/dev/urandom");
        source
            .and_then(|mut f| io::Read::read_exact(&mut f, &mut random))
            .map_err(|e| StoreError::io("reading random bytes", e))?;
        Ok(Self {
            disk: Arc::new(RealDisk),
            clock: Arc::new(SystemClock),
            faults: Arc::new(FaultPoints::parse(faults)?),
            events: Arc::default(),
            random,
        })
    }
}
