//! What a start costs: stores are made in a state of choice, opened, and the time of the opening is printed.
//!
//! * `start_bench fill DIR BYTES`: writes messages of 1 KB until the log is BYTES long, takes a checkpoint, appends
//!   a tail and ends as a crash would.
//! * `start_bench queues DIR COUNT`: COUNT queues with a message each, in topics of 1,000 queues; a clean stop.
//! * `start_bench crash-open DIR`: opens the store, prints `{"open_ms", "records"}`, appends the same tail and ends
//!   as a crash would, so that the next opening finds as much to do.

use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use lakemq_store::environment::Environment;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Flush, Options, Store, TopicChange};

const BODY_BYTES: usize = 1024;
const BATCH: usize = 100;
/// Messages behind the last checkpoint.
const TAIL: usize = 20_000;
const TOPIC_QUEUES: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(300);

type Outcome = Result<(), Box<dyn Error>>;

fn open(directory: &Path) -> Result<Store, Box<dyn Error>> {
    // The tail shall stay behind the checkpoint: none is taken by itself.
    let options = Options { flush: Flush::Async, checkpoint_interval_ms: 3_600_000, ..Options::default() };
    Ok(Store::open(directory, options, Environment::real("")?)?)
}

fn append(store: &Store, topic: &str, messages: &[NewMessage<'_>]) -> Result<i64, Box<dyn Error>> {
    let request = AppendRequest { topic, born_host: None, idempotency_key: None };
    Ok(store.append(&request, messages)?.end_offset)
}

/// Appends batches until `enough` of the log's end; returns when all is dispatched.
fn append_until(store: &Store, mut enough: impl FnMut(i64) -> bool) -> Outcome {
    let body: Vec<u8> = (0..BODY_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    let message = NewMessage { body: Cow::Borrowed(&body), wait_store_ok: true, ..NewMessage::default() };
    let batch = vec![message; BATCH];
    loop {
        let end = append(store, "bench", &batch)?;
        if enough(end) {
            return settle(store, end);
        }
    }
}

fn settle(store: &Store, end: i64) -> Outcome {
    if store.wait_dispatched(end, TIMEOUT) {
        Ok(())
    } else {
        Err("the store did not dispatch in time".into())
    }
}

/// Appends the tail and ends without a stop.
fn crash(store: &Store) -> Outcome {
    let mut left = TAIL / BATCH;
    append_until(store, |_| {
        left -= 1;
        left == 0
    })?;
    std::process::exit(0)
}

fn fill(directory: &Path, bytes: i64) -> Outcome {
    let store = open(directory)?;
    append_until(&store, |end| end >= bytes)?;
    store.checkpoint()?;
    crash(&store)
}

fn queues(directory: &Path, count: usize) -> Outcome {
    let store = open(directory)?;
    let nums = u32::try_from(TOPIC_QUEUES)?;
    let change =
        TopicChange { read_queue_nums: Some(nums), write_queue_nums: Some(nums), ..TopicChange::default() };
    let message = |queue_id| NewMessage {
        body: Cow::Borrowed(&b"x"[..]),
        queue_id: Some(queue_id),
        wait_store_ok: true,
        ..NewMessage::default()
    };
    let batch: Vec<_> = (0..nums).map(message).collect();
    for number in 0..count / TOPIC_QUEUES {
        let topic = format!("topic-{number}");
        store.put_topic(&topic, &change)?;
        let end = append(&store, &topic, &batch)?;
        settle(&store, end)?;
    }
    Ok(store.close()?)
}

fn crash_open(directory: &Path) -> Outcome {
    let started = Instant::now();
    let store = open(directory)?;
    let open_ms = started.elapsed().as_secs_f64() * 1000.0;
    println!("{{\"open_ms\": {open_ms:.3}, \"records\": {}}}", store.report().records);
    crash(&store)
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fill", directory, bytes] => fill(Path::new(directory), bytes.parse()?),
        ["queues", directory, count] => queues(Path::new(directory), count.parse()?),
        ["crash-open", directory] => crash_open(Path::new(directory)),
        _ => Err("usage: start_bench fill DIR BYTES | queues DIR COUNT | crash-open DIR".into()),
    }
}
