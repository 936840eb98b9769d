//! The age of what expires, where the machine's clock cannot be believed.
//!
//! Invariants: ages go by the time of day, unless it jumped ahead by more than `JUMP_MS`: then by the time that
//! passes, until the clock is set right or has stood by itself for `HOLD_MS`. A start long after the last snapshot
//! counts as such a jump.
//! Threads: any, under a lock held for one look at the clock.

use crate::sync::Mutex;
use std::sync::Arc;

use crate::environment::Clock;
use crate::events::Events;
use crate::lock::lock;

/// A difference to the time that passed of more than this is a jump.
const JUMP_MS: i64 = 60_000;
/// How long a clock that jumped ahead must stand by itself before ages go by it.
const HOLD_MS: i64 = 3_600_000;
/// A running store may be without a snapshot for so long.
pub const LONGEST_SNAPSHOT_WAIT_MS: i64 = 300_000;

/// Tells the time at which ages are taken, to all threads.
pub struct AgeClock {
    clock: Arc<dyn Clock>,
    events: Arc<Events>,
    ages: Mutex<Ages>,
}

impl AgeClock {
    /// At a start: `aged_to` is where ages stood in the last snapshot, 0 where there was none.
    pub fn new(clock: Arc<dyn Clock>, events: Arc<Events>, aged_to: i64) -> Self {
        let ages = Ages::new(clock.now_ms(), clock.monotonic_ms(), aged_to);
        Self { clock, events, ages: Mutex::new(ages) }
    }

    /// The clock's time, but that nothing grows old by a jump of it; epoch milliseconds.
    pub fn now(&self) -> i64 {
        lock(&self.ages).now(self.clock.now_ms(), self.clock.monotonic_ms(), &self.events)
    }
}

/// The time of day by which keys and files grow old.
#[derive(Debug)]
struct Ages {
    day: i64,
    passed: i64,
    ahead_since: Option<i64>,
}

impl Ages {
    /// At a start: `aged_to` is where ages stood in the last snapshot, 0 where there was none. A start long after
    /// it, longer than a running store goes without one, may follow a jump as well as a long stop, so ages wait
    /// there too.
    fn new(day: i64, passed: i64, aged_to: i64) -> Self {
        let long_after = aged_to > 0 && day > aged_to + LONGEST_SNAPSHOT_WAIT_MS + JUMP_MS;
        Self {
            day: if long_after { aged_to } else { day },
            passed,
            ahead_since: long_after.then_some(passed),
        }
    }

    /// The time that ages are taken at, when the clock says `day` and `passed`.
    fn now(&mut self, day: i64, passed: i64, events: &Events) -> i64 {
        let expected = self.day + (passed - self.passed);
        let ahead = day - expected;
        if ahead > JUMP_MS {
            let since = *self.ahead_since.get_or_insert_with(|| {
                events.warn(format!(
                    "the clock jumped ahead by {} s; nothing grows old by that for an hour",
                    ahead / 1000
                ));
                passed
            });
            if passed - since < HOLD_MS {
                return expected;
            }
        } else if ahead < -JUMP_MS {
            events.warn(format!("the clock was set back by {} s", -ahead / 1000));
        }
        (self.day, self.passed, self.ahead_since) = (day, passed, None);
        day
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn test_nothing_grows_old_by_a_jump_ahead_until_it_has_stood_for_an_hour() {
        let mut ages = Ages::new(1_000 * HOUR, 0, 0);
        assert_eq!(ages.now(1_000 * HOUR + 5_000, 5_000, &Events::default()), 1_000 * HOUR + 5_000);
        assert_eq!(ages.now(9_000 * HOUR, 6_000, &Events::default()), 1_000 * HOUR + 6_000, "a jump");
        assert_eq!(
            ages.now(1_000 * HOUR + 7_000, 7_000, &Events::default()),
            1_000 * HOUR + 7_000,
            "set right"
        );
        assert_eq!(ages.now(9_000 * HOUR, 8_000, &Events::default()), 1_000 * HOUR + 8_000);
        assert_eq!(
            ages.now(9_000 * HOUR + HOUR, 8_000 + HOUR, &Events::default()),
            9_000 * HOUR + HOUR,
            "it stands"
        );
        assert_eq!(
            ages.now(500 * HOUR, 9_000 + HOUR, &Events::default()),
            500 * HOUR,
            "back is followed at once"
        );
    }

    #[test]
    fn test_a_start_long_after_the_last_record_waits_too() {
        let mut ages = Ages::new(1_000 * HOUR, 0, 900 * HOUR);
        assert_eq!(ages.now(1_000 * HOUR + 1, 1, &Events::default()), 900 * HOUR + 1);
        assert_eq!(ages.now(1_001 * HOUR, HOUR, &Events::default()), 1_001 * HOUR);
        // A running store may be so long without a snapshot: ages go on.
        let mut ages = Ages::new(1_000 * HOUR, 0, 1_000 * HOUR - LONGEST_SNAPSHOT_WAIT_MS - JUMP_MS);
        assert_eq!(ages.now(1_000 * HOUR + 1, 1, &Events::default()), 1_000 * HOUR + 1);
    }
}
