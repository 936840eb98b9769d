//! The flusher: brings what is appended to the disk.
//!
//! Invariants: `flushed` moves only over bytes that an fdatasync brought to the disk, with the names of their
//! files, and always to the end of a request; a sync that failed is final, and so is a file that its name does not
//! lead to behind the sync.
//! Threads: one of its own. It confirms and, for a small flush, dispatches at once, so that who waits is woken once.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use crate::commitlog::CommitLog;
use crate::confirmation::Confirmation;
use crate::dispatch::Dispatch;
use crate::environment::{Environment, Stopwatch};
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::lifecycle::Lifecycle;
use crate::lock::lock;
use crate::options::{Flush, Options};
use crate::watermarks::Watermarks;

/// With nothing to do it looks up this often, in case it has to stop.
const IDLE: Duration = Duration::from_millis(500);
/// How soon it is tried again to get a descriptor when the process has none left.
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(50);

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct FlushCounters {
    pub flushes: AtomicU64,
    pub micros: AtomicU64,
}

/// Owns the flushed mark; see the module.
pub struct Flusher {
    pause: Duration,
    environment: Environment,
    log: Arc<CommitLog>,
    marks: Arc<Watermarks>,
    confirmation: Arc<Confirmation>,
    dispatch: Arc<Dispatch>,
    lifecycle: Arc<Lifecycle>,
    /// Held over a flush; whoever cuts the log holds it too.
    flushing: Mutex<()>,
    pub counters: FlushCounters,
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Flusher {
    pub fn new(
        options: &Options,
        environment: Environment,
        log: Arc<CommitLog>,
        marks: Arc<Watermarks>,
        confirmation: Arc<Confirmation>,
        dispatch: Arc<Dispatch>,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        let pause = match options.flush {
            Flush::Sync => IDLE,
            Flush::Async => Duration::from_millis(options.flush_interval_ms),
        };
        Self {
            pause,
            environment,
            log,
            marks,
            confirmation,
            dispatch,
            lifecycle,
            flushing: Mutex::default(),
            counters: FlushCounters::default(),
        }
    }

    /// Flushes until the store stops; then once more.
    pub fn run(&self) {
        loop {
            let stopping = self.lifecycle.stopping();
            match self.flush_if_behind() {
                Err(_) => return,
                Ok(false) if stopping => return,
                Ok(_) => {}
            }
            if !stopping {
                self.lifecycle.flush_wanted.wait(self.pause);
            }
        }
    }

    /// Brings what is appended to the disk, if anything is not there; whether anything was.
    ///
    /// # Errors
    /// That of the disk; the store is poisoned then.
    pub fn flush_if_behind(&self) -> Result<bool> {
        let behind = self.marks.flushed() < self.marks.appended();
        if behind {
            self.flush_once()?;
        }
        Ok(behind)
    }

    /// Holds the flushed mark where it is until what this returns is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.flushing)
    }

    /// Brings everything appended so far to the disk. One call serves every append before it.
    fn flush_once(&self) -> Result<()> {
        let flushing = lock(&self.flushing);
        self.environment.faults.pass(Point::FlushBefore);
        let (from, to) = (self.marks.flushed(), self.marks.appended());
        let started = Stopwatch::start();
        if let Err(error) = self.sync_log(from, to) {
            self.lifecycle.poison(format!("flushing the commit log: {error}"));
            return Err(StoreError::io("flushing the commit log", error));
        }
        // Synced into a file that nobody finds again is lost.
        if let Some(path) = self.log.astray(from, to, &*self.environment.disk) {
            self.lifecycle.poison_astray(&path);
            return self.lifecycle.check_writable();
        }
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.environment.faults.pass(Point::FlushAfter);
        self.marks.set_flushed(to);
        drop(flushing);
        self.confirmation.advance();
        if !self.dispatch.dispatch_small() {
            self.lifecycle.progress.moved();
        }
        Ok(())
    }

    /// Syncs the files that hold `[from, to)`, and the name of each that begins there.
    fn sync_log(&self, from: i64, to: i64) -> std::io::Result<()> {
        let disk = &*self.environment.disk;
        for file in self.log.files() {
            if file.base < to && file.end() > from {
                file.file.sync(disk)?;
                if file.base >= from {
                    self.sync_names()?;
                }
            }
        }
        Ok(())
    }

    /// Syncs the names in the log's directory. Without a free descriptor nothing was tried yet, so nothing has
    /// failed: it waits for one, and those who wait for this flush with it.
    fn sync_names(&self) -> std::io::Result<()> {
        loop {
            match self.log.sync_names(&*self.environment.disk) {
                Err(error) if is_out_of_descriptors(&error) && !self.lifecycle.stopping() => {
                    self.lifecycle.progress.wait_until(DESCRIPTOR_RETRY, || self.lifecycle.stopping());
                }
                outcome => return outcome,
            }
        }
    }
}
