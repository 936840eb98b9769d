//! The store: the owner of a store directory.
//!
//! `Store` opens, recovers and closes (`open.rs`), and asks the owners of its parts: `append` for the way in, `flush`,
//! `dispatch`, `schedule` and `maintenance` for what their threads do, `leases` for who holds a group. Here are
//! only the questions that concern several of them: reads (`queries.rs`), replication (`replication.rs`), groups
//! (`groups.rs`), lists (`listing.rs`) and figures (`metrics.rs`).
//! Invariants: appended >= flushed >= confirmed >= dispatched; one owner a directory.
//! Threads: the four that it starts and joins, and those of callers.

mod groups;
mod listing;
mod metrics;
mod open;
mod queries;
mod replication;

use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use crate::append::{AppendRequest, Appended, GroupChange, Placed, TopicChange};
pub use crate::options::{Flush, Options, Role, parse_levels};
pub use crate::recovery::Report;

use crate::ages::AgeClock;
use crate::append::Appender;
use crate::commitlog::CommitLog;
use crate::commitlog::next_file::NextFile;
use crate::confirmation::Confirmation;
use crate::consumequeue::QueueTable;
use crate::directory::DirectoryLock;
use crate::dispatch::Dispatch;
use crate::environment::Environment;
use crate::error::Result;
use crate::events::Event;
use crate::flush::Flusher;
use crate::identity::Identity;
use crate::leases::{LeaseHold, Leases};
use crate::lifecycle::Lifecycle;
use crate::maintenance::Maintenance;
use crate::message::NewMessage;
use crate::paths::StorePaths;
use crate::read::{EpochMemory, QueueReader};
use crate::schedule::Scheduler;
use crate::state::TopicConfig;
use crate::watermarks::Watermarks;

/// A turn of one of the store's threads; see [`Store::work`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The flusher's: with a small flush it dispatches too.
    Flush,
    /// The flusher's, while the dispatcher is at work.
    FlushAlone,
    Dispatch,
    /// Delivers the delayed messages that are due.
    Deliver,
    /// The topic table and the next log file.
    Prepare,
}

/// The owner of a store directory. Dropping it closes it.
pub struct Store {
    options: Arc<Options>,
    identity: Identity,
    paths: StorePaths,
    environment: Environment,
    log: Arc<CommitLog>,
    queues: Arc<QueueTable>,
    marks: Arc<Watermarks>,
    ages: Arc<AgeClock>,
    lifecycle: Arc<Lifecycle>,
    next_file: Arc<NextFile>,
    reads: QueueReader,
    epoch_memory: EpochMemory,
    appender: Arc<Appender>,
    confirmation: Arc<Confirmation>,
    flusher: Arc<Flusher>,
    dispatch: Arc<Dispatch>,
    scheduler: Arc<Scheduler>,
    maintenance: Arc<Maintenance>,
    leases: Leases,
    report: Report,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held until the end.
    directory_lock: Mutex<Option<DirectoryLock>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.paths.root()).finish_non_exhaustive()
    }
}

impl Store {
    /// The settings in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What recovery found.
    pub fn report(&self) -> &Report {
        &self.report
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
    pub fn root(&self) -> &Path {
        self.paths.root()
    }

    /// The store's clock.
    pub fn now_ms(&self) -> i64 {
        self.environment.clock.now_ms()
    }

    /// The time at which ages are taken: the clock's, but that nothing grows old by a jump of it.
    pub fn now_for_ages(&self) -> i64 {
        self.ages.now()
    }

    /// Appends messages, all or none; see [`Appender::append`].
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn append(&self, request: &AppendRequest<'_>, messages: &[NewMessage<'_>]) -> Result<Appended> {
        self.appender.append(request, messages)
    }

    /// As [`Store::append`], but for the flush, which [`Store::flush_soon`] asks for: once for what came together.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn append_unflushed(
        &self,
        request: &AppendRequest<'_>,
        messages: &[NewMessage<'_>],
    ) -> Result<Appended> {
        self.appender.append_unflushed(request, messages)
    }

    /// Has what is appended flushed now, where appends are waited for.
    pub fn flush_soon(&self) {
        self.appender.wake_flusher();
    }

    /// Creates or changes a topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// As [`Appender::put_topic`].
    pub fn put_topic(&self, topic: &str, change: &TopicChange) -> Result<i64> {
        self.appender.put_topic(topic, change)
    }

    /// Deletes a topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// As [`Appender::delete_topic`].
    pub fn delete_topic(&self, topic: &str) -> Result<i64> {
        self.appender.delete_topic(topic)
    }

    /// A topic's settings, system topics included, also of one created a moment ago.
    pub fn topic(&self, topic: &str) -> Option<TopicConfig> {
        self.appender.topic(topic)
    }

    /// Takes or renews a group's lease; see [`Leases::acquire`].
    ///
    /// # Errors
    /// As [`Leases::acquire`].
    pub fn acquire_lease(&self, group: &str, owner: &str, ttl_ms: i64) -> Result<(i64, i64)> {
        self.leases.acquire(group, owner, ttl_ms)
    }

    /// Gives a lease back. False when `owner` does not hold it.
    pub fn release_lease(&self, group: &str, owner: &str) -> bool {
        self.leases.release(group, owner)
    }

    /// Who holds a group now.
    pub fn lease(&self, group: &str) -> Option<LeaseHold> {
        self.leases.hold(group)
    }

    /// Who holds a group now or is about to.
    pub fn lease_or_claim(&self, group: &str) -> Option<LeaseHold> {
        self.leases.hold_or_claim(group)
    }

    /// (level, next offset, max offset) of every delay level with entries.
    pub fn delay_progress(&self) -> Vec<(u32, i64, i64)> {
        self.scheduler.progress()
    }

    /// appended, flushed, dispatched, confirmed.
    pub fn watermarks(&self) -> (i64, i64, i64, i64) {
        // Read from the lowest up, so that their order holds in what is returned.
        let (dispatched, confirmed) = (self.marks.dispatched(), self.marks.confirmed());
        let flushed = self.marks.flushed();
        (self.marks.appended(), flushed, dispatched, confirmed)
    }

    /// Waits until all before `end_offset` is flushed; false when the time was over or a flush failed.
    pub fn wait_flushed(&self, end_offset: i64, timeout: Duration) -> bool {
        self.lifecycle.wait(timeout, || self.marks.flushed() >= end_offset)
    }

    /// Waits until all before `end_offset` is dispatched; false when the time was over or a flush failed.
    pub fn wait_dispatched(&self, end_offset: i64, timeout: Duration) -> bool {
        self.lifecycle.wait(timeout, || self.marks.dispatched() >= end_offset)
    }

    /// Waits until `done` holds, looking each time a watermark moved; false when the time was over.
    pub fn progress_wait(&self, timeout: Duration, done: impl FnMut() -> bool) -> bool {
        self.lifecycle.progress.wait_until(timeout, done)
    }

    /// Readable when a watermark moved; for an event loop.
    pub fn progress_fd(&self) -> std::os::fd::RawFd {
        self.lifecycle.progress.fd()
    }

    /// Reports the next message of a queue; see [`Store::take_notified_queues`].
    pub fn watch(&self, topic: &str, queue_id: u32) {
        self.dispatch.notifications().watch(topic, queue_id);
    }

    /// Watched queues that got messages since the last call; they are watched no longer.
    pub fn take_notified_queues(&self) -> Vec<(String, u32)> {
        self.dispatch.notifications().take()
    }

    /// Why the store is read-only for good, if it is.
    pub fn poisoned(&self) -> Option<&str> {
        self.lifecycle.poisoned()
    }

    /// Readable when the store became read-only for good; for an event loop.
    pub fn alarm_fd(&self) -> std::os::fd::RawFd {
        self.lifecycle.alarm_fd()
    }

    /// Why what is stored cannot be read at the moment, if so; the dispatcher goes on trying.
    pub fn dispatch_failure(&self) -> Option<String> {
        self.dispatch.failure()
    }

    /// Brings queues and index to the disk and writes down how far everything is.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub fn checkpoint(&self) -> Result<()> {
        self.maintenance.checkpoint()
    }

    /// Takes a checkpoint if its snapshot is worth writing; true when it was.
    ///
    /// # Errors
    /// As [`Maintenance::checkpoint`].
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        self.maintenance.checkpoint_if_due()
    }

    /// Does a turn of what a thread of the store does.
    ///
    /// # Errors
    /// What that thread would say and try again, but a failed flush, which is final.
    pub fn work(&self, work: Work) -> Result<()> {
        match work {
            Work::Flush => self.flusher.flush_if_behind().map(drop),
            Work::FlushAlone => {
                let _turn = self.dispatch.hold_turn();
                self.flusher.flush_if_behind().map(drop)
            }
            Work::Dispatch => self.dispatch.dispatch_round(),
            Work::Deliver => self.scheduler.deliver_all_due().map(drop),
            Work::Prepare => {
                self.maintenance.prepare();
                Ok(())
            }
        }
    }

    /// Deletes what retention or a full disk gives up; see [`Maintenance::expire`].
    ///
    /// # Errors
    /// As [`Maintenance::expire`].
    pub fn expire(&self, now_ms: i64, now_only: bool) -> Result<usize> {
        self.maintenance.expire(now_ms, now_only)
    }
}
