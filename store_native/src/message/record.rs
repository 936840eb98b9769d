//! The commit log record: constants of the format, the encoder, and the whole-record checksum.
//!
//! Invariants: the last 20 bytes of a record made here are a checksum that covers all others, so what is torn on
//! its way to the file (a process killed, power lost) shows.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::properties;
use super::sys_flag;

/// Magic of a record whose topic length is one byte.
pub const MAGIC_V1: i32 = -626_843_481;
/// Magic of a record whose topic length is two bytes (topics over 127 bytes).
pub const MAGIC_V2: i32 = -626_843_477;
/// Magic of the filler at the end of a file.
pub const MAGIC_BLANK: i32 = -875_286_124;
/// Bytes kept free at the end of a file for that filler.
pub const END_OF_FILE_BYTES: usize = 8;
/// Bytes of a record without body, topic and properties, with IPv4 hosts and a one-byte topic length.
pub const FIXED_BYTES: usize = 91;
/// `__CRC32#`, separator, ten digits, separator.
pub const CRC_PROPERTY_BYTES: usize = 20;

/// Offsets of fields that the append fills in.
const QUEUE_OFFSET_AT: usize = 20;

/// CRC32 as the format keeps it: without the sign bit.
pub fn crc31(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes) & 0x7fff_ffff
}

/// What is known of a record before it has its place: everything but offsets and store time.
#[derive(Debug)]
pub struct Plan<'a> {
    pub topic: &'a str,
    pub body: &'a [u8],
    pub body_crc: u32,
    /// Where this record's properties stand in the batch's property buffer (without the checksum).
    pub properties: Range<usize>,
    pub queue_id: i32,
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: SocketAddr,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
}

/// Where a record goes.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub store_timestamp: i64,
    pub store_host: SocketAddr,
}

fn host_bytes(host: SocketAddr) -> usize {
    if host.is_ipv4() { 8 } else { 20 }
}

#[allow(clippy::indexing_slicing, reason = "room that this module measured itself, and no outside input")]
impl Plan<'_> {
    /// Bytes of the whole record.
    pub fn size(&self, store_host: SocketAddr) -> usize {
        FIXED_BYTES - 16
            + host_bytes(self.born_host)
            + host_bytes(store_host)
            + self.body.len()
            + self.topic.len()
            + usize::from(self.topic.len() > 127)
            + self.properties.len()
            + CRC_PROPERTY_BYTES
    }

    /// Writes the record into `out`, which must have exactly [`Plan::size`] bytes.
    pub fn encode(&self, out: &mut [u8], properties: &[u8], place: &Place) {
        let size = out.len();
        let long_topic = self.topic.len() > 127;
        let mut flag = self.sys_flag;
        if self.born_host.is_ipv6() {
            flag |= sys_flag::BORN_HOST_V6;
        }
        if place.store_host.is_ipv6() {
            flag |= sys_flag::STORE_HOST_V6;
        }
        let properties = &properties[self.properties.clone()];
        let mut w = Writer { out, at: 0 };
        w.put(&(size as u32).to_be_bytes());
        w.put(&(if long_topic { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        w.put(&self.body_crc.to_be_bytes());
        w.put(&self.queue_id.to_be_bytes());
        w.put(&self.flag.to_be_bytes());
        debug_assert_eq!(w.at, QUEUE_OFFSET_AT);
        w.put(&place.queue_offset.to_be_bytes());
        w.put(&place.physical_offset.to_be_bytes());
        w.put(&flag.to_be_bytes());
        w.put(&self.born_timestamp.to_be_bytes());
        w.host(self.born_host);
        w.put(&place.store_timestamp.to_be_bytes());
        w.host(place.store_host);
        w.put(&self.reconsume_times.to_be_bytes());
        w.put(&self.prepared_transaction_offset.to_be_bytes());
        w.put(&(self.body.len() as u32).to_be_bytes());
        w.put(self.body);
        if long_topic {
            w.put(&(self.topic.len() as u16).to_be_bytes());
        } else {
            w.put(&[self.topic.len() as u8]);
        }
        w.put(self.topic.as_bytes());
        w.put(&((properties.len() + CRC_PROPERTY_BYTES) as u16).to_be_bytes());
        w.put(properties);
        let crc_at = w.at;
        debug_assert_eq!(crc_at + CRC_PROPERTY_BYTES, size);
        let crc = crc_property(crc31(&w.out[..crc_at]));
        w.put(&crc);
    }
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

#[allow(clippy::indexing_slicing, reason = "room that this module measured itself, and no outside input")]
impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn host(&mut self, host: SocketAddr) {
        match host.ip() {
            IpAddr::V4(ip) => self.put(&ip.octets()),
            IpAddr::V6(ip) => self.put(&ip.octets()),
        }
        self.put(&u32::from(host.port()).to_be_bytes());
    }
}

/// The checksum property: ten digits, the least significant first.
#[allow(clippy::indexing_slicing, reason = "room that this module measured itself, and no outside input")]
fn crc_property(mut crc: u32) -> [u8; CRC_PROPERTY_BYTES] {
    let mut out = *b"__CRC32#\x010000000000\x02";
    for digit in &mut out[9..19] {
        *digit = b'0' + (crc % 10) as u8;
        crc /= 10;
    }
    out
}

/// The parts of a record that its checksums are about.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    /// All bytes of the record.
    pub record: &'a [u8],
    pub body: &'a [u8],
    pub body_crc: u32,
    pub topic: &'a [u8],
    pub properties: &'a [u8],
}

/// What a record's checksums say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// The whole-record one stands there and fits.
    Whole,
    /// Only the body's fits: the header may be anything.
    BodyOnly,
    Wrong,
}

/// Checks the record: by the whole-record checksum where it stands, else by the body's.
///
/// A tail that is nearly the right property (a flipped bit in its name, say) counts as a damaged one, not
/// as a record that never had it. What stands behind the body of a record that never had it must be text
/// without zero bytes: where a torn one was overwritten by whatever the disk held, it is not.
pub fn checksum(checked: &Checked<'_>) -> Checksum {
    let record = checked.record;
    let Some((covered, tail)) = record.split_last_chunk::<CRC_PROPERTY_BYTES>() else {
        return Checksum::Wrong;
    };
    let named = tail.starts_with(properties::CRC32.as_bytes()) && tail[8] == properties::NAME_END;
    if named || tail[19] == properties::PROPERTY_END || tail[8] == properties::NAME_END {
        let expected = crc_property(crc31(covered));
        if *tail == expected {
            return Checksum::Whole;
        }
        if named || tail.iter().zip(&expected).filter(|(a, b)| a == b).count() >= 16 {
            return Checksum::Wrong;
        }
    }
    let text = |bytes: &[u8]| !bytes.contains(&0) && simdutf8::basic::from_utf8(bytes).is_ok();
    let fits = text(checked.topic)
        && text(checked.properties)
        && (checked.body.is_empty() || crc31(checked.body) == checked.body_crc);
    if fits { Checksum::BodyOnly } else { Checksum::Wrong }
}

/// The filler that closes a file of which `remaining` bytes are left.
#[allow(clippy::indexing_slicing, reason = "room that this module measured itself, and no outside input")]
pub fn end_of_file(remaining: usize) -> [u8; END_OF_FILE_BYTES] {
    let mut out = [0u8; END_OF_FILE_BYTES];
    out[..4].copy_from_slice(&(remaining as u32).to_be_bytes());
    out[4..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    out
}
