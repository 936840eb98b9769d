//! The dispatcher: gives each record to the queues, the index and the state, in log order.
//!
//! Invariants: recovery drives it over the tail of the log, the dispatch thread over what was confirmed; both do
//! the same, so a rebuilt queue equals the first one.
//! Threads: who holds the dispatch lock.

use std::sync::Arc;
use std::time::Duration;

use super::index_sink::IndexSink;
use super::queue_notifications::QueueNotifications;
use super::queue_sink::QueueSink;
use super::sink::{Dispatched, Quarantine, Sink};
use super::state_sink::StateSink;
use crate::consumequeue::{Queue, QueueTable};
use crate::environment::Environment;
use crate::error::Result;
use crate::idempotence::{KeyFile, KeyPlace};
use crate::index::Index;
use crate::message::RecordView;
use crate::state::MetaState;

/// Applies records; see the module.
pub struct Dispatcher {
    /// Log offset up to which records were dispatched.
    pub offset: i64,
    pub store_timestamp: i64,
    /// The time at which ages were taken last before the start; 0 where it is not known. A record that came after it
    /// and has an earlier stamp says that the clock was set back in between.
    pub ages_at: i64,
    pub quarantine: Quarantine,
    queues: QueueSink,
    index: IndexSink,
    state: StateSink,
}

impl Dispatcher {
    pub fn new(
        state: MetaState,
        offset: i64,
        queues: Arc<QueueTable>,
        index: Arc<Index>,
        keys: KeyFile,
        environment: Environment,
        delay_levels_ms: Vec<i64>,
    ) -> Self {
        let disk = Arc::clone(&environment.disk);
        Self {
            offset,
            store_timestamp: 0,
            ages_at: 0,
            quarantine: Quarantine::default(),
            queues: QueueSink::new(queues, environment, delay_levels_ms),
            index: IndexSink { index, disk },
            state: StateSink { state, keys, unknown_keys: Some(Vec::new()) },
        }
    }

    /// The applied state.
    pub fn state(&self) -> &MetaState {
        &self.state.state
    }

    /// The applied state, for recovery to complete.
    pub fn state_mut(&mut self) -> &mut MetaState {
        &mut self.state.state
    }

    /// The keys that came since the last checkpoint.
    pub fn keys(&mut self) -> &mut KeyFile {
        &mut self.state.keys
    }

    /// The queues.
    pub fn queues(&self) -> &QueueTable {
        &self.queues.queues
    }

    /// Queues somebody waits for.
    pub fn notifications(&self) -> Arc<QueueNotifications> {
        Arc::clone(&self.queues.notifications)
    }

    /// Keys applied that the append side does not know; it knows the coming ones before they come here.
    pub fn take_unknown_keys(&mut self) -> Vec<(String, KeyPlace)> {
        self.state.unknown_keys.take().unwrap_or_default()
    }

    /// Applies one record. Its queue entry is staged: the caller calls [`Dispatcher::store`] before it announces
    /// anything. The caller moves `offset` behind it.
    ///
    /// # Errors
    /// `DATA_CORRUPT` for a change of a later version; `DISK_FULL` or any I/O error. The record can be dispatched
    /// again.
    pub fn dispatch(&mut self, record: &RecordView<'_>) -> Result<()> {
        let Self { quarantine, queues, index, state, .. } = self;
        let dispatched = Dispatched::of(record, quarantine)?;
        // The index first, which may fail and take the record again. What the queues took is stored by the next
        // checkpoint: it may hold no record that is dispatched again behind it.
        let sinks: [&mut dyn Sink; 3] = [index, queues, state];
        for sink in sinks {
            sink.take(&dispatched)?;
        }
        self.store_timestamp = record.store_timestamp;
        self.ages_at = self.ages_at.min(record.store_timestamp);
        Ok(())
    }

    /// Stages a record's entry again, for a queue that is being repaired (recovery only).
    ///
    /// # Errors
    /// As [`Dispatcher::dispatch`].
    pub fn stage_again(&mut self, record: &RecordView<'_>) -> Result<()> {
        let Self { quarantine, queues, .. } = self;
        queues.stage(&Dispatched::again(record, quarantine))
    }

    /// Indexes a record again (recovery only).
    ///
    /// # Errors
    /// As [`Dispatcher::dispatch`].
    pub fn index_again(&mut self, record: &RecordView<'_>) -> Result<()> {
        let Self { quarantine, index, .. } = self;
        index.take(&Dispatched::again(record, quarantine))
    }

    /// Queues for whose staged entries files may have to be made.
    pub fn queues_to_reserve(&self) -> Vec<Arc<Queue>> {
        self.queues.to_reserve()
    }

    /// Stores what was staged; then anyone can read it. What could not be stored stays staged, and nothing may be
    /// announced.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn store(&mut self) -> Result<()> {
        while !self.store_for(Duration::MAX)? {}
        Ok(())
    }

    /// As [`Dispatcher::store`], until it took longer than `limit`; false when some is left.
    ///
    /// # Errors
    /// As [`Dispatcher::store`].
    pub fn store_for(&mut self, limit: Duration) -> Result<bool> {
        let mut all = true;
        let sinks: [&mut dyn Sink; 3] = [&mut self.queues, &mut self.index, &mut self.state];
        for sink in sinks {
            all &= sink.store(limit)?;
        }
        Ok(all)
    }
}
