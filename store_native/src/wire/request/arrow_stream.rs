//! The frames of an Arrow IPC stream, checked before the decoder sees them.
//!
//! Invariants: what would expand (compressed buffers, dictionaries), buffers that lie outside their message, and a
//! stream that breaks off without its end mark are refused, so that half a request is never stored. The decoder
//! asserts where others return errors (a buffer of offsets that is no multiple of 4 bytes long, say): its panics
//! end here, as what comes over the network must not stop the broker.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{Message, MessageHeader, root_as_message};

use super::parse_error::{MALFORMED_BODY, MESSAGE_ILLEGAL, Parse, ParseError};

const CONTINUATION: u32 = 0xffff_ffff;

/// Decodes a whole stream.
pub(super) fn decode(stream: Buffer) -> Parse<Vec<RecordBatch>> {
    check(&stream)?;
    // Nothing of the decoder outlives its panic.
    catch_unwind(AssertUnwindSafe(|| decode_checked(stream)))
        .unwrap_or_else(|_| Err(malformed("its buffers do not fit its columns")))
}

fn decode_checked(mut stream: Buffer) -> Parse<Vec<RecordBatch>> {
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !stream.is_empty() {
        match decoder.decode(&mut stream) {
            Ok(Some(batch)) => batches.push(batch),
            Ok(None) => {}
            Err(e) => return Err(malformed(e.to_string())),
        }
    }
    decoder.finish().map_err(|e| malformed(e.to_string()))?;
    Ok(batches)
}

#[cold]
fn malformed(why: impl AsRef<str>) -> Box<ParseError> {
    ParseError::whole(MALFORMED_BODY, format!("not an Arrow IPC stream: {}", why.as_ref()))
}

fn check(stream: &[u8]) -> Parse<()> {
    let mut rest = stream;
    let mut schema_seen = false;
    loop {
        let mut size = u32::from_le_bytes(*take_array(&mut rest)?);
        if size == CONTINUATION {
            size = u32::from_le_bytes(*take_array(&mut rest)?);
        }
        if size == 0 {
            break;
        }
        let header = take(&mut rest, size as usize)?;
        let message = root_as_message(header).map_err(|e| malformed(format!("a message's header: {e}")))?;
        let body = usize::try_from(message.bodyLength()).map_err(|_| malformed("a negative length"))?;
        take(&mut rest, body)?;
        match message.header_type() {
            MessageHeader::Schema if !schema_seen => schema_seen = true,
            MessageHeader::RecordBatch if schema_seen => check_batch(&message, body)?,
            MessageHeader::DictionaryBatch => {
                return Err(ParseError::whole(
                    MESSAGE_ILLEGAL,
                    "dictionary-encoded columns are not read; send plain ones",
                ));
            }
            other => return Err(malformed(format!("{other:?} stands where it must not"))),
        }
    }
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes behind its end", rest.len())));
    }
    if !schema_seen {
        return Err(malformed("it has no schema"));
    }
    Ok(())
}

fn check_batch(message: &Message<'_>, body: usize) -> Parse<()> {
    let batch = message.header_as_record_batch().ok_or_else(|| malformed("a batch without its header"))?;
    if batch.compression().is_some() {
        return Err(ParseError::whole(
            MESSAGE_ILLEGAL,
            "compressed Arrow buffers are not read; compress the request instead",
        ));
    }
    for node in batch.nodes().iter().flatten() {
        if node.null_count() < 0 || node.length() < node.null_count() {
            return Err(malformed("a column's length"));
        }
    }
    for buffer in batch.buffers().iter().flatten() {
        let start = usize::try_from(buffer.offset()).ok();
        let end = start.zip(usize::try_from(buffer.length()).ok()).and_then(|(at, n)| at.checked_add(n));
        if end.is_none_or(|end| end > body) {
            return Err(malformed("a buffer lies outside its message"));
        }
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Parse<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or_else(|| malformed("it breaks off"))?;
    *rest = left;
    Ok(taken)
}

fn take_array<'a>(rest: &mut &'a [u8]) -> Parse<&'a [u8; 4]> {
    let (taken, left) = rest.split_first_chunk().ok_or_else(|| malformed("it breaks off"))?;
    *rest = left;
    Ok(taken)
}
