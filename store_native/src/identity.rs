//! Who a store is: its id, the broker it belongs to, and the lengths its files were made with.
//!
//! Invariants: written once, when a store is made; from then on what is written counts. Other lengths that are
//! asked for are refused, unless they are the defaults.

use serde::{Deserialize, Serialize};

use crate::consumequeue::ENTRY_BYTES;
use crate::consumequeue::files::found_file_bytes;
use crate::environment::{Disk, Environment};
use crate::error::{Result, StoreError};
use crate::options::Options;
use crate::paths::{self, StorePaths};
use crate::state::names;

/// Lengths that log files may have; a RocketMQ broker's setting is an int.
const LOG_FILE_BYTES: std::ops::RangeInclusive<u64> = 4096..=i32::MAX as u64;

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
    /// `DATA_CORRUPT` when it is not readable, or says what no store was made with; any I/O error.
    pub fn read(paths: &StorePaths, disk: &dyn Disk) -> Result<Option<Self>> {
        let corrupt = |e: &dyn std::fmt::Display| {
            StoreError::corrupt(format!("{} is not readable: {e}", paths.identity().display()))
        };
        match disk.read(&paths.identity()) {
            Ok(text) => {
                let identity: Self = serde_json::from_slice(&text).map_err(|e| corrupt(&e))?;
                identity.check().map_err(|e| corrupt(&e))?;
                Ok(Some(identity))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("reading the store's identity", error)),
        }
    }

    /// Looks for what a damaged file says: places are computed from the lengths, and names become paths.
    fn check(&self) -> std::result::Result<(), String> {
        if !LOG_FILE_BYTES.contains(&self.commitlog_file_size) {
            return Err(format!("log files of {} bytes", self.commitlog_file_size));
        }
        if self.consumequeue_file_entries == 0 || self.index_slots == 0 || self.index_entries < 2 {
            return Err("files without room for entries".into());
        }
        for name in [&self.broker_name, &self.cluster] {
            names::validate_topic(name).map_err(|e| format!("a broker or cluster name: {}", e.detail()))?;
        }
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn write(&self, paths: &StorePaths, disk: &dyn Disk) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        paths::replace_file(&paths.identity(), &text, disk)
            .map_err(|e| StoreError::io("writing the store's identity", e))
    }
}

/// The identity of a store: as it is written, or made from the options and from the files RocketMQ left.
///
/// # Errors
/// `ARGUMENT_ILLEGAL` when the store was made with other lengths of files than are asked for; as [`Identity::read`].
pub fn load_or_create(paths: &StorePaths, options: &Options, environment: &Environment) -> Result<Identity> {
    let disk = &*environment.disk;
    if let Some(identity) = Identity::read(paths, disk)? {
        let differs = [
            ("commitlog_file_size", identity.commitlog_file_size, options.commitlog_file_size),
            (
                "consumequeue_file_entries",
                u64::from(identity.consumequeue_file_entries),
                u64::from(options.consumequeue_file_entries),
            ),
            ("index_slots", u64::from(identity.index_slots), u64::from(options.index_slots)),
            ("index_entries", u64::from(identity.index_entries), u64::from(options.index_entries)),
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
    let found_log_bytes = paths::found_length(&paths.commitlog(), disk)
        .map_err(|e| StoreError::io("reading the commit log", e))?;
    let found_queue_bytes = found_file_bytes(&paths.consumequeue(), disk)?;
    let identity = Identity {
        store_id: environment.random.iter().map(|b| format!("{b:02x}")).collect(),
        cluster: options.cluster.clone(),
        broker_name: options.broker_name.clone(),
        epoch: 1,
        commitlog_file_size: found_log_bytes.unwrap_or(options.commitlog_file_size),
        consumequeue_file_entries: found_queue_bytes
            .and_then(|bytes| u32::try_from(bytes / ENTRY_BYTES as u64).ok())
            .unwrap_or(options.consumequeue_file_entries),
        index_slots: options.index_slots,
        index_entries: options.index_entries,
    };
    identity.write(paths, disk)?;
    Ok(identity)
}

fn default_of(name: &str) -> u64 {
    let options = Options::default();
    match name {
        "commitlog_file_size" => options.commitlog_file_size,
        "index_slots" => u64::from(options.index_slots),
        "index_entries" => u64::from(options.index_entries),
        _ => u64::from(options.consumequeue_file_entries),
    }
}
