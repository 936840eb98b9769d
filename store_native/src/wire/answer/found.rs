//! Messages found by key or id, as JSON.
//!
//! Invariants: at most so many bytes together, but at least one message.

use super::write_message;
use crate::error::Result;
use crate::message::RecordView;

/// Collects messages, newest first, of so many bytes together at most, but at least one.
pub struct FoundJson<'a> {
    broker_name: &'a str,
    max_bytes: usize,
    bytes: usize,
    messages: Vec<Vec<u8>>,
}

impl<'a> FoundJson<'a> {
    pub fn new(broker_name: &'a str, max_bytes: usize) -> Self {
        Self { broker_name, max_bytes, bytes: 0, messages: Vec::new() }
    }

    /// Takes one; false when it has no place any more.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when its body cannot be decompressed.
    pub fn take(&mut self, record: &RecordView<'_>) -> Result<bool> {
        let mut json = Vec::with_capacity(record.total_size as usize + 256);
        write_message(&mut json, record, self.broker_name)?;
        self.bytes = self.bytes.saturating_add(json.len());
        if self.bytes > self.max_bytes && !self.messages.is_empty() {
            return Ok(false);
        }
        self.messages.push(json);
        Ok(true)
    }

    /// The messages, oldest first.
    pub fn oldest_first(mut self) -> Vec<Vec<u8>> {
        self.messages.reverse();
        self.messages
    }
}
