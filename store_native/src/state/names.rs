//! Names of topics and groups: which are valid, which belong to the system.
//!
//! Invariants: a valid name has no character that means something in a path.

use crate::error::{Result, StoreError};

/// Delayed messages wait here, one queue a level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// The store's own state.
pub const META_TOPIC: &str = "RMQ_SYS_LAKEMQ_META";
pub const RETRY_PREFIX: &str = "%RETRY%";
pub const DLQ_PREFIX: &str = "%DLQ%";

/// Topics that refuse users' messages, by name; so do all that begin with `RMQ_SYS_` or `rmq_sys_`.
pub const SYSTEM_TOPICS: [&str; 12] = [
    SCHEDULE_TOPIC,
    META_TOPIC,
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "TBW102",
    "BenchmarkTest",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC",
];

const MAX_TOPIC_BYTES: usize = 127;
const MAX_SYSTEM_TOPIC_BYTES: usize = 255;
const MAX_GROUP_BYTES: usize = 120;

/// Whether the system owns the topic.
pub fn is_system(topic: &str) -> bool {
    SYSTEM_TOPICS.contains(&topic) || topic.starts_with("RMQ_SYS_") || topic.starts_with("rmq_sys_")
}

/// Whether it holds a group's retries or dead letters.
pub fn is_group_topic(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX) || topic.starts_with(DLQ_PREFIX)
}

fn valid_characters(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'%' | b'|' | b'_' | b'-'))
}

/// Checks a topic's name. A name becomes a path only after this.
///
/// # Errors
/// `TOPIC_ILLEGAL` with the rule it breaks.
pub fn validate_topic(topic: &str) -> Result<()> {
    let limit = if is_group_topic(topic) { MAX_SYSTEM_TOPIC_BYTES } else { MAX_TOPIC_BYTES };
    if topic.is_empty() {
        return Err(StoreError::invalid("TOPIC_ILLEGAL", "the topic's name is empty"));
    }
    if topic.len() > limit {
        let detail = format!("the topic's name has {} bytes, the limit is {limit}", topic.len());
        return Err(StoreError::invalid("TOPIC_ILLEGAL", detail));
    }
    if !valid_characters(topic) {
        let detail = "the topic's name has characters other than ^[%|a-zA-Z0-9_-]+$";
        return Err(StoreError::invalid("TOPIC_ILLEGAL", detail));
    }
    Ok(())
}

/// Checks a group's name.
///
/// # Errors
/// `GROUP_ILLEGAL` with the rule it breaks.
pub fn validate_group(group: &str) -> Result<()> {
    if group.is_empty() || group.len() > MAX_GROUP_BYTES {
        let detail = format!("a group's name has 1 to {MAX_GROUP_BYTES} bytes, this one {}", group.len());
        return Err(StoreError::invalid("GROUP_ILLEGAL", detail));
    }
    if !valid_characters(group) {
        let detail = "the group's name has characters other than ^[%|a-zA-Z0-9_-]+$";
        return Err(StoreError::invalid("GROUP_ILLEGAL", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_that_could_be_paths_are_refused() {
        for bad in ["", "..", "../x", "a/b", "a b", "a\0", "ä", &"x".repeat(128)] {
            assert!(validate_topic(bad).is_err(), "{bad:?} passed");
        }
        assert!(validate_topic("%RETRY%g|1-_").is_ok());
        assert!(validate_topic(&format!("%DLQ%{}", "x".repeat(200))).is_ok());
        assert!(is_system("RMQ_SYS_ANYTHING") && !is_system("orders"));
    }
}
