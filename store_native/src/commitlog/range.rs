//! Raw bytes of the log, as replicas take them.
//!
//! Invariants: a range holds whole requests of one file, at least one where one begins, and is copied unchecked:
//! who appends it checks it.

use super::CommitLog;
use crate::message::record::{END_OF_FILE_BYTES, MAGIC_BLANK};

/// A stretch of one file of the log, and where the log goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRange {
    pub offset: i64,
    /// The epoch that wrote it.
    pub epoch: i64,
    /// Whole requests, the last perhaps followed by the file's end marker.
    pub bytes: Vec<u8>,
    /// Where the next stretch begins: behind the last byte, or at the next file.
    pub next_offset: i64,
}

impl CommitLog {
    /// Copies whole requests from `from`, up to `limit` and at most `max_bytes`, but at least one. The owner's end
    /// marker goes with the last request of a file. Empty when nothing stands there.
    pub fn copy_range(&self, from: i64, limit: i64, max_bytes: usize) -> Option<LogRange> {
        let file = self.file_at(from)?;
        let mut out = LogRange { offset: from, epoch: 0, bytes: Vec::new(), next_offset: from };
        let mut at = from;
        loop {
            if at >= limit {
                break;
            }
            let rest = file.file.tail((at - file.base) as usize);
            if rest.len() < END_OF_FILE_BYTES {
                out.next_offset = file.end();
                break;
            }
            if is_end_marker(rest) {
                out.bytes.extend_from_slice(rest.get(..END_OF_FILE_BYTES)?);
                out.next_offset = file.end();
                break;
            }
            // Behind damage nobody can tell where a request begins.
            let Some(size) = super::scan::request_size(&file, at) else { break };
            if !out.bytes.is_empty() && out.bytes.len() + size > max_bytes {
                break;
            }
            out.bytes.extend_from_slice(rest.get(..size)?);
            at += size as i64;
            out.next_offset = at;
        }
        Some(out)
    }

    /// The bytes from `from` up to `limit` as they stand in their file, at most `max_bytes`, cut anywhere.
    pub fn copy_raw(&self, from: i64, limit: i64, max_bytes: usize) -> Vec<u8> {
        let Some(file) = self.file_at(from) else { return Vec::new() };
        let length = (limit.min(file.end()) - from).max(0) as usize;
        let rest = file.file.tail((from - file.base) as usize);
        rest.get(..length.min(max_bytes)).unwrap_or_default().to_vec()
    }

    /// Brings `[from, to)` into memory, so that who reads it next does not wait for the disk.
    pub fn fetch(&self, from: i64, to: i64) {
        const PAGE: usize = 4096;
        for file in self.files() {
            let (begin, end) = (from.max(file.base), to.min(file.end()));
            if begin < end {
                let bytes = file.file.bytes((begin - file.base) as usize, (end - begin) as usize);
                std::hint::black_box(bytes.iter().step_by(PAGE).fold(0, |all, byte| all ^ byte));
            }
        }
    }

    /// Has the system's memory let go of `[from, to)`. A range that the system keeps is no harm.
    pub fn let_go(&self, from: i64, to: i64) {
        for file in self.files() {
            let (begin, end) = (from.max(file.base), to.min(file.end()));
            if begin < end {
                let _ = file.file.let_go((begin - file.base) as usize, (end - file.base) as usize);
            }
        }
    }

    /// CRC-32 of the bytes `[from, to)`, over the borders of files.
    pub fn digest(&self, from: i64, to: i64) -> u32 {
        let mut digest = crc32fast::Hasher::new();
        let mut at = from;
        while at < to {
            let Some(file) = self.file_at(at) else { break };
            let rest = file.file.tail((at - file.base) as usize);
            let length = rest.len().min((to - at) as usize);
            digest.update(rest.get(..length).unwrap_or_default());
            at = file.end();
        }
        digest.finalize()
    }
}

/// Whether a file of the log ends at these bytes.
pub(crate) fn is_end_marker(bytes: &[u8]) -> bool {
    bytes.get(4..8).is_some_and(|magic| magic == MAGIC_BLANK.to_be_bytes())
}
