//! What takes records from the dispatcher: the trait, what it is given, and the damaged ranges of the log.
//!
//! Invariants: records come in log order, and the same one may come again: taking it twice is taking it once. A
//! change of state that this version does not know is an error, never passed over.
//! Threads: who holds the dispatch lock.

use std::time::Duration;

use crate::error::Result;
use crate::message::{RecordView, properties};
use crate::state::{Op, names};

/// Takes every record once it is confirmed. Queues, index and state do; so does whatever else is derived from
/// the log.
///
/// What a sink holds is told by the log: it may be lost, and comes again from the last snapshot on.
pub trait Sink: Send {
    /// Takes one record. Called in log order under the dispatch lock, and again for the same record when this
    /// or a later sink failed: taking it twice is taking it once.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    fn take(&mut self, record: &Dispatched<'_>) -> Result<()>;

    /// Stores what was taken so that anyone can read it, for about `limit`; false when some is left. Called
    /// before the dispatched mark moves over it.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; it is tried again.
    fn store(&mut self, _limit: Duration) -> Result<bool> {
        Ok(true)
    }
}

/// Ranges of the log that are damaged: [from, to), in log order.
#[derive(Debug, Clone, Default)]
pub struct Quarantine(pub Vec<(i64, i64)>);

impl Quarantine {
    /// The damaged range between two log offsets that lies last; what lies between them when none is known.
    pub fn between(&self, from: i64, to: i64) -> (i64, i64) {
        let inside = |(a, b): &&(i64, i64)| *a >= from && *b <= to;
        self.0.iter().rev().find(inside).copied().unwrap_or((from, to))
    }

    /// Where the damaged range that holds `offset` ends.
    pub fn end_of(&self, offset: i64) -> Option<i64> {
        self.0.iter().find(|(from, to)| (*from..*to).contains(&offset)).map(|(_, to)| *to)
    }
}

/// A record, and what its properties say to those who take it, found in one pass.
pub struct Dispatched<'a> {
    pub record: &'a RecordView<'a>,
    pub quarantine: &'a Quarantine,
    /// The change of state it is, if it is one.
    pub op: Option<Op>,
    pub tags: Option<&'a str>,
    pub delay: Option<&'a str>,
    pub idempotence_key: Option<&'a str>,
    pub delivered_from: Option<&'a str>,
}

impl<'a> Dispatched<'a> {
    /// Looks at a record.
    ///
    /// # Errors
    /// `DATA_CORRUPT` for a change of state that this version does not know.
    pub fn of(record: &'a RecordView<'a>, quarantine: &'a Quarantine) -> Result<Self> {
        let mut out = Self::again(record, quarantine);
        if record.topic == names::META_TOPIC {
            out.op = Some(Op::decode(record.body, record.physical_offset)?);
        }
        Ok(out)
    }

    /// Looks at a record that was applied before, for what is not told by the state.
    pub fn again(record: &'a RecordView<'a>, quarantine: &'a Quarantine) -> Self {
        let mut out = Self {
            record,
            quarantine,
            op: None,
            tags: None,
            delay: None,
            idempotence_key: None,
            delivered_from: None,
        };
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
