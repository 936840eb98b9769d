//! Pages of the log, made ready before anybody writes to them.
//!
//! The first touch of a page of a mapped file costs much more than filling it: the kernel finds memory and
//! zeroes it, and holds the writer back while much else waits for the disk. Under the append lock everybody
//! would wait along. So the pager, a thread of its own, brings pages into memory a stretch ahead of the
//! log's end, and a large request makes its own writable before it takes the lock.
//!
//! All of it is a hint: a page that is not ready costs its fault when it is written. A store to which
//! nothing is appended does nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::Shared;
use super::progress::Signal;
use crate::commitlog::LogFile;

/// How far ahead of the log's end the pager goes; it sets out when half of it is used up.
const AHEAD_BYTES: i64 = 32 << 20;
/// Requests from this size on make their own pages writable.
const LARGE_BYTES: usize = 256 << 10;
/// How far ahead large requests go together. Those that were refused leave their stretch unused.
const LARGE_AHEAD_BYTES: i64 = 128 << 20;
/// Bytes of one call: it holds back whoever maps memory meanwhile.
const STEP_BYTES: i64 = 1 << 20;
const IDLE: Duration = Duration::from_secs(60);

/// How far pages are ready, as physical offsets.
#[derive(Debug)]
pub(super) struct Pages {
    pub wanted: Signal,
    /// In memory, or about to be.
    present: AtomicI64,
    /// Taken by large requests, one stretch behind the other, as they will stand in the log.
    writable: AtomicI64,
}

impl Pages {
    /// For a log that ends at `end`. Nothing is wanted before the first append.
    pub fn behind(end: i64) -> Self {
        Self {
            wanted: Signal::default(),
            present: AtomicI64::new(end + AHEAD_BYTES / 2),
            writable: AtomicI64::new(end),
        }
    }

    fn are_short(&self, end: i64) -> bool {
        self.present.load(Ordering::Relaxed) < end + AHEAD_BYTES / 2
    }

    /// The start of the next `bytes` for a large request of a log that ends at `end`.
    fn take(&self, end: i64, bytes: i64) -> i64 {
        let start = |taken: i64| if taken > end + LARGE_AHEAD_BYTES { end } else { taken.max(end) };
        let next = |taken| Some(start(taken) + bytes);
        let taken = self.writable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        start(taken.unwrap_or(end))
    }
}

impl Shared {
    /// Makes pages writable for a request that takes about `bytes` of the log, if that is much. Called
    /// without the append lock.
    pub(super) fn prepare_pages(&self, bytes: usize) {
        if bytes >= LARGE_BYTES {
            let bytes = bytes as i64;
            let from = self.pages.take(self.marks.appended(), bytes);
            self.populate(from, from + bytes, true);
        }
    }

    /// Wakes the pager when the log's end has come near what is ready.
    pub(super) fn want_pages(&self, end: i64) {
        if self.pages.are_short(end) {
            self.pages.wanted.set();
        }
    }

    /// Keeps ahead of the log's end until the store stops.
    pub(super) fn run_pager(&self) {
        while !self.stopping() {
            self.pages.wanted.wait(IDLE);
            let end = self.marks.appended();
            if self.pages.are_short(end) {
                // For reading: a page made writable would be brought to the disk empty.
                let from = self.pages.present.swap(end + AHEAD_BYTES, Ordering::Relaxed);
                self.populate(from.max(end), end + AHEAD_BYTES, false);
            }
        }
    }

    fn populate(&self, from: i64, to: i64, for_writing: bool) {
        let mut at = from;
        while at < to && !self.stopping() {
            let Some(file) = self.log.file_at(at).or_else(|| self.prepared_at(at)) else { return };
            let step = STEP_BYTES.min(to - at).min(file.end() - at);
            if !file.file.populate((at - file.base) as usize, step as usize, for_writing) {
                return;
            }
            at += step;
        }
    }

    /// The file made ahead, if it holds `offset` and is not being made just now.
    fn prepared_at(&self, offset: i64) -> Option<LogFile> {
        let prepared = self.prepared.try_lock().ok()?;
        prepared.as_ref().filter(|f| (f.base..f.end()).contains(&offset)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_large_requests_take_stretches_that_follow_each_other_and_stay_near_the_end() {
        let pages = Pages::behind(100);
        assert_eq!(pages.take(100, 50), 100);
        assert_eq!(pages.take(100, 50), 150, "the first has not appended yet");
        assert_eq!(pages.take(1000, 50), 1000, "small requests have moved the end past what was taken");
        let large = LARGE_AHEAD_BYTES + 1;
        assert_eq!(pages.take(1000, large), 1050);
        assert_eq!(pages.take(1000, 50), 1000, "nothing came of them");
    }

    #[test]
    fn test_pages_are_wanted_with_the_first_append_and_then_once_in_half_a_stretch() {
        let pages = Pages::behind(0);
        assert!(!pages.are_short(0));
        assert!(pages.are_short(1));
        pages.present.store(AHEAD_BYTES, Ordering::Relaxed);
        assert!(!pages.are_short(AHEAD_BYTES / 2));
        assert!(pages.are_short(AHEAD_BYTES / 2 + 1));
    }
}
