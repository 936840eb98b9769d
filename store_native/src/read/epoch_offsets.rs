//! Where the messages of each epoch begin in a queue.
//!
//! Invariants: a queue shows no message of an epoch that is not among what is told of it. An offset that is told as the
//! first of an epoch is so; where retention took what would tell it, that is said.
//! Threads: any.

use super::epoch_memory::{EpochMemory, QueueStarts};
use crate::commitlog::epochs::EpochStart;
use crate::consumequeue::Queue;
use crate::error::Result;
use crate::read::Bounds;

/// An epoch and the first queue offset that it gave, or those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochOffset {
    pub epoch: i64,
    pub first_offset: i64,
    /// It is the first that is stored: others before it have expired, perhaps.
    pub at_or_before: bool,
}

/// A queue's bounds, and where its epochs begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEpochs {
    pub queue_id: u32,
    pub bounds: Bounds,
    /// Oldest first; of epochs of which the same is told only the newest.
    pub epochs: Vec<EpochOffset>,
}

/// The epochs of a log as far as its queues show them.
pub struct ShownEpochs<'a> {
    shown: &'a [EpochStart],
    /// The first that is not shown yet.
    next: Option<EpochStart>,
    memory: &'a EpochMemory,
    generation: i64,
    /// What was found out, for the memory, once it is known that nothing was cut meanwhile.
    found: Vec<(u64, QueueStarts)>,
}

impl<'a> ShownEpochs<'a> {
    /// Of a log of this `generation` that is dispatched up to `dispatched`, which the caller looked at before the
    /// queues' bounds. What `memory` knows is not searched for.
    pub fn new(epochs: &'a [EpochStart], dispatched: i64, memory: &'a EpochMemory, generation: i64) -> Self {
        let shown = epochs.partition_point(|entry| entry.start_offset <= dispatched);
        let next = epochs.get(shown).copied();
        Self { shown: epochs.get(..shown).unwrap_or_default(), next, memory, generation, found: Vec::new() }
    }

    /// Whether that are all of them: else who looks again sees where the next begins.
    pub fn is_settled(&self) -> bool {
        self.next.is_none()
    }

    /// Keeps what was found out: to be called when generation and epochs are still what they were.
    pub fn keep(self) {
        self.memory.keep(self.generation, self.found);
    }

    /// The epochs of one queue, and its bounds without what an epoch wrote that is not shown yet. `log_min` says where
    /// the log begins now.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn of(
        &mut self,
        queue_id: u32,
        queue: Option<&Queue>,
        bounds: Bounds,
        log_min: impl Fn() -> i64,
    ) -> Result<QueueEpochs> {
        let max = match (self.next, queue) {
            (Some(next), Some(queue)) => {
                queue.first_at_or_behind(next.start_offset, bounds.min, bounds.max)?
            }
            _ => bounds.max,
        };
        let mut epochs: Vec<EpochOffset> = Vec::new();
        for (entry, (first_offset, at_or_before)) in
            self.shown.iter().zip(self.firsts(queue, bounds, log_min)?)
        {
            let told = EpochOffset { epoch: entry.epoch, first_offset: first_offset.min(max), at_or_before };
            epochs.pop_if(|before| EpochOffset { epoch: entry.epoch, ..*before } == told);
            epochs.push(told);
        }
        Ok(QueueEpochs { queue_id, bounds: Bounds { min: bounds.min, max }, epochs })
    }

    /// For each epoch that is shown the first offset, and whether it is only a bound.
    fn firsts(
        &mut self,
        queue: Option<&Queue>,
        bounds: Bounds,
        log_min: impl Fn() -> i64,
    ) -> Result<Vec<(i64, bool)>> {
        let Some(queue) = queue else { return Ok(vec![(bounds.max, false); self.shown.len()]) };
        let known = self.memory.of(self.generation, queue.serial());
        let mut starts = QueueStarts::at(bounds.min, known.as_deref());
        let mut firsts = Vec::with_capacity(self.shown.len());
        // From the newest: where one has no message stored before it, none of an earlier one is.
        for (at, entry) in self.shown.iter().enumerate().rev() {
            let start = entry.start_offset;
            let (first, is_bound) = match starts.first_of(start) {
                // The log's first epoch, and nearly always the only one: nothing is searched for it.
                _ if start <= 0 => (0, false),
                Some(first) => first,
                None => {
                    let found = search(queue, start, bounds, &log_min)?;
                    starts.put(start, found);
                    found
                }
            };
            // Before the oldest that is known there may have been others.
            firsts.push((first, is_bound || at == 0 && start > 0 && first > 0));
        }
        firsts.reverse();
        if known.map_or(starts.len() > 0, |known| *known != starts) {
            self.found.push((queue.serial(), starts));
        }
        Ok(firsts)
    }
}

/// The first offset whose record lies at or behind `start` in the log, and whether there may have been one before it,
/// which has expired. Entries of what has expired stay for a while: they tell it, too.
fn search(queue: &Queue, start: i64, bounds: Bounds, log_min: impl Fn() -> i64) -> Result<(i64, bool)> {
    let mut first = queue.first_at_or_behind(start, bounds.min, bounds.max)?;
    if queue.lies_before(first, start)? {
        return Ok((first, false));
    }
    first = queue.first_stored_at_or_behind(start, first)?;
    // Looked at last: an entry goes only after the log has gone so far.
    let is_known = queue.lies_before(first, start)? || start >= log_min();
    Ok((first, !is_known))
}
