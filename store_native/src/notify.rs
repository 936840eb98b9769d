//! Waking those who wait: threads of the store, blocking callers, and an event loop over an eventfd.
//!
//! Invariants: no wake-up is lost: a signal that nobody waits for stays set, and the eventfd counts. Who waits
//! looks at its condition under the lock that a move takes.
//! Threads: any sets and moves; one thread waits for a signal, any number for progress.

use crate::sync::{Condvar, Mutex};
use std::os::fd::RawFd;
use std::sync::PoisonError;
use std::time::Duration;

use crate::environment::Stopwatch;
use crate::error::{Result, StoreError};
use crate::sys::EventFd;

/// A flag that one thread waits for and others set.
#[derive(Debug, Default)]
pub struct Signal {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Sets the flag; wakes the waiter only if it was not set already.
    pub fn set(&self) {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if !*set {
            *set = true;
            self.changed.notify_one();
        }
    }

    /// Waits until the flag is set or the time is over, and clears it.
    pub fn wait(&self, timeout: Duration) {
        let waited = Stopwatch::start();
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*set {
            let left = timeout.saturating_sub(waited.elapsed());
            if left.is_zero() {
                break;
            }
            set = self.changed.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *set = false;
    }
}

/// Tells that a watermark moved.
#[derive(Debug)]
pub struct Progress {
    generation: Mutex<u64>,
    changed: Condvar,
    event: EventFd,
}

impl Progress {
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> Result<Self> {
        Ok(Self {
            generation: Mutex::new(0),
            changed: Condvar::new(),
            event: EventFd::new().map_err(|e| StoreError::io("creating an eventfd", e))?,
        })
    }

    /// A watermark moved: wakes everybody.
    pub fn moved(&self) {
        self.moved_quietly();
        self.event.signal();
    }

    /// A watermark moved, but the event loop need not look now.
    pub fn moved_quietly(&self) {
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// For an event loop.
    pub fn fd(&self) -> RawFd {
        self.event.raw()
    }

    /// Waits until `done` holds or the time is over; says which.
    pub fn wait_until(&self, timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
        let waited = Stopwatch::start();
        let mut generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done() {
                return true;
            }
            let left = timeout.saturating_sub(waited.elapsed());
            if left.is_zero() {
                return false;
            }
            generation =
                self.changed.wait_timeout(generation, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
