//! Settings of a store. Values only.

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

/// Settings; the defaults are RocketMQ's.
#[derive(Debug, Clone)]
pub struct Options {
    pub broker_name: String,
    pub cluster: String,
    pub store_host: SocketAddr,
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

const DELAY_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

impl Default for Options {
    fn default() -> Self {
        Self {
            broker_name: "broker-a".into(),
            cluster: "DefaultCluster".into(),
            store_host: SocketAddr::from(([127, 0, 0, 1], 8090)),
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
    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` naming the value and its limit.
    pub fn validate(&self) -> Result<()> {
        let refuse = |detail: String| Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        if !(64 * 1024..=1 << 30).contains(&self.commitlog_file_size) {
            return refuse(format!(
                "commitlog_file_size is {}, it lies between 65536 and 1073741824",
                self.commitlog_file_size
            ));
        }
        if !self.commitlog_file_size.is_multiple_of(4096) {
            return refuse("commitlog_file_size must be a multiple of 4096".into());
        }
        if self.consumequeue_file_entries == 0 || self.index_slots == 0 || self.index_entries < 2 {
            return refuse("queue and index files need room for entries".into());
        }
        if !(1..=1024).contains(&self.default_queue_nums) {
            return refuse(format!(
                "default_queue_nums is {}, it lies between 1 and 1024",
                self.default_queue_nums
            ));
        }
        if self.delay_levels_ms.is_empty() || self.delay_levels_ms.len() > 64 {
            return refuse("there are 1 to 64 delay levels".into());
        }
        crate::meta::names::validate_topic(&self.broker_name)
            .and_then(|()| crate::meta::names::validate_topic(&self.cluster))
            .map_err(|e| {
                StoreError::invalid("ARGUMENT_ILLEGAL", format!("broker or cluster name: {}", e.detail()))
            })
    }
}

/// Reads `1s 5s 1m 2h 1d` into milliseconds.
///
/// # Errors
/// `ARGUMENT_ILLEGAL` naming the part that is no duration.
pub fn parse_levels(text: &str) -> Result<Vec<i64>> {
    text.split_ascii_whitespace()
        .map(|part| {
            let unit = match part.as_bytes().last() {
                Some(b's') => 1000,
                Some(b'm') => 60_000,
                Some(b'h') => 3_600_000,
                Some(b'd') => 86_400_000,
                _ => 0,
            };
            match part[..part.len() - 1].parse::<i64>() {
                Ok(count) if unit > 0 && count > 0 => Ok(count * unit),
                _ => Err(StoreError::invalid(
                    "ARGUMENT_ILLEGAL",
                    format!("delay level [{part}] is no duration"),
                )),
            }
        })
        .collect()
}
