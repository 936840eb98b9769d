//! Taking locks, and one whose holder cannot take it again before the one who waits.
//!
//! The system's mutex lets a thread that gives it back and wants it again at once overtake everybody who sleeps for
//! it: a dispatcher with work for seconds would keep them out for as long.
//! Invariants: a lock that was held over a panic is taken all the same; that the store is read-only then is what
//! `lifecycle.rs` and `append` see to.
//! Threads: any.

use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// The lock: who wants `data` first passes the gate, where the next one stands.
#[derive(Debug)]
pub struct FairMutex<T> {
    gate: Mutex<()>,
    data: Mutex<T>,
}

impl<T> FairMutex<T> {
    pub fn new(data: T) -> Self {
        Self { gate: Mutex::default(), data: Mutex::new(data) }
    }
}

/// Takes a lock.
pub fn lock<L: Lock>(mutex: &L) -> MutexGuard<'_, L::Data> {
    mutex.take()
}

/// What [`lock`] takes.
pub trait Lock {
    type Data;

    /// Waits for the lock.
    fn take(&self) -> MutexGuard<'_, Self::Data>;
}

impl<T> Lock for Mutex<T> {
    type Data = T;

    fn take(&self) -> MutexGuard<'_, T> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Lock for FairMutex<T> {
    type Data = T;

    fn take(&self) -> MutexGuard<'_, T> {
        let _next = self.gate.take();
        self.data.take()
    }
}
