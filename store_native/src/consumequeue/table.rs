//! All consume queues of a store, found by topic and queue id.
//!
//! Invariants: a topic and an id are one queue; one that is made again has another serial. A queue whose entries
//! may not be on the disk stays in the list of dirty ones until it is synced.
//! Threads: the dispatcher makes and removes queues, checkpoints sync them, any looks them up.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};

use super::queue::Queue;
use super::store::{QueueKey, QueueStore};
use crate::error::Result;

type Topics = HashMap<Arc<str>, Vec<Option<Arc<Queue>>>>;

/// The queues. A queue appears when its first message is dispatched, or with the bounds a snapshot knows.
#[derive(Debug)]
pub struct QueueTable {
    store: Arc<dyn QueueStore>,
    topics: RwLock<Topics>,
    serials: AtomicU64,
    /// Queues with entries that may not be on the disk, those waiting longest first.
    dirty: Mutex<VecDeque<Arc<Queue>>>,
}

impl QueueTable {
    /// An empty table over `store`.
    pub fn new(store: Arc<dyn QueueStore>) -> Self {
        Self { store, topics: RwLock::default(), serials: AtomicU64::new(0), dirty: Mutex::default() }
    }

    /// Where the entries are kept.
    pub fn store(&self) -> &dyn QueueStore {
        &*self.store
    }

    /// Takes up every queue that the store holds.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn load_all(&self) -> Result<()> {
        for topic in self.store.topics()? {
            self.load_topic(&topic)?;
        }
        Ok(())
    }

    /// Takes up the queues of `topic` that the store holds.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn load_topic(&self, topic: &str) -> Result<()> {
        for queue_id in self.store.queues(topic)? {
            self.get_or_create(topic, queue_id);
        }
        Ok(())
    }

    /// The queue, when it exists.
    pub fn get(&self, topic: &str, queue_id: u32) -> Option<Arc<Queue>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        topics.get(topic)?.get(queue_id as usize)?.clone()
    }

    /// The queue, made when it does not exist.
    pub fn get_or_create(&self, topic: &str, queue_id: u32) -> Arc<Queue> {
        if let Some(queue) = self.get(topic, queue_id) {
            return queue;
        }
        let mut topics = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let topic: Arc<str> = match topics.get_key_value(topic) {
            Some((known, _)) => Arc::clone(known),
            None => topic.into(),
        };
        let queues = topics.entry(Arc::clone(&topic)).or_default();
        let index = queue_id as usize;
        if queues.len() <= index {
            queues.resize_with(index + 1, || None);
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(Queue::new(QueueKey { topic, queue_id, serial }, Arc::clone(&self.store)));
        match queues.get_mut(index) {
            Some(place) => Arc::clone(place.get_or_insert(queue)),
            None => queue,
        }
    }

    /// Every queue, by topic and id: who goes through them asks the disk for the same things in the same order again.
    pub fn all(&self) -> Vec<Arc<Queue>> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut by_topic: Vec<_> = topics.iter().collect();
        by_topic.sort_unstable_by_key(|(topic, _)| *topic);
        by_topic.into_iter().flat_map(|(_, queues)| queues).flatten().map(Arc::clone).collect()
    }

    /// The queues of one topic, by id.
    pub fn of_topic(&self, topic: &str) -> Vec<(u32, Arc<Queue>)> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let queues = topics.get(topic).map(Vec::as_slice).unwrap_or_default();
        queues.iter().flatten().map(|queue| (queue.queue_id(), Arc::clone(queue))).collect()
    }

    /// Forgets a topic's queues; what the store holds of them stays (readers).
    pub fn forget_topic(&self, topic: &str) {
        self.topics.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    /// Forgets the queues of topics that are not to be kept (readers).
    pub fn forget_topics_but(&self, kept: impl Fn(&str) -> bool) {
        self.topics.write().unwrap_or_else(PoisonError::into_inner).retain(|topic, _| kept(topic));
    }

    /// Forgets all queues and what is held open of them: they may be others now (readers).
    pub fn forget_all(&self) {
        self.topics.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.store.let_go();
    }

    /// Forgets a topic's queues and takes them out of the store.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn remove_topic(&self, topic: &str) -> Result<()> {
        self.store.remove_topic(topic)?;
        self.forget_topic(topic);
        self.dirty().retain(|queue| &**queue.topic() != topic);
        Ok(())
    }

    fn dirty(&self) -> MutexGuard<'_, VecDeque<Arc<Queue>>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a queue whose entries may not all be on the disk.
    pub fn note_dirty(&self, queue: Arc<Queue>) {
        self.dirty().push_back(queue);
    }

    /// Makes the dirty ones of its queues the list of those to be synced (recovery only).
    pub fn collect_dirty(&self) {
        *self.dirty() = self.all().into_iter().filter(|queue| queue.dirty_from().is_some()).collect();
    }

    /// Log offset up to which every entry is on the disk, where the log was dispatched up to `applied`.
    pub fn durable_offset(&self, applied: i64) -> i64 {
        self.dirty().iter().filter_map(|queue| queue.dirty_from()).fold(applied, i64::min)
    }

    /// Brings queues to the disk while there is time, those that wait longest first; at least one. Queues need no
    /// sync to be right, since a start checks them against the log: this keeps what it must check short.
    ///
    /// # Errors
    /// The first error of the disk; its queue comes again after the others.
    pub fn sync_some(&self, is_time: impl Fn() -> bool) -> Result<()> {
        let waiting = self.dirty().len();
        for _ in 0..waiting {
            let Some(queue) = self.dirty().front().map(Arc::clone) else { break };
            // It stays in the list, and counts as dirty, until it is synced.
            let outcome = queue.sync();
            let mut dirty = self.dirty();
            if let Some(at) = dirty.iter().position(|q| Arc::ptr_eq(q, &queue)) {
                dirty.remove(at);
            }
            if outcome.is_err() {
                dirty.push_back(queue);
            }
            drop(dirty);
            outcome?;
            if !is_time() {
                break;
            }
        }
        Ok(())
    }

    /// Brings all queues to the disk: a few by themselves, many by one sync of their file system.
    ///
    /// # Errors
    /// The first error of the disk.
    pub fn sync_all(&self) -> Result<()> {
        const SINGLY: usize = 64;
        if self.dirty().len() <= SINGLY {
            return self.sync_some(|| true);
        }
        self.store.sync_all()?;
        for queue in self.dirty().drain(..) {
            queue.note_clean();
        }
        Ok(())
    }
}
