//! The store's figures, by name.
//!
//! Invariants: a name that ends in `_total` is a counter and never falls while the store is open.
//! Threads: those of callers.

use crate::sync::atomic::{AtomicU64, Ordering};

use super::Store;
use crate::sys::disk_used_ratio;

impl Store {
    /// Counters (`_total`) and gauges as they stand.
    pub fn stats(&self) -> Vec<(&'static str, f64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let (appends, flushes) = (&self.appender.counters, &self.flusher.counters);
        let (dispatch, schedule) = (&self.dispatch.counters, &self.scheduler.counters);
        let maintenance = &self.maintenance.counters;
        let (appended, flushed, dispatched, confirmed) = self.watermarks();
        let quarantined: i64 = self.dispatch.applied().quarantine.0.iter().map(|(from, to)| to - from).sum();
        let keys = self.appender.remembered_keys().0;
        vec![
            ("messages_in_total", count(&appends.messages)),
            ("bytes_in_total", count(&appends.bytes)),
            ("requests_in_total", count(&appends.requests)),
            ("duplicate_requests_total", count(&appends.duplicates)),
            ("flush_total", count(&flushes.flushes)),
            ("flush_seconds_total", count(&flushes.micros) / 1e6),
            ("dispatch_total", count(&dispatch.dispatched)),
            ("dispatch_errors_total", count(&dispatch.errors)),
            ("delayed_delivered_total", count(&schedule.delivered)),
            ("delayed_dropped_total", count(&schedule.dropped)),
            ("checkpoint_total", count(&maintenance.checkpoints)),
            ("checkpoint_errors_total", count(&maintenance.checkpoint_errors)),
            ("config_errors_total", count(&maintenance.config_errors)),
            ("expired_files_total", count(&maintenance.expired_files)),
            ("damaged_records_total", self.reads.damaged_records() as f64),
            ("quarantined_bytes", quarantined as f64),
            ("idempotence_keys", keys as f64),
            ("disk_used_ratio", disk_used_ratio(self.paths.root()).unwrap_or(0.0)),
            ("commitlog_min_offset", self.log.min_offset() as f64),
            ("commitlog_max_offset", appended as f64),
            ("flushed_offset", flushed as f64),
            ("dispatched_offset", dispatched as f64),
            ("confirmed_offset", confirmed as f64),
            ("flush_behind_bytes", (appended - flushed).max(0) as f64),
            ("dispatch_behind_bytes", (appended - dispatched).max(0) as f64),
        ]
    }
}
