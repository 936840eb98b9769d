//! A record's properties: `name \x01 value \x02`, repeated. Names of the well-known ones.
//!
//! Invariants: reading never fails: what is no property is passed over.

pub const KEYS: &str = "KEYS";
pub const TAGS: &str = "TAGS";
pub const UNIQ_KEY: &str = "UNIQ_KEY";
pub const WAIT: &str = "WAIT";
pub const DELAY: &str = "DELAY";
pub const REAL_TOPIC: &str = "REAL_TOPIC";
pub const REAL_QID: &str = "REAL_QID";
pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
pub const SHARDING_KEY: &str = "__SHARDINGKEY";
/// The whole-record checksum, last in a record; see `record.rs`.
pub const CRC32: &str = "__CRC32#";

/// Properties of LakeMQ's own begin with this and are never shown to users.
pub const INTERNAL_PREFIX: &str = "__LMQ_";
/// On the first record of an append of several: how many bytes belong together (all or none).
pub const BATCH: &str = "__LMQ_BATCH";
/// On the first record of an append: the idempotence key of the request.
pub const IDEMPOTENCE_KEY: &str = "__LMQ_KEY";
/// Beside the key: a digest of what the request asked for, 32 hex digits.
pub const DIGEST: &str = "__LMQ_SUM";
/// On a delivered delayed message: `level:queue_offset` of the entry it came from.
pub const DELIVERED_FROM: &str = "__LMQ_FROM";

/// Stands between a name and its value.
pub const NAME_END: u8 = 1;
/// Stands behind each property.
pub const PROPERTY_END: u8 = 2;
/// The format's limit on the encoded properties of a record.
pub const MAX_BYTES: usize = 32_767;

/// Yields each (name, value). Pieces that are no property (no separator, not UTF-8) are passed over.
pub fn iter(bytes: &[u8]) -> Properties<'_> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Properties { text, rest: &[] },
        Err(_) => Properties { text: "", rest: bytes },
    }
}

/// See [`iter`].
#[derive(Debug, Clone)]
pub struct Properties<'a> {
    /// What is left when all of it is UTF-8, as it nearly always is: checked once, cut at ASCII bytes.
    text: &'a str,
    /// What is left otherwise: each piece is checked.
    rest: &'a [u8],
}

/// What stands before and behind the first ASCII byte `at`.
#[inline]
fn cut(text: &str, at: u8) -> Option<(&str, &str)> {
    let end = memchr::memchr(at, text.as_bytes())?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.text.is_empty() {
            let (piece, left) = cut(self.text, PROPERTY_END).unwrap_or((self.text, ""));
            self.text = left;
            if let Some(property) = cut(piece, NAME_END) {
                return Some(property);
            }
        }
        while !self.rest.is_empty() {
            let end = memchr::memchr(PROPERTY_END, self.rest).unwrap_or(self.rest.len());
            let (piece, left) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
            self.rest = left.get(1..).unwrap_or_default();
            if let Some(at) = memchr::memchr(NAME_END, piece)
                && let Some((name, value)) = piece.split_at_checked(at)
                && let (Ok(name), Ok(value)) =
                    (std::str::from_utf8(name), std::str::from_utf8(value.get(1..).unwrap_or_default()))
            {
                return Some((name, value));
            }
        }
        None
    }
}

/// The value of `name`, or `None`.
pub fn get<'a>(bytes: &'a [u8], name: &str) -> Option<&'a str> {
    iter(bytes).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Appends one property.
pub fn push(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(NAME_END);
    out.extend_from_slice(value.as_bytes());
    out.push(PROPERTY_END);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_properties_read_back_and_rubbish_is_passed_over() {
        let mut bytes = Vec::new();
        push(&mut bytes, TAGS, "a");
        bytes.extend_from_slice(b"no separator\x02");
        push(&mut bytes, KEYS, "k1 k2");
        assert_eq!(iter(&bytes).collect::<Vec<_>>(), vec![(TAGS, "a"), (KEYS, "k1 k2")]);
        assert_eq!(get(&bytes, KEYS), Some("k1 k2"));
        assert_eq!(get(&bytes, "KEY"), None);
        bytes.splice(0..0, b"x\x01\xff\x02".iter().copied());
        assert_eq!(iter(&bytes).collect::<Vec<_>>(), vec![(TAGS, "a"), (KEYS, "k1 k2")], "not all UTF-8");
    }
}
