//! What is to be appended, laid out: every record's size and properties, before any lock is taken.
//!
//! Invariants: one id, one checksum and one range of properties a message, in the request's order.

use std::net::SocketAddr;
use std::ops::Range;

use crate::message::message_id::UniqKeys;
use crate::message::record::{Plan, crc31};
use crate::message::{NewMessage, properties};

/// What all messages of a request have in common.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    pub topic: &'a str,
    pub born_host: SocketAddr,
    pub now_ms: i64,
    /// The request's Idempotency-Key and the digest that stands beside it.
    pub key: Option<(&'a str, &'a str)>,
}

/// Messages with their properties encoded into one buffer and their body checksums taken.
#[derive(Debug)]
pub struct Batch<'a> {
    pub messages: &'a [NewMessage<'a>],
    pub topic: &'a str,
    properties: Vec<u8>,
    ranges: Vec<Range<usize>>,
    crcs: Vec<u32>,
    ids: Vec<[u8; 32]>,
    born_host: SocketAddr,
    now_ms: i64,
}

impl<'a> Batch<'a> {
    /// Lays out the messages of one request.
    pub fn new(facts: &RequestFacts<'a>, messages: &'a [NewMessage<'a>], ids: &UniqKeys) -> Self {
        let mut out = Self {
            messages,
            topic: facts.topic,
            properties: Vec::with_capacity(messages.len() * 96),
            ranges: Vec::with_capacity(messages.len()),
            crcs: Vec::with_capacity(messages.len()),
            ids: Vec::with_capacity(messages.len()),
            born_host: facts.born_host,
            now_ms: facts.now_ms,
        };
        for (at, message) in messages.iter().enumerate() {
            let start = out.properties.len();
            let made = ids.next(facts.now_ms);
            out.push_properties(message, &made);
            if at == 0 {
                if messages.len() > 1 {
                    properties::push(&mut out.properties, properties::BATCH, &messages.len().to_string());
                }
                if let Some((key, digest)) = facts.key {
                    properties::push(&mut out.properties, properties::IDEMPOTENCE_KEY, key);
                    properties::push(&mut out.properties, properties::DIGEST, digest);
                }
            }
            out.ids.push(made);
            out.ranges.push(start..out.properties.len());
            out.crcs.push(crc31(&message.body));
        }
        out
    }

    fn push_properties(&mut self, message: &NewMessage<'_>, made_id: &[u8; 32]) {
        let out = &mut self.properties;
        if let Some(keys) = message.keys.as_deref().filter(|k| !k.is_empty()) {
            properties::push(out, properties::KEYS, keys);
        }
        let id = message.message_id.as_deref().unwrap_or_else(|| std::str::from_utf8(made_id).unwrap_or(""));
        properties::push(out, properties::UNIQ_KEY, id);
        if let Some(tags) = message.tags.as_deref().filter(|t| !t.is_empty()) {
            properties::push(out, properties::TAGS, tags);
        }
        if let Some(key) = message.sharding_key.as_deref() {
            properties::push(out, properties::SHARDING_KEY, key);
        }
        if !message.wait_store_ok {
            properties::push(out, properties::WAIT, "false");
        }
        for (name, value) in &message.properties {
            properties::push(out, name, value);
        }
    }

    /// Adds, to message `at`, where a delayed message goes when it is due. Call in order of `at`.
    #[allow(clippy::indexing_slicing, reason = "one range a message")]
    pub fn delay(&mut self, at: usize, level: u32, topic: &str, queue_id: i32) {
        let start = self.properties.len();
        let old = self.ranges[at].clone();
        self.properties.extend_from_within(old);
        properties::push(&mut self.properties, properties::DELAY, &level.to_string());
        properties::push(&mut self.properties, properties::REAL_TOPIC, topic);
        properties::push(&mut self.properties, properties::REAL_QID, &queue_id.to_string());
        self.ranges[at] = start..self.properties.len();
    }

    /// The encoded properties of all messages, which [`Plan::encode`] reads from.
    pub fn properties(&self) -> &[u8] {
        &self.properties
    }

    /// Bytes of the longest message's properties, for the format's limit.
    pub fn longest_properties(&self) -> (usize, usize) {
        self.ranges.iter().map(ExactSizeIterator::len).enumerate().max_by_key(|(_, n)| *n).unwrap_or((0, 0))
    }

    /// The id of message `at`, as users see it.
    #[allow(clippy::indexing_slicing, reason = "one id a message")]
    pub fn message_id(&self, at: usize) -> &str {
        match self.messages[at].message_id.as_deref() {
            Some(id) => id,
            None => std::str::from_utf8(&self.ids[at]).unwrap_or(""),
        }
    }

    /// The record of message `at` on `topic` and `queue_id`.
    #[allow(clippy::indexing_slicing, reason = "one range and checksum a message")]
    pub fn plan<'b>(&'b self, at: usize, topic: &'b str, queue_id: i32) -> Plan<'b> {
        let message = &self.messages[at];
        Plan {
            topic,
            body: &message.body,
            body_crc: self.crcs[at],
            properties: self.ranges[at].clone(),
            queue_id,
            flag: message.flag,
            sys_flag: 0,
            born_timestamp: message.born_timestamp.unwrap_or(self.now_ms),
            born_host: self.born_host,
            reconsume_times: message.reconsume_times,
            prepared_transaction_offset: 0,
        }
    }
}
