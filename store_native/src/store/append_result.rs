//! What an append answers: where the messages stand, and the JSON of it.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::message::message_id;
use crate::read::write_string;

/// Where one message was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub message_id: String,
    pub physical_offset: i64,
    pub queue_id: u32,
    pub queue_offset: i64,
    /// Delayed: queue and offset are the schedule's; the message gets its own when it is delivered.
    pub scheduled: bool,
}

/// The result of an append: stored in the log, safe as far as the watermarks have passed
/// `end_offset`.
#[derive(Debug, Clone)]
pub struct Appended {
    pub end_offset: i64,
    pub count: usize,
    /// Whether the sender waits for the flush (`wait_store_ok` of any message).
    pub waits: bool,
    /// The request was stored before; this is its first result again.
    pub duplicate: bool,
    /// The answer's JSON behind the status: `,"message_id":...}`.
    pub tail: Vec<u8>,
}

/// What an answer says beside the places.
#[derive(Debug, Clone, Copy)]
pub struct AnswerFacts<'a> {
    pub topic: &'a str,
    pub broker_name: &'a str,
    pub store_host: SocketAddr,
    pub many: bool,
    pub full_results: bool,
    pub duplicate: bool,
}

const SCHEDULED: &[u8] = b",\"scheduled\":true";

/// Writes the answer behind its status.
pub fn write_tail(facts: &AnswerFacts<'_>, placed: &[Placed]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    match placed {
        [one] if !facts.many => {
            out.push(b',');
            write_fields(&mut out, facts, one);
        }
        _ => write_many(&mut out, facts, placed),
    }
    out.extend_from_slice(if facts.duplicate { b",\"duplicate\":true}" } else { b",\"duplicate\":false}" });
    out
}

fn write_fields(out: &mut Vec<u8>, facts: &AnswerFacts<'_>, placed: &Placed) {
    out.extend_from_slice(b"\"message_id\":");
    write_string(out, &placed.message_id);
    let offset_id = message_id::offset_id(facts.store_host, placed.physical_offset);
    // Topic and broker names were validated: nothing in them needs an escape.
    push(
        out,
        format_args!(
            ",\"offset_message_id\":\"{offset_id}\",\"topic\":\"{}\",\"broker_name\":\"{}\",\"queue_id\":{},\"queue_offset\":{}",
            facts.topic, facts.broker_name, placed.queue_id, placed.queue_offset
        ),
    );
    if placed.scheduled {
        out.extend_from_slice(SCHEDULED);
    }
}

fn write_many(out: &mut Vec<u8>, facts: &AnswerFacts<'_>, placed: &[Placed]) {
    // Offsets of one queue in one request follow each other: the append lock is held over all of it.
    let mut queues: Vec<(bool, u32, i64, usize)> = Vec::new();
    for place in placed {
        let same = |(scheduled, id, _, _): &&mut (bool, u32, i64, usize)| {
            (*scheduled, *id) == (place.scheduled, place.queue_id)
        };
        match queues.iter_mut().find(same) {
            Some((_, _, _, count)) => *count += 1,
            None => queues.push((place.scheduled, place.queue_id, place.queue_offset, 1)),
        }
    }
    queues.sort_unstable();
    push(out, format_args!(",\"count\":{},\"queues\":[", placed.len()));
    for (at, (scheduled, id, first, count)) in queues.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        push(
            out,
            format_args!("{comma}{{\"queue_id\":{id},\"first_queue_offset\":{first},\"count\":{count}"),
        );
        if *scheduled {
            out.extend_from_slice(SCHEDULED);
        }
        out.push(b'}');
    }
    out.push(b']');
    if facts.full_results {
        out.extend_from_slice(b",\"results\":[");
        for (at, place) in placed.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"{" } else { b",{" });
            write_fields(out, facts, place);
            out.push(b'}');
        }
        out.push(b']');
    }
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    struct Sink<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Sink<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing to memory does not fail.
    let _ = Sink(out).write_fmt(text);
}
