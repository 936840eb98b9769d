//! The flusher and the dispatcher: the two threads that move the watermarks.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::open::Job;
use super::{Flush, Shared, lock};
use crate::commitlog::scan::Found;
use crate::environment::Point;
use crate::error::{Result, StoreError};
use crate::message::{RecordView, ViewError};
use crate::meta::names;

/// A thread with nothing to do looks up this often, in case it has to stop.
const IDLE: Duration = Duration::from_millis(500);
/// Bytes of the log dispatched under one hold of the dispatch lock.
const DISPATCH_ROUND_BYTES: i64 = 1 << 20;
/// Time after which a round gives the dispatch lock back, looked at every few records.
const DISPATCH_ROUND: Duration = Duration::from_millis(5);
const RECORDS_BETWEEN_LOOKS: u64 = 8;
/// Flushes up to this size are dispatched by the flusher itself.
const DISPATCH_INLINE_BYTES: i64 = 256 << 10;

/// How soon it is tried again to get a descriptor when the process has none left.
const DESCRIPTOR_RETRY: Duration = Duration::from_millis(50);

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Shared {
    /// Runs a thread of the store. A panic in it is not survived quietly: without one of them the store would
    /// acknowledge what nobody flushes, dispatches or delivers.
    pub(super) fn run_thread(&self, name: &str, run: Job) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(self)));
        if let Err(panic) = outcome {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            self.poison(format!("{name} ended in a panic: {}", said.unwrap_or("it said nothing")));
        }
    }

    /// Flushes until the store stops; then once more.
    pub(super) fn run_flusher(&self) {
        loop {
            let stopping = self.stopping();
            if self.marks.flushed() < self.marks.appended() {
                if self.flush_once().is_err() {
                    return;
                }
                if self.options.flush == Flush::Sync {
                    continue;
                }
            } else if stopping {
                return;
            }
            let pause = match self.options.flush {
                Flush::Sync => IDLE,
                Flush::Async => Duration::from_millis(self.options.flush_interval_ms),
            };
            if !stopping {
                self.flush_wanted.wait(pause);
            }
        }
    }

    /// Brings everything appended so far to the disk. One call serves every append before it.
    fn flush_once(&self) -> Result<()> {
        self.environment.faults.pass(Point::FlushBefore);
        let (from, to) = (self.marks.flushed(), self.marks.appended());
        let started = Instant::now();
        if let Err(error) = self.sync_log(from, to) {
            self.poison(format!("flushing the commit log: {error}"));
            return Err(StoreError::io("flushing the commit log", error));
        }
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flush_micros.fetch_add(started.elapsed().as_micros() as u64, Ordering::Relaxed);
        self.environment.faults.pass(Point::FlushAfter);
        self.marks.set_flushed(to);
        self.dispatch_inline(to);
        self.progress.moved();
        Ok(())
    }

    /// Syncs the files that hold `[from, to)`, and the name of each that begins there.
    fn sync_log(&self, from: i64, to: i64) -> std::io::Result<()> {
        let disk = &*self.environment.disk;
        for file in self.log.files() {
            if file.base < to && file.end() > from {
                file.file.sync(disk)?;
                if file.base >= from {
                    self.sync_names()?;
                }
            }
        }
        Ok(())
    }

    /// Syncs the names in the log's directory. Without a free descriptor nothing was tried yet, so nothing has
    /// failed: it waits for one, and those who wait for this flush with it.
    fn sync_names(&self) -> std::io::Result<()> {
        loop {
            match self.environment.disk.sync_directory(self.log.directory()) {
                Err(error) if is_out_of_descriptors(&error) && !self.stopping() => {
                    self.progress.wait_until(DESCRIPTOR_RETRY, || self.stopping());
                }
                outcome => return outcome,
            }
        }
    }

    /// Dispatches a small flush at once: who waits for it is then woken once, and can read what it wrote.
    /// What is left (a large one, an error, a dispatcher at work) is the dispatcher's.
    fn dispatch_inline(&self, flushed: i64) {
        if flushed - self.marks.dispatched() <= DISPATCH_INLINE_BYTES
            && let Ok(turn) = self.dispatching.try_lock()
        {
            let _ = self.dispatch_round(&turn, flushed);
        }
    }

    /// Dispatches what is flushed until the store stops and all is dispatched.
    pub(super) fn run_dispatcher(&self) {
        loop {
            let (done, flushed) = (self.marks.dispatched(), self.marks.flushed());
            if done >= flushed {
                if self.stopping() && flushed >= self.marks.appended() || self.poisoned.get().is_some() {
                    return;
                }
                self.progress
                    .wait_until(IDLE, || self.marks.dispatched() < self.marks.flushed() || self.stopping());
                if self.stopping() && self.marks.flushed() < self.marks.appended() {
                    // The flusher's last round is under way: its progress wakes this thread.
                    self.progress.wait_until(IDLE, || self.marks.dispatched() < self.marks.flushed());
                }
                continue;
            }
            let turn = lock(&self.dispatching);
            let outcome = self.dispatch_round(&turn, flushed);
            drop(turn);
            if let Err(error) = outcome {
                self.counters.dispatch_errors.fetch_add(1, Ordering::Relaxed);
                self.environment.events.error(format!("dispatching failed, trying again: {error}"));
                if self.stopping() {
                    return;
                }
                self.maintenance_wanted.set();
                self.progress.wait_until(IDLE, || self.stopping());
            }
        }
    }

    /// Dispatches up to `flushed`, at most a round's bytes or time. One thread at a time has the turn.
    fn dispatch_round(&self, _turn: &MutexGuard<'_, ()>, flushed: i64) -> Result<()> {
        let outcome = self.dispatch_up_to(flushed);
        *lock(&self.dispatch_failure) = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn dispatch_up_to(&self, flushed: i64) -> Result<()> {
        let mut dispatcher = lock(&self.dispatcher);
        // What a round before could not store comes first.
        dispatcher.flush_entries()?;
        let limit = flushed.min(dispatcher.offset + DISPATCH_ROUND_BYTES);
        let (mut count, mut scheduled) = (0u64, false);
        let started = Instant::now();
        while dispatcher.offset < limit {
            if count % RECORDS_BETWEEN_LOOKS == RECORDS_BETWEEN_LOOKS - 1
                && started.elapsed() > DISPATCH_ROUND
            {
                break;
            }
            let offset = dispatcher.offset;
            let Some(file) = self.log.file_at(offset) else {
                return Err(StoreError::corrupt(format!("no log file holds offset {offset}")));
            };
            match self.look_unchecked(&file, offset) {
                Found::Roll(next) => dispatcher.offset = next,
                Found::Record(record) => {
                    scheduled |= record.topic == names::SCHEDULE_TOPIC;
                    dispatcher.dispatch(&record)?;
                    count += 1;
                    dispatcher.offset = record.end_offset();
                }
                Found::Nothing { reason } => {
                    return Err(StoreError::corrupt(format!("no record at offset {offset}: {reason}")));
                }
            }
        }
        let without_room = dispatcher.queues_without_room();
        if !without_room.is_empty() {
            // Making files takes much longer than filling them, so nobody shall wait for this lock meanwhile. Whose
            // turn it is to dispatch deletes topics too: none of these goes before its files stand.
            drop(dispatcher);
            self.environment.faults.pass(Point::QueuesMake);
            without_room.iter().try_for_each(|queue| queue.make_room())?;
            dispatcher = lock(&self.dispatcher);
        }
        while !dispatcher.flush_entries_for(DISPATCH_ROUND)? {
            // Who waits has a turn; what is left is not announced before all is stored.
            drop(dispatcher);
            dispatcher = lock(&self.dispatcher);
        }
        let offset = dispatcher.offset;
        let topic_changes = dispatcher.state.topics_version.counter as i64;
        let announce = self.arrivals.is_pending() || offset >= self.marks.flushed();
        drop(dispatcher);
        let topics_changed = topic_changes != self.marks.topic_changes();
        if topics_changed {
            // Before the dispatched mark: who reads a message of a new topic looks for the topic first.
            self.marks.set_topic_changes(topic_changes);
        }
        self.marks.set_dispatched(offset);
        if topics_changed {
            self.maintenance_wanted.set();
        }
        self.counters.dispatched.fetch_add(count, Ordering::Relaxed);
        if announce {
            self.progress.moved();
        } else {
            self.progress.moved_quietly();
        }
        if scheduled {
            self.schedule_changed.set();
        }
        Ok(())
    }

    /// As `scan::look`, without the checksum: this process wrote the bytes a moment ago.
    fn look_unchecked<'a>(&self, file: &'a crate::commitlog::LogFile, offset: i64) -> Found<'a> {
        let at = (offset - file.base) as usize;
        match RecordView::parse(file.file.tail(at)) {
            Ok(record) => Found::Record(record),
            Err(ViewError::EndOfFile) => Found::Roll(file.end()),
            Err(ViewError::Empty) => Found::Nothing { reason: "empty" },
            Err(ViewError::Invalid(reason)) => Found::Nothing { reason },
        }
    }
}
