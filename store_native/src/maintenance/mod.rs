//! Maintenance: checkpoints, expiry, the next log file made ahead, RocketMQ's files kept up, and a look whether the
//! log is where it was.
//!
//! Invariants: whatever stands in a snapshot is on the disk first; nothing is deleted before a snapshot says that it
//! goes. Locks are taken in this order: expiring, checkpointing, config files, dispatch, append.
//! Threads: one of its own, and callers of `checkpoint` and `expire`.

mod checkpointing;
mod config_files;
mod expiry;
mod snapshot_pace;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::ages::AgeClock;
use crate::append::Appender;
use crate::commitlog::CommitLog;
use crate::commitlog::next_file::NextFile;
use crate::commitlog::writer::NEARLY_FULL;
use crate::consumequeue::QueueTable;
use crate::dispatch::Dispatch;
use crate::environment::{Environment, Stopwatch};
use crate::faults::Point;
use crate::index::Index;
use crate::lifecycle::Lifecycle;
use crate::options::Options;
use crate::paths::StorePaths;
use crate::schedule::Scheduler;
use crate::state::rocketmq_files::Written;
use crate::watermarks::Watermarks;
use config_files::ConfigFiles;
use snapshot_pace::SnapshotPace;

/// How often expiry is considered.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);
/// How often it is looked for the log's files: each flush looks for those it synced, but a store may be idle.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many of the files before the last one are looked for each time, all of them in turn.
const FILES_A_LOOK: i64 = 64;

/// Counters for the metrics.
#[derive(Debug, Default)]
pub struct MaintenanceCounters {
    pub checkpoints: AtomicU64,
    pub checkpoint_errors: AtomicU64,
    pub config_errors: AtomicU64,
    pub expired_files: AtomicU64,
}

/// The parts of the store that are maintained.
#[derive(Clone)]
pub struct Maintained {
    pub options: Arc<Options>,
    pub paths: StorePaths,
    pub environment: Environment,
    pub log: Arc<CommitLog>,
    pub next_file: Arc<NextFile>,
    pub queues: Arc<QueueTable>,
    pub index: Arc<Index>,
    pub marks: Arc<Watermarks>,
    pub ages: Arc<AgeClock>,
    pub appender: Arc<Appender>,
    pub dispatch: Arc<Dispatch>,
    pub scheduler: Arc<Scheduler>,
    pub lifecycle: Arc<Lifecycle>,
}

/// Owns checkpoints, expiry and RocketMQ's files; see the module.
pub struct Maintenance {
    parts: Maintained,
    /// Serialises checkpoints.
    checkpointing: Mutex<SnapshotPace>,
    /// Serialises expiry.
    expiring: Mutex<()>,
    /// Serialises writes of RocketMQ's files.
    config_files: Mutex<ConfigFiles>,
    pub counters: MaintenanceCounters,
}

impl std::ops::Deref for Maintenance {
    type Target = Maintained;

    fn deref(&self) -> &Maintained {
        &self.parts
    }
}

impl Maintenance {
    /// RocketMQ's files hold what `written` says.
    pub fn new(parts: Maintained, written: Written) -> Self {
        Self {
            parts,
            checkpointing: Mutex::default(),
            expiring: Mutex::default(),
            config_files: Mutex::new(ConfigFiles::new(written)),
            counters: MaintenanceCounters::default(),
        }
    }

    /// Works until the store stops.
    pub fn run(&self) {
        let pause = Duration::from_millis(self.options.checkpoint_interval_ms.max(10));
        let mut expired_at = Stopwatch::start();
        let mut checkpointed_at = Stopwatch::start();
        let mut topics_within = Duration::MAX;
        let mut looked_to = 0;
        while !self.lifecycle.stopping() {
            self.lifecycle.maintenance_wanted.wait(pause.min(topics_within).min(LOOK_EVERY));
            if self.lifecycle.stopping() {
                return;
            }
            looked_to = self.look_for_the_log(looked_to);
            if self.lifecycle.poisoned().is_some() {
                continue; // what is written by a name may be another store's by now
            }
            topics_within = self.prepare();
            if checkpointed_at.elapsed() >= pause {
                checkpointed_at = Stopwatch::start();
                if let Err(error) = self.checkpoint_if_due() {
                    self.counters.checkpoint_errors.fetch_add(1, Ordering::Relaxed);
                    let text = format!("the checkpoint failed, trying again: {error}");
                    self.environment.events.error(text);
                }
                self.queues.store().sweep();
            }
            if expired_at.elapsed() >= EXPIRE_EVERY {
                expired_at = Stopwatch::start();
                if let Err(error) = self.expire(self.ages.now(), false) {
                    let text = format!("expiring files failed, trying again: {error}");
                    self.environment.events.error(text);
                }
            }
        }
    }

    /// Writes the topic table and makes the next log file, where either is due. Returns how long to wait for the table
    /// at most.
    pub fn prepare(&self) -> Duration {
        let topics_within = self.keep_topics_written();
        self.prepare_next_file();
        topics_within
    }

    /// Looks for the log's last file and some that begin at `from` or behind it; returns where to go on.
    fn look_for_the_log(&self, from: i64) -> i64 {
        let disk = &*self.environment.disk;
        let (begin, end) = (self.log.min_offset(), self.log.capacity_end());
        let from = if from < end { from.max(begin) } else { begin };
        let to = from.saturating_add(FILES_A_LOOK * self.log.file_size() as i64);
        let astray = self.log.astray(end - 1, end, disk).or_else(|| self.log.astray(from, to, disk));
        if let Some(path) = astray {
            self.lifecycle.poison_astray(&path);
        }
        to
    }

    fn prepare_next_file(&self) {
        let left = self.log.capacity_end() - self.marks.appended();
        if left as f64 > self.log.file_size() as f64 * (1.0 - NEARLY_FULL) {
            return;
        }
        self.environment.faults.pass(Point::NextDecided);
        // A full disk shows at the append that needs the file, where somebody can be told.
        let _ = self.next_file.make_ahead(&self.log, &self.environment);
    }
}
