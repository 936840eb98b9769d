//! Finding a queue's bounds from what is stored: for readers that have no owner to ask, and for recovery, which
//! asks how far a queue can be trusted.
//!
//! Invariants: an entry whose record ends beyond the limit does not count, also where it was being written while it
//! was read. One that lies over two sectors may have lost a part of its log offset to a power cut: the log is asked.

use super::entry::{ENTRY_BYTES, Entry};
use super::queue::{Queue, first_without};
use crate::error::Result;

/// Entries looked at behind a known end before searching.
const NEAR: usize = 256;

/// How far a queue stands as the snapshot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailState {
    Whole,
    /// Good up to this queue offset; the records behind it lie at or behind this log offset.
    CutAt {
        offset: i64,
        log_offset: i64,
    },
}

impl Queue {
    /// The bounds as stored entries tell them. Entries whose record ends beyond `limit` do not count. What
    /// was found before is where the search begins.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn bounds_on_disk(&self, log_min: i64, limit: i64) -> Result<(i64, i64)> {
        let counts = |entry: &Entry| entry.is_blank() || entry.end() <= limit;
        let (mut min, mut max) = (self.min_offset(), self.max_offset());
        let mut near = vec![0; NEAR * ENTRY_BYTES];
        let read = self.store().read(self.key(), max, &mut near)?;
        let entries = near.chunks_exact(ENTRY_BYTES).take(read).map(Entry::decode);
        let found = entries.take_while(|e| e.as_ref().is_some_and(counts)).count();
        max += found as i64;
        if found == read || max == 0 {
            let Some((first, last)) = self.store().extent(self.key())? else { return Ok((min, max)) };
            if max == 0 {
                min = first;
            }
            let low = max.max(first);
            max = self.partition(low, last.max(low), |e| e.as_ref().is_some_and(counts))?;
        }
        // An entry that was being written while it was read may have looked whole: look again.
        while max > min.max(self.max_offset()) && !self.entry(max - 1)?.as_ref().is_some_and(counts) {
            max -= 1;
        }
        min = self.first_at_or_behind(log_min, min.min(max), max)?;
        self.set_bounds(min, max);
        Ok((min, max))
    }

    /// First offset before `end` of a message at or behind `log_offset` of which the entry is stored; `end` when there is
    /// none. Entries of messages that have expired count, too, as long as their file is there.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn first_stored_at_or_behind(&self, log_offset: i64, end: i64) -> Result<i64> {
        let Some((low, _)) = self.store().extent(self.key())? else { return Ok(end) };
        self.first_at_or_behind(log_offset, low.min(end), end)
    }

    /// Whether the message before this queue offset is stored and lies before `log_offset`; of the first there is none.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn lies_before(&self, offset: i64, log_offset: i64) -> Result<bool> {
        if offset <= 0 {
            return Ok(true);
        }
        Ok(self.entry(offset - 1)?.is_some_and(|e| !e.is_blank() && e.physical_offset < log_offset))
    }

    /// Whether the entries between the bounds stand in the store. Those of records before `durable` are on
    /// the disk for sure; the others may have been lost with the power, and are looked at one by one.
    /// `applied` is where the log was when the bounds were noted. `in_log` says whether an entry's record is the one
    /// of that offset; `None` where the log does not reach back to it.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn tail_state(
        &self,
        durable: i64,
        applied: i64,
        in_log: impl Fn(i64, &Entry) -> Option<bool>,
    ) -> Result<TailState> {
        let (min, max) = (self.min_offset(), self.max_offset());
        if min >= max {
            return Ok(TailState::Whole);
        }
        let shaped = self.store().intact_until(self.key(), min, max)?;
        let whole = |e: &Entry, from: i64| e.physical_offset >= from && e.end() <= applied;
        // Whether the log offset of an entry is the one that was written.
        let is_in_log = |offset: i64, entry: &Entry| {
            if entry.is_blank() || !self.store().can_be_torn(offset) {
                return Ok(true);
            }
            match in_log(offset, entry) {
                Some(is_there) if is_there || !entry.is_tombstone() => Ok(is_there),
                _ => self.follows_the_one_before(offset, entry, applied),
            }
        };
        let is_durable = |offset: i64| match self.entry(offset)? {
            Some(e) if e.is_blank() || e.physical_offset < durable => is_in_log(offset, &e),
            _ => Ok(false),
        };
        let last_is_whole = self.entry(max - 1)?.is_some_and(|e| whole(&e, 0)) && is_durable(max - 1)?;
        let mut good = shaped;
        // Where a file is missing, what stands before it may have lost sectors just as well.
        if shaped < max || !last_is_whole {
            good = first_without(min, shaped, is_durable)?;
            if good < max {
                self.note_dirty(good, durable);
            }
            let (from, mut reached) = (good, durable);
            self.walk(good, shaped, |offset, entry| {
                let follows = whole(&entry, reached) && is_in_log(offset, &entry)?;
                if follows {
                    (good, reached) = (offset + 1, entry.physical_offset);
                }
                Ok(follows)
            })?;
            // What is lost begins in the last good one, perhaps: its tags may lie in the sector behind it.
            if good > from && self.store().can_be_torn(good - 1) {
                good -= 1;
            }
        }
        if good >= max {
            return Ok(TailState::Whole);
        }
        let before = if good > min { self.entry(good - 1)?.filter(|e| whole(e, 0)) } else { None };
        Ok(match before {
            Some(before) => TailState::CutAt { offset: good, log_offset: before.end() },
            None => TailState::CutAt { offset: min, log_offset: self.log_start() },
        })
    }

    /// Whether an entry whose record has expired or is damaged may have its own log offset: one that lost the upper half of it, or
    /// all, mostly lies before its neighbour.
    fn follows_the_one_before(&self, offset: i64, entry: &Entry, applied: i64) -> Result<bool> {
        const UPPER_HALF: i64 = 1 << 32;
        let before = self.entry(offset - 1)?.filter(|before| !before.is_blank());
        let follows = before.is_some_and(|before| before.physical_offset <= entry.physical_offset);
        Ok(follows && (entry.physical_offset >= UPPER_HALF || applied <= UPPER_HALF))
    }
}
