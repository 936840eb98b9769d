//! Whether the store runs, and who is woken for what: shared by all its threads, owned by none.
//!
//! Invariants: a store that is poisoned stays so until it is opened again, and one that stops never runs again.
//! Threads: every one of the store's, and those that wait for a watermark.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Result, StoreError};
use crate::notify::{Progress, Signal};

/// See the module.
#[derive(Debug)]
pub struct Lifecycle {
    stopping: AtomicBool,
    poisoned: OnceLock<String>,
    /// Cuts of the log: who waits for an offset of before waits for nothing.
    cuts: AtomicU64,
    /// A watermark moved.
    pub progress: Progress,
    /// Something was appended that somebody waits for.
    pub flush_wanted: Signal,
    /// Delayed messages were stored or expired.
    pub schedule_changed: Signal,
    /// The next log file is wanted, topics changed, or dispatching failed.
    pub maintenance_wanted: Signal,
}

impl Lifecycle {
    /// A store that runs.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> Result<Self> {
        Ok(Self {
            stopping: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            cuts: AtomicU64::new(0),
            progress: Progress::new()?,
            flush_wanted: Signal::default(),
            schedule_changed: Signal::default(),
            maintenance_wanted: Signal::default(),
        })
    }

    /// Whether the threads shall end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets all threads end when they have done what is appended.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.schedule_changed.set();
        self.maintenance_wanted.set();
        self.flush_wanted.set();
        self.progress.moved();
    }

    /// Makes the store read-only for good: pages that a failed fsync was about may be gone, and what a failed
    /// write left is unknown. The first reason stays.
    pub fn poison(&self, reason: String) {
        let _ = self.poisoned.set(reason);
        self.progress.moved();
    }

    /// Why the store is read-only for good, if it is.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.get().map(String::as_str)
    }

    /// # Errors
    /// `STORE_POISONED`.
    pub fn check_writable(&self) -> Result<()> {
        self.poisoned().map_or(Ok(()), |reason| Err(StoreError::poisoned(reason)))
    }

    /// The log is cut: ends every wait for an offset.
    pub fn note_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.progress.moved();
    }

    /// Waits until `done` holds or the time is over or the store is poisoned or its log is cut; whether it holds and
    /// nothing was cut meanwhile.
    pub fn wait(&self, timeout: Duration, done: impl Fn() -> bool) -> bool {
        let cuts = self.cuts.load(Ordering::SeqCst);
        let uncut = || self.cuts.load(Ordering::SeqCst) == cuts;
        self.progress.wait_until(timeout, || done() || self.poisoned().is_some() || !uncut())
            && done()
            && uncut()
    }

    /// Runs a thread of the store. A panic in it is not survived quietly: without one of them the store would
    /// acknowledge what nobody flushes, dispatches or delivers.
    pub fn run(&self, name: &str, job: impl FnOnce()) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        if let Err(panic) = outcome {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            self.poison(format!("{name} ended in a panic: {}", said.unwrap_or("it said nothing")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn test_who_waits_for_what_is_cut_is_not_told_that_it_came() {
        let lifecycle = Lifecycle::new().expect("a descriptor");
        let looks = Cell::new(0);
        // The offset is cut, and reached by other records, while it is waited for.
        let came = lifecycle.wait(SOON, || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                lifecycle.cuts.fetch_add(1, Ordering::SeqCst);
            }
            looks.get() > 1
        });
        assert!(!came);
        assert!(lifecycle.wait(SOON, || true), "who waits from then on waits for those");
    }

    #[test]
    fn test_a_poisoned_store_ends_a_wait() {
        let lifecycle = Lifecycle::new().expect("a descriptor");
        lifecycle.poison("injected".into());
        lifecycle.poison("a later reason".into());
        assert!(!lifecycle.wait(SOON, || false));
        assert_eq!(lifecycle.poisoned(), Some("injected"));
    }
}
