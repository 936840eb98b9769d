//! Dispatching: what is confirmed in the log becomes queue entries, index entries and state.
//!
//! `Dispatch` owns the thread, its rounds and the dispatched mark; [`Dispatcher`], behind the dispatch lock, what
//! a record becomes; `sink.rs` says what those who take records owe.
//! Invariants: records are dispatched in log order and never before they are confirmed; the mark moves when all
//! before it can be read.
//! Threads: one of its own, and the flusher for small rounds: whose turn it is holds `turn`.

mod dispatcher;
mod index_sink;
pub mod queue_notifications;
mod queue_sink;
mod sink;
mod state_sink;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

pub use dispatcher::Dispatcher;
pub use queue_notifications::QueueNotifications;
pub use sink::{Dispatched, Quarantine, Sink};

use crate::commitlog::scan::Scanned;
use crate::commitlog::{CommitLog, LogFile};
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::lifecycle::Lifecycle;
use crate::lock::{FairMutex, lock};
use crate::message::{RecordView, ViewError};
use crate::state::names;
use crate::watermarks::Watermarks;

/// A thread with nothing to do looks up this often, in case it has to stop.
const IDLE: Duration = Duration::from_millis(500);
/// Bytes of the log dispatched under one hold of the dispatch lock.
const ROUND_BYTES: i64 = 1 << 20;
/// Time after which a round gives the dispatch lock back, looked at every few records.
const ROUND: Duration = Duration::from_millis(5);
const RECORDS_BETWEEN_LOOKS: u64 = 8;
/// Flushes up to this size are dispatched by the flusher itself.
const SMALL_BYTES: i64 = 256 << 10;

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct DispatchCounters {
    pub dispatched: AtomicU64,
    pub errors: AtomicU64,
}

/// Owns dispatching; see the module.
pub struct Dispatch {
    environment: Environment,
    log: Arc<CommitLog>,
    marks: Arc<Watermarks>,
    lifecycle: Arc<Lifecycle>,
    dispatcher: FairMutex<Dispatcher>,
    notifications: Arc<QueueNotifications>,
    /// Whose turn it is to dispatch.
    turn: Mutex<()>,
    /// Why the last round failed; `None` when it did not.
    failure: Mutex<Option<String>>,
    pub counters: DispatchCounters,
}

impl Dispatch {
    /// Goes on with what recovery left.
    pub fn new(
        environment: Environment,
        log: Arc<CommitLog>,
        marks: Arc<Watermarks>,
        lifecycle: Arc<Lifecycle>,
        dispatcher: Dispatcher,
    ) -> Self {
        Self {
            environment,
            log,
            marks,
            lifecycle,
            notifications: dispatcher.notifications(),
            dispatcher: FairMutex::new(dispatcher),
            turn: Mutex::default(),
            failure: Mutex::default(),
            counters: DispatchCounters::default(),
        }
    }

    /// Takes the dispatch lock: what is applied, as of the dispatched offset.
    pub fn applied(&self) -> MutexGuard<'_, Dispatcher> {
        lock(&self.dispatcher)
    }

    /// Queues somebody waits for.
    pub fn notifications(&self) -> &QueueNotifications {
        &self.notifications
    }

    /// Why what is stored cannot be read at the moment, if so; it is tried again.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Dispatches what is confirmed until the store stops and all is dispatched.
    pub fn run(&self) {
        let marks = &self.marks;
        // A confirmed mark inside a record, up to which nothing more can be dispatched.
        let stalled = Cell::new(i64::MIN);
        let behind = || marks.dispatched() < marks.confirmed() && stalled.get() != marks.confirmed();
        // The flusher's last round may be under way: it wakes this thread.
        let over = || {
            self.lifecycle.poisoned().is_some()
                || self.lifecycle.stopping() && marks.flushed() >= marks.appended() && !behind()
        };
        loop {
            if !behind() {
                if over() {
                    return;
                }
                self.lifecycle.dispatch_wanted.wait(IDLE);
                continue;
            }
            let (before, confirmed) = (marks.dispatched(), marks.confirmed());
            let outcome = self.dispatch_round();
            if outcome.is_ok() && marks.dispatched() == before {
                stalled.set(confirmed);
            }
            if let Err(error) = outcome {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                self.environment.events.error(format!("dispatching failed, trying again: {error}"));
                if self.lifecycle.stopping() {
                    return;
                }
                self.lifecycle.maintenance_wanted.set();
                self.lifecycle.progress.wait_until(IDLE, || self.lifecycle.stopping());
            }
        }
    }

    /// Dispatches what is confirmed, at most a round's bytes or time.
    ///
    /// # Errors
    /// `DATA_CORRUPT`; any I/O error of a queue or the index. What could not be stored is stored first in the next.
    pub fn dispatch_round(&self) -> Result<()> {
        self.round(&self.hold_turn())
    }

    /// Keeps every other thread from dispatching until what this returns is dropped.
    pub fn hold_turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Dispatches a small flush on the caller's thread: who waits for it is then woken once, and can read what it
    /// wrote. What is left (a large one, an error, a dispatcher at work) is the thread's. Returns whether there was
    /// something and all of it is dispatched, so that everybody was woken.
    pub fn dispatch_small(&self) -> bool {
        let confirmed = self.marks.confirmed();
        let behind = confirmed - self.marks.dispatched();
        if behind > 0
            && behind <= SMALL_BYTES
            && let Ok(turn) = self.turn.try_lock()
        {
            let _ = self.round(&turn);
        }
        self.wake();
        behind > 0 && self.marks.dispatched() >= confirmed
    }

    /// Wakes the thread if something is confirmed that is not dispatched, or if it may have to end.
    pub fn wake(&self) {
        if self.marks.dispatched() < self.marks.confirmed() || self.lifecycle.stopping() {
            self.lifecycle.dispatch_wanted.set();
        }
    }

    /// Dispatches what is confirmed, at most a round's bytes or time. One thread at a time has the turn.
    fn round(&self, _turn: &MutexGuard<'_, ()>) -> Result<()> {
        let outcome = self.dispatch_up_to(self.marks.confirmed());
        *lock(&self.failure) = outcome.as_ref().err().map(ToString::to_string);
        outcome
    }

    fn dispatch_up_to(&self, confirmed: i64) -> Result<()> {
        let mut dispatcher = self.applied();
        // What a round before could not store comes first.
        dispatcher.store()?;
        let limit = confirmed.min(dispatcher.offset + ROUND_BYTES);
        let (mut count, mut scheduled) = (0u64, false);
        let started = self.environment.timer();
        while dispatcher.offset < limit {
            if count % RECORDS_BETWEEN_LOOKS == RECORDS_BETWEEN_LOOKS - 1 && started.elapsed() > ROUND {
                break;
            }
            let offset = dispatcher.offset;
            let Some(file) = self.log.file_at(offset) else {
                return Err(StoreError::corrupt(format!("no log file holds offset {offset}")));
            };
            match scan_unchecked(&file, offset) {
                Scanned::Roll(next) => dispatcher.offset = next,
                // An offset inside a record confirms nothing of it.
                Scanned::Record(record) if record.end_offset() > confirmed => break,
                Scanned::Record(record) => {
                    scheduled |= record.topic == names::SCHEDULE_TOPIC;
                    dispatcher.dispatch(&record)?;
                    count += 1;
                    dispatcher.offset = record.end_offset();
                }
                Scanned::Nothing { reason } => {
                    return Err(StoreError::corrupt(format!("no record at offset {offset}: {reason}")));
                }
            }
        }
        let to_reserve = dispatcher.queues_to_reserve();
        if !to_reserve.is_empty() {
            // Making files takes much longer than filling them, so nobody shall wait for this lock meanwhile. Whose
            // turn it is to dispatch deletes topics too: none of these goes before its files stand.
            drop(dispatcher);
            self.environment.faults.pass(Point::QueuesMake);
            to_reserve.iter().try_for_each(|queue| queue.reserve())?;
            dispatcher = self.applied();
        }
        while !dispatcher.store_for(ROUND)? {
            // Who waits has a turn; what is left is not announced before all is stored.
            drop(dispatcher);
            dispatcher = self.applied();
        }
        let offset = dispatcher.offset;
        let topic_changes = dispatcher.state().topics_version.counter as i64;
        let announce = self.notifications.is_pending() || offset >= self.marks.confirmed();
        drop(dispatcher);
        self.counters.dispatched.fetch_add(count, Ordering::Relaxed);
        self.announce(offset, topic_changes, announce);
        if scheduled {
            self.lifecycle.schedule_changed.set();
        }
        Ok(())
    }

    /// Moves the mark; `to_all` also wakes the event loop.
    fn announce(&self, offset: i64, topic_changes: i64, to_all: bool) {
        let topics_changed = topic_changes != self.marks.topic_changes();
        if topics_changed {
            // Before the dispatched mark: who reads a message of a new topic looks for the topic first.
            self.marks.set_topic_changes(topic_changes);
        }
        self.marks.set_dispatched(offset);
        if topics_changed {
            self.lifecycle.maintenance_wanted.set();
        }
        if to_all {
            self.lifecycle.progress.moved();
        } else {
            self.lifecycle.progress.moved_quietly();
        }
    }
}

/// As `scan::scan_at`, without the checksum: this process wrote the bytes a moment ago.
fn scan_unchecked(file: &LogFile, offset: i64) -> Scanned<'_> {
    let at = (offset - file.base) as usize;
    match RecordView::parse(file.file.tail(at)) {
        Ok(record) => Scanned::Record(record),
        Err(ViewError::EndOfFile) => Scanned::Roll(file.end()),
        Err(ViewError::Empty) => Scanned::Nothing { reason: "empty" },
        Err(ViewError::Invalid(reason)) => Scanned::Nothing { reason },
    }
}
