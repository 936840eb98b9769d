//! The store's time where the machine's clock cannot be believed: stamps of records, the age of what
//! expires, and when a delay is over.
//!
//! Stamps follow the time of day, and never go back by a little: a clock set back by more is followed, and
//! the log says so. Waiting goes by the time that passes. Ages go by the time of day, unless it jumped ahead:
//! then by the time that passes, until the clock is set right or has stood by itself for a while.

use std::collections::VecDeque;

use super::snapshot_pace::LONGEST_WAIT_MS;
use crate::events::Events;

/// How far the clock may be set back before stamps follow it.
pub(super) const MAX_STAMP_LEAD_MS: i64 = 60_000;
/// A difference to the time that passed of more than this is a jump.
const JUMP_MS: i64 = 60_000;
/// How long a clock that jumped ahead must stand by itself before ages go by it.
const HOLD_MS: i64 = 3_600_000;
/// Delays are kept to this many milliseconds however the clock is slewed.
const COURSE_TOLERANCE_MS: i64 = 10;
/// Courses remembered at most.
const MAX_COURSES: usize = 65_536;

/// The time of day by which keys and files grow old.
#[derive(Debug)]
pub(super) struct Ages {
    day: i64,
    passed: i64,
    ahead_since: Option<i64>,
}

impl Ages {
    /// At a start: `aged_to` is where ages stood in the last snapshot, 0 where there was none. A start long after
    /// it, longer than a running store goes without one, may follow a jump as well as a long stop, so ages wait
    /// there too.
    pub fn new(day: i64, passed: i64, aged_to: i64) -> Self {
        let long_after = aged_to > 0 && day > aged_to + LONGEST_WAIT_MS + JUMP_MS;
        Self {
            day: if long_after { aged_to } else { day },
            passed,
            ahead_since: long_after.then_some(passed),
        }
    }

    /// The time that ages are taken at, when the clock says `day` and `passed`.
    pub fn now(&mut self, day: i64, passed: i64, events: &Events) -> i64 {
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

/// When records were stored by the time that passes, told by their place in the log.
#[derive(Debug)]
pub(super) struct Delays {
    /// Stamp minus time passed, as of the start: for records from before it.
    lead: i64,
    started: i64,
    courses: VecDeque<Course>,
}

/// Records from `from` on have stamps that lie `lead` before the time passed when they were stored.
#[derive(Debug, Clone, Copy)]
struct Course {
    from: i64,
    lead: i64,
    passed: i64,
}

impl Delays {
    pub fn new(day: i64, passed: i64) -> Self {
        Self { lead: day - passed, started: passed, courses: VecDeque::new() }
    }

    /// Notes that a delayed record with this stamp is stored at `offset` now. `longest` is the longest delay.
    pub fn stored(&mut self, offset: i64, stamp: i64, passed: i64, longest: i64) {
        let lead = stamp - passed;
        if self.courses.back().is_none_or(|last| (last.lead - lead).abs() > COURSE_TOLERANCE_MS) {
            self.courses.push_back(Course { from: offset, lead, passed });
        }
        while self.courses.len() > MAX_COURSES
            || self.courses.get(1).is_some_and(|c| c.passed + longest < passed)
        {
            // All that was stored under it is due.
            self.courses.pop_front();
        }
    }

    /// When, by the time that passes, the record at `offset` is due, whose stamp and delay give `due_day`.
    pub fn due(&self, offset: i64, due_day: i64, delay: i64) -> i64 {
        let later = self.courses.partition_point(|c| c.from <= offset);
        match later.checked_sub(1).and_then(|at| self.courses.get(at)) {
            Some(course) => due_day - course.lead,
            // A clock set back while nobody ran must not hold a message longer than its delay.
            None => (due_day - self.lead).min(self.started + delay),
        }
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
        let mut ages = Ages::new(1_000 * HOUR, 0, 1_000 * HOUR - LONGEST_WAIT_MS - JUMP_MS);
        assert_eq!(ages.now(1_000 * HOUR + 1, 1, &Events::default()), 1_000 * HOUR + 1);
    }

    #[test]
    fn test_a_delay_is_over_when_its_time_has_passed_whatever_the_stamps_say() {
        let mut delays = Delays::new(1_000_000, 100);
        delays.stored(50, 1_000_000, 100, HOUR);
        // Held by the clamp: the stamp stands while a second passes.
        delays.stored(60, 1_000_000, 1_100, HOUR);
        // The clock jumped.
        delays.stored(70, 9_000_000, 1_200, HOUR);
        assert_eq!(delays.due(50, 1_060_000, 60_000), 60_100);
        assert_eq!(delays.due(65, 1_060_000, 60_000), 61_100);
        assert_eq!(delays.due(70, 9_060_000, 60_000), 61_200);
        assert_eq!(delays.due(10, 1_030_000, 60_000), 30_100, "from before the start");
        assert_eq!(delays.due(10, 8_000_000, 60_000), 60_100, "no longer than its delay");
        delays.stored(80, 20_000_000, 3 * HOUR, HOUR);
        assert_eq!(delays.courses.len(), 2, "what is due needs no course");
    }
}
