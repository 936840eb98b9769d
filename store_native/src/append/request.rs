//! What an append takes, and what it gives back.
//!
//! Invariants: no request to a system topic passes `AppendRequest::check`.

use std::net::SocketAddr;

use crate::error::{Result, StoreError};
use crate::message::NewMessage;
use crate::state::names;

const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// One request to append: all of its messages go to one topic, and are stored all or none.
#[derive(Debug, Clone, Copy)]
pub struct AppendRequest<'a> {
    pub topic: &'a str,
    pub born_host: Option<SocketAddr>,
    pub idempotency_key: Option<&'a str>,
}

/// Where one message was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub message_id: String,
    pub physical_offset: i64,
    pub queue_id: u32,
    pub queue_offset: i64,
    /// Delayed: queue and offset are the schedule's; the message gets its own when it is delivered.
    pub scheduled: bool,
}

/// The result of an append: stored in the log, safe as far as the watermarks have passed `end_offset`.
#[derive(Debug, Clone)]
pub struct Appended {
    pub end_offset: i64,
    /// Whether the sender waits for the flush (`wait_store_ok` of any message).
    pub waits: bool,
    /// The request was stored before; this is its first result again.
    pub duplicate: bool,
    /// Where its messages are, in the request's order.
    pub placed: Vec<Placed>,
}

impl AppendRequest<'_> {
    /// Refuses what no store could take.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`, `NO_PERMISSION`, `MALFORMED_BODY`, `ARGUMENT_ILLEGAL`, `MESSAGE_ILLEGAL`.
    pub(super) fn check(&self, messages: &[NewMessage<'_>]) -> Result<()> {
        let topic = self.topic;
        names::validate_topic(topic)?;
        if names::is_system(topic) {
            return Err(system_topic(topic));
        }
        if messages.is_empty() {
            return Err(StoreError::invalid("MALFORMED_BODY", "the request holds no message"));
        }
        if let Some(key) = self.idempotency_key {
            let visible = key.bytes().all(|b| (0x21..0x7f).contains(&b));
            if key.is_empty() || key.len() > MAX_IDEMPOTENCY_KEY_BYTES || !visible {
                let detail =
                    format!("Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_BYTES} visible ASCII characters");
                return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
            }
        }
        if !names::is_group_topic(topic)
            && let Some(at) = messages.iter().position(|m| m.reconsume_times != 0)
        {
            let detail = "reconsume_times belongs to messages of retry and dead-letter topics";
            return Err(at_message(StoreError::invalid("MESSAGE_ILLEGAL", detail), at));
        }
        Ok(())
    }
}

/// The refusal of what would change a system topic.
pub(super) fn system_topic(topic: &str) -> StoreError {
    StoreError::invalid("NO_PERMISSION", format!("topic[{topic}] belongs to the system"))
}

/// The same error, naming the message of the request it is about.
pub(super) fn at_message(error: StoreError, at: usize) -> StoreError {
    match error {
        StoreError::Invalid { code, detail, line, pointer, .. } => {
            StoreError::Invalid { code, detail, index: Some(at), line, pointer }
        }
        other => other,
    }
}
