//! One record decoded in place.
//!
//! Invariants: no length in it counts before the bytes are there. A checked one has the right checksum and says
//! that it lies where it was read; one of a foreign broker, whose header has no checksum, has bounds on what places
//! and times are computed from.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::record::{self, Checked, Checksum, MAGIC_BLANK, MAGIC_V1, MAGIC_V2};
use super::{hash, message_id, properties, sys_flag};

/// One record decoded in place (borrowing the mapped bytes).
#[derive(Debug, Clone)]
pub struct RecordView<'a> {
    pub total_size: u32,
    pub magic: i32,
    pub body_crc: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: SocketAddr,
    pub store_timestamp: i64,
    pub store_host: SocketAddr,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub body: &'a [u8],
    pub topic: &'a str,
    pub properties: &'a [u8],
}

/// Why there is no record at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewError {
    /// The size field is zero: nothing was written here yet.
    Empty,
    /// The filler at the end of a file.
    EndOfFile,
    /// Bytes that are no record; says which check failed.
    Invalid(&'static str),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, n: usize) -> Result<&'a [u8], ViewError> {
        let end = self.at.checked_add(n).ok_or(ViewError::Invalid("length"))?;
        let out = self.bytes.get(self.at..end).ok_or(ViewError::Invalid("a field ends beyond the record"))?;
        self.at = end;
        Ok(out)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ViewError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn i32(&mut self) -> Result<i32, ViewError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, ViewError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn host(&mut self, v6: bool) -> Result<SocketAddr, ViewError> {
        let ip = if v6 {
            Ipv6Addr::from(self.array::<16>()?).into()
        } else {
            Ipv4Addr::from(self.array::<4>()?).into()
        };
        let port = self.i32()?;
        Ok(SocketAddr::new(ip, u16::try_from(port).map_err(|_| ViewError::Invalid("a host's port"))?))
    }
}

/// Highest queue id taken from a record whose header has no checksum.
pub const MAX_FOREIGN_QUEUE_ID: i32 = 65_535;
/// Latest store time taken from such a record: the end of the year 9999.
const LATEST_TIME_MS: i64 = 253_402_300_799_999;

impl<'a> RecordView<'a> {
    /// Decodes the record at the start of `bytes`, which may go on behind it. Checks the structure, not
    /// the checksum.
    ///
    /// # Errors
    /// Says whether nothing was written, a file ends here, or which check failed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ViewError> {
        let mut c = Cursor { bytes, at: 0 };
        let total_size = c.i32()?;
        let magic = c.i32()?;
        if magic == MAGIC_BLANK {
            return Err(ViewError::EndOfFile);
        }
        if total_size == 0 {
            return Err(ViewError::Empty);
        }
        if magic != MAGIC_V1 && magic != MAGIC_V2 {
            return Err(ViewError::Invalid("magic"));
        }
        let size = usize::try_from(total_size).map_err(|_| ViewError::Invalid("size"))?;
        if size < record::FIXED_BYTES {
            return Err(ViewError::Invalid("size"));
        }
        c.bytes = bytes.get(..size).ok_or(ViewError::Invalid("size"))?;
        let body_crc = u32::from_be_bytes(c.array()?);
        let queue_id = c.i32()?;
        let flag = c.i32()?;
        let queue_offset = c.i64()?;
        let physical_offset = c.i64()?;
        let sys_flag = c.i32()?;
        let born_timestamp = c.i64()?;
        let born_host = c.host(sys_flag & sys_flag::BORN_HOST_V6 != 0)?;
        let store_timestamp = c.i64()?;
        let store_host = c.host(sys_flag & sys_flag::STORE_HOST_V6 != 0)?;
        let reconsume_times = c.i32()?;
        let prepared_transaction_offset = c.i64()?;
        let body_len = usize::try_from(c.i32()?).map_err(|_| ViewError::Invalid("body length"))?;
        let body = c.take(body_len)?;
        let topic_len = if magic == MAGIC_V2 {
            usize::from(u16::from_be_bytes(c.array()?))
        } else {
            usize::from(u8::from_be_bytes(c.array()?))
        };
        let topic = std::str::from_utf8(c.take(topic_len)?).map_err(|_| ViewError::Invalid("topic"))?;
        let properties_len = usize::from(u16::from_be_bytes(c.array()?));
        let properties = c.take(properties_len)?;
        if c.at != size {
            return Err(ViewError::Invalid("the fields do not fill the record"));
        }
        Ok(Self {
            total_size: total_size as u32,
            magic,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body,
            topic,
            properties,
        })
    }

    /// Decodes like [`RecordView::parse`] and checks the checksum, and that the record says it lies at
    /// `physical_offset`.
    ///
    /// # Errors
    /// As `parse`, and `Invalid` where a check fails.
    pub fn parse_checked(bytes: &'a [u8], physical_offset: i64) -> Result<Self, ViewError> {
        let view = Self::parse(bytes)?;
        if view.physical_offset != physical_offset {
            return Err(ViewError::Invalid("physical offset"));
        }
        let checked = Checked {
            record: bytes.get(..view.total_size as usize).ok_or(ViewError::Invalid("size"))?,
            body: view.body,
            body_crc: view.body_crc,
            topic: view.topic.as_bytes(),
            properties: view.properties,
        };
        match record::checksum(&checked) {
            Checksum::Whole => Ok(view),
            Checksum::BodyOnly => view.within_bounds().map(|()| view),
            Checksum::Wrong => Err(ViewError::Invalid("checksum")),
        }
    }

    /// Bounds of the header's fields that places and times are computed from, for a record whose header has
    /// no checksum: one flipped bit must not make a queue of 2^30 or move its end by 2^40.
    fn within_bounds(&self) -> Result<(), ViewError> {
        if self.queue_id > MAX_FOREIGN_QUEUE_ID {
            return Err(ViewError::Invalid("queue id"));
        }
        // Each message before it in its queue takes a record of the log before it.
        if !(0..=self.physical_offset / record::FIXED_BYTES as i64).contains(&self.queue_offset) {
            return Err(ViewError::Invalid("queue offset"));
        }
        if !(0..=LATEST_TIME_MS).contains(&self.store_timestamp) {
            return Err(ViewError::Invalid("store time"));
        }
        Ok(())
    }

    /// Offset of the byte behind this record.
    pub fn end_offset(&self) -> i64 {
        self.physical_offset + i64::from(self.total_size)
    }

    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties::get(self.properties, name)
    }

    /// The hash that the ConsumeQueue keeps of the tags.
    pub fn tags_code(&self) -> i64 {
        hash::tags_code(self.property(properties::TAGS))
    }

    /// The id users see: the client's, else the offset id.
    pub fn message_id(&self) -> String {
        match self.property(properties::UNIQ_KEY) {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => message_id::offset_id(self.store_host, self.physical_offset),
        }
    }

    /// Whether consumers may see it: not a half message, not a rollback.
    pub fn is_visible(&self) -> bool {
        !matches!(
            sys_flag::transaction(self.sys_flag),
            sys_flag::TRANSACTION_PREPARED | sys_flag::TRANSACTION_ROLLBACK
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::record::{Place, Plan, crc31};
    use proptest::prelude::*;

    fn encode(topic: &str, body: &[u8], properties: &[u8], host: &str) -> Vec<u8> {
        let store_host: SocketAddr = host.parse().expect("an address");
        let plan = Plan {
            topic,
            body,
            body_crc: crc31(body),
            properties: 0..properties.len(),
            queue_id: 3,
            flag: -7,
            sys_flag: 0,
            born_timestamp: 11,
            born_host: "[::2]:99".parse().expect("an address"),
            reconsume_times: 2,
            prepared_transaction_offset: 0,
        };
        let mut out = vec![0; plan.size(store_host)];
        let place = Place { queue_offset: 5, physical_offset: 4096, store_timestamp: 12, store_host };
        plan.encode(&mut out, properties, &place);
        out
    }

    #[test]
    fn test_every_single_bit_flip_is_noticed() {
        let bytes = encode("orders", b"a body", b"TAGS\x01t\x02", "127.0.0.1:8090");
        assert!(RecordView::parse_checked(&bytes, 4096).is_ok());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordView::parse_checked(&damaged, 4096).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn test_a_tail_overwritten_through_the_checksum_property_is_noticed() {
        let bytes = encode("orders", b"a body", b"TAGS\x01t\x02__LMQ_BATCH\x013\x02", "127.0.0.1:8090");
        let rubbish =
            [165, 241, 135, 61, 100, 35, 149, 127, 6, 21, 106, 96, 57, 68, 247, 77, 51, 134, 8, 255];
        for from in [bytes.len() - 38, bytes.len() - 20, bytes.len() - 12] {
            let mut torn = bytes.clone();
            for (at, byte) in torn[from..].iter_mut().enumerate() {
                *byte = rubbish[at % rubbish.len()];
            }
            assert!(RecordView::parse_checked(&torn, 4096).is_err(), "torn from byte {from} on");
        }
    }

    /// A record as RocketMQ writes it by default, without the whole-record checksum.
    fn foreign(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let properties = b"TAGS\x01t\x02";
        let mut bytes = encode("orders", b"a body", properties, "127.0.0.1:8090");
        bytes.truncate(bytes.len() - record::CRC_PROPERTY_BYTES);
        let (size, length) = (bytes.len() as u32, properties.len());
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        let at = bytes.len() - length - 2;
        bytes[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        change(&mut bytes);
        bytes
    }

    #[test]
    fn test_places_and_times_of_a_header_without_checksum_have_bounds() {
        let view = |bytes: &[u8]| RecordView::parse_checked(bytes, 4096).map(|view| view.queue_offset);
        assert_eq!(view(&foreign(|_| ())), Ok(5));
        for (at, bit, reason) in [
            (12, 30, "queue id"),
            (20, 40, "queue offset"),
            (20, 63, "queue offset"),
            (20, 6, "queue offset"),
            // The store time, behind a born host of 20 bytes.
            (68, 62, "store time"),
            (68, 63, "store time"),
        ] {
            let width: usize = if at == 12 { 4 } else { 8 };
            let damaged = foreign(|bytes| bytes[at + width - 1 - bit / 8] ^= 1 << (bit % 8));
            assert_eq!(view(&damaged), Err(ViewError::Invalid(reason)), "bit {bit} at {at}");
        }
    }

    proptest! {
        #[test]
        fn test_a_record_reads_back_as_written(
            topic in "[a-zA-Z0-9_%-]{1,255}",
            body in proptest::collection::vec(any::<u8>(), 1..2000),
            value in "[a-z]{0,300}",
            v6 in any::<bool>(),
        ) {
            let mut properties = Vec::new();
            properties::push(&mut properties, properties::UNIQ_KEY, &value);
            let bytes = encode(&topic, &body, &properties, if v6 { "[::1]:8090" } else { "10.1.2.3:8090" });
            let view = RecordView::parse_checked(&bytes, 4096).expect("a record");
            prop_assert_eq!(view.topic, topic.as_str());
            prop_assert_eq!(view.body, body.as_slice());
            prop_assert_eq!(view.property(properties::UNIQ_KEY), Some(value.as_str()));
            prop_assert_eq!((view.queue_id, view.flag, view.queue_offset), (3, -7, 5));
            prop_assert_eq!(view.end_offset(), 4096 + bytes.len() as i64);
            prop_assert_eq!(view.magic == MAGIC_V2, topic.len() > 127);
        }

        #[test]
        fn test_any_bytes_give_a_record_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = RecordView::parse_checked(&bytes, 0);
        }
    }
}
