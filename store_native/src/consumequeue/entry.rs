//! One entry of a consume queue: 20 bytes.
//!
//! Invariants: zeros are no entry. A tombstone's tags code is no hash of any tags.

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

/// Where a message lies, and the hash of its tags (or, in the schedule topic, when it is due).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub physical_offset: i64,
    pub size: i32,
    pub tags_code: i64,
}

/// The tags code of a tombstone: no hash of tags, and long past as a time.
const TOMBSTONE_CODE: i64 = -(1 << 62);

impl Entry {
    /// Marks places in front of a queue's first message (RocketMQ's filler).
    pub const BLANK: Self = Self { physical_offset: 0, size: i32::MAX, tags_code: 0 };

    /// Stands where a record that is damaged in the log `[from, to)` had its place, so that a reader
    /// passes it over and says so.
    pub fn tombstone(from: i64, to: i64) -> Self {
        let size = (to - from).clamp(1, i64::from(i32::MAX) - 1) as i32;
        Self { physical_offset: from, size, tags_code: TOMBSTONE_CODE }
    }

    /// Whether it stands for a record that is damaged.
    pub fn is_tombstone(&self) -> bool {
        self.tags_code == TOMBSTONE_CODE
    }

    /// Decodes; `None` where nothing was written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let size = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
        if size <= 0 {
            return None;
        }
        Some(Self {
            physical_offset: i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?),
            size,
            tags_code: i64::from_be_bytes(bytes.get(12..20)?.try_into().ok()?),
        })
    }

    /// Whether it is filler in front of the first message.
    pub fn is_blank(&self) -> bool {
        self.size == i32::MAX && self.physical_offset == 0
    }

    /// Offset behind the message's record.
    pub fn end(&self) -> i64 {
        self.physical_offset.saturating_add(i64::from(self.size))
    }

    /// Its bytes in a file.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0u8; ENTRY_BYTES];
        out[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.size.to_be_bytes());
        out[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        out
    }
}
