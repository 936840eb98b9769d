//! Bits of a record's system flag.

pub const COMPRESSED: i32 = 0x1;
pub const MULTI_TAGS: i32 = 0x2;
pub const TRANSACTION_PREPARED: i32 = 0x4;
pub const TRANSACTION_COMMIT: i32 = 0x8;
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
pub const BORN_HOST_V6: i32 = 0x10;
pub const STORE_HOST_V6: i32 = 0x20;
/// Bits 8 to 10.
pub const COMPRESSION_TYPE_SHIFT: u32 = 8;
pub const COMPRESSION_TYPE_MASK: i32 = 0x700;

/// The transaction part: 0, prepared, commit or rollback.
pub fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_ROLLBACK
}
