//! Walking the log record by record.
//!
//! Invariants: [`scan_at`] gives out no record whose checksum is wrong or that lies at another offset than it says.

use super::{CommitLog, LogFile};
use crate::message::record::{END_OF_FILE_BYTES, MAGIC_V1, MAGIC_V2};
use crate::message::{RecordView, ViewError, properties};

/// What stands at a place of the log.
#[derive(Debug)]
pub enum Scanned<'a> {
    Record(RecordView<'a>),
    /// The file ends here; the log goes on at this offset.
    Roll(i64),
    /// No record; says why. Zero bytes are `empty`.
    Nothing {
        reason: &'static str,
    },
}

/// Reads what stands at `offset` of `file`, checksum and all.
pub fn scan_at(file: &LogFile, offset: i64) -> Scanned<'_> {
    let at = (offset - file.base) as usize;
    if file.file.len() - at.min(file.file.len()) < END_OF_FILE_BYTES {
        return Scanned::Roll(file.end());
    }
    match RecordView::parse_checked(file.file.tail(at), offset) {
        Ok(view) => Scanned::Record(view),
        Err(ViewError::EndOfFile) => Scanned::Roll(file.end()),
        Err(ViewError::Empty) => Scanned::Nothing { reason: "empty" },
        Err(ViewError::Invalid(reason)) => Scanned::Nothing { reason },
    }
}

/// Whether the request that starts with `first` lies in the log whole: an append of several records is
/// stored all or none, also where power was lost in the middle.
pub fn request_is_whole(file: &LogFile, first: &RecordView<'_>) -> bool {
    let Some(count) = first.property(properties::BATCH).and_then(|c| c.parse::<u32>().ok()) else {
        return true;
    };
    let mut offset = first.end_offset();
    for _ in 1..count {
        match scan_at(file, offset) {
            Scanned::Record(view) => offset = view.end_offset(),
            _ => return false,
        }
    }
    true
}

/// Bytes of the request that starts at `offset`, unchecked; `None` when no whole one does.
pub fn request_size(file: &LogFile, offset: i64) -> Option<usize> {
    let bytes = file.file.tail((offset - file.base) as usize);
    let first = RecordView::parse(bytes).ok()?;
    let count = first.property(properties::BATCH).and_then(|c| c.parse::<u32>().ok()).unwrap_or(1);
    let mut size = first.total_size as usize;
    for _ in 1..count {
        size += RecordView::parse(bytes.get(size..)?).ok()?.total_size as usize;
    }
    Some(size)
}

/// The next valid record at or behind `from`, before `limit`: how a walk goes on behind damage.
pub fn next_record_after_damage(log: &CommitLog, from: i64, limit: i64) -> Option<i64> {
    let mut offset = from;
    while offset < limit {
        let file = log.file_at(offset)?;
        let bytes = file.file.tail((offset - file.base) as usize);
        let reach = bytes.len().min((limit - offset) as usize);
        let magics = [MAGIC_V1.to_be_bytes(), MAGIC_V2.to_be_bytes()];
        for (at, size_and_magic) in bytes.get(..reach).unwrap_or_default().windows(8).enumerate() {
            if !magics.iter().any(|magic| size_and_magic.ends_with(magic)) {
                continue;
            }
            let place = offset + at as i64;
            if RecordView::parse_checked(bytes.get(at..).unwrap_or_default(), place).is_ok() {
                return Some(place);
            }
        }
        offset = file.end();
    }
    None
}
