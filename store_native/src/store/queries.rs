//! The owner's reads: the reading side with the bounds the dispatcher publishes.
//!
//! Invariants: nothing behind the dispatched mark is found by id or key.
//! Threads: those of callers.

use std::sync::Arc;

use super::Store;
use crate::consumequeue::Queue;
use crate::error::{Result, StoreError};
use crate::message::RecordView;
use crate::read::{Bounds, QueueEpochs, ShownEpochs, SliceMeta, SliceRequest, Status};
use crate::state::names;

impl Store {
    fn bounds_of(queue: &Queue) -> Bounds {
        let max = queue.max_offset();
        Bounds { min: queue.min_offset().min(max), max }
    }

    /// How often the topic table changed, as far as it is dispatched.
    pub fn topic_changes(&self) -> i64 {
        self.marks.topic_changes()
    }

    /// The queues of a topic with their bounds.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`, `TOPIC_NOT_EXIST`.
    pub fn queues(&self, topic: &str) -> Result<Vec<(u32, Bounds)>> {
        names::validate_topic(topic)?;
        let config = self.topic(topic).ok_or_else(|| StoreError::no_topic(topic))?;
        let known = self.queues.of_topic(topic);
        let count = config.read_queue_nums.max(config.write_queue_nums);
        let count = known.last().map_or(count, |(id, _)| count.max(id + 1));
        Ok((0..count)
            .map(|id| {
                let queue = known.iter().find(|(known, _)| *known == id);
                (id, queue.map_or(Bounds { min: 0, max: 0 }, |(_, q)| Self::bounds_of(q)))
            })
            .collect())
    }

    /// The queues of a topic with their bounds and where the epochs of the log begin in them; and whether those are all
    /// of its epochs, since one that begins behind what is dispatched is not shown yet.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`, `TOPIC_NOT_EXIST`; any I/O error.
    pub fn queue_epochs(&self, topic: &str) -> Result<(bool, Vec<QueueEpochs>)> {
        loop {
            let (generation, epochs) = (self.marks.generation(), self.appender.epochs());
            let dispatched = self.marks.dispatched();
            let mut shown = ShownEpochs::new(&epochs, dispatched, &self.epoch_memory, generation);
            let found: Result<Vec<QueueEpochs>> = self
                .queues(topic)?
                .into_iter()
                .map(|(id, bounds)| {
                    let queue = self.queues.get(topic, id);
                    shown.of(id, queue.as_deref(), bounds, || self.marks.log_min())
                })
                .collect();
            // Messages of an epoch that began meanwhile may be within the bounds.
            if self.marks.generation() == generation && self.appender.epochs() == epochs {
                let answer = (shown.is_settled(), found?);
                shown.keep();
                return Ok(answer);
            }
        }
    }

    /// The queue, or `None` when it exists and is empty.
    fn queue(&self, topic: &str, queue_id: u32) -> Result<Option<Arc<Queue>>> {
        if let Some(queue) = self.queues.get(topic, queue_id) {
            return Ok(Some(queue));
        }
        names::validate_topic(topic)?;
        let config = self.topic(topic).ok_or_else(|| StoreError::no_topic(topic))?;
        if queue_id >= config.read_queue_nums.max(config.write_queue_nums) {
            let detail = format!("topic[{topic}] has no queue {queue_id}");
            return Err(StoreError::invalid("QUEUE_NOT_EXIST", detail));
        }
        Ok(None)
    }

    /// Where a queue begins and ends.
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `QUEUE_NOT_EXIST`.
    pub fn bounds(&self, topic: &str, queue_id: u32) -> Result<Bounds> {
        Ok(self.queue(topic, queue_id)?.map_or(Bounds { min: 0, max: 0 }, |q| Self::bounds_of(&q)))
    }

    /// Reads a slice; see [`crate::read::QueueReader::read`].
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `QUEUE_NOT_EXIST`, `NO_PERMISSION`; any I/O error or the first one of `each`.
    pub fn read(
        &self,
        topic: &str,
        queue_id: u32,
        request: &SliceRequest,
        each: impl FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta> {
        let Some(queue) = self.queue(topic, queue_id)? else {
            let status = if request.offset == 0 { Status::NoNewMessage } else { Status::OffsetIllegal };
            return Ok(SliceMeta::empty(status, 0, 0, 0));
        };
        self.reads.read(topic, queue_id, &queue, Self::bounds_of(&queue), request, each)
    }

    /// First queue offset stored at or after `timestamp`; the end when none was.
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `QUEUE_NOT_EXIST`; any I/O error.
    pub fn offset_by_time(&self, topic: &str, queue_id: u32, timestamp: i64) -> Result<i64> {
        match self.queue(topic, queue_id)? {
            Some(queue) => self.reads.offset_by_time(&queue, Self::bounds_of(&queue), timestamp),
            None => Ok(0),
        }
    }

    /// Shows the messages of a topic that carry a key; see [`crate::read::QueueReader::find`].
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`; the first error of `each`.
    pub fn find(
        &self,
        topic: &str,
        key: &str,
        range: (i64, i64),
        max_messages: usize,
        each: impl FnMut(&RecordView<'_>) -> Result<bool>,
    ) -> Result<()> {
        names::validate_topic(topic)?;
        if self.topic(topic).is_none() {
            return Err(StoreError::no_topic(topic));
        }
        self.reads.find(topic, key, range, max_messages, self.marks.dispatched(), each)
    }

    /// Shows a message by offset id or client id, in one topic or in all; see
    /// [`crate::read::QueueReader::find_by_id`].
    ///
    /// # Errors
    /// The error of `each`.
    pub fn find_by_id(
        &self,
        id: &str,
        topic: Option<&str>,
        each: impl FnOnce(&RecordView<'_>) -> Result<()>,
    ) -> Result<bool> {
        let all = self.topics();
        let topics = all.keys().map(String::as_str).filter(|t| topic.is_none_or(|only| only == *t));
        self.reads.find_by_id(id, topics, self.now_ms(), self.marks.dispatched(), each)
    }
}
