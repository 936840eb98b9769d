//! RocketMQ's files under `config/`: which of them are behind the state, and when they are written.
//!
//! Invariants: they are snapshots for RocketMQ and for tools; no acknowledgement waits for them, and one that
//! cannot be written stops nothing but itself. None is replaced by an older state. A change of a topic is in its
//! file within `TOPICS_EVERY` or ten times the time that writing took; group offsets are written with checkpoints,
//! at most a hundredth of the time.
//! Threads: the maintenance thread and callers of checkpoints, one writer at a time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Maintenance;
use crate::environment::Stopwatch;
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

/// How long it is waited before a file is written again.
#[derive(Debug)]
struct Pause {
    since: Stopwatch,
    length: Duration,
}

impl Pause {
    fn of(length: Duration) -> Self {
        Self { since: Stopwatch::start(), length }
    }

    /// What is left of it.
    fn left(&self) -> Duration {
        self.length.saturating_sub(self.since.elapsed())
    }
}

impl ConfigFiles {
    /// The files were written from this state just now.
    pub fn new(written: Written) -> Self {
        Self { written, topics: Pause::of(Duration::ZERO), offsets: Pause::of(Duration::ZERO) }
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
        let offsets_due = all || files.offsets.left().is_zero();
        let started = Stopwatch::start();
        rocketmq_files::write_changed(
            &self.paths,
            &state,
            &mut files.written,
            offsets_due,
            &*self.environment.disk,
        )?;
        if offsets_changed && offsets_due {
            files.offsets = Pause::of(started.elapsed() * 100);
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
            let left = files.topics.left();
            if !left.is_zero() {
                return left;
            }
        }
        let started = Stopwatch::start();
        let outcome = self.write_config(false);
        let mut pause = TOPICS_EVERY.max(started.elapsed() * 10);
        if let Err(error) = outcome {
            self.note_config_failure(&error);
            pause = pause.max(RETRY_AFTER);
        }
        let mut files = lock(&self.config_files);
        files.topics = Pause::of(pause);
        if behind(&files) { pause } else { Duration::MAX }
    }

    /// Counts and says that the files could not be written.
    pub(super) fn note_config_failure(&self, error: &StoreError) {
        self.counters.config_errors.fetch_add(1, Ordering::Relaxed);
        let text = format!("the files under config/ are behind, trying again: {error}");
        self.environment.events.error(text);
    }
}
