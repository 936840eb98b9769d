//! What a sender is answered: where its messages are, in JSON.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::write_string;
use crate::append::Placed;
use crate::message::message_id;

/// What an answer says.
#[derive(Debug, Clone, Copy)]
pub struct AppendAnswer<'a> {
    pub topic: &'a str,
    pub broker_name: &'a str,
    pub store_host: SocketAddr,
    /// The request may hold several messages: it is answered by queue.
    pub many: bool,
    /// One result for each message, too.
    pub full_results: bool,
    pub duplicate: bool,
    pub placed: &'a [Placed],
}

const SCHEDULED: &[u8] = b",\"scheduled\":true";

impl AppendAnswer<'_> {
    /// Renders the whole document; `status` is the name of the outcome.
    pub fn render(&self, status: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(384);
        out.extend_from_slice(b"{\"status\":");
        write_string(&mut out, status);
        match self.placed {
            [one] if !self.many => {
                out.push(b',');
                write_fields(&mut out, self, one);
            }
            _ => write_many(&mut out, self),
        }
        out.extend_from_slice(if self.duplicate {
            b",\"duplicate\":true}"
        } else {
            b",\"duplicate\":false}"
        });
        out
    }
}

fn write_fields(out: &mut Vec<u8>, answer: &AppendAnswer<'_>, placed: &Placed) {
    out.extend_from_slice(b"\"message_id\":");
    write_string(out, &placed.message_id);
    let offset_id = message_id::offset_id(answer.store_host, placed.physical_offset);
    // Topic and broker names were validated: nothing in them needs an escape.
    push(
        out,
        format_args!(
            ",\"offset_message_id\":\"{offset_id}\",\"topic\":\"{}\",\"broker_name\":\"{}\",\"queue_id\":{},\"queue_offset\":{}",
            answer.topic, answer.broker_name, placed.queue_id, placed.queue_offset
        ),
    );
    if placed.scheduled {
        out.extend_from_slice(SCHEDULED);
    }
}

fn write_many(out: &mut Vec<u8>, answer: &AppendAnswer<'_>) {
    // Offsets of one queue in one request follow each other: the append lock is held over all of it.
    let mut queues: Vec<(bool, u32, i64, usize)> = Vec::new();
    for place in answer.placed {
        let same = |(scheduled, id, _, _): &&mut (bool, u32, i64, usize)| {
            (*scheduled, *id) == (place.scheduled, place.queue_id)
        };
        match queues.iter_mut().find(same) {
            Some((_, _, _, count)) => *count += 1,
            None => queues.push((place.scheduled, place.queue_id, place.queue_offset, 1)),
        }
    }
    queues.sort_unstable();
    push(out, format_args!(",\"count\":{},\"queues\":[", answer.placed.len()));
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
    if answer.full_results {
        out.extend_from_slice(b",\"results\":[");
        for (at, place) in answer.placed.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"{" } else { b",{" });
            write_fields(out, answer, place);
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
