//! Where the messages of each epoch begin in a queue.
//!
//! Invariants: a queue shows no message of an epoch that is not among what is told of it.
//! Threads: any.

use crate::commitlog::epochs::EpochStart;
use crate::consumequeue::Queue;
use crate::error::Result;
use crate::read::Bounds;

/// An epoch and the first queue offset that it gave, or those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochOffset {
    pub epoch: i64,
    pub first_offset: i64,
}

/// A queue's bounds, and where its epochs begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEpochs {
    pub queue_id: u32,
    pub bounds: Bounds,
    /// Oldest first; of epochs that begin at the same offset only the newest.
    pub epochs: Vec<EpochOffset>,
}

/// The epochs of a log as far as its queues show them.
pub struct ShownEpochs<'a> {
    shown: &'a [EpochStart],
    /// The first that is not shown yet.
    next: Option<EpochStart>,
}

impl<'a> ShownEpochs<'a> {
    /// Of a log that is dispatched up to `dispatched`, which the caller looked at before the queues' bounds.
    pub fn new(epochs: &'a [EpochStart], dispatched: i64) -> Self {
        let shown = epochs.partition_point(|entry| entry.start_offset <= dispatched);
        Self { shown: epochs.get(..shown).unwrap_or_default(), next: epochs.get(shown).copied() }
    }

    /// Whether that are all of them: else who looks again sees where the next begins.
    pub fn is_settled(&self) -> bool {
        self.next.is_none()
    }

    /// The epochs of one queue, and its bounds without what an epoch wrote that is not shown yet.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn of(&self, queue_id: u32, queue: Option<&Queue>, bounds: Bounds) -> Result<QueueEpochs> {
        let first = |start: i64| match queue {
            // The log's first epoch, and nearly always the only one: nothing is searched for it.
            Some(_) if start <= 0 => Ok(bounds.min),
            Some(queue) => queue.first_at_or_behind(start, bounds.min, bounds.max),
            None => Ok(bounds.max),
        };
        let max = match self.next {
            Some(next) => first(next.start_offset)?,
            None => bounds.max,
        };
        let mut epochs: Vec<EpochOffset> = Vec::new();
        for entry in self.shown {
            let first_offset = first(entry.start_offset)?.min(max);
            epochs.pop_if(|before| before.first_offset == first_offset);
            epochs.push(EpochOffset { epoch: entry.epoch, first_offset });
        }
        Ok(QueueEpochs { queue_id, bounds: Bounds { min: bounds.min, max }, epochs })
    }
}
