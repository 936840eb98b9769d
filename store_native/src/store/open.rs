//! Opening and closing: the order in which the parts come up and go down.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use super::config_files::ConfigFiles;
use super::fair_mutex::FairMutex;
use super::notify::{Progress, Signal};
use super::options::{Flush, Options};
use super::recovery::{Parts, Report};
use super::routing::Routing;
use super::time::{Ages, Delays};
use super::{Appender, Counters, Shared, lock};
use crate::commitlog::CommitLog;
use crate::commitlog::next_file::NextFile;
use crate::commitlog::writer::LogWriter;
use crate::consumequeue::files::found_file_bytes;
use crate::consumequeue::{ENTRY_BYTES, QueueFiles, QueueTable};
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::identity::Identity;
use crate::index::{Index, Shape};
use crate::mapped_file;
use crate::message::message_id::UniqKeys;
use crate::meta::rocketmq_files::{self, Written};
use crate::paths::{self, StorePaths};
use crate::read::QueueReader;
use crate::watermarks::Watermarks;

/// What a thread of the store does until it stops.
pub(super) type Job = fn(&Shared);

/// The owner of a store directory. Dropping it closes it.
pub struct Store {
    shared: Arc<Shared>,
    threads: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    report: Report,
    /// Held until the end.
    lock_file: Mutex<Option<File>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.shared.paths.root()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the directory, recovers it, and starts the threads.
    ///
    /// # Errors
    /// `STORE_LOCKED` when another process owns it; `ARGUMENT_ILLEGAL`; `DATA_CORRUPT`; `DISK_FULL`.
    pub fn open(root: &Path, options: Options, environment: Environment) -> Result<Self> {
        let opened = Self::open_without_threads(root, options, environment, false)?;
        opened.start_threads()?;
        Ok(opened)
    }

    /// Recovers the directory with every queue and the index built again, and closes it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn rebuild(root: &Path, options: Options, environment: Environment) -> Result<Report> {
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
        options.validate()?;
        let paths = StorePaths::new(root);
        paths::create_directory(root, &*environment.disk)
            .and_then(|()| paths::create_directory(&paths.lakemq(), &*environment.disk))
            .map_err(|e| StoreError::io(format!("creating the store at {}", root.display()), e))?;
        let lock_file = take_lock(&paths)?;
        let identity = load_or_create_identity(&paths, &options, &environment)?;
        let options = Options {
            broker_name: identity.broker_name.clone(),
            cluster: identity.cluster.clone(),
            commitlog_file_size: identity.commitlog_file_size,
            consumequeue_file_entries: identity.consumequeue_file_entries,
            index_slots: identity.index_slots,
            index_entries: identity.index_entries,
            ..options
        };
        let disk = &*environment.disk;
        let clean = !paths.abort().exists();
        write_abort(&paths)?;
        let log = Arc::new(CommitLog::open_owned(&paths.commitlog(), options.commitlog_file_size, disk)?);
        let file_bytes = u64::from(options.consumequeue_file_entries) * ENTRY_BYTES as u64;
        let (directory, trash) = (paths.consumequeue(), paths.trash());
        let files = QueueFiles::owned(&directory, file_bytes, &trash, Arc::clone(&environment.disk));
        let queues = Arc::new(QueueTable::new(Arc::new(files)));
        let shape = Shape { slots: options.index_slots, entries: options.index_entries };
        let index = Arc::new(Index::open(&paths.index(), shape, true, disk)?);
        let marks = Watermarks::open_owned(&paths.watermarks(), disk)?;
        let parts = Parts {
            paths: &paths,
            options: &options,
            environment: &environment,
            log: &log,
            queues: &queues,
            index: &index,
            marks: &marks,
            clean,
            rebuild,
        };
        let recovered = parts.recover()?;
        let dispatcher = recovered.dispatcher;
        rocketmq_files::write(&paths, &dispatcher.state)?;
        let written = Written::of(&dispatcher.state);
        marks.set_topic_changes(dispatcher.state.topics_version.counter as i64);
        let (day, passed) = (environment.clock.now_ms(), environment.clock.monotonic_ms());
        // What a snapshot says is from before a jump; a stamp may be from after it.
        let aged_to = if dispatcher.ages_at > 0 { dispatcher.ages_at } else { dispatcher.store_timestamp };
        let leases = Shared::leases_of(&dispatcher.state, &*environment.clock);
        let next_file = Arc::new(NextFile::open(&paths.next_log_file(), options.commitlog_file_size)?);
        let end = recovered.report.end_offset;
        let flush_follows = options.flush == Flush::Sync;
        let writer = LogWriter::new(
            Arc::clone(&log),
            Arc::clone(&next_file),
            environment.clone(),
            end,
            flush_follows,
        )?;
        let shared = Shared {
            next_file,
            appender: Mutex::new(Appender {
                writer,
                routing: Routing::new(&dispatcher.state, &queues, options.delay_levels_ms.len() as u32),
                keys: recovered.keys,
                last_store_timestamp: dispatcher.store_timestamp,
                closed: false,
            }),
            arrivals: Arc::clone(&dispatcher.arrivals),
            dispatcher: FairMutex::new(dispatcher),
            leases: Mutex::new(leases),
            ages: Mutex::new(Ages::new(day, passed, aged_to)),
            delays: Mutex::new(Delays::new(day, passed)),
            ids: UniqKeys::new(options.store_host.ip(), &environment.random),
            progress: Progress::new()?,
            flush_wanted: Signal::default(),
            schedule_changed: Signal::default(),
            maintenance_wanted: Signal::default(),
            stopping: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            dispatch_failure: Mutex::default(),
            checkpointing: Mutex::default(),
            expiring: Mutex::default(),
            dispatching: Mutex::default(),
            config_files: Mutex::new(ConfigFiles::new(written)),
            counters: Counters::default(),
            read_side: QueueReader::new(&log, &queues, &index, &identity.broker_name),
            options,
            identity,
            paths,
            environment,
            log,
            queues,
            index,
            marks,
        };
        shared.checkpoint()?;
        Ok(Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
            report: recovered.report,
            lock_file: Mutex::new(Some(lock_file)),
        })
    }

    fn start_threads(&self) -> Result<()> {
        let jobs: [(&'static str, Job); 4] = [
            ("lakemq-flusher", Shared::run_flusher),
            ("lakemq-dispatcher", Shared::run_dispatcher),
            ("lakemq-scheduler", Shared::run_scheduler),
            ("lakemq-maintain", Shared::run_maintenance),
        ];
        let mut threads = lock(&self.threads);
        for (name, run) in jobs {
            let shared = Arc::clone(&self.shared);
            let handle = std::thread::Builder::new()
                .name(name.into())
                .spawn(move || shared.run_thread(name, run))
                .map_err(|e| StoreError::io("starting a thread", e))?;
            threads.push((name, handle));
        }
        Ok(())
    }

    /// What recovery found.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Refuses further appends, brings all to the disk, writes the last checkpoint and gives the directory
    /// back. A second call does nothing.
    ///
    /// # Errors
    /// The last checkpoint's error; the store is closed all the same, and its next start is an unclean one.
    pub fn close(&self) -> Result<()> {
        let shared = &self.shared;
        if std::mem::replace(&mut lock(&shared.appender).closed, true) {
            return Ok(());
        }
        shared.stopping.store(true, Ordering::Release);
        shared.schedule_changed.set();
        shared.maintenance_wanted.set();
        shared.flush_wanted.set();
        shared.progress.moved();
        for (_, handle) in lock(&self.threads).drain(..) {
            // A panic ends inside the thread: see `run_thread`.
            let _ = handle.join();
        }
        let outcome = match shared.poisoned.get() {
            None => shared.last_checkpoint().and_then(|()| {
                std::fs::remove_file(shared.paths.abort())
                    .map_err(|e| StoreError::io("removing the abort file", e))
            }),
            // What the failed flush was about is unknown: the next start shall look.
            Some(_) => Ok(()),
        };
        shared.next_file.discard();
        drop(lock(&self.lock_file).take());
        outcome
    }
}

impl std::ops::Deref for Store {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            self.shared.environment.events.error(format!("closing failed: {error}"));
        }
        self.shared.environment.events.flush_to_stderr();
    }
}

fn take_lock(paths: &StorePaths) -> Result<File> {
    let context = |e| StoreError::io("locking the store", e);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(paths.lock())
        .map_err(context)?;
    if !mapped_file::try_lock(&file).map_err(context)? {
        return Err(StoreError::Unavailable {
            code: "STORE_LOCKED",
            detail: format!("{} belongs to another process", paths.root().display()),
        });
    }
    (&file).write_all(b"lock").map_err(context)?;
    Ok(file)
}

fn write_abort(paths: &StorePaths) -> Result<()> {
    let context = |e| StoreError::io("writing the abort file", e);
    let mut file = File::create(paths.abort()).map_err(context)?;
    write!(file, "{}", std::process::id()).map_err(context)?;
    file.sync_all().map_err(context)?;
    paths::sync_directory(paths.root()).map_err(context)
}

/// The store's identity: as it stands, or made from the options and from the files RocketMQ left.
fn load_or_create_identity(
    paths: &StorePaths,
    options: &Options,
    environment: &Environment,
) -> Result<Identity> {
    if let Some(identity) = Identity::read(paths)? {
        let differs = [
            ("commitlog_file_size", identity.commitlog_file_size, options.commitlog_file_size),
            (
                "consumequeue_file_entries",
                u64::from(identity.consumequeue_file_entries),
                u64::from(options.consumequeue_file_entries),
            ),
        ];
        for (name, is, asked) in differs {
            if is != asked && asked != default_of(name) {
                let detail =
                    format!("this store was made with {name} {is}, it cannot be opened with {asked}");
                return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
            }
        }
        return Ok(identity);
    }
    let first_length = |directory: &Path| {
        let files = paths::numbered_files(directory).ok()?;
        files.iter().filter_map(|(_, p)| p.metadata().ok()).map(|m| m.len()).find(|n| *n > 0)
    };
    let found_queue_bytes = found_file_bytes(&paths.consumequeue());
    let identity = Identity {
        store_id: environment.random.iter().map(|b| format!("{b:02x}")).collect(),
        cluster: options.cluster.clone(),
        broker_name: options.broker_name.clone(),
        epoch: 1,
        commitlog_file_size: first_length(&paths.commitlog()).unwrap_or(options.commitlog_file_size),
        consumequeue_file_entries: found_queue_bytes
            .and_then(|bytes| u32::try_from(bytes / ENTRY_BYTES as u64).ok())
            .unwrap_or(options.consumequeue_file_entries),
        index_slots: options.index_slots,
        index_entries: options.index_entries,
    };
    identity.write(paths)?;
    Ok(identity)
}

fn default_of(name: &str) -> u64 {
    let options = Options::default();
    match name {
        "commitlog_file_size" => options.commitlog_file_size,
        _ => u64::from(options.consumequeue_file_entries),
    }
}
