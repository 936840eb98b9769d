//! What was found out before about where epochs begin in queues.
//!
//! Invariants: what a queue shows of past epochs changes only where it expires or the log is cut. Nothing is remembered
//! over a cut, and a bound only as long as the queue begins where it did. Offsets remembered at most: [`MAX_STARTS`].
//! Threads: any.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lock::lock;
use crate::sync::Mutex;

/// 24 bytes each.
const MAX_STARTS: usize = 1 << 20;

/// What is known of one queue.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct QueueStarts {
    /// The queue's first offset when it was looked at.
    min: i64,
    /// Log offset and the first queue offset at or behind it; sorted.
    exact: Vec<(i64, i64)>,
    /// The newest of which the first queue offset is only a bound: of all before it, it is the same.
    bound: Option<(i64, i64)>,
}

impl QueueStarts {
    /// What was known before, of a queue that begins at `min` now.
    pub fn at(min: i64, known: Option<&Self>) -> Self {
        match known {
            Some(known) if known.min == min => known.clone(),
            Some(known) => Self { min, bound: None, ..known.clone() },
            None => Self { min, ..Self::default() },
        }
    }

    /// How many offsets are known.
    pub fn len(&self) -> usize {
        self.exact.len() + usize::from(self.bound.is_some())
    }

    /// The first queue offset at or behind a log offset, and whether it is only a bound; `None`: not known.
    pub fn first_of(&self, start: i64) -> Option<(i64, bool)> {
        if let Ok(at) = self.exact.binary_search_by_key(&start, |(start, _)| *start) {
            return self.exact.get(at).map(|(_, first)| (*first, false));
        }
        self.bound.filter(|(newest, _)| start <= *newest).map(|(_, first)| (first, true))
    }

    /// Remembers it.
    pub fn put(&mut self, start: i64, (first, is_bound): (i64, bool)) {
        if is_bound {
            self.bound = Some((start, first));
        } else if let Err(at) = self.exact.binary_search_by_key(&start, |(start, _)| *start) {
            self.exact.insert(at, (start, first));
        }
    }
}

#[derive(Debug, Default)]
struct Known {
    generation: i64,
    /// By the queue's serial.
    queues: HashMap<u64, Arc<QueueStarts>>,
    starts: usize,
}

/// What is known of all queues.
#[derive(Debug, Default)]
pub struct EpochMemory(Mutex<Known>);

impl EpochMemory {
    /// What is known of a queue under this generation of the log.
    pub fn of(&self, generation: i64, serial: u64) -> Option<Arc<QueueStarts>> {
        let known = lock(&self.0);
        if known.generation == generation { known.queues.get(&serial).cloned() } else { None }
    }

    /// Remembers what was found under this generation.
    pub fn keep(&self, generation: i64, found: Vec<(u64, QueueStarts)>) {
        if found.is_empty() {
            return;
        }
        let mut known = lock(&self.0);
        if known.generation != generation {
            *known = Known { generation, ..Known::default() };
        }
        for (serial, starts) in found {
            known.starts += starts.len();
            let before = known.queues.insert(serial, Arc::new(starts));
            known.starts -= before.map_or(0, |before| before.len());
            if known.starts > MAX_STARTS {
                // Of queues that are gone, too: what is asked for is found out again.
                *known = Known { generation, ..Known::default() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(min: i64, exact: &[(i64, i64)]) -> QueueStarts {
        let mut made = QueueStarts::at(min, None);
        exact.iter().for_each(|(start, first)| made.put(*start, (*first, false)));
        made
    }

    #[test]
    fn test_a_bound_holds_for_all_before_it_as_long_as_the_queue_begins_where_it_did() {
        let mut found = starts(7, &[(300, 9), (10, 2)]);
        found.put(200, (7, true));
        assert_eq!(
            [10, 100, 200, 250, 300].map(|start| found.first_of(start)),
            [Some((2, false)), Some((7, true)), Some((7, true)), None, Some((9, false))]
        );
        let later = QueueStarts::at(8, Some(&found));
        assert_eq!(
            [10, 100, 200, 300].map(|start| later.first_of(start)),
            [Some((2, false)), None, None, Some((9, false))]
        );
    }

    #[test]
    fn test_a_memory_knows_nothing_of_another_generation_and_no_more_than_its_bound() {
        let memory = EpochMemory::default();
        memory.keep(1, vec![(5, starts(0, &[(10, 2)]))]);
        assert_eq!(memory.of(1, 5).as_deref(), Some(&starts(0, &[(10, 2)])));
        assert_eq!((memory.of(2, 5), memory.of(1, 6)), (None, None));
        memory.keep(2, vec![(6, starts(0, &[(10, 3)]))]);
        assert_eq!((memory.of(1, 5), memory.of(2, 5)), (None, None));
        let many: Vec<(i64, i64)> = (0..1_000).map(|at| (at, at)).collect();
        for serial in 0..=(MAX_STARTS / 1_000) as u64 {
            memory.keep(2, vec![(serial, starts(0, &many))]);
            assert!(lock(&memory.0).starts <= MAX_STARTS);
        }
        memory.keep(2, vec![(6, starts(0, &[(10, 3)]))]);
        assert!(memory.of(2, 6).is_some());
    }
}
