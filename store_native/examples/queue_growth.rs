//! What many queues cost: `cargo run --release --no-default-features --example queue_growth -- QUEUES`; with
//! `crash MIB` instead, how long a start after a crash takes with so much log.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use lakemq_store::environment::Environment;
use lakemq_store::message::NewMessage;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Flush, Options, Store, TopicChange};

const WAIT: Duration = Duration::from_secs(600);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    let home = tempfile::tempdir().expect("a directory");
    if arguments.first().is_some_and(|a| a == "crash") {
        crash(home.path(), number(1, 1024));
    } else {
        growth(home.path(), number(0, 10_000));
    }
}

fn open(path: &Path) -> Store {
    let options = Options { flush: Flush::Async, checkpoint_interval_ms: 3_600_000, ..Options::default() };
    Store::open(path, options, Environment::real("").expect("randomness")).expect("a store")
}

fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn request(topic: &str) -> AppendRequest<'_> {
    AppendRequest { topic, born_host: None, idempotency_key: None }
}

fn one_to_each(store: &Store, topics: usize, queues: usize) -> i64 {
    let mut end = 0;
    for topic in 0..topics {
        let batch: Vec<NewMessage<'_>> = (0..queues as u32)
            .map(|queue| NewMessage {
                body: Cow::Borrowed(b"x"),
                queue_id: Some(queue),
                wait_store_ok: true,
                ..NewMessage::default()
            })
            .collect();
        end = store.append(&request(&format!("t{topic}")), &batch).expect("stored").end_offset;
    }
    assert!(store.wait_dispatched(end, WAIT));
    end
}

fn timed<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let out = work();
    println!("{what}: {:.3} s", started.elapsed().as_secs_f64());
    out
}

fn growth(path: &Path, queues: usize) {
    let (topics, each) = (queues.div_ceil(1000), queues.min(1000));
    let store = open(path);
    let change = TopicChange {
        read_queue_nums: Some(each as u32),
        write_queue_nums: Some(each as u32),
        ..TopicChange::default()
    };
    for topic in 0..topics {
        let end = store.put_topic(&format!("t{topic}"), &change).expect("made");
        assert!(store.wait_dispatched(end, WAIT));
    }
    timed("first message of each queue", || one_to_each(&store, topics, each));
    timed("checkpoint, all queues dirty", || store.checkpoint().expect("a checkpoint"));
    timed("second message of each queue", || one_to_each(&store, topics, each));
    timed("checkpoint again", || store.checkpoint().expect("a checkpoint"));
    println!("descriptors: {}", descriptors());
    timed("clean stop", || store.close().expect("closed"));
    drop(store);
    let before = status("VmRSS");
    let store = timed("clean start", || open(path));
    let after = status("VmRSS");
    println!(
        "descriptors {}, resident {} KiB more, {:.2} KiB a queue; snapshot {} KiB",
        descriptors(),
        after.saturating_sub(before),
        after.saturating_sub(before) as f64 / queues as f64,
        std::fs::metadata(path.join("lakemq/snapshot.json")).map_or(0, |m| m.len() / 1024)
    );
    timed("a reader's bounds of all queues", || {
        let reader = Reader::open(path).expect("a reader");
        for topic in 0..topics {
            reader.queues(&format!("t{topic}")).expect("queues");
        }
    });
    timed("third message of each queue", || one_to_each(&store, topics, each));
    timed("checkpoint of a start", || store.checkpoint().expect("a checkpoint"));
    store.close().expect("closed");
    drop(store);
    std::fs::write(path.join("abort"), b"1").expect("written");
    let store = timed("crash start", || open(path));
    println!("{:?}", store.report());
}

fn crash(path: &Path, mib: usize) {
    let body = "x".repeat(1000);
    let mut written = 0usize;
    let store = open(path);
    while written < mib << 20 {
        let batch: Vec<NewMessage<'_>> = (0..1000)
            .map(|_| NewMessage {
                body: Cow::Borrowed(body.as_bytes()),
                wait_store_ok: true,
                ..NewMessage::default()
            })
            .collect();
        written = store.append(&request("t"), &batch).expect("stored").end_offset as usize;
        assert!(store.wait_dispatched(written as i64, WAIT));
    }
    store.checkpoint().expect("a checkpoint");
    store.close().expect("closed");
    drop(store);
    std::fs::write(path.join("abort"), b"1").expect("written");
    let store = timed(&format!("crash start with {mib} MiB of log"), || open(path));
    println!("{:?}", store.report());
}
