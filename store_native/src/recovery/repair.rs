//! Queues and index files that do not stand as the snapshot says: which they are, and where in the log their
//! records begin. Only these are built again.
//!
//! Invariants: no queue ends before the offset it was known to reach: an offset that was given once is never given
//! again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::commitlog::CommitLog;
use crate::consumequeue::{Entry, Queue, QueueTable, TailState};
use crate::dispatch::Dispatcher;
use crate::error::Result;
use crate::message::RecordView;
use crate::snapshot::Snapshot;
use crate::state::{Op, names};

/// Of so many queues without an entry a start behind a crash writes the end again, up to a file of blanks (6 MB) each:
/// a store that was made from its master's may have thousands that never had a file.
const MOST_ENDS: usize = 64;

/// A queue's name: topic and queue id.
type Name = (Arc<str>, u32);

/// What is to be built again from records before the snapshot's offset.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// Bounds that a queue must not fall behind, whatever the log still tells of it: an offset that was
    /// given once is never given again.
    floors: BTreeMap<Name, (i64, i64)>,
    /// All queues are built again, not only those of `floors`.
    all: bool,
    /// The index is built again from this log offset on.
    pub index_from: Option<i64>,
    /// Log offset of the first record that is needed; `i64::MAX` for none.
    pub from: i64,
}

impl Repair {
    /// Nothing to repair.
    pub fn none() -> Self {
        Self { from: i64::MAX, ..Self::default() }
    }

    /// Looks at every queue of the snapshot, which stands in `queues` already. After a clean stop all of them is on the
    /// disk.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn of_queues(
        queues: &QueueTable,
        snapshot: &Snapshot,
        durable: i64,
        clean: bool,
        log: &CommitLog,
    ) -> Result<Self> {
        let mut repair = Self::none();
        let mut ends = 0;
        let log_min = log.min_offset();
        for queue in queues.all() {
            let (min, max) = (queue.min_offset(), queue.max_offset());
            let in_log = |offset, entry: &Entry| {
                (entry.physical_offset >= log_min).then(|| is_record_of(log, &queue, offset, entry))
            };
            if let TailState::CutAt { offset, log_offset } =
                queue.tail_state(durable, snapshot.applied_offset, in_log)?
            {
                repair.floors.insert((Arc::clone(queue.topic()), queue.queue_id()), (min, max));
                repair.from = repair.from.min(log_offset.max(log_min));
                queue.set_bounds(min, offset);
            } else if !clean && queue.front_may_be_lost(durable)? {
                if ends < MOST_ENDS && queue.show_end(durable)? {
                    ends += 1;
                }
                queue.blank_front(durable)?;
            }
            queue.raise_min(log_min)?;
        }
        Ok(repair)
    }

    /// Everything again from the log's start. Where no snapshot tells how far the queues reached, their
    /// files do.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn of_everything(
        queues: &QueueTable,
        snapshot: Option<&Snapshot>,
        durable: i64,
        log_min: i64,
    ) -> Result<Self> {
        let mut repair = Self { all: true, index_from: Some(log_min), from: log_min, ..Self::default() };
        match snapshot {
            Some(snapshot) => {
                for (topic, queue_id, min, max) in &snapshot.queues {
                    repair.floors.insert((topic.as_str().into(), *queue_id), (*min, *max));
                }
            }
            None => {
                queues.load_all()?;
                for queue in queues.all() {
                    let bounds = queue.bounds_on_disk(log_min, durable)?;
                    repair.floors.insert((Arc::clone(queue.topic()), queue.queue_id()), bounds);
                }
            }
        }
        Ok(repair)
    }

    /// Leaves out the queues of a topic that is deleted later in the log.
    pub fn forget_topic(&mut self, topic: &str) {
        self.floors.retain(|(of, _), _| **of != *topic);
        if self.floors.is_empty() && !self.all && self.index_from.is_none() {
            self.from = i64::MAX;
        }
    }

    /// The index is built again from `from` on.
    pub fn index_from(&mut self, from: i64) {
        self.index_from = Some(self.index_from.map_or(from, |before| before.min(from)));
        self.from = self.from.min(from);
    }

    pub fn is_needed(&self) -> bool {
        self.from < i64::MAX
    }

    /// How many queues it is about.
    pub fn queues(&self) -> usize {
        self.floors.len()
    }

    /// Empties what is to be filled again.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn clear(&self, queues: &QueueTable) -> Result<()> {
        if self.all {
            for topic in queues.store().topics()? {
                queues.remove_topic(&topic)?;
            }
            queues.forget_all();
            queues.store().sweep();
            for (topic, queue_id) in self.floors.keys() {
                queues.get_or_create(topic, *queue_id);
            }
            return Ok(());
        }
        for queue in self.broken(queues) {
            queue.truncate(queue.max_offset())?;
            queue.blank_front(self.from)?;
        }
        Ok(())
    }

    fn broken(&self, queues: &QueueTable) -> Vec<Arc<Queue>> {
        self.floors.keys().map(|(topic, queue_id)| queues.get_or_create(topic, *queue_id)).collect()
    }

    /// Takes a record from before the snapshot's offset.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn take(
        &self,
        record: &RecordView<'_>,
        queues: &QueueTable,
        dispatcher: &mut Dispatcher,
    ) -> Result<()> {
        if record.topic == names::META_TOPIC
            && let Ok(Op::DeleteTopic { topic }) = Op::decode(record.body, record.physical_offset)
        {
            self.topic_deleted(&topic, queues)?;
        }
        let name = (Arc::from(record.topic), record.queue_id as u32);
        if self.all || self.floors.contains_key(&name) {
            dispatcher.stage_again(record)?;
        }
        if self.index_from.is_some_and(|from| record.physical_offset >= from) {
            dispatcher.index_again(record)?;
        }
        Ok(())
    }

    /// What came before was of a topic that is gone: its queues begin again.
    fn topic_deleted(&self, topic: &str, queues: &QueueTable) -> Result<()> {
        for queue in self.broken(queues).iter().filter(|queue| **queue.topic() == *topic) {
            let (min, _) = self.floor_of(queue);
            queue.unstage();
            queue.truncate(0)?;
            queue.set_bounds(min, min);
        }
        if self.all {
            for (_, queue) in queues.of_topic(topic) {
                if !self.floors.contains_key(&(Arc::clone(queue.topic()), queue.queue_id())) {
                    queue.unstage();
                    queue.truncate(0)?;
                    queue.set_bounds(0, 0);
                }
            }
            if !self.floors.keys().any(|(of, _)| **of == *topic) {
                // It is not made again later: nothing of it stays.
                queues.remove_topic(topic)?;
            }
        }
        Ok(())
    }

    fn floor_of(&self, queue: &Queue) -> (i64, i64) {
        self.floors.get(&(Arc::clone(queue.topic()), queue.queue_id())).copied().unwrap_or_default()
    }

    /// Ends it: no queue is shorter than it was known to be. Offsets whose records are damaged get
    /// tombstones; a queue whose records have all expired goes on where it was.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error.
    pub fn finish(&self, queues: &QueueTable, dispatcher: &mut Dispatcher) -> Result<()> {
        dispatcher.store()?;
        for queue in self.broken(queues) {
            let (floor_min, floor_max) = self.floor_of(&queue);
            if queue.max_offset() < floor_max {
                let last = match queue.max_offset() {
                    max if max > queue.min_offset() => queue.entry(max - 1)?,
                    _ => None,
                };
                match last {
                    Some(last) => {
                        let (from, to) = dispatcher.quarantine.between(last.end(), i64::MAX);
                        let to = if to == i64::MAX { from + 1 } else { to };
                        queue.fill(floor_max, from, to)?;
                    }
                    None => queue.set_bounds(floor_max, floor_max),
                }
            }
            let (min, max) = (queue.min_offset(), queue.max_offset());
            queue.set_bounds(min.max(floor_min).min(max), max);
            queue.show_end(self.from)?;
            queue.blank_front(self.from)?; // records of places behind the cut may have expired
            queue.note_dirty(min, self.from);
        }
        Ok(())
    }
}

/// Whether the log has, where the entry says, the record of that offset of the queue.
fn is_record_of(log: &CommitLog, queue: &Queue, offset: i64, entry: &Entry) -> bool {
    log.locate(entry.physical_offset).is_some_and(|located| {
        located.record().is_ok_and(|record| {
            record.topic == &**queue.topic()
                && record.queue_id as u32 == queue.queue_id()
                && record.queue_offset == offset
        })
    })
}
