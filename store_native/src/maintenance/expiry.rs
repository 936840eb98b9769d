//! Expiry: log files that retention or a full disk gives up, and what points only into them.
//!
//! Invariants: a snapshot and the queues' bounds say that records are gone before their files go. The last file
//! stays, and so does what is not dispatched; undelivered delayed messages go only where the disk is too full.
//! Threads: the maintenance thread and callers, one at a time.

use crate::sync::atomic::Ordering;

use super::Maintenance;
use crate::commitlog::LogFile;
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::lock::lock;
use crate::message::RecordView;

/// Above this share of the disk, expired files go at once instead of at the set hour.
const DISK_WARN: f64 = 0.75;
/// Above this share, the oldest files go whether expired or not.
const DISK_FORCE: f64 = 0.85;

impl Maintenance {
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
            if let Err(error) = self.environment.disk.remove(gone.file.path()) {
                self.log.put_back(gone);
                return Err(StoreError::io("removing an expired log file", error));
            }
            // One after the other on the disk too: a power cut would take them back in any order.
            self.log
                .sync_names(&*self.environment.disk)
                .map_err(|e| StoreError::io("syncing the log's directory", e))?;
            removed += 1;
        }
        for path in index_files {
            self.environment.disk.remove(&path).map_err(|e| StoreError::io("removing an index file", e))?;
            removed += 1;
        }
        for queue in raised {
            removed += queue.drop_expired()?;
        }
        self.appender.forget_keys_before(log_min);
        // Delayed messages that went with the files are noted there.
        self.lifecycle.schedule_changed.set();
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
            if used <= DISK_FORCE && self.scheduler.undelivered_from()? < file.end() {
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
