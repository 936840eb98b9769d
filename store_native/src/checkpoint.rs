//! RocketMQ's checkpoint file: up to which store timestamps the parts of the store are on the disk.
//!
//! Invariants: the file is replaced whole. Nobody reads it here.

use std::path::Path;

use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::paths;

const BYTES: usize = 4096;

/// The five longs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Store timestamp of the last message flushed to the commit log.
    pub log_timestamp: i64,
    /// ... to the consume queues.
    pub queues_timestamp: i64,
    /// ... to the index.
    pub index_timestamp: i64,
    pub master_flushed_offset: i64,
    pub confirmed_offset: i64,
}

impl Checkpoint {
    /// Replaces the file.
    ///
    /// # Errors
    /// Any I/O error; the old one stands then.
    pub fn write(&self, path: &Path, disk: &dyn Disk) -> Result<()> {
        let mut out = [0u8; BYTES];
        for (place, value) in out.chunks_exact_mut(8).zip(self.longs()) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        paths::replace_file(path, &out, disk).map_err(|e| StoreError::io("writing the checkpoint", e))
    }

    fn longs(&self) -> [i64; 5] {
        [
            self.log_timestamp,
            self.queues_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirmed_offset,
        ]
    }
}
