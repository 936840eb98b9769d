//! Queues somebody waits for, and those of them that got messages.
//!
//! Invariants: who watches a queue, then looks into it and finds nothing, is notified of its next message, once for
//! each watch.
//! Threads: the one that dispatches notifies, an event loop watches and takes. They share a lock that nobody holds
//! for longer than a look at a table, never the dispatcher's.

use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::PoisonError;

#[derive(Debug, Default)]
struct Table {
    watched: HashSet<(String, u32)>,
    notified: Vec<(String, u32)>,
}

/// The table; see the module.
#[derive(Debug, Default)]
pub struct QueueNotifications {
    /// Some queue is watched.
    watching: AtomicBool,
    /// Some watched queue got a message.
    pending: AtomicBool,
    table: Mutex<Table>,
}

impl QueueNotifications {
    /// Reports the next message of a queue. Who then looks into the queue and finds none will be told.
    pub fn watch(&self, topic: &str, queue_id: u32) {
        let mut table = self.table();
        table.watched.insert((topic.to_owned(), queue_id));
        self.watching.store(true, Ordering::Relaxed);
        drop(table);
        // With the fence in `notify`: either the watcher's look sees the message, or `notify` sees the watch.
        fence(Ordering::SeqCst);
    }

    /// A message can be read from a queue.
    pub fn notify(&self, topic: &str, queue_id: u32) {
        fence(Ordering::SeqCst);
        if !self.watching.load(Ordering::Relaxed) {
            return;
        }
        let mut table = self.table();
        let queue = (topic.to_owned(), queue_id);
        if table.watched.remove(&queue) {
            self.watching.store(!table.watched.is_empty(), Ordering::Relaxed);
            self.pending.store(true, Ordering::Relaxed);
            table.notified.push(queue);
        }
    }

    /// Whether [`QueueNotifications::take`] would give anything.
    pub fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// Watched queues that got messages since the last call; they are watched no longer.
    pub fn take(&self) -> Vec<(String, u32)> {
        let mut table = self.table();
        self.pending.store(false, Ordering::Relaxed);
        std::mem::take(&mut table.notified)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
