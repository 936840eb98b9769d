//! The property names that belong to the store: producers may not set them, readers do not see them.
//!
//! Invariants: one list for both sides, so that whatever a reader is shown can be sent again (retries, replays).

use super::properties::{self, INTERNAL_PREFIX};

/// The format's well-known names, sorted. Those the jobs put on retry and dead-letter messages
/// (RETRY_TOPIC, ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID) are not among them.
const RESERVED: [&str; 20] = [
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    properties::DELAY,
    properties::KEYS,
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "PGROUP",
    properties::REAL_QID,
    properties::REAL_TOPIC,
    "RECONSUME_TIME",
    properties::TAGS,
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TRANSACTION_CHECK_TIMES",
    "TRAN_MSG",
    properties::UNIQ_KEY,
    properties::WAIT,
    properties::CRC32,
    properties::SHARDING_KEY,
];

/// Whether a property of this name is the store's own.
pub fn is_reserved(name: &str) -> bool {
    // User properties rarely begin like these: one look at the first byte settles most.
    match name.as_bytes().first() {
        Some(b'C' | b'D' | b'K' | b'M' | b'P' | b'R' | b'T' | b'U' | b'W') => {
            RESERVED.binary_search(&name).is_ok()
        }
        Some(b'_') => name.starts_with(INTERNAL_PREFIX) || RESERVED.binary_search(&name).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_reserved_name_is_found() {
        assert!(RESERVED.is_sorted());
        for name in RESERVED {
            assert!(is_reserved(name), "{name}");
        }
        assert!(is_reserved("__LMQ_BATCH"));
    }

    #[test]
    fn test_names_of_users_and_jobs_are_free() {
        for name in
            ["RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "LMQ_ORIGIN", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"]
        {
            assert!(!is_reserved(name), "{name}");
        }
        for name in ["", "a", "traceparent", "Tags", "_", "__x", "KEYS2"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
