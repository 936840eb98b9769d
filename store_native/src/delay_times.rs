//! When a delay is over, where the machine's clock cannot be believed.
//!
//! Stamps of records follow the time of day, also where it jumps; waiting goes by the time that passes. So it is
//! noted here how far the one lay from the other when delayed records were stored.
//! Invariants: at most `MAX_COURSES` are remembered. A record from before the start is held no longer than its
//! delay from then on.
//! Threads: the appender notes, the scheduler asks, under a lock of their own.

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::environment::Clock;
use crate::lock::lock;

/// Delays are kept to this many milliseconds however the clock is slewed.
const COURSE_TOLERANCE_MS: i64 = 10;
/// Courses remembered at most.
const MAX_COURSES: usize = 65_536;

/// What the appender notes and the scheduler asks.
pub struct DelayTimes {
    clock: Arc<dyn Clock>,
    longest_ms: i64,
    delays: Mutex<Delays>,
}

impl DelayTimes {
    /// At a start; `longest_ms` is the longest delay.
    pub fn new(clock: Arc<dyn Clock>, longest_ms: i64) -> Self {
        let delays = Delays::new(clock.now_ms(), clock.monotonic_ms());
        Self { clock, longest_ms, delays: Mutex::new(delays) }
    }

    /// Notes that a delayed record with this stamp is stored at `offset` now.
    pub fn stored(&self, offset: i64, stamp: i64) {
        lock(&self.delays).stored(offset, stamp, self.clock.monotonic_ms(), self.longest_ms);
    }

    /// The log is cut at `offset`: what is stored there from now on was not stored yet.
    pub fn forget_from(&self, offset: i64) {
        lock(&self.delays).courses.retain(|course| course.from < offset);
    }

    /// Milliseconds until the record at `offset` is due, whose stamp and delay give `due_day`; not positive
    /// when it is.
    pub fn due_in(&self, offset: i64, due_day: i64, delay: i64) -> i64 {
        lock(&self.delays).due(offset, due_day, delay) - self.clock.monotonic_ms()
    }
}

/// When records were stored by the time that passes, told by their place in the log.
#[derive(Debug)]
struct Delays {
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
    fn new(day: i64, passed: i64) -> Self {
        Self { lead: day - passed, started: passed, courses: VecDeque::new() }
    }

    /// Notes that a delayed record with this stamp is stored at `offset` now. `longest` is the longest delay.
    fn stored(&mut self, offset: i64, stamp: i64, passed: i64, longest: i64) {
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
    fn due(&self, offset: i64, due_day: i64, delay: i64) -> i64 {
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
