//! Locks and atomics by which threads meet: the standard library's, or, under `cfg(loom)`, those of a checker that runs
//! a test in every order that they allow (`tests/rust/orders.rs`).
//!
//! Invariants: what threads of the store share goes through these names, so that what is checked is what is shipped.
//! What lies in a mapped file is atomic by its address and is none of these (`mapped_file.rs`).

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
#[cfg(not(loom))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

/// Whether a thread panicked while it held the lock.
#[cfg(not(loom))]
pub fn is_poisoned<T>(mutex: &Mutex<T>) -> bool {
    mutex.is_poisoned()
}

/// The checker ends with the first panic.
#[cfg(loom)]
pub fn is_poisoned<T>(_: &Mutex<T>) -> bool {
    false
}
