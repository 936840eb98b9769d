//! The maintenance thread: checkpoints, expiry, and the next log file made ahead.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Shared, lock};
use crate::checkpoint::Checkpoint;
use crate::commitlog::LogFile;
use crate::commitlog::writer::NEARLY_FULL;
use crate::environment::Point;
use crate::error::{Result, StoreError};
use crate::message::RecordView;
use crate::snapshot::Snapshot;

/// How often expiry is considered.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);
/// How long a checkpoint may bring queues to the disk. What it does not get to is checked by a start after
/// a crash, and comes first at the next checkpoint.
const QUEUE_SYNC_BUDGET: Duration = Duration::from_millis(100);
/// Above this share of the disk, expired files go at once instead of at the set hour.
const DISK_WARN: f64 = 0.75;
/// Above this share, the oldest files go whether expired or not.
const DISK_FORCE: f64 = 0.85;

impl Shared {
    /// Works until the store stops.
    pub(super) fn run_maintenance(&self) {
        let pause = Duration::from_millis(self.options.checkpoint_interval_ms.max(10));
        let mut expired_at = Instant::now();
        let mut checkpointed_at = Instant::now();
        let mut topics_within = Duration::MAX;
        while !self.stopping() {
            self.maintenance_wanted.wait(pause.min(topics_within));
            if self.stopping() {
                return;
            }
            topics_within = self.keep_topics_written();
            self.prepare_next_file();
            if checkpointed_at.elapsed() >= pause {
                checkpointed_at = Instant::now();
                if let Err(error) = self.checkpoint_if_due() {
                    self.counters.checkpoint_errors.fetch_add(1, Ordering::Relaxed);
                    let text = format!("the checkpoint failed, trying again: {error}");
                    self.environment.events.error(text);
                }
                self.queues.store().sweep();
            }
            if expired_at.elapsed() >= EXPIRE_EVERY {
                expired_at = Instant::now();
                if let Err(error) = self.expire(self.now_for_ages(), false) {
                    let text = format!("expiring files failed, trying again: {error}");
                    self.environment.events.error(text);
                }
            }
        }
    }

    fn prepare_next_file(&self) {
        let left = self.log.capacity_end() - self.marks.appended();
        if left as f64 > self.log.file_size() as f64 * (1.0 - NEARLY_FULL) {
            return;
        }
        self.environment.faults.pass(Point::NextDecided);
        // A full disk shows at the append that needs the file, where somebody can be told.
        let _ = self.next_file.make_ahead(&self.log, &self.environment);
    }

    /// Takes a checkpoint if its snapshot is worth writing (`snapshot_pace.rs`); RocketMQ's files are written
    /// all the same. True when it was.
    ///
    /// # Errors
    /// As [`Shared::checkpoint`].
    pub fn checkpoint_if_due(&self) -> Result<bool> {
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
    /// `DISK_FULL` or any I/O error; the checkpoint before stands then.
    pub fn checkpoint(&self) -> Result<()> {
        let mut pace = lock(&self.checkpointing);
        let disk = &*self.environment.disk;
        let mut dispatcher = lock(&self.dispatcher);
        // What is not in the queues yet, because a write failed, is no part of a snapshot.
        dispatcher.flush_entries()?;
        if pace.holds(dispatcher.offset) {
            return Ok(());
        }
        self.index.rewrite_unsynced(disk)?;
        let queues = self.queues.all();
        let mut snapshot = Snapshot {
            applied_offset: dispatcher.offset,
            store_timestamp: dispatcher.store_timestamp,
            ages_at: self.now_for_ages(),
            queues: queues
                .iter()
                .map(|q| (q.topic().to_string(), q.queue_id(), q.min_offset(), q.max_offset()))
                .collect(),
            queue_starts: queues.iter().map(|q| q.log_start()).collect(),
            index: self.index.state(),
            quarantine: dispatcher.quarantine.clone(),
            ..Snapshot::empty(0, dispatcher.state.clone())
        };
        let key_lines = dispatcher.keys.pending();
        drop(dispatcher);
        self.index.sync(disk)?;
        let queues_synced = self.queues.sync_some(QUEUE_SYNC_BUDGET);
        if let Err(error) = &queues_synced {
            // No snapshot hangs on it: a start looks at what was not synced.
            self.counters.checkpoint_errors.fetch_add(1, Ordering::Relaxed);
            self.environment.events.error(format!("syncing a queue failed, trying again: {error}"));
        }
        snapshot.queues_durable_offset = self.queues.durable_offset(snapshot.applied_offset);
        let (remembered, oldest) = {
            let keys = &lock(&self.appender).keys;
            (keys.len(), keys.oldest_offset())
        };
        key_lines.append(remembered, oldest)?;
        lock(&self.dispatcher).keys.written(&key_lines);
        self.environment.faults.pass(Point::CheckpointMid);
        let bytes = snapshot.write(&self.paths, || self.environment.faults.pass(Point::SnapshotMid))?;
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
        .write(&self.paths.checkpoint())?;
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
    /// As [`Shared::checkpoint`].
    pub(super) fn last_checkpoint(&self) -> Result<()> {
        lock(&self.dispatcher).flush_entries()?;
        self.queues.sync_all()?;
        lock(&self.checkpointing).forget();
        self.checkpoint()?;
        self.write_config(true)
    }

    /// Deletes log files that retention or a full disk gives up, then queue and index files that point
    /// only into them. Returns how many went. `now_only` skips the waiting for the set hour.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn expire(&self, now_ms: i64, now_only: bool) -> Result<usize> {
        let used = self.environment.disk.used_ratio(self.paths.root()).unwrap_or(0.0);
        let hour = now_ms.rem_euclid(86_400_000) / 3_600_000;
        let due = now_only || used > DISK_WARN || hour == i64::from(self.options.delete_when_hour);
        if !due {
            return Ok(0);
        }
        // One at a time: what is decided about the oldest file holds until it is gone.
        let _turn = lock(&self.expiring);
        let files = self.log.files();
        let given_up = self.given_up(&files, now_ms, used)?;
        let Some(last) = given_up.last() else { return Ok(0) };
        // What is decided stands in a snapshot before anything goes: a crash in the middle leaves files too many,
        // never too few. And queues begin behind it before it goes: a reader is told that it expired, not that
        // it is damaged.
        let log_min = last.end();
        let mut raised = Vec::new();
        for queue in self.queues.all() {
            if queue.raise_min(log_min)? {
                raised.push(queue);
            }
        }
        let index_files = self.index.expire(log_min);
        lock(&self.checkpointing).forget();
        self.checkpoint()?;
        self.marks.set_log_min(log_min);
        let mut removed = 0;
        for file in given_up {
            self.environment.faults.pass(Point::ExpireDecided);
            let Some(gone) = self.log.pop_front(file.base) else { break };
            std::fs::remove_file(gone.file.path())
                .map_err(|e| StoreError::io("removing an expired log file", e))?;
            removed += 1;
        }
        for path in index_files {
            std::fs::remove_file(&path).map_err(|e| StoreError::io("removing an index file", e))?;
            removed += 1;
        }
        for queue in raised {
            removed += queue.drop_expired()?;
        }
        lock(&self.appender).keys.forget_before(log_min);
        // Delayed messages that went with the files are noted there.
        self.schedule_changed.set();
        self.counters.expired_files.fetch_add(removed as u64, Ordering::Relaxed);
        Ok(removed)
    }

    /// The oldest files, as many as retention or a full disk gives up.
    fn given_up<'a>(&self, files: &'a [LogFile], now_ms: i64, used: f64) -> Result<&'a [LogFile]> {
        let retention_ms = self.options.retention_hours as i64 * 3_600_000;
        let mut count = 0;
        for (at, pair) in files.windows(2).enumerate() {
            let [file, _] = pair else { break };
            let old = finished_at(files, at, now_ms) + retention_ms < now_ms;
            if !old && used <= DISK_FORCE || file.end() > self.marks.dispatched() {
                break;
            }
            if used <= DISK_FORCE && self.undelivered_from()? < file.end() {
                // Delayed messages in it are still to be delivered.
                break;
            }
            count += 1;
            if !old {
                // Forced by the disk: one file, then look again.
                break;
            }
        }
        Ok(files.get(..count).unwrap_or_default())
    }
}

/// When file `at` was finished. The first record behind it tells, or, where that is stamped ahead of the clock, a
/// later one; but it was not finished before its own first record was stored: a clock that was behind for a while
/// makes no fresh file old.
fn finished_at(files: &[LogFile], at: usize, now_ms: i64) -> i64 {
    let stamp = |file: &LogFile| {
        let stamp = RecordView::parse(file.file.tail(0)).map(|record| record.store_timestamp).ok();
        stamp.filter(|stamp| *stamp <= now_ms)
    };
    let behind = files.iter().skip(at + 1).find_map(stamp).unwrap_or(now_ms);
    files.get(at).and_then(stamp).map_or(behind, |begun| begun.max(behind))
}
