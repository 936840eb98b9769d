//! The store's figures, by name.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Shared, lock};
use crate::mapped_file::disk_used_ratio;

impl Shared {
    /// Counters (`_total`) and gauges as they stand.
    pub fn stats(&self) -> Vec<(&'static str, f64)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let c = &self.counters;
        let (appended, flushed, dispatched, confirmed) = self.watermarks();
        let quarantined: i64 = lock(&self.dispatcher).quarantine.iter().map(|(from, to)| to - from).sum();
        let keys = lock(&self.appender).keys.len();
        vec![
            ("messages_in_total", count(&c.messages_in)),
            ("bytes_in_total", count(&c.bytes_in)),
            ("requests_in_total", count(&c.requests_in)),
            ("duplicate_requests_total", count(&c.duplicates)),
            ("flush_total", count(&c.flushes)),
            ("flush_seconds_total", count(&c.flush_micros) / 1e6),
            ("dispatch_total", count(&c.dispatched)),
            ("dispatch_errors_total", count(&c.dispatch_errors)),
            ("delayed_delivered_total", count(&c.delayed_delivered)),
            ("delayed_dropped_total", count(&c.delayed_dropped)),
            ("checkpoint_total", count(&c.checkpoints)),
            ("checkpoint_errors_total", count(&c.checkpoint_errors)),
            ("config_errors_total", count(&c.config_errors)),
            ("expired_files_total", count(&c.expired_files)),
            ("damaged_records_total", self.read_side.damaged_records() as f64),
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
