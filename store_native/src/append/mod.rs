//! The way in: requests become records.
//!
//! `Appender` owns the append lock and what it guards: the end of the log, the topics and groups as they will be
//! when all of it is dispatched, and the idempotence keys. `records.rs` lays records behind the end, `topics.rs` changes
//! topics, `groups.rs` groups, `delay.rs` says how long a message waits, `duplicate.rs` answers a request sent
//! again. `roles.rs` says who may append, `replicated.rs` appends a master's bytes, `cut.rs` cuts what is not a master's.
//! Invariants: under the lock a request gets its queue offsets and a contiguous place, and is written there: the
//! log never has a hole, so `appended` means what it says. What can be done before the lock (properties, checksums
//! of bodies) or behind it is.
//! Threads: every one that appends, the scheduler among them.

mod cut;
mod delay;
mod duplicate;
mod groups;
mod records;
mod replicated;
mod request;
mod roles;
mod topic_table;
mod topics;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, is_poisoned};
use std::sync::Arc;

pub use groups::{GroupChange, GroupTable};
pub use request::{AppendRequest, Appended, Placed};
pub use topic_table::{MAX_QUEUES, TopicTable};
pub use topics::TopicChange;

use crate::ages::AgeClock;
use crate::commitlog::CommitLog;
use crate::commitlog::batch::{Batch, RequestFacts};
use crate::commitlog::epochs::{EpochFile, KnownEpochs};
use crate::commitlog::scan::{Scanned, scan_at};
use crate::commitlog::writer::LogWriter;
use crate::delay_times::DelayTimes;
use crate::dispatch::Quarantine;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::idempotence::{IdempotenceTable, KeyPlace};
use crate::lifecycle::Lifecycle;
use crate::lock::lock;
use crate::message::message_id::UniqKeys;
use crate::message::record::{CRC_PROPERTY_BYTES, Plan};
use crate::message::{NewMessage, properties};
use crate::options::{Flush, Options, Role};
use crate::paths::StorePaths;
use crate::state::{Op, names};
use crate::watermarks::Watermarks;
use delay::level_now;
use duplicate::request_digest;
use records::{Put, Target};
use request::at_message;
use topic_table::TopicState;

/// More than the record of a topic made by its first message takes.
const TOPIC_OP_BYTES: usize = 4096;

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct AppendCounters {
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
    pub requests: AtomicU64,
    pub duplicates: AtomicU64,
}

/// What the append lock guards.
struct LogEnd {
    writer: LogWriter,
    topics: TopicTable,
    groups: GroupTable,
    keys: IdempotenceTable,
    last_store_timestamp: i64,
    closed: bool,
    role: Role,
    epochs: EpochFile,
    /// Nothing lies behind the end.
    tail_erased: bool,
    /// Up to here the log is known to be the master's; `i64::MAX` on a master.
    agreed: i64,
}

/// What recovery hands to the appender.
pub struct AppendStart {
    pub writer: LogWriter,
    pub topics: TopicTable,
    pub groups: GroupTable,
    pub keys: IdempotenceTable,
    pub last_store_timestamp: i64,
    /// The last stop was clean: nothing lies behind the log's end.
    pub clean: bool,
    pub epochs: EpochFile,
}

/// Owns the end of the log; see the module.
pub struct Appender {
    options: Arc<Options>,
    paths: StorePaths,
    environment: Environment,
    log: Arc<CommitLog>,
    marks: Arc<Watermarks>,
    lifecycle: Arc<Lifecycle>,
    ages: Arc<AgeClock>,
    delays: Arc<DelayTimes>,
    ids: UniqKeys,
    end: Mutex<LogEnd>,
    /// The epoch that this broker is the master of, and the log's end when it became so or was opened; changed under the
    /// append lock, and read without it: a large request holds that for long.
    mastership: Mutex<Option<(i64, i64)>>,
    /// The epochs of the log, read without the append lock as well.
    epochs: KnownEpochs,
    pub counters: AppendCounters,
}

impl Appender {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        options: Arc<Options>,
        paths: StorePaths,
        environment: Environment,
        log: Arc<CommitLog>,
        marks: Arc<Watermarks>,
        lifecycle: Arc<Lifecycle>,
        ages: Arc<AgeClock>,
        delays: Arc<DelayTimes>,
        start: AppendStart,
    ) -> Self {
        let AppendStart { writer, topics, groups, keys, last_store_timestamp, clean, epochs } = start;
        let role = options.role;
        let end = LogEnd {
            writer,
            topics,
            groups,
            keys,
            last_store_timestamp,
            closed: false,
            role,
            epochs,
            tail_erased: role == Role::Master || clean,
            agreed: if role == Role::Master { i64::MAX } else { marks.dispatched() },
        };
        Self {
            ids: UniqKeys::new(options.store_host.ip(), &environment.random),
            mastership: Mutex::new((role == Role::Master).then(|| (end.epochs.seen(), end.writer.end()))),
            epochs: end.epochs.known(),
            end: Mutex::new(end),
            counters: AppendCounters::default(),
            options,
            paths,
            environment,
            log,
            marks,
            lifecycle,
            ages,
            delays,
        }
    }

    /// Appends messages, all or none.
    ///
    /// # Errors
    /// `InvalidRequest` kinds with the message's index; `DISK_FULL`; `STORE_POISONED`. Nothing of the request was
    /// stored then. A failed write to the log is final, as a failed flush is: whether the request was stored shows
    /// when the store is opened again.
    pub fn append(&self, request: &AppendRequest<'_>, messages: &[NewMessage<'_>]) -> Result<Appended> {
        let appended = self.append_unflushed(request, messages)?;
        if !appended.duplicate {
            self.wake_flusher();
        }
        Ok(appended)
    }

    /// As [`Appender::append`]; the caller wakes the flusher ([`Appender::wake_flusher`]), once for many.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub fn append_unflushed(
        &self,
        request: &AppendRequest<'_>,
        messages: &[NewMessage<'_>],
    ) -> Result<Appended> {
        request.check(messages)?;
        let digest = request.idempotency_key.map(|_| request_digest(messages));
        let facts = RequestFacts {
            topic: request.topic,
            born_host: request.born_host.unwrap_or(self.options.store_host),
            now_ms: self.environment.clock.now_ms(),
            key: request.idempotency_key.zip(digest.as_deref()),
        };
        let mut batch = Batch::new(&facts, messages, &self.ids);
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.check_master()?;
        if let Some(place) = request.idempotency_key.and_then(|k| end.keys.get(k)) {
            drop(end);
            return self.first_result(request, place, messages.len(), digest.as_deref());
        }
        let puts = self.append_locked(&mut end, &mut batch, request)?;
        let end_offset = end.writer.end();
        drop(end);
        self.environment.faults.pass(Point::AppendAfter);
        self.counters.messages.fetch_add(messages.len() as u64, Ordering::Relaxed);
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let placed = puts.iter().enumerate().map(|(at, put)| put.placed(&batch, at)).collect();
        let waits = messages.iter().any(|m| m.wait_store_ok);
        Ok(Appended { end_offset, waits, duplicate: false, placed })
    }

    fn check_open(&self, end: &LogEnd) -> Result<()> {
        if end.closed {
            return Err(StoreError::closed());
        }
        if is_poisoned(&self.end) {
            self.lifecycle.poison("an append ended in a panic: what it left is unknown".into());
        }
        self.lifecycle.check_writable()
    }

    /// Follows the records from `from` on, which are in the log and not dispatched; passes over what is quarantined.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when another one is not readable.
    pub fn follow_from(&self, from: i64, quarantine: &Quarantine) -> Result<()> {
        let mut end = lock(&self.end);
        let (mut at, to) = (from, end.writer.end());
        while at < to {
            if let Some(behind) = quarantine.end_of(at) {
                at = behind;
                continue;
            }
            let Some(file) = self.log.file_at(at) else { break };
            match scan_at(&file, at) {
                Scanned::Roll(next) => at = next,
                Scanned::Record(record) => {
                    end.follow(&record);
                    end.last_store_timestamp = record.store_timestamp;
                    at = record.end_offset();
                }
                Scanned::Nothing { reason } => {
                    return Err(StoreError::corrupt(format!("no record at offset {at}: {reason}")));
                }
            }
        }
        Ok(())
    }

    /// Wakes the flusher, where an append is waited for.
    pub fn wake_flusher(&self) {
        if self.options.flush == Flush::Sync || self.lifecycle.flushes_at_once() {
            self.lifecycle.flush_wanted.set();
        }
    }

    fn append_locked(
        &self,
        end: &mut LogEnd,
        batch: &mut Batch<'_>,
        request: &AppendRequest<'_>,
    ) -> Result<Vec<Put>> {
        let topic = request.topic;
        // A topic is made of the first request that is stored, not of one that is refused.
        let mut made = match end.topics.get(topic) {
            Some(_) => None,
            None => Some(TopicState::new(self.topic_on_first_use(topic)?)),
        };
        let state = match &mut made {
            Some(state) => state,
            None => end.topics.get_mut(topic).ok_or_else(|| StoreError::no_topic(topic))?,
        };
        let targets = self.choose_queues(state, batch)?;
        check_properties(batch)?;
        let plans: Vec<Plan<'_>> =
            targets.iter().enumerate().map(|(at, t)| batch.plan(at, t.topic, t.queue_id as i32)).collect();
        if let Some(state) = made {
            let size: usize = plans.iter().map(|p| p.size(self.options.store_host)).sum();
            end.writer.check_size(size)?;
            // Room for both: a disk without space for the next file leaves no topic either.
            end.writer.reserve((size + TOPIC_OP_BYTES).min(end.writer.largest()))?;
            let op = Op::PutTopic { topic: topic.into(), config: state.config.clone() };
            self.put_op(end, &op)?;
            end.topics.insert(topic, state);
        }
        let puts = self.put_records(end, &plans, batch.properties(), &targets)?;
        if let Some(key) = request.idempotency_key
            && let Some(first) = puts.first()
        {
            let place = KeyPlace {
                physical_offset: first.physical_offset,
                store_timestamp: end.last_store_timestamp,
            };
            end.keys.set_now(self.ages.now());
            end.keys.insert(key, place);
        }
        Ok(puts)
    }

    /// Chooses every message's queue, and sends delayed ones to the schedule topic.
    fn choose_queues<'t>(&self, state: &mut TopicState, batch: &mut Batch<'t>) -> Result<Vec<Target<'t>>> {
        let topic = batch.topic;
        let now_ms = self.environment.clock.now_ms();
        let mut out = Vec::with_capacity(batch.messages.len());
        for (at, message) in batch.messages.iter().enumerate() {
            let queue_id = state.choose(topic, message).map_err(|e| at_message(e, at))?;
            let level = level_now(message, &self.options.delay_levels_ms, now_ms);
            if level > 0 {
                batch.delay(at, level, topic, queue_id as i32);
                out.push(Target { topic: names::SCHEDULE_TOPIC, queue_id: level - 1 });
            } else {
                out.push(Target { topic, queue_id });
            }
        }
        Ok(out)
    }

    /// Idempotence keys that are remembered, and the log offset of the oldest.
    pub fn remembered_keys(&self) -> (usize, i64) {
        let keys = &lock(&self.end).keys;
        (keys.len(), keys.oldest_offset())
    }

    /// Forgets keys whose records have expired.
    pub fn forget_keys_before(&self, log_min: i64) {
        lock(&self.end).keys.forget_before(log_min);
    }

    /// Refuses every append from now on. False when it did before.
    pub fn close(&self) -> bool {
        !std::mem::replace(&mut lock(&self.end).closed, true)
    }
}

fn check_properties(batch: &Batch<'_>) -> Result<()> {
    let (longest, bytes) = batch.longest_properties();
    if bytes + CRC_PROPERTY_BYTES <= properties::MAX_BYTES {
        return Ok(());
    }
    let detail = format!("the encoded properties take {bytes} bytes, the limit is {}", properties::MAX_BYTES);
    Err(at_message(StoreError::invalid("MESSAGE_ILLEGAL", detail), longest))
}
