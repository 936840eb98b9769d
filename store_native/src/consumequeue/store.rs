//! Where the entries of all queues are kept: the contract.
//!
//! Invariants: nothing that stays open belongs to a queue, so that their number costs neither descriptors nor
//! mappings; another store (one ordered file for a million queues) can stand behind the same contract. Writing the
//! same entries again is harmless.
//! Threads: the dispatcher and recovery write; any reads, in this process or another.

use std::sync::Arc;

use crate::error::Result;

/// Which queue is meant. `serial` tells one made again from the one before it.
#[derive(Debug, Clone)]
pub struct QueueKey {
    pub topic: Arc<str>,
    pub queue_id: u32,
    pub serial: u64,
}

/// Keeps entries by queue and offset. The dispatcher alone writes; anyone reads, in this process or another.
pub trait QueueStore: std::fmt::Debug + Send + Sync {
    /// Writes encoded entries from `offset` on. When the call is back, any process reads them. Places in
    /// front of a queue's first entry are marked blank where the format has them.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; a part may stand there, writing again is harmless.
    fn write(&self, queue: &QueueKey, offset: i64, entries: &[u8]) -> Result<()>;

    /// Whether entries `[from, to)` reach into storage that may not have been made yet, where there are entries
    /// before `from`.
    fn begins_storage(&self, from: i64, to: i64) -> bool;

    /// Makes what [`QueueStore::write`] would make for entries `[from, to)`, which takes much longer than writing.
    /// What stands already is left alone.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; writing tries again.
    fn reserve(&self, queue: &QueueKey, from: i64, to: i64) -> Result<()>;

    /// Reads bytes of entries from `offset` on. Returns how many whole entries were read, 0 where none can
    /// be; places never written read as zeros.
    ///
    /// # Errors
    /// Any I/O error.
    fn read(&self, queue: &QueueKey, offset: i64, out: &mut [u8]) -> Result<usize>;

    /// First place there is and the one behind the last; `None` for a queue without any.
    ///
    /// # Errors
    /// Any I/O error.
    fn extent(&self, queue: &QueueKey) -> Result<Option<(i64, i64)>>;

    /// First offset in `[from, to]` that its storage is missing for, or is of another shape than it must be;
    /// `to` when there is none.
    ///
    /// # Errors
    /// Any I/O error.
    fn intact_until(&self, queue: &QueueKey, from: i64, to: i64) -> Result<i64>;

    /// Whether a power cut may keep one part of this entry and lose the other.
    fn can_be_torn(&self, offset: i64) -> bool;

    /// Clears every place from `offset` on (recovery only).
    ///
    /// # Errors
    /// Any I/O error.
    fn truncate(&self, queue: &QueueKey, offset: i64) -> Result<()>;

    /// Gives back the space of entries before `offset`, where a whole file holds nothing else. Returns how
    /// many files went.
    ///
    /// # Errors
    /// Any I/O error.
    fn expire(&self, queue: &QueueKey, offset: i64) -> Result<usize>;

    /// Returns when entries `[from, to)` are on the disk.
    ///
    /// # Errors
    /// The disk's error: what was written may be lost then, and must be written again to be tried again.
    fn sync(&self, queue: &QueueKey, from: i64, to: i64) -> Result<()>;

    /// Returns when all entries of all queues are on the disk.
    ///
    /// # Errors
    /// The disk's error.
    fn sync_all(&self) -> Result<()>;

    /// Takes a topic's queues away, so that no crash brings them back.
    ///
    /// # Errors
    /// Any I/O error.
    fn remove_topic(&self, topic: &str) -> Result<()>;

    /// Gives back the space of what was removed; may take its time.
    fn sweep(&self);

    /// Topics that have queues here, whatever their names.
    ///
    /// # Errors
    /// Any I/O error.
    fn topics(&self) -> Result<Vec<String>>;

    /// Ids of a topic's queues here.
    ///
    /// # Errors
    /// Any I/O error.
    fn queues(&self, topic: &str) -> Result<Vec<u32>>;

    /// Lets go of all that is held open, because it may have been replaced.
    fn let_go(&self);

    /// Files held open now.
    fn open_files(&self) -> usize;
}
