//! What producers send, read into messages: JSON, NDJSON and Arrow. Owns the limits of a request.
//!
//! Invariants: every error names the message, the line and the field, where there are such. Bodies and texts are
//! borrowed from the request wherever they stand in it as they are. Nothing here knows topics, queues or files.

mod arrow;
mod arrow_columns;
mod arrow_stream;
mod escape_scan;
mod json;
mod ndjson;
mod parse_error;
mod scanner;
mod single;
mod validate;

pub use arrow::ArrowMessages;
pub(crate) use escape_scan::plain_len;
pub use json::{Parsed, parse_json};
pub use ndjson::parse_ndjson;
pub use single::SingleMessage;

use crate::message::properties;

/// Bytes of a record's properties that stay free for what the store adds to them.
pub const PROPERTIES_RESERVE_BYTES: usize = 512;

/// What one request may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Of one body, decoded.
    pub max_message_bytes: usize,
    /// Of one message's tags, keys, properties, sharding key and id, encoded.
    pub max_properties_bytes: usize,
    /// Messages in one request.
    pub max_messages: usize,
    /// Of all bodies and properties of a request. JSON cannot say more than it holds, Arrow can: a
    /// column of views may name one text many times.
    pub max_request_bytes: usize,
    /// Also tags that no reader can ask for, of messages that were taken before there was this check.
    pub any_tags: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 4 << 20,
            max_properties_bytes: properties::MAX_BYTES - PROPERTIES_RESERVE_BYTES,
            max_messages: 1_000_000,
            max_request_bytes: 64 << 20,
            any_tags: false,
        }
    }
}
