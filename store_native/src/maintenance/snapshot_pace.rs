//! When the next snapshot is due.
//!
//! A snapshot is written whole, and everything in it is told by the log too: between two of them a start reads that
//! much more of the log. So a large one waits until the log has grown by as much as it takes, and a change costs no
//! more than its own record, however many there are of its kind: one offset among 200,000 does not write the
//! others.
//! Invariants: a small one never waits, none waits longer than `LONGEST_WAIT_MS`.

use crate::ages::LONGEST_SNAPSHOT_WAIT_MS as LONGEST_WAIT_MS;

/// A snapshot of at most this many bytes never waits.
const SMALL_BYTES: i64 = 64 << 10;

/// The last snapshot: the log offset it holds for, its size, and when it was written.
#[derive(Debug, Default)]
pub(super) struct SnapshotPace {
    last: Option<(i64, i64, i64)>,
}

impl SnapshotPace {
    /// Notes that one of `bytes` was written for `offset`.
    pub fn taken(&mut self, offset: i64, bytes: i64, now_ms: i64) {
        self.last = Some((offset, bytes, now_ms));
    }

    /// The next one is due whatever came since.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Whether nothing came since the last one.
    pub fn holds(&self, offset: i64) -> bool {
        self.last.is_some_and(|(at, ..)| at == offset)
    }

    /// Whether the next one is worth writing.
    pub fn is_due(&self, offset: i64, now_ms: i64) -> bool {
        self.last.is_none_or(|(at, bytes, then_ms)| {
            bytes <= SMALL_BYTES || offset - at >= bytes || now_ms - then_ms >= LONGEST_WAIT_MS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_large_snapshot_waits_for_as_much_log_as_it_takes_but_not_for_ever() {
        let mut pace = SnapshotPace::default();
        assert!(pace.is_due(0, 0), "none was taken");
        pace.taken(1000, SMALL_BYTES, 0);
        assert!(pace.holds(1000) && pace.is_due(1001, 0), "a small one does not wait");
        let bytes = SMALL_BYTES + 1;
        pace.taken(1000, bytes, 0);
        assert!(!pace.is_due(1000 + bytes - 1, LONGEST_WAIT_MS - 1));
        assert!(pace.is_due(1000 + bytes, 0));
        assert!(pace.is_due(1001, LONGEST_WAIT_MS));
        pace.forget();
        assert!(!pace.holds(1000) && pace.is_due(1000, 0));
    }
}
