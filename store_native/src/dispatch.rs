//! The dispatcher: takes records in log order and makes of them queue entries, index entries and state.
//!
//! One dispatcher exists, behind the dispatch lock. Recovery drives it over the tail of the log, the
//! dispatch thread over what was flushed; both do the same, so a rebuilt queue equals the first one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::consumequeue::{Entry, Queue, QueueTable};
use crate::environment::{Environment, Point};
use crate::error::Result;
use crate::idempotence::{KeyFile, KeyPlace};
use crate::index::Index;
use crate::message::{RecordView, hash, properties};
use crate::meta::{MetaState, Op, names};

/// Which parts a record is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Everything: the record is new.
    All,
    /// Queues and index only: the state holds it already (a rebuild).
    QueuesAndIndex,
}

/// Applies records; see the module.
pub struct Dispatcher {
    pub state: MetaState,
    /// Log offset up to which records were dispatched.
    pub offset: i64,
    pub store_timestamp: i64,
    pub quarantine: Vec<(i64, i64)>,
    pub keys: KeyFile,
    /// Keys applied and not yet handed to the append side (recovery).
    pub recovered_keys: Vec<(String, KeyPlace)>,
    collect_keys: bool,
    /// Queues somebody waits for, and those of them that got messages.
    pub watched: HashSet<(String, u32)>,
    pub arrivals: Vec<(String, u32)>,
    queues: Arc<QueueTable>,
    index: Arc<Index>,
    environment: Environment,
    delay_levels_ms: Vec<i64>,
    /// The queues of the last records, to spare the table's lock.
    cache: HashMap<(u32, Box<str>), Arc<Queue>>,
}

/// Queues remembered between records at most.
const CACHE_LIMIT: usize = 1024;

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
        Self {
            state,
            offset,
            store_timestamp: 0,
            quarantine: Vec::new(),
            keys,
            recovered_keys: Vec::new(),
            collect_keys: true,
            watched: HashSet::new(),
            arrivals: Vec::new(),
            queues,
            index,
            environment,
            delay_levels_ms,
            cache: HashMap::new(),
        }
    }

    /// Ends recovery: keys are known to the append side before they come here from now on.
    pub fn recovered(&mut self) -> Vec<(String, KeyPlace)> {
        self.collect_keys = false;
        std::mem::take(&mut self.recovered_keys)
    }

    /// Applies one record. The caller moves `offset` behind it.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; the record can be dispatched again.
    pub fn dispatch(&mut self, record: &RecordView<'_>, target: Target) -> Result<()> {
        let meta = record.topic == names::META_TOPIC;
        let op = if meta { Op::decode(record.body) } else { None };
        if let Some(Op::DeleteTopic { topic }) = &op {
            self.cache.clear();
            self.queues.remove_topic(topic)?;
        }
        let parts = Parts::of(record);
        if record.is_visible() && record.queue_id >= 0 && names::validate_topic(record.topic).is_ok() {
            self.put_entry(record, &parts)?;
            self.environment.faults.pass(Point::DispatchMid);
        }
        self.index.put(record, &*self.environment.disk)?;
        if target == Target::QueuesAndIndex {
            return Ok(());
        }
        self.store_timestamp = self.store_timestamp.max(record.store_timestamp);
        if let Some(key) = parts.idempotence_key {
            let place =
                KeyPlace { physical_offset: record.physical_offset, store_timestamp: record.store_timestamp };
            self.keys.note(key, place);
            if self.collect_keys {
                self.recovered_keys.push((key.to_owned(), place));
            }
        }
        if let Some((level, offset)) = parts.delivered_from.and_then(parse_delivered_from) {
            self.state.delay_reached(level, offset + 1, record.store_timestamp);
        }
        if let Some(op) = op {
            self.state.apply(op, record.store_timestamp);
        }
        Ok(())
    }

    fn put_entry(&mut self, record: &RecordView<'_>, parts: &Parts<'_>) -> Result<()> {
        let queue_id = record.queue_id as u32;
        let queue = self.queue(record.topic, queue_id)?;
        let tags_code = match parts.delay.and_then(|d| d.parse::<usize>().ok()) {
            Some(level) if record.topic == names::SCHEDULE_TOPIC && level > 0 => {
                record.store_timestamp + self.level_ms(level)
            }
            _ => hash::tags_code(parts.tags),
        };
        let entry =
            Entry { physical_offset: record.physical_offset, size: record.total_size as i32, tags_code };
        queue.put(record.queue_offset, entry, &*self.environment.disk)?;
        if !self.watched.is_empty() {
            let name = (record.topic.to_owned(), queue_id);
            if self.watched.remove(&name) {
                self.arrivals.push(name);
            }
        }
        Ok(())
    }

    fn level_ms(&self, level: usize) -> i64 {
        let last = self.delay_levels_ms.len();
        self.delay_levels_ms.get(level.min(last).saturating_sub(1)).copied().unwrap_or(1000)
    }

    fn queue(&mut self, topic: &str, queue_id: u32) -> Result<Arc<Queue>> {
        // A lookup by borrowed parts would need a nightly API; topics are short, so the key is built.
        let key = (queue_id, Box::<str>::from(topic));
        if let Some(queue) = self.cache.get(&key) {
            return Ok(Arc::clone(queue));
        }
        if self.cache.len() >= CACHE_LIMIT {
            self.cache.clear();
        }
        let queue = self.queues.get_or_create(topic, queue_id)?;
        self.cache.insert(key, Arc::clone(&queue));
        Ok(queue)
    }

    /// Forgets cached queues, so that the table may close their files.
    pub fn forget_cache(&mut self) {
        self.cache.clear();
    }
}

/// The properties a dispatch looks at, found in one pass.
#[derive(Default)]
struct Parts<'a> {
    tags: Option<&'a str>,
    delay: Option<&'a str>,
    idempotence_key: Option<&'a str>,
    delivered_from: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(record: &RecordView<'a>) -> Self {
        let mut out = Self::default();
        for (name, value) in properties::iter(record.properties) {
            match name {
                properties::TAGS => out.tags = Some(value),
                properties::DELAY => out.delay = Some(value),
                properties::IDEMPOTENCE_KEY => out.idempotence_key = Some(value),
                properties::DELIVERED_FROM => out.delivered_from = Some(value),
                _ => {}
            }
        }
        out
    }
}

/// Reads `level:queue_offset`.
pub fn parse_delivered_from(text: &str) -> Option<(u32, i64)> {
    let (level, offset) = text.split_once(':')?;
    Some((level.parse().ok()?, offset.parse().ok()?))
}
