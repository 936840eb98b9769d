//! Writes the fuzzer's corpus: files of a store that had something of everything, and requests of each form.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, StringViewArray};
use arrow_ipc::writer::StreamWriter;
use lakemq_store::environment::{Clock, Environment};
use lakemq_store::message::{NewMessage, RecordView};
use lakemq_store::options::Options;
use lakemq_store::state::Op;
use lakemq_store::store::{AppendRequest, GroupChange, Store};

/// 2026-01-02T03:04:05.006Z.
const NOW_MS: i64 = 1_767_323_045_006;

struct Steps(AtomicI64);

impl Clock for Steps {
    fn now_ms(&self) -> i64 {
        self.0.fetch_add(7, Ordering::SeqCst)
    }
}

/// Replaces the corpus.
pub fn write(corpus: &Path) {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("store");
    fill(&root);
    let put = |target: &str, name: &str, bytes: &[u8]| {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(name), bytes).expect("written");
    };
    let take = |target: &str, name: &str, file: &str| {
        put(target, name, &fs::read(root.join(file)).expect("a file"));
    };
    take("snapshot", "snapshot.json", "lakemq/snapshot.json");
    take("keys", "idempotence.keys", "lakemq/idempotence.keys");
    take("epochs", "epochs.json", "lakemq/epochs.json");
    take("identity", "store.json", "lakemq/store.json");
    // Damage that is JSON all the same: places in the index are computed from the number of slots.
    let whole = fs::read_to_string(root.join("lakemq/store.json")).expect("a file");
    let none = whole.replace("\"index_slots\": 7", "\"index_slots\": 0");
    assert_ne!(none, whole);
    put("identity", "no-slots.json", none.as_bytes());
    take("watermarks", "watermarks", "lakemq/watermarks");
    for name in [
        "topics",
        "subscriptionGroup",
        "consumerOffset",
        "delayOffset",
    ] {
        take(
            "config",
            &format!("{name}.json"),
            &format!("config/{name}.json"),
        );
    }
    put("config", "rocketmq.json", b"{\n\t\"offsetTable\":{\"a,1:b@g\":{0:3,1:4\n\t\t},\"t@g\":{0:9}},\n\t\"dataVersion\":{\"counter\":3}}");
    put("epochs", "slave.json", br#"{"seen":7,"epochs":[{"epoch":1,"start_offset":0},{"epoch":3,"start_offset":400},{"epoch":6,"start_offset":400}]}"#);
    for (name, path) in [
        ("t", "consumequeue/t/0"),
        ("schedule", "consumequeue/SCHEDULE_TOPIC_XXXX/2"),
    ] {
        let file = files(&root.join(path)).pop().expect("a queue file");
        put("queue", name, &fs::read(file).expect("a file"));
    }
    for (number, file) in files(&root.join("index")).iter().take(2).enumerate() {
        put(
            "index",
            &format!("index-{number}"),
            &fs::read(file).expect("a file"),
        );
    }
    records(&root, &put);
    requests(&put);
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let listed = fs::read_dir(directory).expect("a directory");
    let mut out: Vec<_> = listed
        .map(|entry| entry.expect("an entry").path())
        .collect();
    out.sort();
    out
}

fn fill(root: &Path) {
    let options = Options {
        commitlog_file_size: 64 << 10,
        consumequeue_file_entries: 20,
        index_slots: 7,
        index_entries: 20,
        ..Options::default()
    };
    let environment = Environment {
        clock: Arc::new(Steps(AtomicI64::new(NOW_MS))),
        random: [7; 16],
        ..Environment::real("").expect("randomness")
    };
    let store = Store::open(root, options, environment).expect("a store");
    let mut end = 0;
    for number in 0..12 {
        let key = format!("request-{number}");
        let body = format!("body {number}");
        let message = |delay_level| NewMessage {
            body: Cow::Borrowed(body.as_bytes()),
            tags: Some("even".into()),
            keys: Some(format!("order-{number} customer").into()),
            properties: vec![("name".into(), "value".into())],
            queue_id: Some(0),
            delay_level,
            wait_store_ok: number % 2 == 0,
            ..NewMessage::default()
        };
        let request = AppendRequest {
            topic: "t",
            born_host: None,
            idempotency_key: Some(&key),
        };
        let delay = if number % 5 == 4 { 3 } else { 0 };
        end = store
            .append(&request, &[message(delay)])
            .expect("stored")
            .end_offset;
    }
    let pair = ["one", "two"].map(|body| NewMessage {
        body: Cow::Borrowed(body.as_bytes()),
        sharding_key: Some("s".into()),
        wait_store_ok: true,
        ..NewMessage::default()
    });
    let request = AppendRequest {
        topic: "pairs",
        born_host: "[2001:db8::1]:4".parse().ok(),
        idempotency_key: None,
    };
    store.append(&request, &pair).expect("stored");
    store.put_group("g", &GroupChange::default()).expect("made");
    store
        .commit_offsets("g", vec![("t".into(), 0, 3)])
        .expect("committed");
    assert!(store.wait_dispatched(end, std::time::Duration::from_secs(10)));
    store.checkpoint().expect("taken");
    store.close().expect("closed");
}

/// Some records of the log, each alone, and the changes of state among them.
fn records(root: &Path, put: &impl Fn(&str, &str, &[u8])) {
    let log = files(&root.join("commitlog")).remove(0);
    let log = fs::read(log).expect("a file");
    let (mut at, mut number) = (0, 0);
    while let Ok(record) = RecordView::parse(&log[at..]) {
        let size = record.total_size as usize;
        if let Ok(op) = Op::decode(record.body, 0) {
            let name = format!("{op:?}");
            let name = name.split(' ').next().unwrap_or("op").to_lowercase();
            put("change", &name, record.body);
        } else if number < 2 || record.topic != "t" {
            put(
                "record",
                &format!("{}-{number}", record.topic),
                &log[at..at + size],
            );
            put(
                "properties",
                &format!("{}-{number}", record.topic),
                record.properties,
            );
        }
        (at, number) = (at + size, number + 1);
    }
}

fn requests(put: &impl Fn(&str, &str, &[u8])) {
    let whole = r#"{"body":"h\u00e9\n","tags":"paid","keys":["k1","k2"],"properties":{"a":"1","b/~":"2"},"sharding_key":"s","queue_id":"3","flag":-7,"delay_level":2,"message_id":"id","reconsume_times":4,"born_timestamp":"1763700000000","wait_store_ok":false}"#;
    let base64 = r#"{"body_base64":"AP8Q","tags":null}"#;
    let value = r#"{"body_json":{"a":[1.50e3,null,{"x":"\ud83d\ude00"}]},"keys":"a  b"}"#;
    put("json", "one", whole.as_bytes());
    put(
        "json",
        "many",
        format!(r#"{{"messages":[{whole},{base64}, {value}]}}"#).as_bytes(),
    );
    put("json", "value", value.as_bytes());
    put(
        "ndjson",
        "lines",
        format!("\n{whole}\r\n  \n{base64}\n{value}").as_bytes(),
    );
    put("tags", "list", "paid||shipped  || Grüße".as_bytes());
    put("tags", "all", b" * ");
    put("tags", "wrong", b"A | B || *");
    let mut keys = ListBuilder::new(StringBuilder::new());
    let mut properties = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in 0..3 {
        keys.append_value([Some("k"), Some("l")]);
        properties.keys().append_value("name");
        properties.values().append_value("value");
        properties.append(row != 1).expect("balanced");
    }
    let texts = || Arc::new(StringArray::from(vec![Some("a"), None, Some("b")])) as ArrayRef;
    let views = StringViewArray::from(vec![Some("short"), None, Some("longer than twelve bytes")]);
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as ArrayRef;
    let bodies = BinaryArray::from_vec(vec![b"one", b"two", b"three"]);
    put(
        "arrow",
        "bodies",
        &ipc(vec![("body", Arc::new(bodies.clone()))]),
    );
    put(
        "arrow",
        "texts",
        &ipc(vec![
            ("body", Arc::new(bodies.clone())),
            ("tags", Arc::new(views)),
            ("message_id", texts()),
        ]),
    );
    put(
        "arrow",
        "numbers",
        &ipc(vec![
            ("body", Arc::new(bodies.clone())),
            ("flag", numbers()),
            ("queue_id", numbers()),
            ("born_timestamp", numbers()),
        ]),
    );
    put(
        "arrow",
        "nested",
        &ipc(vec![
            ("body", Arc::new(bodies)),
            ("keys", Arc::new(keys.finish())),
            ("properties", Arc::new(properties.finish())),
        ]),
    );
}

fn ipc(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("of one length");
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, batch.schema_ref()).expect("memory");
    writer.write(&batch).expect("memory");
    writer.finish().expect("memory");
    drop(writer);
    out
}
