//! The idempotence keys at a start: from their file, or from the log where the file does not hold them all.
//!
//! Invariants: a key is remembered as long as its request is in the log, whatever became of the file.
//! Threads: the one that opens the store.

use super::Parts;
use crate::commitlog::scan::{Scanned, next_record_after_damage, scan_at};
use crate::error::Result;
use crate::idempotence::{IdempotenceTable, KeyFile, KeyPlace};
use crate::message::properties;
use crate::snapshot::Snapshot;

impl Parts<'_> {
    /// The keys of requests before the snapshot's offset, and their file.
    ///
    /// # Errors
    /// Any I/O error.
    pub(super) fn keys(&self, snapshot: &Snapshot, log_min: i64) -> Result<(IdempotenceTable, KeyFile)> {
        let (disk, applied) = (&*self.environment.disk, snapshot.applied_offset);
        let (mut keys, mut file) = (self.no_keys(), KeyFile::new(self.paths));
        let readable = file.load(log_min, applied, &mut keys, disk)?;
        if snapshot.keys_in_log || readable < snapshot.key_lines {
            if !snapshot.keys_in_log {
                self.environment.events.error(format!(
                    "{} has {readable} of {} keys; they are read from the log again",
                    self.paths.idempotence_keys().display(),
                    snapshot.key_lines
                ));
            }
            keys = self.no_keys();
            file.clear(disk)?;
            self.read_keys(snapshot, log_min, |key, place| {
                keys.insert(key, place);
                file.note(key, place);
            });
        }
        Ok((keys, file))
    }

    fn no_keys(&self) -> IdempotenceTable {
        IdempotenceTable::new(
            self.options.idempotence_max_keys,
            self.options.idempotence_hours as i64 * 3_600_000,
        )
    }

    /// Shows the key of each request before the snapshot's offset.
    fn read_keys(&self, snapshot: &Snapshot, log_min: i64, mut each: impl FnMut(&str, KeyPlace)) {
        let mut offset = log_min;
        while offset < snapshot.applied_offset
            && let Some(file) = self.log.file_at(offset)
        {
            match scan_at(&file, offset) {
                Scanned::Roll(next) => offset = next,
                Scanned::Record(record) => {
                    let place = KeyPlace { physical_offset: offset, store_timestamp: record.store_timestamp };
                    if let Some(key) = record.property(properties::IDEMPOTENCE_KEY) {
                        each(key, place);
                    }
                    offset = record.end_offset();
                }
                Scanned::Nothing { .. } => {
                    let to = snapshot.applied_offset;
                    offset = next_record_after_damage(self.log, offset + 1, to).unwrap_or(to);
                }
            }
        }
    }
}
