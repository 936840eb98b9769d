//! Java's `String.hashCode()`, which the format uses for tags and index keys.
//!
//! Invariants: a hash is stored on the disk: how it is made never changes.

/// Hash over UTF-16 code units, wrapping at 32 bits.
pub fn java_hash(text: &str) -> i32 {
    if text.is_ascii() {
        return text.bytes().fold(0i32, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(b)));
    }
    text.encode_utf16().fold(0i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Hash of the concatenation of `parts` without building it.
pub fn java_hash_parts(parts: &[&str]) -> i32 {
    let mut hash = 0i32;
    for part in parts {
        for unit in part.encode_utf16() {
            hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
        }
    }
    hash
}

/// The tags code of a ConsumeQueue entry: 0 without tags.
pub fn tags_code(tags: Option<&str>) -> i64 {
    match tags {
        None | Some("") => 0,
        Some(tags) => i64::from(java_hash(tags)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_hash_equals_javas_for_known_strings() {
        // Values of String.hashCode() in OpenJDK 17.
        assert_eq!(java_hash(""), 0);
        assert_eq!(java_hash("TagA"), 2598919);
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(java_hash("Grüße"), java_hash_parts(&["Grü", "ße"]));
        assert_eq!(java_hash("😀"), 0xd83d_i32 * 31 + 0xde00);
    }
}
