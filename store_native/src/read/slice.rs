//! A slice of a queue: what is asked for, and what came of it.

use crate::filter::Filter;

/// RocketMQ's outcomes of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Found,
    /// The offset is the queue's end.
    NoNewMessage,
    /// Messages are there, none passed the filter; go on at `next_offset`.
    NoMatchedMessage,
    /// The offset lies outside the queue; `next_offset` is the nearest inside.
    OffsetIllegal,
}

impl Status {
    /// RocketMQ's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::NoNewMessage => "NO_NEW_MSG",
            Self::NoMatchedMessage => "NO_MATCHED_MSG",
            Self::OffsetIllegal => "OFFSET_ILLEGAL",
        }
    }
}

/// What to read.
#[derive(Debug, Clone)]
pub struct SliceRequest {
    pub offset: i64,
    /// Read no further; the queue's end when `None`.
    pub end_offset: Option<i64>,
    pub max_messages: usize,
    /// Of the records' bytes; the first message comes whatever its size.
    pub max_bytes: usize,
    pub filter: Filter,
}

/// What came of it, beside the messages.
#[derive(Debug, Clone)]
pub struct SliceMeta {
    pub status: Status,
    pub next_offset: i64,
    pub min_offset: i64,
    pub max_offset: i64,
    pub count: usize,
    /// Ranges of queue offsets [from, to) whose messages are damaged and were passed over.
    pub damaged: Vec<(i64, i64)>,
    /// Where in the log the last message looked at begins; `None` when there was none.
    pub physical_offset: Option<i64>,
}

impl SliceMeta {
    /// An answer without messages.
    pub fn empty(status: Status, next_offset: i64, min_offset: i64, max_offset: i64) -> Self {
        Self {
            status,
            next_offset,
            min_offset,
            max_offset,
            count: 0,
            damaged: Vec::new(),
            physical_offset: None,
        }
    }

    /// Notes a damaged message.
    pub fn note_damage(&mut self, offset: i64) {
        match self.damaged.last_mut() {
            Some((_, to)) if *to == offset => *to += 1,
            _ => self.damaged.push((offset, offset + 1)),
        }
    }
}
