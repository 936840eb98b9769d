//! The store: the owner of a store directory.
//!
//! `open.rs` puts the parts together and takes them apart; `append.rs` is the way in; `threads.rs` holds
//! the flusher and the dispatcher; `schedule.rs` delivers delayed messages; `maintenance.rs` takes checkpoints,
//! expires files and makes the next one ready; `admin.rs` changes topics, groups and offsets; `duplicate.rs`
//! answers a request sent again; `recovery.rs` brings a directory back after a stop of any kind.

mod admin;
mod append;
mod append_result;
mod config_files;
mod duplicate;
mod fair_mutex;
mod listing;
mod maintenance;
mod metrics;
mod notify;
mod open;
mod options;
mod queries;
pub mod recovery;
mod repair;
mod routing;
mod schedule;
mod snapshot_pace;
mod threads;
mod time;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

pub use admin::TopicChange;
pub use append::{AppendRequest, Payload};
pub use append_result::{Appended, Placed};
pub use open::Store;
pub use options::{Flush, Options, parse_levels};
pub use recovery::Report;

use crate::arrivals::Arrivals;
use crate::commitlog::CommitLog;
use crate::commitlog::next_file::NextFile;
use crate::commitlog::writer::LogWriter;
use crate::consumequeue::QueueTable;
use crate::dispatch::Dispatcher;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::events::Event;
use crate::idempotence::IdempotenceTable;
use crate::identity::Identity;
use crate::index::Index;
use crate::message::message_id::UniqKeys;
use crate::paths::StorePaths;
use crate::read::QueueReader;
use crate::watermarks::Watermarks;
use config_files::ConfigFiles;
use fair_mutex::{FairMutex, Lock};
use notify::{Progress, Signal};
use routing::Routing;
use snapshot_pace::SnapshotPace;
use time::{Ages, Delays};

/// What the append lock guards.
struct Appender {
    writer: LogWriter,
    routing: Routing,
    keys: IdempotenceTable,
    last_store_timestamp: i64,
    closed: bool,
}

/// Who holds a group now.
#[derive(Debug, Clone)]
pub struct LeaseHold {
    pub owner: String,
    pub epoch: i64,
    /// Epoch milliseconds, for people; what counts is `deadline`.
    pub expires_at: i64,
    /// When it ends, by the monotonic clock.
    deadline: i64,
    /// The end of the record that grants it: nobody is told of it before that is confirmed.
    end_offset: i64,
}

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub messages_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub requests_in: AtomicU64,
    pub duplicates: AtomicU64,
    pub flushes: AtomicU64,
    pub flush_micros: AtomicU64,
    pub dispatched: AtomicU64,
    pub dispatch_errors: AtomicU64,
    pub delayed_delivered: AtomicU64,
    pub delayed_dropped: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_errors: AtomicU64,
    pub config_errors: AtomicU64,
    pub expired_files: AtomicU64,
}

/// Everything the store's threads share, and what a [`Store`] can do.
pub struct Shared {
    pub(crate) options: Options,
    pub(crate) identity: Identity,
    pub(crate) paths: StorePaths,
    pub(crate) environment: Environment,
    pub(crate) log: Arc<CommitLog>,
    pub(crate) queues: Arc<QueueTable>,
    pub(crate) index: Arc<Index>,
    pub(crate) marks: Watermarks,
    pub(crate) read_side: QueueReader,
    appender: Mutex<Appender>,
    next_file: Arc<NextFile>,
    dispatcher: FairMutex<Dispatcher>,
    arrivals: Arc<Arrivals>,
    leases: Mutex<HashMap<String, LeaseHold>>,
    ids: UniqKeys,
    ages: Mutex<Ages>,
    delays: Mutex<Delays>,
    pub(crate) progress: Progress,
    flush_wanted: Signal,
    schedule_changed: Signal,
    maintenance_wanted: Signal,
    stopping: AtomicBool,
    poisoned: OnceLock<String>,
    /// Why the last dispatch round failed; `None` when it did not.
    dispatch_failure: Mutex<Option<String>>,
    /// Serialises checkpoints.
    checkpointing: Mutex<SnapshotPace>,
    /// Serialises expiry; taken before every other lock.
    expiring: Mutex<()>,
    /// Whose turn it is to dispatch: the dispatcher's, or the flusher's for a small flush.
    dispatching: Mutex<()>,
    /// Serialises writes of RocketMQ's files; taken before the dispatch lock.
    config_files: Mutex<ConfigFiles>,
    pub(crate) counters: Counters,
}

fn lock<L: Lock>(mutex: &L) -> MutexGuard<'_, L::Data> {
    // A panic under a lock poisons the store (`run_thread`, `check_open`): what it guards is only read then.
    mutex.take()
}

impl Shared {
    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What the operator should know and nobody took yet.
    pub fn take_events(&self) -> Vec<Event> {
        self.environment.events.take()
    }

    /// Who the store is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The store's directory.
    pub fn root(&self) -> &std::path::Path {
        self.paths.root()
    }

    /// The store's clock.
    pub fn now_ms(&self) -> i64 {
        self.environment.clock.now_ms()
    }

    /// The time at which ages are taken: the clock's, but that nothing grows old by a jump of it.
    pub fn now_for_ages(&self) -> i64 {
        let clock = &self.environment.clock;
        lock(&self.ages).now(clock.now_ms(), clock.monotonic_ms(), &self.environment.events)
    }

    /// appended, flushed, dispatched, confirmed.
    pub fn watermarks(&self) -> (i64, i64, i64, i64) {
        // Read from the lowest up, so that their order holds in what is returned.
        let (confirmed, dispatched) = (self.marks.confirmed(), self.marks.dispatched());
        (self.marks.appended(), self.marks.flushed(), dispatched, confirmed)
    }

    /// Waits until all before `end_offset` is flushed; false when the time was over or a flush failed.
    pub fn wait_flushed(&self, end_offset: i64, timeout: Duration) -> bool {
        let done = || self.marks.flushed() >= end_offset;
        self.progress.wait_until(timeout, || done() || self.poisoned.get().is_some()) && done()
    }

    /// Waits until all before `end_offset` is dispatched; false when the time was over or a flush failed.
    pub fn wait_dispatched(&self, end_offset: i64, timeout: Duration) -> bool {
        let done = || self.marks.dispatched() >= end_offset;
        self.progress.wait_until(timeout, || done() || self.poisoned.get().is_some()) && done()
    }

    /// Waits until `done` holds, looking each time a watermark moved; false when the time was over.
    pub fn progress_wait(&self, timeout: Duration, done: impl FnMut() -> bool) -> bool {
        self.progress.wait_until(timeout, done)
    }

    /// Readable when a watermark moved; for an event loop.
    pub fn progress_fd(&self) -> std::os::fd::RawFd {
        self.progress.fd()
    }

    /// Why the store is read-only for good, if it is.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.get().map(String::as_str)
    }

    /// Why what is stored cannot be read at the moment, if so; the dispatcher goes on trying.
    pub fn dispatch_failure(&self) -> Option<String> {
        lock(&self.dispatch_failure).clone()
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Makes the store read-only for good: pages that a failed fsync was about may be gone, and what a failed
    /// write left is unknown.
    fn poison(&self, reason: String) {
        let _ = self.poisoned.set(reason);
        self.progress.moved();
    }

    fn check_writable(&self) -> Result<()> {
        self.poisoned().map_or(Ok(()), |reason| Err(StoreError::poisoned(reason)))
    }
}
