//! The store's errors, and the result every fallible function returns.
//!
//! Invariants: the kinds follow what a caller should do (see `store_native/errors.py`); [`StoreError::io`] makes
//! `DISK_FULL` of a full disk or quota.

use std::{fmt, io};

/// What every fallible function of the store returns.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An error of the store.
#[derive(Debug)]
pub enum StoreError {
    /// The call is wrong. Where it came in a request, says at which message and field.
    Invalid {
        code: &'static str,
        detail: String,
        /// Number of the message in its request, from 0.
        index: Option<usize>,
        /// Line of the request, from 1 (NDJSON).
        line: Option<usize>,
        /// JSON pointer to the field.
        pointer: Option<String>,
    },
    /// Nothing was stored; the same call may succeed later.
    Unavailable { code: &'static str, detail: String },
    /// The group's lease belongs to somebody else.
    LeaseConflict { owner: String, expires_at: i64 },
    /// The Idempotency-Key belongs to another request, which is in the log.
    KeyReused(Box<FirstUse>),
    /// Stored bytes break the format.
    Corrupt { detail: String },
    /// Closed, or read-only for good after a failed fsync.
    Closed { code: &'static str, detail: String },
    /// The operating system refused.
    Io { context: String, source: io::Error },
}

/// Where the request that used an Idempotency-Key first stands: its first message, and how many it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUse {
    pub topic: String,
    pub queue_id: u32,
    pub queue_offset: i64,
    pub message_id: String,
    pub offset_message_id: String,
    pub count: usize,
}

impl StoreError {
    /// A request that must be changed before it is sent again.
    pub fn invalid(code: &'static str, detail: impl Into<String>) -> Self {
        Self::Invalid { code, detail: detail.into(), index: None, line: None, pointer: None }
    }

    /// Stored bytes that break the format.
    pub fn corrupt(detail: impl Into<String>) -> Self {
        Self::Corrupt { detail: detail.into() }
    }

    /// An I/O error with what was being done.
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        if source.raw_os_error() == Some(libc::ENOSPC) || source.raw_os_error() == Some(libc::EDQUOT) {
            return Self::Unavailable {
                code: "DISK_FULL",
                detail: format!("{}: no space left on the store's disk", context.into()),
            };
        }
        Self::Io { context: context.into(), source }
    }

    /// The store was closed.
    pub fn closed() -> Self {
        Self::Closed { code: "STORE_CLOSED", detail: "the store is closed".into() }
    }

    /// The log could not be written or flushed; `reason` says why.
    pub fn poisoned(reason: &str) -> Self {
        Self::Closed {
            code: "STORE_POISONED",
            detail: format!("the store is read-only until it is opened again: {reason}"),
        }
    }

    /// A topic nobody created.
    pub fn no_topic(topic: &str) -> Self {
        Self::invalid("TOPIC_NOT_EXIST", format!("topic[{topic}] not exist, apply first please!"))
    }

    /// The code that names the condition.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { code, .. } | Self::Unavailable { code, .. } | Self::Closed { code, .. } => code,
            Self::LeaseConflict { .. } => "LEASE_CONFLICT",
            Self::KeyReused(_) => "IDEMPOTENCY_KEY_REUSED",
            Self::Corrupt { .. } => "DATA_CORRUPT",
            Self::Io { .. } => "SYSTEM_ERROR",
        }
    }

    /// One sentence for a person.
    pub fn detail(&self) -> String {
        match self {
            Self::Invalid { detail, .. }
            | Self::Unavailable { detail, .. }
            | Self::Corrupt { detail }
            | Self::Closed { detail, .. } => detail.clone(),
            Self::LeaseConflict { owner, expires_at } => {
                format!("the group is leased to {owner} until {expires_at}")
            }
            Self::KeyReused(first) => format!(
                "this Idempotency-Key was used for another request: {} messages, the first in topic[{}] \
                 queue {} at {}; nothing was stored",
                first.count, first.topic, first.queue_id, first.queue_offset
            ),
            Self::Io { context, source } => format!("{context}: {source}"),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.detail())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
