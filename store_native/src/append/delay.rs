//! How long a delayed message waits: its level, or what is left of it when it is sent late. Pure.
//!
//! Invariants: with a time no message comes before it, unless its whole delay ends earlier; none waits longer than
//! its level says. A rest between two levels waits the longer one: each level is a queue in which the first message
//! is due first, so a store knows no time between them.

use crate::message::NewMessage;

/// The level that a message waits now; 0 is not at all.
///
/// `level_ms` has the delays of levels 1 to n, in any order.
pub(super) fn level_now(message: &NewMessage<'_>, level_ms: &[i64], now_ms: i64) -> u32 {
    let level = message.delay_level.min(level_ms.len() as u32);
    let own = level.checked_sub(1).and_then(|at| level_ms.get(at as usize));
    let (Some(due_at), Some(&longest)) = (message.due_at, own) else { return level };
    let left = due_at.saturating_sub(now_ms);
    if left <= 0 {
        return 0;
    }
    let enough = (1..).zip(level_ms).filter(|&(_, &ms)| (left..longest).contains(&ms));
    enough.min_by_key(|&(_, &ms)| ms).map_or(level, |(level, _)| level)
}
