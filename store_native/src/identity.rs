//! Who a store is: its id, the broker it belongs to, and the lengths its files were made with.

use serde::{Deserialize, Serialize};

use crate::error::{Result, StoreError};
use crate::paths::{self, StorePaths};

/// The content of `lakemq/store.json`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Identity {
    pub store_id: String,
    pub cluster: String,
    pub broker_name: String,
    /// Grows with each change of master; a log of another epoch may have been truncated.
    pub epoch: i64,
    pub commitlog_file_size: u64,
    pub consumequeue_file_entries: u32,
    pub index_slots: u32,
    pub index_entries: u32,
}

impl Identity {
    /// Reads the file; `None` when the store has none.
    ///
    /// # Errors
    /// `DATA_CORRUPT` when it is not readable; any I/O error.
    pub fn read(paths: &StorePaths) -> Result<Option<Self>> {
        match std::fs::read(paths.identity()) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| {
                StoreError::corrupt(format!("{} is not readable: {e}", paths.identity().display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("reading the store's identity", error)),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn write(&self, paths: &StorePaths) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        paths::replace_file(&paths.identity(), &text)
            .map_err(|e| StoreError::io("writing the store's identity", e))
    }
}
