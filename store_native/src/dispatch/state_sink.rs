//! State of records: topics, groups, offsets, leases, delay progress and idempotence keys.
//!
//! Invariants: what is applied is told by the records alone, so the same log gives the same state.
//! Threads: who holds the dispatch lock.

use super::sink::{Dispatched, Sink};
use crate::error::Result;
use crate::idempotence::{KeyFile, KeyPlace};
use crate::state::{MetaState, Op};

/// Owns the applied state.
pub(super) struct StateSink {
    pub state: MetaState,
    pub keys: KeyFile,
    /// Keys applied that the append side does not know: while a recovery runs.
    pub unknown_keys: Option<Vec<(String, KeyPlace)>>,
}

impl Sink for StateSink {
    fn take(&mut self, dispatched: &Dispatched<'_>) -> Result<()> {
        let record = dispatched.record;
        if let Some(key) = dispatched.idempotence_key {
            let place =
                KeyPlace { physical_offset: record.physical_offset, store_timestamp: record.store_timestamp };
            self.keys.note(key, place);
            if let Some(unknown) = &mut self.unknown_keys {
                unknown.push((key.to_owned(), place));
            }
        }
        if let Some((level, offset)) = dispatched.delivered_from.and_then(parse_delivered_from) {
            self.state.delay_reached(level, offset + 1, record.store_timestamp);
        }
        if let Some(op) = &dispatched.op {
            if matches!(op, Op::PutTopic { .. } | Op::DeleteTopic { .. }) {
                self.state.topics_at = record.queue_offset + 1;
            }
            self.state.apply(op.clone(), record.store_timestamp);
        }
        Ok(())
    }
}

/// Reads `level:queue_offset`.
fn parse_delivered_from(text: &str) -> Option<(u32, i64)> {
    let (level, offset) = text.split_once(':')?;
    Some((level.parse().ok()?, offset.parse().ok()?))
}
