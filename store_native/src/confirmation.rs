//! The confirmed mark: how far the log holds whatever happens.
//!
//! Invariants: appended >= flushed >= confirmed >= dispatched. What is confirmed never goes back, so the
//! dispatcher follows it: queues, index, state and snapshots hold nothing that a failover may take back. Where
//! nobody else is asked, what is flushed is confirmed.
//! Threads: the flusher, and whoever hears from the replicas.

use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;

use crate::lock::lock;
use crate::watermarks::Watermarks;

/// Owns the mark; see the module.
#[derive(Debug)]
pub struct Confirmation {
    marks: Arc<Watermarks>,
    /// How far the replicas that are asked hold the log; `i64::MAX` when none is.
    replicated: Mutex<i64>,
}

impl Confirmation {
    /// Asks no replica.
    pub fn new(marks: Arc<Watermarks>) -> Self {
        Self { marks, replicated: Mutex::new(i64::MAX) }
    }

    /// From now on nothing is confirmed behind `replicated` before the replicas hold it.
    pub fn follow_replicas(&self, replicated: i64) {
        *lock(&self.replicated) = replicated;
    }

    /// Confirms nothing more until somebody says how far. Returns what was followed before.
    pub fn freeze(&self) -> i64 {
        std::mem::replace(&mut lock(&self.replicated), self.marks.confirmed())
    }

    /// Asks no replica any more: what is flushed is confirmed. Returns whether the mark moved.
    pub fn follow_flush(&self) -> bool {
        let mut replicated = lock(&self.replicated);
        *replicated = i64::MAX;
        self.advance_to(&replicated)
    }

    /// The replicas that are asked hold the log up to `offset`. Returns whether the mark moved.
    pub fn replicated(&self, offset: i64) -> bool {
        let mut replicated = lock(&self.replicated);
        if *replicated != i64::MAX {
            *replicated = offset.max(*replicated);
        }
        self.advance_to(&replicated)
    }

    /// Moves the mark as far as it may go. Returns whether it moved.
    pub fn advance(&self) -> bool {
        self.advance_to(&lock(&self.replicated))
    }

    fn advance_to(&self, replicated: &MutexGuard<'_, i64>) -> bool {
        self.marks.raise_confirmed(self.marks.flushed().min(**replicated))
    }

    /// Holds the mark where it is until what this returns is dropped.
    pub fn hold(&self) -> MutexGuard<'_, i64> {
        lock(&self.replicated)
    }
}
