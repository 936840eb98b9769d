//! Which messages a reader asked for.
//!
//! Invariants: the first step refuses no message that the second would let through, but in the schedule topic,
//! whose entries carry a time instead of a hash.

mod tags;

pub use tags::{TagFilter, can_be_asked_for};

use crate::error::Result;
use crate::message::{RecordView, properties};

/// The filter of a read, in two steps: what a queue entry tells, then what the record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Every message passes.
    All,
    /// Messages with one of these tags.
    Tags(TagFilter),
}

impl Filter {
    /// Reads a tag expression.
    ///
    /// # Errors
    /// As [`TagFilter::parse`].
    pub fn of_tags(expression: &str) -> Result<Self> {
        Ok(TagFilter::parse(expression)?.map_or(Self::All, Self::Tags))
    }

    /// First step: whether the record of an entry with this tags code may pass, so that the log is worth a look.
    #[inline]
    pub fn may_match(&self, tags_code: i64) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tags.matches_code(tags_code),
        }
    }

    /// Second step: whether the record passes.
    #[inline]
    pub fn matches(&self, record: &RecordView<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tags.matches(record.property(properties::TAGS)),
        }
    }
}
