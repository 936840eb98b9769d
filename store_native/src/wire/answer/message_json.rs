//! A stored message as JSON, for pulls and look-ups. Owns the names of a read message's fields.
//!
//! Invariants: writes straight into the answer's buffer; on an error the buffer is as it was. Names that belong to
//! the store are not shown.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::Result;
use crate::message::properties::{self, KEYS, TAGS, UNIQ_KEY};
use crate::message::reserved::is_reserved;
use crate::message::{RecordView, compress, offset_id};
use crate::wire::request::plain_len;

/// Appends the message as one JSON object.
///
/// The body is a string where it is UTF-8, else `body_base64`; of the properties only the user's are shown.
///
/// # Errors
/// `Corrupt` where a compressed body cannot be read.
pub fn write_message(out: &mut Vec<u8>, record: &RecordView<'_>, broker_name: &str) -> Result<()> {
    let body = compress::body_of(record)?;
    out.reserve(body.len() + record.properties.len() + 512);
    let (mut id, mut keys, mut tags) = (None, None, None);
    for (name, value) in properties::iter(record.properties) {
        let slot = match name {
            UNIQ_KEY => &mut id,
            KEYS => &mut keys,
            TAGS => &mut tags,
            _ => continue,
        };
        if slot.is_none() {
            *slot = Some(value);
        }
    }
    let offset_id = offset_id(record.store_host, record.physical_offset);
    out.extend_from_slice(b"{\"message_id\":");
    write_string(out, id.filter(|id| !id.is_empty()).unwrap_or(&offset_id));
    out.extend_from_slice(b",\"offset_message_id\":");
    write_string(out, &offset_id);
    out.extend_from_slice(b",\"topic\":");
    write_string(out, record.topic);
    out.extend_from_slice(b",\"broker_name\":");
    write_string(out, broker_name);
    write_integer(out, ",\"queue_id\":", record.queue_id.into());
    write_integer(out, ",\"queue_offset\":", record.queue_offset);
    write_integer(out, ",\"physical_offset\":", record.physical_offset);
    write_keys(out, keys.unwrap_or_default());
    out.extend_from_slice(b",\"tags\":");
    match tags {
        Some(tags) => write_string(out, tags),
        None => out.extend_from_slice(b"null"),
    }
    write_body(out, &body);
    write_properties(out, record.properties);
    write_integer(out, ",\"flag\":", record.flag.into());
    write_integer(out, ",\"born_timestamp\":", record.born_timestamp);
    write_integer(out, ",\"store_timestamp\":", record.store_timestamp);
    write_host(out, ",\"born_host\":\"", record.born_host);
    write_host(out, ",\"store_host\":\"", record.store_host);
    write_integer(out, ",\"reconsume_times\":", record.reconsume_times.into());
    out.push(b'}');
    Ok(())
}

#[allow(clippy::indexing_slicing, reason = "twenty digits hold every number")]
fn write_integer(out: &mut Vec<u8>, before: &str, value: i64) {
    out.extend_from_slice(before.as_bytes());
    if value < 0 {
        out.push(b'-');
    }
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

fn write_host(out: &mut Vec<u8>, before: &str, host: SocketAddr) {
    match host {
        SocketAddr::V4(v4) => {
            let [a, b, c, d] = v4.ip().octets();
            write_integer(out, before, a.into());
            for byte in [b, c, d] {
                write_integer(out, ".", byte.into());
            }
            write_integer(out, ":", v4.port().into());
        }
        SocketAddr::V6(v6) => {
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(v6.to_string().as_bytes());
        }
    }
    out.push(b'"');
}

fn write_keys(out: &mut Vec<u8>, keys: &str) {
    out.extend_from_slice(b",\"keys\":[");
    for (at, key) in keys.split(' ').filter(|key| !key.is_empty()).enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, key);
    }
    out.push(b']');
}

fn write_body(out: &mut Vec<u8>, body: &[u8]) {
    match simdutf8::basic::from_utf8(body) {
        Ok(text) => {
            out.extend_from_slice(b",\"body\":");
            write_string(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b",\"body_base64\":\"");
            out.extend_from_slice(STANDARD.encode(body).as_bytes());
            out.push(b'"');
        }
    }
}

fn write_properties(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b",\"properties\":{");
    let shown = properties::iter(bytes).filter(|(name, _)| !is_reserved(name));
    for (at, (name, value)) in shown.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_string(out, value);
    }
    out.push(b'}');
}

/// Appends a JSON string.
#[allow(clippy::indexing_slicing, reason = "four bits of sixteen digits")]
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, special) = rest.split_at_checked(plain_len(rest)).unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        let Some((byte, left)) = special.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        rest = left;
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn test_a_written_string_reads_back(text in any::<String>()) {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).expect("JSON"), text);
        }

        #[test]
        fn test_a_written_integer_reads_back(value in prop_oneof![any::<i64>(), Just(i64::MIN), -20i64..20]) {
            let mut out = Vec::new();
            write_integer(&mut out, "", value);
            prop_assert_eq!(out, value.to_string().into_bytes());
        }

        #[test]
        fn test_a_written_host_is_the_usual_text(host in any::<SocketAddr>()) {
            let mut out = Vec::new();
            write_host(&mut out, "\"", host);
            prop_assert_eq!(out, format!("\"{host}\"").into_bytes());
        }
    }
}
