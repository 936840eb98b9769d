//! Settings of a store, their defaults and their limits. Values only.

use std::net::SocketAddr;

use crate::error::{Result, StoreError};

/// When an append counts as flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Before it is acknowledged. Appends that wait at the same time share one fdatasync.
    Sync,
    /// In the background, every flush interval. A power cut loses at most that much, a crash of the
    /// process nothing.
    Async,
}

/// What a broker is to the others of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes messages, and delivers delayed ones.
    Master,
    /// It takes its master's log, byte for byte, and nothing else. Opening as one erases nothing: where the log parts
    /// from the master's is found out first.
    Slave,
}

/// Settings; the defaults are RocketMQ's.
#[derive(Debug, Clone)]
pub struct Options {
    pub broker_name: String,
    pub cluster: String,
    pub store_host: SocketAddr,
    /// What it is opened as; it may change later.
    pub role: Role,
    /// A master's: from the opening on nothing is confirmed before the replicas have it.
    pub asks_replicas: bool,
    pub flush: Flush,
    pub flush_interval_ms: u64,
    pub commitlog_file_size: u64,
    pub consumequeue_file_entries: u32,
    pub index_slots: u32,
    pub index_entries: u32,
    pub auto_create_topics: bool,
    pub default_queue_nums: u32,
    pub retention_hours: u64,
    /// Hour of the day (UTC) at which expired files are deleted without need.
    pub delete_when_hour: u32,
    pub max_message_bytes: usize,
    pub delay_levels_ms: Vec<i64>,
    pub checkpoint_interval_ms: u64,
    pub idempotence_max_keys: usize,
    pub idempotence_hours: u64,
}

/// The default delays of the levels: RocketMQ's.
pub const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

impl Default for Options {
    fn default() -> Self {
        Self {
            broker_name: "broker-a".into(),
            cluster: "DefaultCluster".into(),
            store_host: SocketAddr::from(([127, 0, 0, 1], 8090)),
            role: Role::Master,
            asks_replicas: false,
            flush: Flush::Sync,
            flush_interval_ms: 100,
            commitlog_file_size: 1 << 30,
            consumequeue_file_entries: 300_000,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            auto_create_topics: true,
            default_queue_nums: 4,
            retention_hours: 72,
            delete_when_hour: 4,
            max_message_bytes: 4 << 20,
            delay_levels_ms: parse_levels(DELAY_LEVELS).unwrap_or_default(),
            checkpoint_interval_ms: 5000,
            idempotence_max_keys: 1_000_000,
            idempotence_hours: 72,
        }
    }
}

impl Options {
    /// Whether what is flushed is confirmed by that, with nobody else asked.
    pub fn confirms_alone(&self) -> bool {
        self.role == Role::Master && !self.asks_replicas
    }

    /// Each number with its smallest and its largest value.
    pub fn numbers(&self) -> [(&'static str, i64, i64, i64); 12] {
        const FILE: (i64, i64) = (64 << 10, 1 << 30);
        const ENTRIES: i64 = 100_000_000;
        const HOURS_OF_100_YEARS: i64 = 100 * 366 * 24;
        [
            ("flush_interval_ms", 1, 60_000, self.flush_interval_ms as i64),
            ("commitlog_file_size", FILE.0, FILE.1, self.commitlog_file_size as i64),
            ("consumequeue_file_entries", 1, ENTRIES, i64::from(self.consumequeue_file_entries)),
            ("index_slots", 1, ENTRIES, i64::from(self.index_slots)),
            ("index_entries", 2, ENTRIES, i64::from(self.index_entries)),
            ("default_queue_nums", 1, 1024, i64::from(self.default_queue_nums)),
            ("retention_hours", 1, HOURS_OF_100_YEARS, self.retention_hours as i64),
            ("delete_when_hour", 0, 23, self.delete_when_hour as i64),
            ("max_message_bytes", 1, FILE.1 - FILE.0, self.max_message_bytes as i64),
            ("checkpoint_interval_ms", 10, 3_600_000, self.checkpoint_interval_ms as i64),
            ("idempotence_max_keys", 1, ENTRIES, self.idempotence_max_keys as i64),
            ("idempotence_hours", 1, HOURS_OF_100_YEARS, self.idempotence_hours as i64),
        ]
    }

    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` naming the value and its limit.
    pub fn validate(&self) -> Result<()> {
        let refuse = |detail: String| Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        for (name, least, most, value) in self.numbers() {
            if !(least..=most).contains(&value) {
                return refuse(format!("{name} is {value}, it lies between {least} and {most}"));
            }
        }
        if !self.commitlog_file_size.is_multiple_of(4096) {
            return refuse("commitlog_file_size must be a multiple of 4096".into());
        }
        if self.delay_levels_ms.is_empty() || self.delay_levels_ms.len() > 64 {
            return refuse("there are 1 to 64 delay levels".into());
        }
        crate::state::names::validate_topic(&self.broker_name)
            .and_then(|()| crate::state::names::validate_topic(&self.cluster))
            .map_err(|e| {
                StoreError::invalid("ARGUMENT_ILLEGAL", format!("broker or cluster name: {}", e.detail()))
            })
    }
}

/// The longest delay of a level: a year.
const MAX_LEVEL_MS: i64 = 365 * 86_400_000;

/// Reads `1s 5s 1m 2h 1d` into milliseconds.
///
/// # Errors
/// `ARGUMENT_ILLEGAL` naming the part that is no duration between 1 s and 365 days.
pub fn parse_levels(text: &str) -> Result<Vec<i64>> {
    text.split_ascii_whitespace().map(|part| parse_level(part).ok_or_else(|| no_duration(part))).collect()
}

fn parse_level(part: &str) -> Option<i64> {
    let mut characters = part.chars();
    let unit = match characters.next_back()? {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => 86_400_000,
        _ => return None,
    };
    let count: i64 = characters.as_str().parse().ok()?;
    count.checked_mul(unit).filter(|ms| (1..=MAX_LEVEL_MS).contains(ms))
}

fn no_duration(part: &str) -> StoreError {
    let detail = format!("delay level [{part}] is no duration between 1s and 365d, as 10s, 5m, 2h or 1d are");
    StoreError::invalid("ARGUMENT_ILLEGAL", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_delay_levels_are_read_and_what_is_none_is_refused_by_name() {
        assert_eq!(
            parse_levels(" 1s 5m\t2h 365d ").ok(),
            Some(vec![1000, 300_000, 7_200_000, 31_536_000_000])
        );
        for bad in ["1é", "é", "s", "1", "0s", "-1s", "1ms", "366d", "9223372036854775807d", "1s 💥", "１s"]
        {
            let refused = parse_levels(bad).expect_err(bad);
            assert_eq!(refused.code(), "ARGUMENT_ILLEGAL", "{bad}");
        }
    }
}
