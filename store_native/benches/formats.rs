//! What it costs to read requests and to build slices, beside a plain memcpy of the same bodies.
//!
//! `cargo bench --no-default-features --bench formats`. Figures are of one thread, best of several runs;
//! on a shared machine only the ratios mean anything.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{BinaryArray, RecordBatch, StringArray};
use arrow_buffer::Buffer;
use lakemq_store::filter::TagFilter;
use lakemq_store::message::{RecordView, properties};
use lakemq_store::wire::answer::{Capacity, ColumnSet, SliceBuilder, to_ipc, write_message};
use lakemq_store::wire::request::{ArrowMessages, Limits, parse_json, parse_ndjson};

const MESSAGES: usize = 10_000;
const RUNS: usize = 15;

/// Seconds of the fastest run.
fn best<T>(mut work: impl FnMut() -> T) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        black_box(work());
        least = least.min(start.elapsed().as_secs_f64());
    }
    least
}

fn report(name: &str, bytes: usize, seconds: f64, memcpy: f64) {
    println!(
        "{name:<34} {:>8.2} M messages/s {:>7.2} GB/s {:>6.2} of memcpy",
        MESSAGES as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e9,
        memcpy / seconds
    );
}

fn body(size: usize, text: &str) -> String {
    text.chars().cycle().take(size).collect()
}

fn requests(size: usize, memcpy: f64) {
    let limits = Limits::default();
    let kinds = [
        ("plain", body(size, "The quick brown fox jumps over the lazy dog. ")),
        ("escapes", body(size, r#"{"order":1,"customer":"Ann","items":[1,2,3]} "#)),
        ("cjk", body(size / 3, "消息队列的正文是中文")),
    ];
    for (kind, text) in &kinds {
        let line = serde_json::json!({"body": text, "tags": "paid", "keys": ["order-123456"]}).to_string();
        let data = format!("{line}\n").repeat(MESSAGES);
        let seconds = best(|| parse_ndjson(data.as_bytes(), &limits).expect("legal"));
        report(&format!("NDJSON {size} B {kind}"), data.len(), seconds, memcpy);
    }
    let line = serde_json::json!({"body": kinds[0].1, "tags": "paid", "keys": ["order-123456"]}).to_string();
    let data = format!("{{\"messages\":[{}]}}", vec![line; MESSAGES].join(","));
    let seconds = best(|| parse_json(data.as_bytes(), &limits).expect("legal"));
    report(&format!("JSON list {size} B plain"), data.len(), seconds, memcpy);

    let bodies = BinaryArray::from_iter_values(std::iter::repeat_n(kinds[0].1.as_bytes(), MESSAGES));
    let tags = StringArray::new_repeated("paid", MESSAGES);
    let keys = StringArray::new_repeated("order-123456", MESSAGES);
    let columns: [(&str, arrow_array::ArrayRef); 3] =
        [("body", Arc::new(bodies)), ("tags", Arc::new(tags)), ("keys", Arc::new(keys))];
    let stream =
        Buffer::from_vec(to_ipc(&RecordBatch::try_from_iter(columns).expect("columns")).expect("memory"));
    let seconds = best(|| {
        let owner = ArrowMessages::read(stream.clone()).expect("a stream");
        owner.messages(&limits).expect("legal").len()
    });
    report(&format!("Arrow request {size} B"), stream.len(), seconds, memcpy);
}

fn slices(size: usize, memcpy: f64) {
    let mut encoded = Vec::new();
    for (name, value) in [
        ("UNIQ_KEY", "7F00000100001F9A0000000000001000"),
        ("WAIT", "true"),
        ("TAGS", "paid"),
        ("KEYS", "order-123456"),
        ("__CRC32#", "0123456789"),
    ] {
        properties::push(&mut encoded, name, value);
    }
    let text = body(size, "The quick brown fox jumps over the lazy dog. ");
    // Each record has its own bytes, as in a log.
    let log: Vec<Vec<u8>> = (0..MESSAGES).map(|_| text.as_bytes().to_vec()).collect();
    let host = SocketAddr::from(([127, 0, 0, 1], 8090));
    let records: Vec<RecordView<'_>> = log
        .iter()
        .map(|body| RecordView {
            total_size: 0,
            magic: 0,
            body_crc: 0,
            queue_id: 3,
            flag: 0,
            queue_offset: 41,
            physical_offset: 4096,
            sys_flag: 0,
            born_timestamp: 1_763_700_000_001,
            born_host: host,
            store_timestamp: 1_763_700_000_002,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            topic: "orders",
            properties: &encoded,
        })
        .collect();
    let room = Capacity { records: MESSAGES, body_bytes: MESSAGES * size };
    let build = |columns: &ColumnSet| {
        let mut builder = SliceBuilder::new(columns, "orders", 3, "broker-a", room);
        for (at, record) in records.iter().enumerate() {
            builder.push(record, at as i64).expect("sound");
        }
        builder.finish().expect("a batch")
    };
    let kafka = "key value topic partition offset timestamp timestampType";
    for (name, columns) in [("default", None), ("kafka", Some(kafka)), ("body", Some("body"))] {
        let names = columns.map(|names| names.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let columns = ColumnSet::parse(names.as_deref()).expect("known");
        let seconds = best(|| build(&columns));
        report(&format!("slice {size} B {name} columns"), MESSAGES * size, seconds, memcpy);
    }
    let batch = build(&ColumnSet::parse(None).expect("known"));
    let seconds = best(|| to_ipc(&batch).expect("memory"));
    report(&format!("to_ipc {size} B"), MESSAGES * size, seconds, memcpy);
    let mut out = Vec::new();
    let seconds = best(|| {
        out.clear();
        records.iter().for_each(|record| write_message(&mut out, record, "broker-a").expect("sound"));
    });
    report(&format!("write_message {size} B"), MESSAGES * size, seconds, memcpy);
    let filter = TagFilter::parse("paid || shipped").expect("legal").expect("tags");
    let seconds = best(|| records.iter().filter(|r| filter.matches(r.property("TAGS"))).count());
    report(&format!("tag filter {size} B"), MESSAGES * size, seconds, memcpy);
}

fn main() {
    for size in [1024, 100] {
        let source: Vec<Vec<u8>> = vec![vec![7; size]; MESSAGES];
        let memcpy = best(|| {
            let mut out = Vec::with_capacity(MESSAGES * size);
            source.iter().for_each(|body| out.extend_from_slice(body));
            out
        });
        report(&format!("memcpy {size} B"), MESSAGES * size, memcpy, memcpy);
        requests(size, memcpy);
        slices(size, memcpy);
    }
}
