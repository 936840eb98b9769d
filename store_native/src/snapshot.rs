//! The snapshot: the state, the queues' bounds and the index as of one log offset, so that a start reads only what
//! came after it.
//!
//! Invariants: one whose checksum is wrong is none. The one before is kept, and either can be lost: the log tells
//! the same.

use serde::{Deserialize, Serialize};

use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::index::IndexState;
use crate::message::record::crc31;
use crate::paths::{self, StorePaths};
use crate::state::MetaState;

const VERSION: u32 = 1;

/// What stands in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub version: u32,
    /// Log offset up to which all of this holds; the index is on the disk up to here.
    pub applied_offset: i64,
    /// Log offset up to which queue entries are on the disk for sure. The others are checked by a start
    /// that follows no clean stop.
    #[serde(default)]
    pub queues_durable_offset: i64,
    /// Store timestamp of the last record before it.
    pub store_timestamp: i64,
    /// The time at which ages were taken then; 0 where it is not known.
    #[serde(default)]
    pub ages_at: i64,
    pub state: MetaState,
    /// (topic, queue id, min, max).
    pub queues: Vec<(String, u32, i64, i64)>,
    /// For each of `queues`, a log offset that none of its records lies before.
    #[serde(default)]
    pub queue_starts: Vec<i64>,
    pub index: IndexState,
    /// Log offset from which the index is being built again; a start that ended before that was done left it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_from: Option<i64>,
    /// Lines in the file of idempotence keys: it never has fewer while this is the newest snapshot, but where lines of
    /// no more use were taken out since.
    #[serde(default)]
    pub key_lines: usize,
    /// The keys came with the log alone, as in a store made from a master's: its file of keys stayed there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keys_in_log: bool,
    /// Ranges of the log that are damaged: [from, to).
    pub quarantine: Vec<(i64, i64)>,
}

impl Snapshot {
    /// An empty one that starts at `offset`.
    pub fn empty(offset: i64, state: MetaState) -> Self {
        Self {
            version: VERSION,
            applied_offset: offset,
            queues_durable_offset: offset,
            store_timestamp: 0,
            ages_at: 0,
            state,
            queues: Vec::new(),
            queue_starts: Vec::new(),
            index: Vec::new(),
            index_from: None,
            key_lines: 0,
            keys_in_log: false,
            quarantine: Vec::new(),
        }
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when it cannot be written in JSON.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(self).map_err(|e| StoreError::corrupt(format!("snapshot: {e}")))?;
        let mut out = format!("{:08x}\n", crc31(&body)).into_bytes();
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// Replaces the file, keeping the old one aside. Returns the bytes written.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error; the old one stands then.
    pub fn write(&self, paths: &StorePaths, disk: &dyn Disk, halfway: impl FnOnce()) -> Result<usize> {
        let context = |e| StoreError::io("writing the snapshot", e);
        let out = self.encode()?;
        let fresh = paths.snapshot().with_extension("new");
        paths::replace_file(&fresh, &out, disk).map_err(context)?;
        halfway();
        if disk.exists(&paths.snapshot()).map_err(context)? {
            disk.rename(&paths.snapshot(), &paths.snapshot_before()).map_err(context)?;
        }
        disk.rename(&fresh, &paths.snapshot()).map_err(context)?;
        disk.sync_directory(&paths.lakemq()).map_err(context)?;
        Ok(out.len())
    }

    /// The newest whole one.
    ///
    /// # Errors
    /// Any I/O error: an older one would pass for the newest, and what only that tells be lost.
    pub fn read(paths: &StorePaths, disk: &dyn Disk) -> Result<Option<Self>> {
        for path in [paths.snapshot(), paths.snapshot().with_extension("new"), paths.snapshot_before()] {
            match disk.read(&path) {
                Ok(bytes) => {
                    if let Some(snapshot) = Self::decode(&bytes) {
                        return Ok(Some(snapshot));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::io(format!("reading {}", path.display()), error)),
            }
        }
        Ok(None)
    }

    /// Reads the file's bytes; `None` when the checksum is wrong or it is of another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (crc, body) = (bytes.get(..8)?, bytes.get(9..)?);
        let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
        if crc != crc31(body) {
            return None;
        }
        serde_json::from_slice(body).ok().filter(|s: &Self| s.version == VERSION)
    }
}
