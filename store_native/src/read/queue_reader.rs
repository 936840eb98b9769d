//! The reading half of a store, the same for its owner and for readers beside it.
//!
//! Invariants: a record is given out only if it passed its checksum and is what its queue or the index says; one
//! that is not is counted, passed over, and noted in a slice. A slice that may look at anything moves on, also
//! where no entry is.
//! Threads: any; its own counter is atomic.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashSet;
use std::sync::Arc;

use super::slice::{SliceMeta, SliceRequest, Status};
use crate::commitlog::{CommitLog, Located, LogFile};
use crate::consumequeue::{Queue, QueueTable};
use crate::error::Result;
use crate::index::{Index, key_hash};
use crate::message::{RecordView, message_id, properties};
use crate::state::names;

/// Entries looked at for one slice at most when a filter lets few through.
const MAX_SCANNED: i64 = 1_000_000;

/// Records of one id that are looked at: a message, its delayed form, its retries.
const MAX_OF_ONE_ID: usize = 64;
/// An id may have been made this long before it says, by a host whose clock or month is another.
const BEFORE_MADE_MS: i64 = 86_400_000;

fn has_key(record: &RecordView<'_>, key: &str) -> bool {
    let keys = || record.property(properties::KEYS).into_iter().flat_map(str::split_ascii_whitespace);
    record.property(properties::UNIQ_KEY) == Some(key) || keys().any(|k| k == key)
}

/// Where a queue begins and ends for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub min: i64,
    pub max: i64,
}

/// Reads records through queues and index.
#[derive(Debug)]
pub struct QueueReader {
    log: Arc<CommitLog>,
    queues: Arc<QueueTable>,
    index: Arc<Index>,
    damaged: AtomicU64,
}

impl QueueReader {
    pub fn new(log: &Arc<CommitLog>, queues: &Arc<QueueTable>, index: &Arc<Index>) -> Self {
        Self {
            log: Arc::clone(log),
            queues: Arc::clone(queues),
            index: Arc::clone(index),
            damaged: AtomicU64::new(0),
        }
    }

    /// Records met so far that failed their checksum or were not what their queue says.
    pub fn damaged_records(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Gives the messages of a slice to `each` with their queue offsets, in order.
    ///
    /// # Errors
    /// Any I/O error, or the first error of `each`.
    pub fn read(
        &self,
        topic: &str,
        queue_id: u32,
        queue: &Queue,
        bounds: Bounds,
        request: &SliceRequest,
        mut each: impl FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta> {
        let Bounds { min, max } = bounds;
        let from = request.offset;
        if from < min || from > max {
            return Ok(SliceMeta::empty(Status::OffsetIllegal, from.clamp(min, max), min, max));
        }
        let end = request.end_offset.unwrap_or(max).min(max);
        if from >= end {
            return Ok(SliceMeta::empty(Status::NoNewMessage, from, min, max));
        }
        let mut meta = SliceMeta::empty(Status::NoMatchedMessage, from, min, max);
        let end = end.min(from + MAX_SCANNED);
        let mut bytes = 0usize;
        let mut file: Option<LogFile> = None;
        queue.walk(from, end, |offset, entry| {
            if meta.count >= request.max_messages {
                return Ok(false);
            }
            if !entry.is_tombstone() && !request.filter.may_match(entry.tags_code) {
                meta.next_offset = offset + 1;
                meta.physical_offset = Some(entry.physical_offset);
                return Ok(true);
            }
            if meta.count > 0 && bytes + entry.size.max(0) as usize > request.max_bytes {
                return Ok(false);
            }
            if file
                .as_ref()
                .is_none_or(|f| entry.physical_offset < f.base || entry.physical_offset >= f.end())
            {
                file = self.log.file_at(entry.physical_offset);
            }
            let record = file.as_ref().and_then(|f| {
                let at = (entry.physical_offset - f.base) as usize;
                RecordView::parse_checked(f.file.tail(at), entry.physical_offset).ok()
            });
            meta.next_offset = offset + 1;
            meta.physical_offset = Some(entry.physical_offset);
            match record {
                Some(record)
                    if record.queue_offset == offset
                        && record.queue_id == queue_id as i32
                        && record.topic == topic =>
                {
                    if request.filter.matches(&record) {
                        bytes += record.total_size as usize;
                        meta.count += 1;
                        each(&record, offset)?;
                    }
                }
                _ => {
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                    meta.note_damage(offset);
                }
            }
            Ok(true)
        })?;
        if meta.next_offset == from && request.max_messages > 0 {
            // No entry stands where one should: pass it over as damaged rather than stand still.
            meta.note_damage(from);
            meta.next_offset = from + 1;
        }
        if meta.count > 0 {
            meta.status = Status::Found;
        }
        Ok(meta)
    }

    /// First queue offset in the bounds that was stored at or after `timestamp`; the end when none was.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn offset_by_time(&self, queue: &Queue, bounds: Bounds, timestamp: i64) -> Result<i64> {
        queue.partition(bounds.min, bounds.max, |entry| {
            let located = entry.and_then(|e| self.log.locate(e.physical_offset));
            match located.as_ref().map(Located::record) {
                Some(Ok(record)) => record.store_timestamp < timestamp,
                // Damaged or expired: it counts as old.
                _ => true,
            }
        })
    }

    /// Shows the message at a physical offset to `each`, when it ends before `limit`; false when there is none.
    ///
    /// # Errors
    /// The error of `each`.
    pub fn message_at(
        &self,
        physical_offset: i64,
        limit: i64,
        each: impl FnOnce(&RecordView<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some(located) = self.log.locate(physical_offset) else { return Ok(false) };
        match located.record() {
            Ok(record) if record.end_offset() <= limit && record.is_visible() => each(&record).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Shows the messages of `topic` that carry `key` (one of KEYS, or UNIQ_KEY), stored in `[begin, end]`, to `each`,
    /// newest first, until it returns false; at most `max_messages`.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn find(
        &self,
        topic: &str,
        key: &str,
        (begin, end): (i64, i64),
        max_messages: usize,
        limit: i64,
        mut each: impl FnMut(&RecordView<'_>) -> Result<bool>,
    ) -> Result<()> {
        let mut offsets = self.index.find(topic, key, begin, end, max_messages.saturating_mul(4).max(64));
        offsets.dedup();
        let mut left = max_messages;
        for offset in offsets {
            if left == 0 {
                break;
            }
            let Some(located) = self.log.locate(offset) else { continue };
            let Ok(record) = located.record() else { continue };
            if record.topic == topic
                && has_key(&record, key)
                && record.end_offset() <= limit
                && (begin..=end).contains(&record.store_timestamp)
            {
                if !each(&record)? {
                    break;
                }
                left -= 1;
            }
        }
        Ok(())
    }

    /// A message by offset id, or by client id (not by a key that reads like one) in the given topics: of several with the same id (a delayed
    /// message and its delivery, a retry) the one that users sent. `now_ms` is the reader's time: an id says
    /// when it was made, and index files from before that are looked at last. Shows it to `each`; false when there
    /// is none.
    ///
    /// # Errors
    /// The error of `each`.
    pub fn find_by_id<'t>(
        &self,
        id: &str,
        topics: impl Iterator<Item = &'t str>,
        now_ms: i64,
        limit: i64,
        each: impl FnOnce(&RecordView<'_>) -> Result<()>,
    ) -> Result<bool> {
        if let Some((host, offset)) = message_id::parse_offset_id(id)
            && let Some(located) = self.log.locate(offset)
            && located.record().is_ok_and(|r| r.store_host == host)
        {
            return self.message_at(offset, limit, each);
        }
        let topics: HashSet<&str> = topics.collect();
        let hashes: HashSet<i32> = topics.iter().map(|topic| key_hash(topic, id)).collect();
        let made = message_id::time_of(id, now_ms).map_or(0, |made| (made - BEFORE_MADE_MS).max(0));
        for (begin, end) in [(made, i64::MAX), (0, made - 1)] {
            let mut offsets = self.index.find_any(hashes.iter().copied(), begin, end, MAX_OF_ONE_ID);
            // Oldest first, and a message in its own topic before copies of it in the system's.
            offsets.sort_unstable();
            offsets.dedup();
            let rank = |topic: &str| (names::is_system(topic), names::is_group_topic(topic));
            let mut found: Option<((bool, bool), i64)> = None;
            for offset in offsets {
                let Some(located) = self.log.locate(offset) else { continue };
                let Ok(record) = located.record() else { continue };
                let asked =
                    topics.contains(record.topic) && record.property(properties::UNIQ_KEY) == Some(id);
                if asked && record.end_offset() <= limit && found.is_none_or(|(r, _)| rank(record.topic) < r)
                {
                    found = Some((rank(record.topic), offset));
                }
            }
            if let Some((_, offset)) = found {
                return self.message_at(offset, limit, each);
            }
        }
        Ok(false)
    }

    /// The queues.
    pub fn queues(&self) -> &Arc<QueueTable> {
        &self.queues
    }
}
