//! RocketMQ's files under `config/`: which of them are behind the state, and when they are written.
//!
//! Invariants: they are snapshots for RocketMQ and for tools; no acknowledgement waits for them, and one that
//! cannot be written stops nothing but itself. None is replaced by an older state. A change of a topic is in its
//! file within `TOPICS_EVERY` or ten times the time that writing took; group offsets are written with checkpoints,
//! at most a hundredth of the time.
//! Threads: the maintenance thread and callers of checkpoints, one writer at a time.

use crate::sync::atomic::Ordering;
use std::time::Duration;

use super::Maintenance;
use crate::environment::Clock;
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::state::rocketmq_files::{self, Written};

/// The topic table is written this often at most.
const TOPICS_EVERY: Duration = Duration::from_millis(200);
/// After a failure this long is waited.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What stands in the files.
#[derive(Debug)]
pub(super) struct ConfigFiles {
    written: Written,
    topics: Pause,
    offsets: Pause,
}

/// How long it is waited before a file is written again: until then, by the monotonic clock.
#[derive(Debug)]
struct Pause {
    until_ms: i64,
}

impl Pause {
    fn of(length: Duration, clock: &dyn Clock) -> Self {
        let length_ms = i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self { until_ms: clock.monotonic_ms().saturating_add(length_ms) }
    }

    /// What is left of it.
    fn left(&self, clock: &dyn Clock) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(clock.monotonic_ms()).max(0) as u64)
    }
}

impl ConfigFiles {
    /// The files were written from this state just now.
    pub fn new(written: Written) -> Self {
        Self { written, topics: Pause { until_ms: i64::MIN }, offsets: Pause { until_ms: i64::MIN } }
    }
}

impl Maintenance {
    /// Writes the files that are behind the state of this moment; `all` of them, or those that are due.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub(super) fn write_config(&self, all: bool) -> Result<()> {
        // One writer at a time, and the state is taken after that is sure: none writes an older one.
        let mut files = lock(&self.config_files);
        let state = self.dispatch.applied().state().clone();
        let offsets_changed = files.written.offsets != state.offsets_version;
        let offsets_due = all || files.offsets.left(&*self.environment.clock).is_zero();
        let started = self.environment.timer();
        rocketmq_files::write_changed(
            &self.paths,
            &state,
            &mut files.written,
            offsets_due,
            &*self.environment.disk,
        )?;
        if offsets_changed && offsets_due {
            // The clock tells whole milliseconds.
            let took = started.elapsed() + Duration::from_millis(1);
            files.offsets = Pause::of(took * 100, &*self.environment.clock);
        }
        Ok(())
    }

    /// Writes the topic table if it is behind and due. Returns how long to wait for it at most.
    pub(super) fn keep_topics_written(&self) -> Duration {
        let behind = |files: &ConfigFiles| files.written.topics.counter as i64 != self.marks.topic_changes();
        {
            let files = lock(&self.config_files);
            if !behind(&files) {
                return Duration::MAX;
            }
            let left = files.topics.left(&*self.environment.clock);
            if !left.is_zero() {
                return left;
            }
        }
        let started = self.environment.timer();
        let outcome = self.write_config(false);
        let mut pause = TOPICS_EVERY.max(started.elapsed() * 10);
        if let Err(error) = outcome {
            self.note_config_failure(&error);
            pause = pause.max(RETRY_AFTER);
        }
        let mut files = lock(&self.config_files);
        files.topics = Pause::of(pause, &*self.environment.clock);
        if behind(&files) { pause } else { Duration::MAX }
    }

    /// Counts and says that the files could not be written.
    pub(super) fn note_config_failure(&self, error: &StoreError) {
        self.counters.config_errors.fetch_add(1, Ordering::Relaxed);
        let text = format!("the files under config/ are behind, trying again: {error}");
        self.environment.events.error(text);
    }
}
