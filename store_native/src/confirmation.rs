//! The confirmed mark: how far the log holds whatever happens.
//!
//! Invariants: appended >= flushed >= confirmed >= dispatched. What is confirmed never goes back, so the
//! dispatcher follows it: queues, index, state and snapshots hold nothing that a failover may take back. Where
//! nobody else is asked, what is flushed is confirmed.
//! Threads: the flusher, and whoever hears from the replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::watermarks::Watermarks;

/// Owns the mark; see the module.
#[derive(Debug)]
pub struct Confirmation {
    marks: Arc<Watermarks>,
    /// How far the replicas that are asked hold the log; `i64::MAX` when none is.
    replicated: AtomicI64,
}

impl Confirmation {
    /// Asks no replica.
    pub fn new(marks: Arc<Watermarks>) -> Self {
        Self { marks, replicated: AtomicI64::new(i64::MAX) }
    }

    /// From now on nothing is confirmed behind `replicated` before the replicas hold it.
    pub fn follow_replicas(&self, replicated: i64) {
        self.replicated.store(replicated, Ordering::SeqCst);
    }

    /// Asks no replica any more: what is flushed is confirmed. Returns whether the mark moved.
    pub fn follow_flush(&self) -> bool {
        self.replicated.store(i64::MAX, Ordering::SeqCst);
        self.advance()
    }

    /// The replicas that are asked hold the log up to `offset`. Returns whether the mark moved.
    pub fn replicated(&self, offset: i64) -> bool {
        let raised = |known| (known != i64::MAX && known < offset).then_some(offset);
        let _ = self.replicated.fetch_update(Ordering::SeqCst, Ordering::SeqCst, raised);
        self.advance()
    }

    /// Moves the mark as far as it may go. Returns whether it moved.
    pub fn advance(&self) -> bool {
        let reach = self.marks.flushed().min(self.replicated.load(Ordering::SeqCst));
        self.marks.raise_confirmed(reach)
    }
}
