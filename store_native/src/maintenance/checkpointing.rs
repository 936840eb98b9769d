//! Checkpoints: queues and index on the disk, and a snapshot of how far everything is.
//!
//! Invariants: the index is on the disk up to the snapshot's offset before the snapshot is written; of the queues
//! the snapshot says how far they are. The idempotence keys are in their file first. One checkpoint at a time.
//! Threads: the maintenance thread and callers.

use crate::sync::atomic::Ordering;
use std::time::Duration;

use super::Maintenance;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::faults::Point;
use crate::lock::lock;
use crate::snapshot::Snapshot;

/// How long a checkpoint may bring queues to the disk. What it does not get to is checked by a start after
/// a crash, and comes first at the next checkpoint.
const QUEUE_SYNC_BUDGET: Duration = Duration::from_millis(100);

impl Maintenance {
    /// Takes a checkpoint if its snapshot is worth writing (`snapshot_pace.rs`); RocketMQ's files are written
    /// all the same. True when it was.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        self.lifecycle.check_writable()?;
        let dispatched = self.marks.dispatched();
        if lock(&self.checkpointing).is_due(dispatched, self.environment.clock.monotonic_ms()) {
            return self.checkpoint().map(|()| true);
        }
        if let Err(error) = self.write_config(false) {
            self.note_config_failure(&error);
        }
        Ok(false)
    }

    /// Brings queues and index to the disk and writes down how far everything is.
    ///
    /// # Errors
    /// `DISK_FULL`, `STORE_POISONED` or any I/O error; the checkpoint before stands then.
    pub fn checkpoint(&self) -> Result<()> {
        self.lifecycle.check_writable()?;
        let mut pace = lock(&self.checkpointing);
        let disk = &*self.environment.disk;
        let mut dispatcher = self.dispatch.applied();
        // What is not in the queues yet, because a write failed, is no part of a snapshot.
        dispatcher.store()?;
        if pace.holds(dispatcher.offset) {
            return Ok(());
        }
        self.index.rewrite_unsynced(disk)?;
        let queues = self.queues.all();
        let mut snapshot = Snapshot {
            applied_offset: dispatcher.offset,
            store_timestamp: dispatcher.store_timestamp,
            ages_at: self.ages.now(),
            queues: queues
                .iter()
                .map(|q| (q.topic().to_string(), q.queue_id(), q.min_offset(), q.max_offset()))
                .collect(),
            queue_starts: queues.iter().map(|q| q.log_start()).collect(),
            index: self.index.state(),
            quarantine: dispatcher.quarantine.0.clone(),
            ..Snapshot::empty(0, dispatcher.state().clone())
        };
        let key_lines = dispatcher.keys().pending();
        drop(dispatcher);
        self.index.sync(disk)?;
        let syncing = self.environment.timer();
        let queues_synced = self.queues.sync_some(|| syncing.elapsed() < QUEUE_SYNC_BUDGET);
        if let Err(error) = &queues_synced {
            // No snapshot hangs on it: a start looks at what was not synced.
            self.counters.checkpoint_errors.fetch_add(1, Ordering::Relaxed);
            self.environment.events.error(format!("syncing a queue failed, trying again: {error}"));
        }
        snapshot.queues_durable_offset = self.queues.durable_offset(snapshot.applied_offset);
        let (remembered, oldest) = self.appender.remembered_keys();
        key_lines.append(remembered, oldest, disk)?;
        self.dispatch.applied().keys().written(&key_lines);
        snapshot.key_lines = key_lines.in_file();
        self.environment.faults.pass(Point::CheckpointMid);
        let bytes = snapshot.write(&self.paths, disk, || self.environment.faults.pass(Point::SnapshotMid))?;
        if let Err(error) = self.write_config(false) {
            // Only RocketMQ misses them.
            self.note_config_failure(&error);
        }
        Checkpoint {
            log_timestamp: snapshot.store_timestamp,
            queues_timestamp: snapshot.store_timestamp,
            index_timestamp: snapshot.store_timestamp,
            master_flushed_offset: 0,
            confirmed_offset: snapshot.applied_offset,
        }
        .write(&self.paths.checkpoint(), disk)?;
        pace.taken(snapshot.applied_offset, bytes as i64, self.environment.clock.monotonic_ms());
        if queues_synced.is_err() {
            // There is something to do also where nothing new comes.
            pace.forget();
        }
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The checkpoint of a clean stop: all queues are on the disk too, so that the next start trusts them.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub fn last_checkpoint(&self) -> Result<()> {
        self.dispatch.applied().store()?;
        self.queues.sync_all()?;
        lock(&self.checkpointing).forget();
        self.checkpoint()?;
        self.write_config(true)
    }
}
