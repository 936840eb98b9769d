//! Bodies that a RocketMQ client compressed: gives them back as they were.
//!
//! Invariants: LakeMQ stores bodies as they come; only records of foreign producers carry the flag. No body expands
//! to more than [`MAX_EXPANDED_BYTES`].

use std::borrow::Cow;
use std::io::Read;

use super::{RecordView, sys_flag};
use crate::error::{Result, StoreError};

/// No body expands beyond this.
pub const MAX_EXPANDED_BYTES: u64 = 64 << 20;

/// Log2 of the largest window a Zstandard frame may ask for: what it may expand to.
const ZSTD_WINDOW_LOG_MAX: u32 = 26;

/// The body as the producer wrote it.
///
/// # Errors
/// `Corrupt` where the bytes are not what the system flag says, or expand beyond the bound.
pub fn body_of<'a>(record: &RecordView<'a>) -> Result<Cow<'a, [u8]>> {
    if record.sys_flag & sys_flag::COMPRESSED == 0 {
        return Ok(Cow::Borrowed(record.body));
    }
    let kind = (record.sys_flag & sys_flag::COMPRESSION_TYPE_MASK) >> sys_flag::COMPRESSION_TYPE_SHIFT;
    expand(record.body, kind, MAX_EXPANDED_BYTES).map(Cow::Owned).map_err(|why| {
        StoreError::corrupt(format!(
            "the compressed body of the record at physical offset {}: {why}",
            record.physical_offset
        ))
    })
}

fn expand(body: &[u8], kind: i32, limit: u64) -> std::result::Result<Vec<u8>, String> {
    match kind {
        1 => read_bounded(lz4_flex::frame::FrameDecoder::new(body), limit),
        2 => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(|e| e.to_string())?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|e| e.to_string())?;
            read_bounded(decoder, limit)
        }
        // 0: written before there was a choice.
        0 | 3 => read_bounded(flate2::read::ZlibDecoder::new(body), limit),
        other => Err(format!("unknown compression type {other}")),
    }
}

fn read_bounded(reader: impl Read, limit: u64) -> std::result::Result<Vec<u8>, String> {
    let mut out = Vec::new();
    reader.take(limit + 1).read_to_end(&mut out).map_err(|e| e.to_string())?;
    if out.len() as u64 > limit {
        return Err(format!("expands to more than {limit} bytes"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(kind: i32, body: &[u8]) -> Vec<u8> {
        match kind {
            1 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(body).expect("memory");
                encoder.finish().expect("memory")
            }
            2 => zstd::stream::encode_all(body, 3).expect("memory"),
            _ => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(body).expect("memory");
                encoder.finish().expect("memory")
            }
        }
    }

    fn record(body: &[u8], sys_flag: i32) -> RecordView<'_> {
        let host = std::net::SocketAddr::from(([127, 0, 0, 1], 8090));
        RecordView {
            total_size: 0,
            magic: 0,
            body_crc: 0,
            queue_id: 0,
            flag: 0,
            queue_offset: 0,
            physical_offset: 77,
            sys_flag,
            born_timestamp: 0,
            born_host: host,
            store_timestamp: 0,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            topic: "t",
            properties: b"",
        }
    }

    #[test]
    fn test_a_plain_body_is_borrowed() {
        assert!(matches!(body_of(&record(b"abc", 0)), Ok(Cow::Borrowed(b"abc"))));
    }

    #[test]
    fn test_each_kind_of_compression_reads_back() {
        let body = b"the same words, the same words, the same words".repeat(50);
        for kind in 0..=3 {
            let bytes = packed(kind, &body);
            assert_eq!(body_of(&record(&bytes, 1 | kind << 8)).expect("readable").as_ref(), body.as_slice());
        }
    }

    #[test]
    fn test_damaged_cut_and_unknown_bodies_are_corrupt() {
        for kind in 0..=4 {
            let mut bytes = packed(kind, &b"0123456789abcdef".repeat(100));
            bytes.truncate(bytes.len() / 2);
            let error = body_of(&record(&bytes, 1 | kind << 8)).expect_err("half a body");
            assert_eq!(error.code(), "DATA_CORRUPT");
            assert!(error.detail().contains("offset 77"), "{error}");
            assert!(body_of(&record(b"no such format", 1 | kind << 8)).is_err());
        }
    }

    #[test]
    fn test_what_a_body_expands_to_is_bounded() {
        for kind in 1..=3 {
            let bytes = packed(kind, &vec![0; 100_000]);
            assert_eq!(expand(&bytes, kind, 100_000).map(|b| b.len()), Ok(100_000));
            assert!(expand(&bytes, kind, 99_999).is_err());
        }
    }
}
