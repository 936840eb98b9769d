//! The places of a queue that tell its bounds to whoever has no owner to ask, though no message lies there: those
//! before its first entry, and of an empty queue the last one before its end.
//!
//! Invariants: only recovery writes them, before the queue has other writers. A place in which something stands is left
//! as it is.

use super::entry::{ENTRY_BYTES, Entry};
use super::queue::{LAST_CHUNK, Queue};
use crate::error::Result;

impl Queue {
    /// Whether a power cut may have taken places before the minimum: what stands at it, or last before it where the queue
    /// is empty, was not written before `durable`, and so need not be on the disk.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn front_may_be_lost(&self, durable: i64) -> Result<bool> {
        let min = self.min_offset();
        if min == 0 {
            return Ok(false);
        }
        let near = if min < self.max_offset() { min } else { min - 1 };
        Ok(self.entry(near)?.is_none_or(|entry| entry.is_blank() || entry.physical_offset >= durable))
    }

    /// Marks the places before the minimum blank in which nothing stands any more (recovery only): a power cut may have
    /// taken what was never synced of them, and whoever looks for the queue's end begins there. What was written counts
    /// as dirty, with what has to be read of the log from `durable` on.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn blank_front(&self, durable: i64) -> Result<()> {
        self.drop_expired()?; // a file that a power cut brought back may be the first, with none behind it
        let Some((first, behind)) = self.store().extent(self.key())? else { return Ok(()) };
        let end = self.min_offset().min(behind);
        let blank = Entry::BLANK.encode();
        let mut chunk = vec![0; LAST_CHUNK * ENTRY_BYTES];
        let mut at = first;
        while at < end {
            let wanted = chunk.len().min((end - at) as usize * ENTRY_BYTES);
            let count = match chunk.get_mut(..wanted) {
                Some(out) => self.store().read(self.key(), at, out)?,
                None => 0,
            };
            if count == 0 {
                break;
            }
            let places = chunk.chunks_exact_mut(ENTRY_BYTES).take(count);
            let lost = places
                .filter(|place| Entry::decode(place).is_none())
                .map(|place| place.copy_from_slice(&blank));
            if lost.count() > 0
                && let Some(mended) = chunk.get(..count * ENTRY_BYTES)
            {
                self.store().write(self.key(), at, mended)?;
                self.note_dirty(at, durable);
            }
            at += count as i64;
        }
        Ok(())
    }

    /// Has a queue without an entry say in a file where it ends (recovery only): whoever asks no owner finds it there.
    /// Whether that was to be written, up to a file of blanks; it then counts as dirty, from `durable` on.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn show_end(&self, durable: i64) -> Result<bool> {
        let end = self.max_offset();
        if end == 0 || self.min_offset() < end || self.entry(end - 1)?.is_some() {
            return Ok(false);
        }
        self.truncate(end)?; // gives a file that is too short its length
        self.store().write(self.key(), end - 1, &Entry::BLANK.encode())?;
        self.note_dirty(end - 1, durable);
        Ok(true)
    }
}
