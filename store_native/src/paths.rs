//! Names on disk (those of index files are in `index/file.rs`), and the calls that make them durable.
//!
//! Invariants: a small file is replaced whole: a crash leaves the old or the new content, never a mixture.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::environment::Disk;
use crate::error::{Result, StoreError};

/// The layout of a store directory: RocketMQ's, and `lakemq/` beside it.
#[derive(Debug, Clone)]
pub struct StorePaths {
    root: PathBuf,
}

impl StorePaths {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Locked by the owning broker.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    /// Exists while the store is open; found at start it tells of an unclean shutdown.
    pub fn abort(&self) -> PathBuf {
        self.root.join("abort")
    }
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }
    /// Refuses a directory that holds no store: neither one with our identity nor one with log files.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL`; any I/O error.
    pub fn require_store(&self, disk: &dyn Disk) -> Result<()> {
        let lacks = |what: &str| {
            let detail = format!("{} is no store: it has {what}", self.root.display());
            Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail))
        };
        let context = |e| StoreError::io("listing the commit log", e);
        if !disk.exists(&self.commitlog()).map_err(context)? {
            return lacks("no commitlog");
        }
        let files = numbered_files(&self.commitlog(), disk).map_err(context)?;
        if files.is_empty() && !disk.exists(&self.identity()).map_err(context)? {
            return lacks("no log files");
        }
        Ok(())
    }
    pub fn commitlog(&self) -> PathBuf {
        self.root.join("commitlog")
    }
    pub fn consumequeue(&self) -> PathBuf {
        self.root.join("consumequeue")
    }
    /// The caller has validated `topic`: a name becomes a path only after that.
    pub fn queue(&self, topic: &str, queue_id: u32) -> PathBuf {
        self.consumequeue().join(topic).join(queue_id.to_string())
    }
    pub fn index(&self) -> PathBuf {
        self.root.join("index")
    }
    pub fn config(&self) -> PathBuf {
        self.root.join("config")
    }
    /// What RocketMQ does not have.
    pub fn lakemq(&self) -> PathBuf {
        self.root.join("lakemq")
    }
    /// Where the log file after the last one is made ahead: RocketMQ never sees it.
    pub fn next_log_file(&self) -> PathBuf {
        self.lakemq()
    }
    /// Queues of deleted topics, until their files are gone too.
    pub fn trash(&self) -> PathBuf {
        self.lakemq().join("deleted")
    }
    pub fn watermarks(&self) -> PathBuf {
        self.lakemq().join("watermarks")
    }
    pub fn identity(&self) -> PathBuf {
        self.lakemq().join("store.json")
    }
    /// Stands while a slave's store is being made from its master's.
    pub fn bootstrap(&self) -> PathBuf {
        self.lakemq().join("bootstrap")
    }
    pub fn epochs(&self) -> PathBuf {
        self.lakemq().join("epochs.json")
    }
    /// What was cut off the log of a slave, for a person to look at.
    pub fn cut(&self) -> PathBuf {
        self.lakemq().join("cut")
    }
    pub fn snapshot(&self) -> PathBuf {
        self.lakemq().join("snapshot.json")
    }
    /// Stands while the log's tail is being erased; see recovery.
    pub fn erasing(&self) -> PathBuf {
        self.lakemq().join("erasing")
    }
    pub fn snapshot_before(&self) -> PathBuf {
        self.lakemq().join("snapshot.json.bak")
    }
    pub fn idempotence_keys(&self) -> PathBuf {
        self.lakemq().join("idempotence.keys")
    }
    pub fn topics_json(&self) -> PathBuf {
        self.config().join("topics.json")
    }
    pub fn groups_json(&self) -> PathBuf {
        self.config().join("subscriptionGroup.json")
    }
    pub fn consumer_offsets_json(&self) -> PathBuf {
        self.config().join("consumerOffset.json")
    }
    pub fn delay_offsets_json(&self) -> PathBuf {
        self.config().join("delayOffset.json")
    }
}

/// The 20-digit name of a file that starts at `offset`.
pub fn file_name(offset: i64) -> String {
    format!("{offset:020}")
}

/// The name a file that will start at `offset` has until it is part of the log.
pub fn next_file_name(offset: i64) -> String {
    format!("{offset:020}.next")
}

/// Files of `directory` that were to become part of the log.
///
/// # Errors
/// Any I/O error.
pub fn next_files(directory: &Path, disk: &dyn Disk) -> std::io::Result<Vec<PathBuf>> {
    let paths = disk.list(directory)?.into_iter().map(|entry| entry.path());
    let mut out: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "next")).collect();
    out.sort_unstable();
    Ok(out)
}

/// Files of `directory` named by their start offset, in order. Other names are passed over; a missing
/// directory has none.
///
/// # Errors
/// Any I/O error but a missing directory.
pub fn numbered_files(directory: &Path, disk: &dyn Disk) -> std::io::Result<Vec<(i64, PathBuf)>> {
    let mut out = Vec::new();
    for entry in list_if_there(directory, disk)? {
        let name = entry.file_name();
        if let Some(offset) = name.to_str().filter(|n| n.len() == 20).and_then(|n| n.parse::<i64>().ok()) {
            out.push((offset, entry.path()));
        }
    }
    out.sort_unstable_by_key(|(offset, _)| *offset);
    Ok(out)
}

/// What is in a directory; a missing one has nothing.
///
/// # Errors
/// As [`Disk::list`].
pub fn list_if_there(directory: &Path, disk: &dyn Disk) -> std::io::Result<Vec<std::fs::DirEntry>> {
    match disk.list(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        outcome => outcome,
    }
}

/// Length of the first file in `directory`, of those named by their start offset, that has any.
///
/// # Errors
/// Any I/O error.
pub fn found_length(directory: &Path, disk: &dyn Disk) -> std::io::Result<Option<u64>> {
    for (_, path) in numbered_files(directory, disk)? {
        let length = disk.metadata(&path)?.len();
        if length > 0 {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// Replaces a small file so that a crash leaves the old or the new content, never a mixture.
///
/// # Errors
/// Any I/O error; the old content stands then.
pub fn replace_file(path: &Path, content: &[u8], disk: &dyn Disk) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let file = disk.open(OpenOptions::new().write(true).create(true).truncate(true), &temporary)?;
    disk.write(&file, 0, content)?;
    disk.sync(&file)?;
    disk.rename(&temporary, path)?;
    disk.sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Makes a directory unless it is there, and those above it that are missing; their names are durable then.
///
/// # Errors
/// Any I/O error.
pub fn create_directory(directory: &Path, disk: &dyn Disk) -> std::io::Result<()> {
    let missing = create_directories(directory, disk)?;
    sync_names_above(directory, missing, disk)
}

/// As [`create_directory`], but the names may not be durable. Returns how many were missing.
///
/// # Errors
/// Any I/O error; some may be made then.
pub fn create_directories(directory: &Path, disk: &dyn Disk) -> std::io::Result<usize> {
    match create_one(directory, disk) {
        Err(error) if error.kind() == ErrorKind::NotFound => match directory.parent() {
            // Relative to where the process is.
            Some(parent) if parent != Path::new("") => {
                let above = create_directories(parent, disk)?;
                // Once: where nothing may be made (/proc, a directory that was removed) it is not found again.
                Ok(above + create_one(directory, disk)?)
            }
            _ => Err(error),
        },
        made => made,
    }
}

/// Makes a directory unless it is there. Returns how many were missing.
fn create_one(directory: &Path, disk: &dyn Disk) -> std::io::Result<usize> {
    match disk.create_directory(directory) {
        Ok(()) => Ok(1),
        Err(error) if disk.metadata(directory).is_ok_and(|found| found.is_dir()) => {
            // Where nothing may be made either: on a disk that is read only, say.
            drop(error);
            Ok(0)
        }
        Err(error) => Err(error),
    }
}

/// Returns when the names of a directory and of those above it are on the disk, `levels` of them, the highest first,
/// as far as they lie in its file system: nobody makes a directory in another. What may not be read or cannot be synced
/// is passed over.
///
/// # Errors
/// Any other I/O error.
pub fn sync_names_above(directory: &Path, levels: usize, disk: &dyn Disk) -> std::io::Result<()> {
    use ErrorKind::{InvalidInput, PermissionDenied, Unsupported};

    let device = disk.metadata(directory)?.dev();
    let parents = directory.ancestors().skip(1).take(levels);
    let parents = parents.map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let same = |parent: &&Path| disk.metadata(parent).is_ok_and(|found| found.dev() == device);
    let parents: Vec<&Path> = parents.take_while(same).collect();
    for parent in parents.into_iter().rev() {
        match disk.sync_directory(parent) {
            Err(error) if matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}
