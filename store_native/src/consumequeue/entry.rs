//! One entry of a consume queue: 20 bytes.

use crate::mapped_file::MappedFile;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 20;

/// Where a message lies, and the hash of its tags (or, in the schedule topic, when it is due).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub physical_offset: i64,
    pub size: i32,
    pub tags_code: i64,
}

impl Entry {
    /// Marks places in front of a queue's first message (RocketMQ's filler).
    pub const BLANK: Self = Self { physical_offset: 0, size: i32::MAX, tags_code: 0 };

    /// Decodes; `None` where nothing was written.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let size = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
        if size <= 0 {
            return None;
        }
        Some(Self {
            physical_offset: i64::from_be_bytes(bytes[..8].try_into().ok()?),
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
        self.physical_offset + i64::from(self.size)
    }

    /// Writes entry `index` of a file; the size goes in last, so that a reader in another process takes
    /// no half-written entry for a whole one.
    pub fn write(&self, file: &MappedFile, index: usize) {
        let at = index * ENTRY_BYTES;
        file.write(at, ENTRY_BYTES, |out| {
            if out[..] == self.encode() {
                return;
            }
            out[8..12].fill(0);
            out[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
            out[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        });
        file.publish_i32(at + 8, self.size);
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0u8; ENTRY_BYTES];
        out[..8].copy_from_slice(&self.physical_offset.to_be_bytes());
        out[8..12].copy_from_slice(&self.size.to_be_bytes());
        out[12..].copy_from_slice(&self.tags_code.to_be_bytes());
        out
    }

    /// Reads entry `index` of a file.
    pub fn read(file: &MappedFile, index: usize) -> Option<Self> {
        Self::decode(file.bytes(index * ENTRY_BYTES, ENTRY_BYTES))
    }
}
