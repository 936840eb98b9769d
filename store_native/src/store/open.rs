//! Opening and closing: the order in which the parts come up and go down.
//!
//! Invariants: the directory's lock is taken before anything in it is read, and given back last. The abort file
//! goes only after the last checkpoint of a store that is not poisoned and has nothing behind its log's end: else
//! the next start looks. No thread runs before recovery has ended, none after the `close` that stopped them has
//! returned.
//! Threads: the opener's, and whichever closes or drops the store.

use crate::sync::Mutex;
use std::path::Path;
use std::sync::Arc;

use super::Store;
use crate::ages::AgeClock;
use crate::append::{AppendStart, Appender, GroupTable, TopicTable};
use crate::commitlog::CommitLog;
use crate::commitlog::epochs::EpochFile;
use crate::commitlog::next_file::NextFile;
use crate::commitlog::writer::LogWriter;
use crate::confirmation::Confirmation;
use crate::consumequeue::{ENTRY_BYTES, QueueFiles, QueueTable};
use crate::delay_times::DelayTimes;
use crate::directory::{DirectoryLock, refuse_unfinished, take_lock, write_abort};
use crate::dispatch::Dispatch;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::flush::Flusher;
use crate::identity::{self, Identity};
use crate::index::{Index, Shape};
use crate::leases::Leases;
use crate::lifecycle::Lifecycle;
use crate::lock::lock;
use crate::maintenance::{Maintained, Maintenance};
use crate::options::{Flush, Options, Role};
use crate::paths::{self, StorePaths};
use crate::read::{EpochMemory, QueueReader};
use crate::recovery::{Parts, Recovered, Report};
use crate::schedule::Scheduler;
use crate::snapshot::Snapshot;
use crate::state::rocketmq_files::{self, Written};
use crate::watermarks::Watermarks;

/// What recovery works on, opened.
struct Opened {
    options: Arc<Options>,
    identity: Identity,
    paths: StorePaths,
    environment: Environment,
    log: Arc<CommitLog>,
    queues: Arc<QueueTable>,
    index: Arc<Index>,
    marks: Arc<Watermarks>,
    directory_lock: DirectoryLock,
    clean: bool,
}

impl Store {
    /// Opens the directory, recovers it, and starts the threads.
    ///
    /// # Errors
    /// `STORE_LOCKED` when another process owns it; `ARGUMENT_ILLEGAL`; `DATA_CORRUPT`; `DISK_FULL`.
    pub fn open(root: &Path, options: Options, environment: Environment) -> Result<Self> {
        let store = Self::open_at_rest(root, options, environment)?;
        store.start_threads()?;
        Ok(store)
    }

    /// Opens the directory and recovers it. The store has no threads: what they do, it does when it is asked
    /// ([`Store::work`]), so that a test says in which order.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_at_rest(root: &Path, options: Options, environment: Environment) -> Result<Self> {
        Self::open_without_threads(root, options, environment, false)
    }

    /// Recovers the directory with every queue and the index built again, and closes it. A slave's store stays one, and a
    /// synchronous master's one of such: what was not confirmed is neither shown nor cut.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn rebuild(root: &Path, options: Options, environment: Environment) -> Result<Report> {
        let known = EpochFile::role(&StorePaths::new(root), &*environment.disk)?;
        let (role, asks_replicas) = known.unwrap_or((options.role, options.asks_replicas));
        let options = Options { role, asks_replicas, ..options };
        let store = Self::open_without_threads(root, options, environment, true)?;
        let report = store.report.clone();
        store.close()?;
        Ok(report)
    }

    fn open_without_threads(
        root: &Path,
        options: Options,
        environment: Environment,
        rebuild: bool,
    ) -> Result<Self> {
        let opened = Opened::open(root, options, environment)?;
        let recovered = opened.recover(rebuild)?;
        opened.start(recovered)
    }

    fn start_threads(&self) -> Result<()> {
        let (flusher, dispatch) = (Arc::clone(&self.flusher), Arc::clone(&self.dispatch));
        let (scheduler, maintenance) = (Arc::clone(&self.scheduler), Arc::clone(&self.maintenance));
        self.start_thread("lakemq-flusher", move || flusher.run())?;
        self.start_thread("lakemq-dispatcher", move || dispatch.run())?;
        self.start_thread("lakemq-scheduler", move || scheduler.run())?;
        self.start_thread("lakemq-maintain", move || maintenance.run())
    }

    fn start_thread(&self, name: &'static str, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let lifecycle = Arc::clone(&self.lifecycle);
        let handle = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || lifecycle.run(name, job))
            .map_err(|e| StoreError::io("starting a thread", e))?;
        lock(&self.threads).push(handle);
        Ok(())
    }

    /// Refuses further appends, brings all to the disk, writes the last checkpoint and gives the directory
    /// back. A second call does nothing.
    ///
    /// # Errors
    /// The last checkpoint's error; the store is closed all the same, and its next start is an unclean one.
    pub fn close(&self) -> Result<()> {
        if !self.appender.close() {
            return Ok(());
        }
        self.lifecycle.stop();
        for handle in lock(&self.threads).drain(..) {
            // A panic ends inside the thread: see `Lifecycle::run`.
            let _ = handle.join();
        }
        let outcome = match self.lifecycle.poisoned() {
            None => self.maintenance.last_checkpoint().and_then(|()| {
                if !self.appender.tail_is_erased() {
                    // Something of it may come back: the next start shall look.
                    return Ok(());
                }
                self.environment
                    .disk
                    .remove(&self.paths.abort())
                    .map_err(|e| StoreError::io("removing the abort file", e))
            }),
            // What the failed flush was about is unknown: the next start shall look. And what has a name of this
            // store's may be another one's by now.
            Some(_) => Ok(()),
        };
        if self.lifecycle.poisoned().is_none() {
            self.next_file.discard(&*self.environment.disk);
        }
        drop(lock(&self.directory_lock).take());
        outcome
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            self.environment.events.error(format!("closing failed: {error}"));
        }
    }
}

impl Opened {
    /// Takes the directory and opens what is in it.
    fn open(root: &Path, options: Options, environment: Environment) -> Result<Self> {
        options.validate()?;
        let paths = StorePaths::new(root);
        let disk = &*environment.disk;
        paths::create_directory(root, disk)
            .and_then(|()| match disk.exists(&paths.identity())? {
                true => Ok(()),
                // A start that was killed may have made any of them, and synced none.
                false => paths::sync_names_above(root, usize::MAX, disk),
            })
            .and_then(|()| paths::create_directory(&paths.lakemq(), disk))
            .map_err(|e| StoreError::io(format!("creating the store at {}", root.display()), e))?;
        let directory_lock = take_lock(&paths, disk)?;
        refuse_unfinished(&paths, disk)?;
        let identity = identity::load_or_create(&paths, &options, &environment)?;
        let options = Arc::new(Options {
            broker_name: identity.broker_name.clone(),
            cluster: identity.cluster.clone(),
            commitlog_file_size: identity.commitlog_file_size,
            consumequeue_file_entries: identity.consumequeue_file_entries,
            index_slots: identity.index_slots,
            index_entries: identity.index_entries,
            ..options
        });
        let unclean = disk.exists(&paths.abort());
        let clean = !unclean.map_err(|e| StoreError::io("looking for the abort file", e))?;
        write_abort(&paths, disk)?;
        let marks = Arc::new(Watermarks::open_owned(&paths.watermarks(), disk)?);
        // A crash may have taken the length of a file only behind what is known to have been stored.
        let may_end_at = |base: i64| {
            let snapshot = if clean { None } else { Snapshot::read(&paths, disk)? };
            Ok(snapshot.is_some_and(|s| base >= s.applied_offset.max(marks.flushed())))
        };
        let size = options.commitlog_file_size;
        let log = Arc::new(CommitLog::open_owned(&paths.commitlog(), size, may_end_at, disk)?);
        let file_bytes = u64::from(options.consumequeue_file_entries) * ENTRY_BYTES as u64;
        let (directory, trash) = (paths.consumequeue(), paths.trash());
        let files = QueueFiles::owned(&directory, file_bytes, &trash, Arc::clone(&environment.disk));
        let queues = Arc::new(QueueTable::new(Arc::new(files)));
        let shape = Shape { slots: options.index_slots, entries: options.index_entries };
        let index = Arc::new(Index::open(&paths.index(), shape, true, disk)?);
        Ok(Self { options, identity, paths, environment, log, queues, index, marks, directory_lock, clean })
    }

    fn recover(&self, rebuild: bool) -> Result<Recovered> {
        let parts = Parts {
            paths: &self.paths,
            options: &self.options,
            environment: &self.environment,
            log: &self.log,
            queues: &self.queues,
            index: &self.index,
            marks: &self.marks,
            clean: self.clean,
            rebuild,
        };
        let recovered = parts.recover()?;
        rocketmq_files::write(&self.paths, recovered.dispatcher.state(), &*self.environment.disk)?;
        self.marks.set_topic_changes(recovered.dispatcher.state().topics_version.counter as i64);
        Ok(recovered)
    }

    /// Puts the owners together, each with what it works on, and takes the first checkpoint.
    fn start(self, recovered: Recovered) -> Result<Store> {
        let Self { options, identity, paths, environment, log, queues, index, marks, directory_lock, clean } =
            self;
        let Recovered { dispatcher, keys, report } = recovered;
        let (clock, events) = (Arc::clone(&environment.clock), Arc::clone(&environment.events));
        let written = Written::of(dispatcher.state());
        // What a snapshot says is from before a jump; a stamp may be from after it.
        let aged_to = if dispatcher.ages_at > 0 { dispatcher.ages_at } else { dispatcher.store_timestamp };
        let ages = Arc::new(AgeClock::new(Arc::clone(&clock), events, aged_to));
        let longest_delay_ms = options.delay_levels_ms.iter().copied().max().unwrap_or(0);
        let delays = Arc::new(DelayTimes::new(Arc::clone(&clock), longest_delay_ms));
        let lifecycle = Arc::new(Lifecycle::new(Arc::clone(&environment.events))?);
        let next_file = Arc::new(NextFile::open(
            &paths.next_log_file(),
            options.commitlog_file_size,
            &*environment.disk,
        )?);
        let mut epochs = EpochFile::open(
            &paths,
            options.role,
            identity.epoch,
            (log.min_offset(), report.end_offset),
            Arc::clone(&environment.disk),
        )?;
        if options.role == Role::Master {
            epochs.note_asks_replicas(options.asks_replicas)?;
        }
        let start = AppendStart {
            writer: LogWriter::new(
                Arc::clone(&log),
                Arc::clone(&next_file),
                environment.clone(),
                report.end_offset,
                options.flush == Flush::Sync,
            )?,
            topics: TopicTable::new(dispatcher.state(), &queues, options.delay_levels_ms.len() as u32),
            groups: GroupTable::new(dispatcher.state()),
            keys,
            last_store_timestamp: dispatcher.store_timestamp,
            clean,
            epochs,
        };
        let (dispatched, quarantine) = (dispatcher.offset, dispatcher.quarantine.clone());
        let appender = Arc::new(Appender::new(
            Arc::clone(&options),
            paths.clone(),
            environment.clone(),
            Arc::clone(&log),
            Arc::clone(&marks),
            Arc::clone(&lifecycle),
            Arc::clone(&ages),
            Arc::clone(&delays),
            start,
        ));
        appender.follow_from(dispatched, &quarantine)?;
        let dispatch = Arc::new(Dispatch::new(
            environment.clone(),
            Arc::clone(&log),
            Arc::clone(&marks),
            Arc::clone(&lifecycle),
            dispatcher,
        ));
        let confirmation = Arc::new(Confirmation::new(Arc::clone(&marks)));
        if !options.confirms_alone() {
            // Its master, or its replicas, say what is confirmed.
            confirmation.follow_replicas(dispatched);
            lifecycle.flush_at_once(options.role == Role::Master);
        }
        let flusher = Arc::new(Flusher::new(
            &options,
            environment.clone(),
            Arc::clone(&log),
            Arc::clone(&marks),
            Arc::clone(&confirmation),
            Arc::clone(&dispatch),
            Arc::clone(&lifecycle),
        ));
        let scheduler = Arc::new(Scheduler::new(
            options.delay_levels_ms.clone(),
            environment.clone(),
            Arc::clone(&log),
            Arc::clone(&marks),
            Arc::clone(&queues),
            Arc::clone(&appender),
            Arc::clone(&dispatch),
            Arc::clone(&lifecycle),
            delays,
        ));
        let maintained = Maintained {
            options: Arc::clone(&options),
            paths: paths.clone(),
            environment: environment.clone(),
            log: Arc::clone(&log),
            next_file: Arc::clone(&next_file),
            queues: Arc::clone(&queues),
            index: Arc::clone(&index),
            marks: Arc::clone(&marks),
            ages: Arc::clone(&ages),
            appender: Arc::clone(&appender),
            dispatch: Arc::clone(&dispatch),
            scheduler: Arc::clone(&scheduler),
            lifecycle: Arc::clone(&lifecycle),
        };
        let maintenance = Arc::new(Maintenance::new(maintained, written));
        maintenance.checkpoint()?;
        let leases = Leases::new(
            clock,
            Arc::clone(&appender),
            Arc::clone(&dispatch),
            Arc::clone(&marks),
            Arc::clone(&lifecycle),
        );
        Ok(Store {
            reads: QueueReader::new(&log, &queues, &index),
            epoch_memory: EpochMemory::default(),
            options,
            identity,
            paths,
            environment,
            log,
            queues,
            marks,
            ages,
            lifecycle,
            next_file,
            appender,
            confirmation,
            flusher,
            dispatch,
            scheduler,
            maintenance,
            leases,
            report,
            threads: Mutex::default(),
            directory_lock: Mutex::new(Some(directory_lock)),
        })
    }
}
