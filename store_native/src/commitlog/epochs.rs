//! Epochs: which part of the log was written under which master.
//!
//! Invariants: epochs grow, their start offsets never fall; the first of an epoch's bytes is in the log only after its entry
//! is on the disk. Two logs that have an epoch with the same start hold the same bytes of it, as far as both reach.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::options::Role;
use crate::paths::{self, StorePaths};
use crate::sync::Mutex;

/// Epochs remembered at most; of an older log nobody can tell any more where it parted from this one.
const MAX_EPOCHS: usize = 10_000;

/// An epoch and the physical offset of its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStart {
    pub epoch: i64,
    pub start_offset: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Content {
    /// The highest epoch heard of: a master of a lower one is refused.
    seen: i64,
    /// The epoch that this broker is the master of; none on a slave.
    #[serde(default)]
    master_of: Option<i64>,
    /// Whether that master confirms nothing by itself; who puts the store in order keeps to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asks_replicas: bool,
    epochs: Vec<EpochStart>,
}

impl Content {
    /// # Errors
    /// `DATA_CORRUPT` when it is not readable or not in order; any I/O error.
    fn read(paths: &StorePaths, disk: &dyn Disk) -> Result<Option<Self>> {
        let text = match disk.read(&paths.epochs()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("reading the epoch file", error)),
        };
        let corrupt =
            |e: &str| StoreError::corrupt(format!("{} is not readable: {e}", paths.epochs().display()));
        let content: Self = serde_json::from_slice(&text).map_err(|e| corrupt(&e.to_string()))?;
        let ordered =
            content.epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset <= b.start_offset);
        if !ordered || content.epochs.last().is_none_or(|last| last.epoch > content.seen) {
            return Err(corrupt("its epochs are out of order"));
        }
        Ok(Some(content))
    }
}

/// The epochs of a store's log by its file, oldest first: for readers beside the owner. None where there is no file.
///
/// # Errors
/// `DATA_CORRUPT` when it is not readable or not in order; any I/O error.
pub fn read_starts(paths: &StorePaths, disk: &dyn Disk) -> Result<Vec<EpochStart>> {
    Ok(Content::read(paths, disk)?.map(|content| content.epochs).unwrap_or_default())
}

/// The epochs of a log as its file says them, for who does not hold the append lock.
#[derive(Debug, Clone)]
pub struct KnownEpochs(Arc<Mutex<Arc<[EpochStart]>>>);

impl KnownEpochs {
    fn new(epochs: &[EpochStart]) -> Self {
        Self(Arc::new(Mutex::new(epochs.into())))
    }

    fn set(&self, epochs: &[EpochStart]) {
        *lock(&*self.0) = epochs.into();
    }

    /// All epochs, oldest first.
    pub fn all(&self) -> Arc<[EpochStart]> {
        Arc::clone(&lock(&*self.0))
    }

    /// The epoch of the log's newest bytes.
    pub fn last(&self) -> i64 {
        lock(&*self.0).last().map_or(0, |last| last.epoch)
    }
}

/// The epoch file, `lakemq/epochs.json`; the log's owner keeps it under the append lock.
pub struct EpochFile {
    paths: StorePaths,
    disk: Arc<dyn Disk>,
    content: Content,
    known: KnownEpochs,
}

impl EpochFile {
    fn new(paths: &StorePaths, disk: Arc<dyn Disk>, content: Content) -> Self {
        let known = KnownEpochs::new(&content.epochs);
        Self { paths: paths.clone(), disk, content, known }
    }

    /// The same epochs from here on, without the append lock.
    pub fn known(&self) -> KnownEpochs {
        self.known.clone()
    }

    /// Whose store it is by its file, and whether that master asks replicas; `None` where there is none yet.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when it is not readable; any I/O error.
    pub fn role(paths: &StorePaths, disk: &dyn Disk) -> Result<Option<(Role, bool)>> {
        let content = Content::read(paths, disk)?;
        Ok(content.map(|c| match c.master_of {
            Some(_) => (Role::Master, c.asks_replicas),
            None => (Role::Slave, false),
        }))
    }

    /// Reads the file, or makes it for a log that begins at `log_min`. Epochs that begin behind `end`, where a cut ended
    /// before its last step, go.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when it is not readable or not in order; `ARGUMENT_ILLEGAL` when it is to be a master's and is a
    /// slave's; any I/O error.
    pub fn open(
        paths: &StorePaths,
        role: Role,
        first_epoch: i64,
        (log_min, end): (i64, i64),
        disk: Arc<dyn Disk>,
    ) -> Result<Self> {
        match Content::read(paths, &*disk)? {
            Some(content) => {
                if role == Role::Master && content.master_of.is_none() {
                    let detail = format!(
                        "this store is a slave's, of epoch {}: open it as one, and make it the master of a later epoch",
                        content.seen
                    );
                    return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
                }
                let mut file = Self::new(paths, disk, content);
                file.forget_behind(end)?;
                if role == Role::Slave {
                    file.hear_of(file.seen())?;
                }
                Ok(file)
            }
            None => {
                let first = EpochStart { epoch: first_epoch, start_offset: log_min };
                let master_of = (role == Role::Master).then_some(first_epoch);
                let content =
                    Content { seen: first_epoch, master_of, asks_replicas: false, epochs: vec![first] };
                let file = Self::new(paths, disk, content);
                file.write(&file.content)?;
                Ok(file)
            }
        }
    }

    /// Makes the file of a slave whose log, up to `end`, is its master's with these epochs.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when they are none or out of order; any I/O error.
    pub fn adopt(
        paths: &StorePaths,
        mut epochs: Vec<EpochStart>,
        end: i64,
        disk: Arc<dyn Disk>,
    ) -> Result<()> {
        epochs.retain(|entry| entry.start_offset < end);
        let ordered = epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset <= b.start_offset);
        let Some(last) = epochs.last().filter(|_| ordered) else {
            return Err(StoreError::corrupt("the master's epochs are out of order"));
        };
        let content =
            Content { seen: last.epoch, master_of: None, asks_replicas: false, epochs: epochs.clone() };
        let file = Self::new(paths, disk, content);
        file.write(&file.content)
    }

    fn write(&self, content: &Content) -> Result<()> {
        let text = serde_json::to_vec(content)
            .map_err(|e| StoreError::io("encoding the epoch file", std::io::Error::other(e)))?;
        paths::replace_file(&self.paths.epochs(), &text, &*self.disk)
            .map_err(|e| StoreError::io("writing the epoch file", e))
    }

    fn change(&mut self, content: Content) -> Result<()> {
        self.write(&content)?;
        self.known.set(&content.epochs);
        self.content = content;
        Ok(())
    }

    /// All epochs, oldest first.
    pub fn epochs(&self) -> &[EpochStart] {
        &self.content.epochs
    }

    /// The epoch of the newest bytes.
    pub fn last(&self) -> i64 {
        self.content.epochs.last().map_or(0, |last| last.epoch)
    }

    /// The highest epoch heard of.
    pub fn seen(&self) -> i64 {
        self.content.seen
    }

    /// The epoch that wrote the byte at `offset`, and where its bytes end at the latest.
    pub fn at(&self, offset: i64) -> (i64, i64) {
        let epochs = &self.content.epochs;
        let next = epochs.partition_point(|entry| entry.start_offset <= offset);
        let epoch = next.checked_sub(1).and_then(|at| epochs.get(at)).map_or(0, |entry| entry.epoch);
        (epoch, epochs.get(next).map_or(i64::MAX, |entry| entry.start_offset))
    }

    /// Remembers, durably, that `epoch` was heard of and another broker is its master.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` when a higher one was; any I/O error.
    pub fn hear_of(&mut self, epoch: i64) -> Result<()> {
        if epoch < self.content.seen {
            return Err(fenced(epoch, self.content.seen));
        }
        if epoch == self.content.seen && self.content.master_of.is_none() {
            return Ok(());
        }
        self.change(Content { seen: epoch, master_of: None, ..self.content.clone() })
    }

    /// Remembers, durably, whether a master confirms nothing by itself.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn note_asks_replicas(&mut self, asks_replicas: bool) -> Result<()> {
        if asks_replicas == self.content.asks_replicas {
            return Ok(());
        }
        self.change(Content { asks_replicas, ..self.content.clone() })
    }

    /// Begins `epoch` at `offset`, the log's end, as its master, durably.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` unless it is higher than all that were heard of; any I/O error.
    pub fn rule(&mut self, epoch: i64, offset: i64) -> Result<()> {
        if epoch <= self.content.seen {
            return Err(fenced(epoch, self.content.seen));
        }
        self.begin_as(epoch, offset, Some(epoch))
    }

    /// Begins `epoch` at `offset`, the log's end, durably. An epoch that wrote nothing goes, but the oldest.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` when the log has bytes of it or of a later one; any I/O error.
    pub fn begin(&mut self, epoch: i64, offset: i64) -> Result<()> {
        self.begin_as(epoch, offset, self.content.master_of)
    }

    fn begin_as(&mut self, epoch: i64, offset: i64, master_of: Option<i64>) -> Result<()> {
        let mut content = Content { master_of, ..self.content.clone() };
        // The oldest stays where it wrote nothing either: it is what a log that has bytes of it has in common with this.
        let oldest = content.epochs.first().copied();
        content.epochs.retain(|entry| entry.start_offset < offset || Some(*entry) == oldest);
        if content.epochs.last().is_some_and(|last| last.epoch >= epoch) {
            let detail =
                format!("epoch {epoch} cannot begin at {offset}: the log has bytes of epoch {}", self.last());
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        content.epochs.push(EpochStart { epoch, start_offset: offset });
        let surplus = content.epochs.len().saturating_sub(MAX_EPOCHS);
        content.epochs.drain(..surplus);
        content.seen = content.seen.max(epoch);
        self.change(content)
    }

    /// Forgets, durably, epochs that begin at or behind `offset`, where the log is cut: they have no bytes any more.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn truncate(&mut self, offset: i64) -> Result<()> {
        self.forget_behind(offset - 1)
    }

    /// Forgets epochs that begin behind `last_start`; the oldest stays in any case.
    fn forget_behind(&mut self, last_start: i64) -> Result<()> {
        let known = self.content.epochs.partition_point(|entry| entry.start_offset <= last_start).max(1);
        let mut content = self.content.clone();
        content.epochs.truncate(known);
        if content.epochs.len() == self.content.epochs.len() { Ok(()) } else { self.change(content) }
    }

    /// Up to which offset this log, which ends at `end`, is the same as another one with these epochs that ends at
    /// `others_end`: found from the newest epoch backwards. `None` when they have no epoch in common.
    pub fn common_end(&self, end: i64, others: &[EpochStart], others_end: i64) -> Option<i64> {
        let ends = |epochs: &[EpochStart], at: usize, end: i64| {
            epochs.get(at + 1).map_or(end, |next| next.start_offset).min(end)
        };
        let own = &self.content.epochs;
        own.iter().enumerate().rev().find_map(|(at, entry)| {
            let other = others.iter().position(|other| other == entry)?;
            Some(ends(own, at, end).min(ends(others, other, others_end)))
        })
    }
}

/// The refusal of a master whose time is over.
pub fn fenced(epoch: i64, seen: i64) -> StoreError {
    let detail = format!("epoch {epoch} is over: epoch {seen} was heard of");
    StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RealDisk;

    fn starts(epochs: &[(i64, i64)]) -> Vec<EpochStart> {
        epochs
            .iter()
            .map(|(epoch, start_offset)| EpochStart { epoch: *epoch, start_offset: *start_offset })
            .collect()
    }

    fn opened(epochs: &[(i64, i64)]) -> (tempfile::TempDir, EpochFile) {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        std::fs::create_dir_all(paths.lakemq()).expect("made");
        let (first, start) = epochs.first().copied().expect("an epoch");
        let mut file =
            EpochFile::open(&paths, Role::Slave, first, (start, i64::MAX), Arc::new(RealDisk)).expect("made");
        for (epoch, start) in epochs.iter().skip(1) {
            file.begin(*epoch, *start).expect("begun");
        }
        (dir, file)
    }

    #[test]
    fn test_two_logs_are_the_same_up_to_where_their_newest_common_epoch_ends_in_either() {
        let (_dir, file) = opened(&[(1, 0), (2, 100), (4, 200)]);
        let common = |others: &[(i64, i64)], others_end| file.common_end(300, &starts(others), others_end);
        assert_eq!(common(&[(1, 0), (2, 100), (4, 200)], 250), Some(250), "the other is behind");
        assert_eq!(common(&[(1, 0), (2, 100), (4, 200)], 350), Some(300), "this one is behind");
        assert_eq!(common(&[(1, 0), (2, 100), (5, 180)], 400), Some(180), "the other began anew before");
        assert_eq!(common(&[(1, 0), (2, 100), (5, 230)], 400), Some(200), "the other had more of epoch 2");
        assert_eq!(common(&[(1, 0), (3, 50)], 400), Some(50));
        assert_eq!(common(&[(2, 90)], 400), None, "the same epoch with another start is another log");
        assert_eq!(common(&[], 0), None);
    }

    #[test]
    fn test_epochs_survive_a_restart_and_are_cut_with_the_log() {
        let (dir, mut file) = opened(&[(1, 0), (2, 100), (4, 200)]);
        assert_eq!((file.at(99), file.at(100), file.at(900)), ((1, 100), (2, 200), (4, i64::MAX)));
        file.truncate(150).expect("cut");
        let again =
            EpochFile::open(&StorePaths::new(dir.path()), Role::Slave, 1, (0, i64::MAX), Arc::new(RealDisk))
                .expect("opened");
        assert_eq!(again.epochs(), starts(&[(1, 0), (2, 100)]));
        assert_eq!((again.last(), again.seen()), (2, 4), "what was heard of stays");
    }

    #[test]
    fn test_an_epoch_that_is_over_is_refused_and_one_that_wrote_nothing_goes() {
        let (_dir, mut file) = opened(&[(1, 0), (3, 100)]);
        assert_eq!(file.hear_of(2).expect_err("over").code(), "SERVICE_NOT_AVAILABLE");
        assert_eq!(file.begin(3, 200).expect_err("it has bytes").code(), "ARGUMENT_ILLEGAL");
        file.begin(5, 100).expect("nothing was written since 3 began");
        assert_eq!(file.epochs(), starts(&[(1, 0), (5, 100)]));
        let (_dir, mut empty) = opened(&[(1, 0)]);
        empty.begin(2, 0).expect("nothing was written at all");
        assert_eq!(empty.epochs(), starts(&[(1, 0), (2, 0)]));
        assert_eq!(empty.common_end(500, &starts(&[(1, 0)]), 27), Some(0), "the other has bytes of epoch 1");
        file.hear_of(7).expect("heard");
        assert_eq!((file.seen(), file.last()), (7, 5));
    }
}
