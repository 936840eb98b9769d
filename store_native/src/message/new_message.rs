//! A message as a producer hands it in, before the store gives it a place.

use std::borrow::Cow;

/// One message to append, validated, borrowed from the request buffer where possible.
#[derive(Debug, Default, Clone)]
pub struct NewMessage<'a> {
    pub body: Cow<'a, [u8]>,
    pub tags: Option<Cow<'a, str>>,
    /// Space separated.
    pub keys: Option<Cow<'a, str>>,
    /// The user's own, without names the store reserves.
    pub properties: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub sharding_key: Option<Cow<'a, str>>,
    pub queue_id: Option<u32>,
    pub flag: i32,
    /// 0 = deliver at once; above the last level = the last level.
    pub delay_level: u32,
    /// Epoch milliseconds until which a delayed message waits, at most for its level; then it waits the shortest
    /// level that is as long as what is left.
    pub due_at: Option<i64>,
    /// The client's id (`UNIQ_KEY`); the store makes one where it is missing.
    pub message_id: Option<Cow<'a, str>>,
    /// How often the message was consumed before (retry topics only).
    pub reconsume_times: i32,
    /// Epoch milliseconds of the producer's clock; the broker's clock where it is missing.
    pub born_timestamp: Option<i64>,
    pub wait_store_ok: bool,
}
