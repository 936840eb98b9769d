//! A request that comes again under its Idempotency-Key: whether it is the same one, and its first result, read
//! back from its records.
//!
//! Invariants: how a digest is made never changes, because it is stored in the log. A request of another digest
//! under the same key is refused and stores nothing.
//! Threads: those that append, without the append lock.

use crate::sync::atomic::Ordering;

use twox_hash::XxHash3_128;

use super::{AppendRequest, Appended, Appender, Placed};
use crate::commitlog::scan::{Scanned, scan_at};
use crate::error::{FirstUse, Result, StoreError};
use crate::idempotence::KeyPlace;
use crate::message::{NewMessage, message_id, properties};
use crate::state::names;

/// What a sender's tracing changes with each attempt; it does not make another request of it.
const OF_THE_ATTEMPT: [&str; 2] = ["traceparent", "tracestate"];

/// The digest of what a request asks for, 32 hex digits: bodies, keys, tags, properties and targets of its
/// messages, in order. Ids and times that a sender may make anew for each attempt are not part of it, nor is when
/// a delay ends: with less of it left it is the same request. It stands in the log: how it is made never changes.
pub(super) fn request_digest(messages: &[NewMessage<'_>]) -> String {
    let mut sum = XxHash3_128::new();
    let text = |sum: &mut XxHash3_128, text: Option<&str>| match text {
        Some(text) => {
            sum.write(&(text.len() as u64).to_le_bytes());
            sum.write(text.as_bytes());
        }
        None => sum.write(&u64::MAX.to_le_bytes()),
    };
    for message in messages {
        sum.write(&(message.body.len() as u64).to_le_bytes());
        sum.write(&message.body);
        text(&mut sum, message.tags.as_deref());
        text(&mut sum, message.keys.as_deref());
        text(&mut sum, message.sharding_key.as_deref());
        sum.write(&message.queue_id.map_or(-1, i64::from).to_le_bytes());
        sum.write(&message.flag.to_le_bytes());
        sum.write(&message.delay_level.to_le_bytes());
        let mut pairs: Vec<(&str, &str)> = message
            .properties
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .filter(|(name, _)| !OF_THE_ATTEMPT.contains(name))
            .collect();
        pairs.sort_unstable();
        sum.write(&(pairs.len() as u64).to_le_bytes());
        for (name, value) in pairs {
            text(&mut sum, Some(name));
            text(&mut sum, Some(value));
        }
    }
    format!("{:032x}", sum.finish_128())
}

impl Appender {
    /// The result of a request that is in the log already.
    ///
    /// # Errors
    /// `IDEMPOTENCY_KEY_REUSED` when the one in the log went to another topic, had another number of messages
    /// or asked for something else; `MESSAGE_ILLEGAL` when it has expired meanwhile.
    pub(super) fn first_result(
        &self,
        request: &AppendRequest<'_>,
        place: KeyPlace,
        asked: usize,
        digest: Option<&str>,
    ) -> Result<Appended> {
        let gone = || {
            StoreError::invalid(
                "MESSAGE_ILLEGAL",
                "the request with this Idempotency-Key is no longer in the log",
            )
        };
        let file = self.log.file_at(place.physical_offset).ok_or_else(gone)?;
        let mut placed = Vec::new();
        let mut offset = place.physical_offset;
        let mut count = 1;
        while placed.len() < count {
            let Scanned::Record(view) = scan_at(&file, offset) else { return Err(gone()) };
            let queue_id = view.queue_id as u32;
            if placed.is_empty() {
                count = view.property(properties::BATCH).and_then(|c| c.parse().ok()).unwrap_or(1);
                let topic = view.property(properties::REAL_TOPIC).unwrap_or(view.topic);
                let key = view.property(properties::IDEMPOTENCE_KEY);
                // A record from before there were digests has none.
                let same = view.property(properties::DIGEST).is_none_or(|first| Some(first) == digest);
                if key != request.idempotency_key || topic != request.topic || count != asked || !same {
                    return Err(StoreError::KeyReused(Box::new(FirstUse {
                        topic: topic.to_owned(),
                        queue_id,
                        queue_offset: view.queue_offset,
                        message_id: view.message_id(),
                        offset_message_id: message_id::offset_id(view.store_host, offset),
                        count,
                    })));
                }
            }
            placed.push(Placed {
                message_id: view.message_id(),
                physical_offset: offset,
                queue_id,
                queue_offset: view.queue_offset,
                scheduled: view.topic == names::SCHEDULE_TOPIC,
            });
            offset = view.end_offset();
        }
        self.counters.duplicates.fetch_add(1, Ordering::Relaxed);
        Ok(Appended { end_offset: offset, waits: true, duplicate: true, placed })
    }
}
