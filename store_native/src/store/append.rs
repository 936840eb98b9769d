//! The way in: requests become records.
//!
//! Everything that can be done before the lock is: parsing, properties, checksums of bodies. Under the lock
//! a request gets its queue offsets and a contiguous place, and is written there: the log never has a hole,
//! so `appended` means what it says. What only the answer needs is done behind the lock.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::append_result::{AnswerFacts, Appended, Placed, write_tail};
use super::duplicate::request_digest;
use super::routing::Route;
use super::time::MAX_STAMP_LEAD_MS;
use super::{Appender, Flush, Shared, lock};
use crate::commitlog::batch::{Batch, RequestFacts};
use crate::environment::Point;
use crate::error::{Result, StoreError};
use crate::idempotence::KeyPlace;
use crate::ingest::{ArrowMessages, Limits, parse_json, parse_ndjson};
use crate::message::record::{Place, Plan, crc31};
use crate::message::{NewMessage, RecordView, properties};
use crate::meta::{Op, TopicConfig, names};

/// One request to append.
#[derive(Debug, Clone, Copy)]
pub struct AppendRequest<'a> {
    pub topic: &'a str,
    pub born_host: Option<SocketAddr>,
    pub idempotency_key: Option<&'a str>,
    /// Answer one result for each message.
    pub full_results: bool,
}

/// The body of a request, by its form.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    Json(&'a [u8]),
    Ndjson(&'a [u8]),
    ArrowStream(&'a [u8]),
}

const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;
/// More than the record of a topic made by its first message takes.
const TOPIC_OP_BYTES: usize = 4096;

impl Shared {
    /// What one request may hold.
    pub fn limits(&self) -> Limits {
        Limits { max_message_bytes: self.options.max_message_bytes, ..Limits::default() }
    }

    /// Parses and appends a request.
    ///
    /// # Errors
    /// `InvalidRequest` kinds with message, line and pointer; `DISK_FULL`; `STORE_POISONED`. Nothing of
    /// the request was stored then. A failed write to the log is final, as a failed flush is: whether the
    /// request was stored shows when the store is opened again.
    pub fn append_payload(&self, request: &AppendRequest<'_>, payload: Payload<'_>) -> Result<Appended> {
        let limits = self.limits();
        match payload {
            Payload::Json(data) => {
                let parsed = parse_json(data, &limits)?;
                self.append(request, &parsed.messages, parsed.many)
            }
            Payload::Ndjson(data) => self.append(request, &parse_ndjson(data, &limits)?, true),
            Payload::ArrowStream(data) => {
                let stream = ArrowMessages::read(arrow_buffer::Buffer::from(data))?;
                self.append(request, &stream.messages(&limits)?, true)
            }
        }
    }

    /// Appends messages, all or none.
    ///
    /// # Errors
    /// As [`Shared::append_payload`].
    pub fn append(
        &self,
        request: &AppendRequest<'_>,
        messages: &[NewMessage<'_>],
        many: bool,
    ) -> Result<Appended> {
        let topic = request.topic;
        names::validate_topic(topic)?;
        if names::is_system(topic) {
            return Err(StoreError::invalid(
                "NO_PERMISSION",
                format!("topic[{topic}] belongs to the system"),
            ));
        }
        check_request(request, messages)?;
        let digest = request.idempotency_key.map(|_| request_digest(messages));
        let facts = RequestFacts {
            topic,
            born_host: request.born_host.unwrap_or(self.options.store_host),
            now_ms: self.environment.clock.now_ms(),
            key: request.idempotency_key.zip(digest.as_deref()),
        };
        let mut batch = Batch::new(&facts, messages, &self.ids);
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        if let Some(place) = request.idempotency_key.and_then(|k| appender.keys.get(k)) {
            drop(appender);
            return self.first_result(request, place, messages.len(), digest.as_deref());
        }
        let puts = self.append_locked(&mut appender, &mut batch, request)?;
        let end_offset = appender.writer.end();
        drop(appender);
        self.environment.faults.pass(Point::AppendAfter);
        self.wake_flusher();
        self.counters.messages_in.fetch_add(messages.len() as u64, Ordering::Relaxed);
        self.counters.requests_in.fetch_add(1, Ordering::Relaxed);
        let placed: Vec<Placed> = puts.iter().enumerate().map(|(at, put)| put.placed(&batch, at)).collect();
        let tail = write_tail(&self.answer_facts(request, many, false), &placed);
        let waits = messages.iter().any(|m| m.wait_store_ok);
        Ok(Appended { end_offset, count: messages.len(), waits, duplicate: false, tail })
    }

    pub(super) fn answer_facts<'a>(
        &'a self,
        request: &AppendRequest<'a>,
        many: bool,
        duplicate: bool,
    ) -> AnswerFacts<'a> {
        AnswerFacts {
            topic: request.topic,
            broker_name: &self.identity.broker_name,
            store_host: self.options.store_host,
            many,
            full_results: request.full_results,
            duplicate,
        }
    }

    pub(super) fn check_open(&self, appender: &Appender) -> Result<()> {
        if appender.closed {
            return Err(StoreError::closed());
        }
        if self.appender.is_poisoned() {
            self.poison("an append ended in a panic: what it left is unknown".into());
        }
        self.check_writable()
    }

    pub(super) fn wake_flusher(&self) {
        if self.options.flush == Flush::Sync {
            self.flush_wanted.set();
        }
    }

    fn append_locked(
        &self,
        appender: &mut Appender,
        batch: &mut Batch<'_>,
        request: &AppendRequest<'_>,
    ) -> Result<Vec<Put>> {
        let topic = request.topic;
        // A topic is made of the first request that is stored, not of one that is refused.
        let mut made = match appender.routing.get(topic) {
            Some(_) => None,
            None => Some(Route::new(self.topic_on_first_use(topic)?)),
        };
        let route = match &mut made {
            Some(route) => route,
            None => appender.routing.get_mut(topic).ok_or_else(|| StoreError::no_topic(topic))?,
        };
        let targets = self.choose_queues(route, batch)?;
        let (longest, bytes) = batch.longest_properties();
        if bytes + crate::message::record::CRC_PROPERTY_BYTES > properties::MAX_BYTES {
            return Err(StoreError::Invalid {
                code: "MESSAGE_ILLEGAL",
                detail: format!(
                    "the encoded properties take {bytes} bytes, the limit is {}",
                    properties::MAX_BYTES
                ),
                index: Some(longest),
                line: None,
                pointer: None,
            });
        }
        let plans: Vec<Plan<'_>> =
            targets.iter().enumerate().map(|(at, t)| batch.plan(at, t.topic, t.queue_id as i32)).collect();
        if let Some(route) = made {
            let size: usize = plans.iter().map(|p| p.size(self.options.store_host)).sum();
            appender.writer.check_size(size)?;
            // Room for both: a disk without space for the next file leaves no topic either.
            appender.writer.reserve((size + TOPIC_OP_BYTES).min(appender.writer.largest()))?;
            let op = Op::PutTopic { topic: topic.into(), config: route.config.clone() };
            self.append_op(appender, &op)?;
            appender.routing.insert(topic, route);
        }
        let puts = self.put_records(appender, &plans, batch.properties(), &targets)?;
        if let Some(key) = request.idempotency_key {
            let place = KeyPlace {
                physical_offset: puts[0].physical_offset,
                store_timestamp: appender.last_store_timestamp,
            };
            appender.keys.set_now(self.now_for_ages());
            appender.keys.insert(key, place);
        }
        Ok(puts)
    }

    /// Chooses every message's queue, and sends delayed ones to the schedule topic.
    fn choose_queues<'t>(&self, route: &mut Route, batch: &mut Batch<'t>) -> Result<Vec<Target<'t>>> {
        let topic = batch.topic;
        let mut out = Vec::with_capacity(batch.messages.len());
        for (at, message) in batch.messages.iter().enumerate() {
            let queue_id = route.choose(topic, message).map_err(|e| at_message(e, at))?;
            let level = message.delay_level.min(self.options.delay_levels_ms.len() as u32);
            if level > 0 {
                batch.delay(at, level, topic, queue_id as i32);
                out.push(Target { topic: names::SCHEDULE_TOPIC, queue_id: level - 1 });
            } else {
                out.push(Target { topic, queue_id });
            }
        }
        Ok(out)
    }

    /// Encodes the records behind the log's end. Returns the place of each.
    fn put_records(
        &self,
        appender: &mut Appender,
        plans: &[Plan<'_>],
        properties: &[u8],
        targets: &[Target<'_>],
    ) -> Result<Vec<Put>> {
        let store_host = self.options.store_host;
        let sizes: Vec<usize> = plans.iter().map(|p| p.size(store_host)).collect();
        let total: usize = sizes.iter().sum();
        let start = appender.writer.reserve(total)?;
        let store_timestamp = self.stamp(appender);
        if targets.iter().any(|t| t.topic == names::SCHEDULE_TOPIC) {
            let (passed, longest) = (self.environment.clock.monotonic_ms(), self.longest_delay_ms());
            lock(&self.delays).stored(start, store_timestamp, passed, longest);
        }
        let mut out = Vec::with_capacity(plans.len());
        let mut physical_offset = start;
        let mut route: Option<(&str, &mut Route)> = None;
        for ((plan, size), target) in plans.iter().zip(&sizes).zip(targets) {
            if route.as_ref().is_none_or(|(topic, _)| *topic != target.topic) {
                route = appender.routing.get_mut(target.topic).map(|r| (target.topic, r));
            }
            let queue_offset = match &mut route {
                Some((_, route)) => route.take_offset(target.queue_id),
                None => return Err(StoreError::no_topic(target.topic)),
            };
            let place = Place { queue_offset, physical_offset, store_timestamp, store_host };
            let put = appender.writer.put(*size, |region| plan.encode(region, properties, &place));
            put.map_err(|error| self.write_failed(&error))?;
            let scheduled = target.topic == names::SCHEDULE_TOPIC;
            out.push(Put { queue_id: target.queue_id, queue_offset, physical_offset, scheduled });
            physical_offset += *size as i64;
        }
        appender.writer.finish().map_err(|error| self.write_failed(&error))?;
        self.counters.bytes_in.fetch_add(total as u64, Ordering::Relaxed);
        self.marks.set_appended(appender.writer.end());
        if appender.writer.wants_next() {
            self.maintenance_wanted.set();
        }
        Ok(out)
    }

    /// The stamp of what is stored now. It follows the clock, but does not go back by a little.
    fn stamp(&self, appender: &mut Appender) -> i64 {
        let now = self.environment.clock.now_ms();
        let back = appender.last_store_timestamp - now;
        if back > MAX_STAMP_LEAD_MS {
            self.environment
                .events
                .warn(format!("the clock was set back by {} s, store timestamps follow it", back / 1000));
        }
        if back <= 0 || back > MAX_STAMP_LEAD_MS {
            appender.last_store_timestamp = now;
        }
        appender.last_store_timestamp
    }

    /// Makes the store read-only: what stands behind the log's end now is unknown.
    fn write_failed(&self, error: &std::io::Error) -> StoreError {
        let reason = format!("writing the commit log: {error}");
        self.poison(reason.clone());
        StoreError::poisoned(&reason)
    }

    /// What a topic that does not exist is made with by its first message.
    fn topic_on_first_use(&self, topic: &str) -> Result<TopicConfig> {
        let group_topic = names::is_group_topic(topic);
        if !self.options.auto_create_topics && !group_topic {
            return Err(StoreError::no_topic(topic));
        }
        let queues = if group_topic { 1 } else { self.options.default_queue_nums };
        Ok(TopicConfig {
            topic_id: self.new_topic_id(),
            read_queue_nums: queues,
            write_queue_nums: queues,
            perm: 6,
            attributes: std::collections::BTreeMap::new(),
        })
    }

    pub(super) fn new_topic_id(&self) -> String {
        String::from_utf8_lossy(&self.ids.next(self.environment.clock.now_ms())).into_owned()
    }

    /// Appends a change of state under the append lock. The caller changes the routing.
    pub(super) fn append_op(&self, appender: &mut Appender, op: &Op) -> Result<()> {
        let body = op.encode()?;
        if body.len() > self.options.commitlog_file_size as usize / 2 {
            return Err(StoreError::invalid("REQUEST_TOO_LARGE", "the change does not fit a log file"));
        }
        let plan = Plan {
            topic: names::META_TOPIC,
            body: &body,
            body_crc: crc31(&body),
            properties: 0..0,
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: self.environment.clock.now_ms(),
            born_host: self.options.store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
        };
        let target = Target { topic: names::META_TOPIC, queue_id: 0 };
        self.put_records(appender, &[plan], &[], &[target]).map(|_| ())
    }

    /// Puts a delayed record under its real topic; `properties` are the ones it shall have.
    pub(super) fn append_delivery(
        &self,
        appender: &mut Appender,
        record: &RecordView<'_>,
        topic: &str,
        queue_id: u32,
        properties: &[u8],
    ) -> Result<()> {
        let plan = Plan {
            topic,
            body: record.body,
            body_crc: record.body_crc,
            properties: 0..properties.len(),
            queue_id: queue_id as i32,
            flag: record.flag,
            sys_flag: record.sys_flag & !(crate::message::sys_flag::STORE_HOST_V6),
            born_timestamp: record.born_timestamp,
            born_host: record.born_host,
            reconsume_times: record.reconsume_times,
            prepared_transaction_offset: 0,
        };
        let target = Target { topic, queue_id };
        self.put_records(appender, &[plan], properties, &[target]).map(|_| ())
    }
}

/// Where a message goes: a delayed one into the schedule.
struct Target<'a> {
    topic: &'a str,
    queue_id: u32,
}

/// Where a message was put. Its answer is made when the lock is given back.
struct Put {
    queue_id: u32,
    queue_offset: i64,
    physical_offset: i64,
    scheduled: bool,
}

impl Put {
    fn placed(&self, batch: &Batch<'_>, at: usize) -> Placed {
        Placed {
            message_id: batch.message_id(at).to_owned(),
            physical_offset: self.physical_offset,
            queue_id: self.queue_id,
            queue_offset: self.queue_offset,
            scheduled: self.scheduled,
        }
    }
}

fn check_request(request: &AppendRequest<'_>, messages: &[NewMessage<'_>]) -> Result<()> {
    if messages.is_empty() {
        return Err(StoreError::invalid("MALFORMED_BODY", "the request holds no message"));
    }
    if let Some(key) = request.idempotency_key {
        let visible = key.bytes().all(|b| (0x21..0x7f).contains(&b));
        if key.is_empty() || key.len() > MAX_IDEMPOTENCY_KEY_BYTES || !visible {
            let detail =
                format!("Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} visible ASCII characters");
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
    }
    if !names::is_group_topic(request.topic)
        && let Some(at) = messages.iter().position(|m| m.reconsume_times != 0)
    {
        let detail = "reconsume_times belongs to messages of retry and dead-letter topics";
        return Err(at_message(StoreError::invalid("MESSAGE_ILLEGAL", detail), at));
    }
    Ok(())
}

fn at_message(error: StoreError, at: usize) -> StoreError {
    match error {
        StoreError::Invalid { code, detail, line, pointer, .. } => {
            StoreError::Invalid { code, detail, index: Some(at), line, pointer }
        }
        other => other,
    }
}
