//! The answer to a request that is in the log already, read back from its records.

use std::sync::atomic::Ordering;

use super::Shared;
use super::answer::{Appended, Placed, write_tail};
use super::append::AppendRequest;
use crate::commitlog::scan::{Found, look};
use crate::error::{Result, StoreError};
use crate::idempotence::KeyPlace;
use crate::message::properties;

impl Shared {
    /// The result of a request that is in the log already, read back from its records.
    pub(super) fn first_result(&self, request: &AppendRequest<'_>, place: KeyPlace) -> Result<Appended> {
        self.counters.duplicates.fetch_add(1, Ordering::Relaxed);
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
            let Found::Record(view) = look(&file, offset) else { return Err(gone()) };
            if placed.is_empty() {
                count = view.property(properties::BATCH).and_then(|c| c.parse().ok()).unwrap_or(1);
                let same_topic = view.property(properties::REAL_TOPIC).unwrap_or(view.topic) == request.topic;
                if view.property(properties::IDEMPOTENCE_KEY) != request.idempotency_key || !same_topic {
                    return Err(StoreError::invalid(
                        "MESSAGE_ILLEGAL",
                        "this Idempotency-Key was used for another request",
                    ));
                }
            }
            let real_queue = view.property(properties::REAL_QID).and_then(|q| q.parse().ok());
            placed.push(Placed {
                message_id: view.message_id(),
                physical_offset: offset,
                queue_id: real_queue.unwrap_or(view.queue_id as u32),
                queue_offset: view.queue_offset,
            });
            offset = view.end_offset();
        }
        let tail = write_tail(&self.answer_facts(request, count > 1, true), &placed);
        Ok(Appended { end_offset: offset, count, waits: true, duplicate: true, tail })
    }
}
