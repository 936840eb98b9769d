//! A reader beside the owner, or of a store nobody owns.
//!
//! Invariants: no lock of the store's is taken, nothing is written. What it may see is bounded by the watermarks
//! file; a store that RocketMQ wrote has none, and is then read as far as its queues go. A slice during which the
//! owner recovered the store is refused, and every one once another store took its place. An expired file may vanish under it: a mapping it holds stays good, and
//! what it can no longer find is reported as expired.
//! Threads: any of this process; the owner is another process, known by its watermarks.

use crate::sync::atomic::{AtomicI64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::commitlog::CommitLog;
use crate::commitlog::epochs::read_starts;
use crate::consumequeue::files::found_file_bytes;
use crate::consumequeue::{ENTRY_BYTES, Queue, QueueFiles, QueueTable};
use crate::environment::{Clock, Disk, RealDisk, Stopwatch, SystemClock};
use crate::error::{Result, StoreError};
use crate::identity::Identity;
use crate::index::{Index, Shape};
use crate::message::RecordView;
use crate::paths::StorePaths;
use crate::read::{Bounds, EpochMemory, QueueEpochs, QueueReader, ShownEpochs, SliceMeta, SliceRequest};
use crate::state::{PERM_READ, TopicConfig, names};
use crate::topic_view::TopicView;
use crate::watermarks::Watermarks;

/// Length of a queue file by RocketMQ's default.
const ROCKETMQ_QUEUE_FILE_BYTES: u64 = 6_000_000;

/// How long a reader waits for a recovery, before it says that it is under way.
const RECOVERY_WAIT: Duration = Duration::from_secs(5);
const RECOVERY_LOOK: Duration = Duration::from_millis(10);

/// Reads a store directory.
#[derive(Debug)]
pub struct Reader {
    paths: StorePaths,
    identity: Option<Identity>,
    log: Arc<CommitLog>,
    index: Arc<Index>,
    marks: Option<Watermarks>,
    queue_reader: QueueReader,
    epoch_memory: EpochMemory,
    /// The topic table as it was looked at last.
    topics: Mutex<TopicView>,
    /// The owner's generation under which the files were mapped.
    generation: AtomicI64,
}

impl Reader {
    /// Opens the directory.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` when it is no store; `DATA_CORRUPT`; any I/O error.
    pub fn open(root: &Path) -> Result<Self> {
        let paths = StorePaths::new(root);
        if !RealDisk.exists(&paths.commitlog()).map_err(|e| StoreError::io("opening the commit log", e))? {
            let detail = format!("{} is no store: it has no commitlog", root.display());
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        crate::directory::refuse_unfinished(&paths, &RealDisk)?;
        let identity = Identity::read(&paths, &RealDisk)?;
        let marks = Watermarks::open_for_reading(&paths.watermarks())?;
        let generation = AtomicI64::new(marks.as_ref().map_or(0, Watermarks::generation));
        let log = Arc::new(CommitLog::open_for_reading(&paths.commitlog())?);
        let directory = paths.consumequeue();
        let file_bytes = match &identity {
            Some(identity) => u64::from(identity.consumequeue_file_entries) * ENTRY_BYTES as u64,
            None => found_file_bytes(&directory, &RealDisk)?.unwrap_or(ROCKETMQ_QUEUE_FILE_BYTES),
        };
        let queues = Arc::new(QueueTable::new(Arc::new(QueueFiles::for_reading(&directory, file_bytes))));
        let shape = identity.as_ref().map_or(Shape { slots: 5_000_000, entries: 20_000_000 }, |i| Shape {
            slots: i.index_slots,
            entries: i.index_entries,
        });
        let index = Arc::new(Index::open(&paths.index(), shape, false, &RealDisk)?);
        let queue_reader = QueueReader::new(&log, &queues, &index);
        let (topics, epoch_memory) = (Mutex::new(TopicView::read(&paths)?), EpochMemory::default());
        Ok(Self { paths, identity, log, index, marks, queue_reader, epoch_memory, topics, generation })
    }

    /// Who the store is; `None` for one that RocketMQ wrote.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub fn broker_name(&self) -> &str {
        self.identity.as_ref().map_or("broker-a", |identity| identity.broker_name.as_str())
    }

    /// The epoch of the log's newest bytes: its master changed with each.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when the epoch file is not readable; any I/O error.
    pub fn epoch(&self) -> Result<i64> {
        let made_with = self.identity.as_ref().map_or(1, |identity| identity.epoch);
        Ok(read_starts(&self.paths, &RealDisk)?.last().map_or(made_with, |last| last.epoch))
    }

    /// Whether the directory is still the store that was opened. A slave's that was empty may have become its master's:
    /// all of its files are other ones then.
    pub fn is_current(&self) -> bool {
        match &self.marks {
            Some(marks) => marks.is_current(),
            None => !RealDisk.exists(&self.paths.watermarks()).unwrap_or(false),
        }
    }

    /// Nothing that ends behind this offset is read: as far as the owner dispatched what is confirmed.
    pub fn readable(&self) -> i64 {
        self.marks.as_ref().map_or(i64::MAX, Watermarks::dispatched)
    }

    fn log_min(&self) -> i64 {
        self.marks.as_ref().map_or_else(|| self.log.min_offset(), Watermarks::log_min)
    }

    /// The topic table as of what is confirmed. Forgets the queues of topics that were deleted, or made again
    /// since the last look: their files are other ones now.
    fn refreshed_topics(&self) -> Result<MutexGuard<'_, TopicView>> {
        let mut known = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.marks.as_ref().map_or(-1, Watermarks::topic_changes);
        if known.changes != changes || changes < 0 {
            let mut fresh = known.clone();
            if changes >= 0 && fresh.changes >= 0 {
                fresh.follow(&self.queue_reader, self.log_min(), self.readable())?;
            }
            if fresh.changes != changes {
                // The owner restarted, RocketMQ owned it meanwhile, or the log no longer holds the changes.
                fresh = TopicView::read(&self.paths)?;
                if changes >= 0 {
                    fresh.follow(&self.queue_reader, self.log_min(), self.readable())?;
                }
            }
            // What both views know by one id has its files still. Queues of any other were there before it was in a
            // view, perhaps, and are another topic's.
            let kept = |topic: &str| {
                let id = |view: &TopicView| view.topics.get(topic).map(|config| config.topic_id.clone());
                let is_known = names::is_system(topic) || changes < 0 || known.topics.contains_key(topic);
                is_known && id(&known) == id(&fresh)
            };
            self.queue_reader.queues().forget_topics_but(kept);
            *known = fresh;
        }
        Ok(known)
    }

    /// The topic table as of what is confirmed, and topics that have queues but no entry in it.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn topics(&self) -> Result<BTreeMap<String, TopicConfig>> {
        self.refresh_log()?;
        let mut topics = self.refreshed_topics()?.topics.clone();
        for topic in self.queue_reader.queues().store().topics()? {
            topics.entry(topic).or_insert_with(|| TopicConfig {
                topic_id: String::new(),
                read_queue_nums: 0,
                write_queue_nums: 0,
                perm: PERM_READ,
                attributes: BTreeMap::new(),
            });
        }
        Ok(topics)
    }

    /// The queues of a topic: those its settings name and those that have files.
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`; any I/O error.
    pub fn queues(&self, topic: &str) -> Result<Vec<(u32, Bounds)>> {
        names::validate_topic(topic)?;
        loop {
            let recovery = self.settled_recovery()?;
            let generation = self.refresh_log()?;
            let topics = self.topics()?;
            let config = topics.get(topic).ok_or_else(|| StoreError::no_topic(topic))?;
            self.queue_reader.queues().load_topic(topic)?;
            let mut out: BTreeMap<u32, Bounds> = (0..config.read_queue_nums.max(config.write_queue_nums))
                .map(|id| (id, Bounds { min: 0, max: 0 }))
                .collect();
            for (id, queue) in self.queue_reader.queues().of_topic(topic) {
                out.insert(id, self.bounds_of(&queue)?);
            }
            if self.is_generation(generation) && self.check_recovery(recovery).is_ok() {
                return Ok(out.into_iter().collect());
            }
        }
    }

    /// The queues of a topic with their bounds and where the epochs of the log begin in them; and whether those are all
    /// of its epochs, since one that begins behind what is dispatched is not shown yet.
    ///
    /// # Errors
    /// As [`Reader::queues`]; `DATA_CORRUPT` when the epoch file is not readable.
    pub fn queue_epochs(&self, topic: &str) -> Result<(bool, Vec<QueueEpochs>)> {
        loop {
            let recovery = self.settled_recovery()?;
            let generation = self.refresh_log()?;
            let epochs = read_starts(&self.paths, &RealDisk)?;
            let mut shown = ShownEpochs::new(&epochs, self.readable(), &self.epoch_memory, generation);
            let found: Result<Vec<QueueEpochs>> = self
                .queues(topic)?
                .into_iter()
                .map(|(id, bounds)| {
                    let queue = self.queue_reader.queues().get(topic, id);
                    shown.of(id, queue.as_deref(), bounds, || self.log_min())
                })
                .collect();
            // Messages of an epoch that began meanwhile may be within the bounds.
            let is_same = self.is_generation(generation) && self.check_recovery(recovery).is_ok();
            if is_same && read_starts(&self.paths, &RealDisk)? == epochs {
                let answer = (shown.is_settled(), found?);
                shown.keep();
                return Ok(answer);
            }
        }
    }

    fn bounds_of(&self, queue: &Queue) -> Result<Bounds> {
        let (min, max) = queue.bounds_on_disk(self.log_min(), self.readable())?;
        Ok(Bounds { min, max })
    }

    /// Takes up log files that came or went; refuses those of another store than the one that was opened. Says under which generation of the owner: what is confirmed
    /// later under the same one lies in the files mapped now.
    fn refresh_log(&self) -> Result<i64> {
        if !self.is_current() {
            let detail = format!("the store at {} was replaced: open it anew", self.paths.root().display());
            return Err(StoreError::Closed { code: "STORE_CLOSED", detail });
        }
        let Some(marks) = &self.marks else {
            self.log.refresh()?;
            return Ok(0);
        };
        let generation = marks.generation();
        let stale = marks.dispatched() > self.log.capacity_end() || marks.log_min() > self.log.min_offset();
        if generation != self.generation.load(Ordering::Acquire) {
            // The owner may have cut, replaced or rebuilt any file since.
            self.topics.lock().unwrap_or_else(PoisonError::into_inner).changes = i64::MIN;
            self.queue_reader.queues().forget_all();
            self.log.refresh()?;
            self.generation.store(generation, Ordering::Release);
        } else if stale {
            self.log.refresh()?;
        }
        Ok(generation)
    }

    /// Waits until no recovery is under way. Returns which was the last.
    fn settled_recovery(&self) -> Result<i64> {
        let Some(marks) = &self.marks else { return Ok(0) };
        let started = Stopwatch::start();
        loop {
            let recoveries = marks.recoveries();
            if recoveries & 1 == 0 {
                return Ok(recoveries);
            }
            if started.elapsed() >= RECOVERY_WAIT {
                return Err(recovering());
            }
            #[allow(clippy::disallowed_methods, reason = "the owner is another process, which tells nobody")]
            std::thread::sleep(RECOVERY_LOOK);
        }
    }

    /// Refuses what was read while a recovery changed the queues.
    fn check_recovery(&self, before: i64) -> Result<()> {
        let now = self.marks.as_ref().map_or(0, Watermarks::recoveries);
        if now == before { Ok(()) } else { Err(recovering()) }
    }

    /// Whether `generation` is still the owner's.
    fn is_generation(&self, generation: i64) -> bool {
        self.marks.as_ref().is_none_or(|marks| marks.generation() == generation)
    }

    /// The queue and where it begins and ends, in files of one generation of the owner.
    fn settled(&self, topic: &str, queue_id: u32) -> Result<Option<(Arc<Queue>, Bounds)>> {
        loop {
            let generation = self.refresh_log()?;
            let Some(queue) = self.queue(topic, queue_id)? else { return Ok(None) };
            let bounds = self.bounds_of(&queue)?;
            if self.is_generation(generation) {
                return Ok(Some((queue, bounds)));
            }
        }
    }

    fn queue(&self, topic: &str, queue_id: u32) -> Result<Option<Arc<Queue>>> {
        names::validate_topic(topic)?;
        if self.marks.is_some() {
            drop(self.refreshed_topics()?);
        }
        if self.queue_reader.queues().get(topic, queue_id).is_none() {
            self.queue_reader.queues().load_topic(topic)?;
        }
        Ok(self.queue_reader.queues().get(topic, queue_id))
    }

    /// Where a queue begins and ends.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`; any I/O error.
    pub fn bounds(&self, topic: &str, queue_id: u32) -> Result<Bounds> {
        let recovery = self.settled_recovery()?;
        let settled = self.settled(topic, queue_id)?;
        self.check_recovery(recovery)?;
        Ok(settled.map_or(Bounds { min: 0, max: 0 }, |(_, bounds)| bounds))
    }

    /// Reads a slice; see [`QueueReader::read`].
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`; `SERVICE_NOT_AVAILABLE` while the owner recovers the store, and what `each` got of this
    /// call does not count then; any I/O error, or the first error of `each`.
    pub fn read(
        &self,
        topic: &str,
        queue_id: u32,
        request: &SliceRequest,
        each: impl FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta> {
        let recovery = self.settled_recovery()?;
        let Some((queue, bounds)) = self.settled(topic, queue_id)? else {
            self.check_recovery(recovery)?;
            let status = if request.offset == 0 {
                crate::read::Status::NoNewMessage
            } else {
                crate::read::Status::OffsetIllegal
            };
            return Ok(SliceMeta::empty(status, 0, 0, 0));
        };
        let meta = self.queue_reader.read(topic, queue_id, &queue, bounds, request, each)?;
        self.check_recovery(recovery)?;
        Ok(meta)
    }

    /// As [`QueueReader::offset_by_time`].
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`; any I/O error.
    pub fn offset_by_time(&self, topic: &str, queue_id: u32, timestamp: i64) -> Result<i64> {
        let recovery = self.settled_recovery()?;
        let found = match self.settled(topic, queue_id)? {
            Some((queue, bounds)) => self.queue_reader.offset_by_time(&queue, bounds, timestamp)?,
            None => 0,
        };
        self.check_recovery(recovery)?;
        Ok(found)
    }

    /// As [`QueueReader::find`].
    ///
    /// # Errors
    /// Any I/O error; the first error of `each`.
    pub fn find(
        &self,
        topic: &str,
        key: &str,
        range: (i64, i64),
        max_messages: usize,
        each: impl FnMut(&RecordView<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.refresh_log()?;
        self.index.refresh()?;
        self.queue_reader.find(topic, key, range, max_messages, self.readable(), each)
    }

    /// As [`QueueReader::find_by_id`], over one topic or all.
    ///
    /// # Errors
    /// As [`Reader::find`].
    pub fn find_by_id(
        &self,
        id: &str,
        topic: Option<&str>,
        each: impl FnOnce(&RecordView<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.refresh_log()?;
        self.index.refresh()?;
        let all = self.topics()?;
        let topics = all.keys().map(String::as_str).filter(|t| topic.is_none_or(|only| only == *t));
        self.queue_reader.find_by_id(id, topics, SystemClock.now_ms(), self.readable(), each)
    }
}

fn recovering() -> StoreError {
    StoreError::Unavailable {
        code: "SERVICE_NOT_AVAILABLE",
        detail: "the store is being recovered; if nobody does, run lakemq store recover".into(),
    }
}
