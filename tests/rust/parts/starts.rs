//! What a start makes of a store that somebody else changed meanwhile, or that parts are missing from.

use std::fs;
use std::path::Path;

use lakemq_store::store::Store;
use lakemq_store::watermarks::Watermarks;
use serde_json::{Value, json};

use crate::support::{FindJson, bodies, bulk, environment, open, options, send};

fn stat(store: &Store, name: &str) -> f64 {
    let stats = store.stats();
    let found = stats.iter().find(|(of, _)| *of == name);
    found.expect("a gauge").1
}

fn version(root: &Path, file: &str) -> Value {
    let text = fs::read(root.join("config").join(file)).expect("a file");
    let value: Value = serde_json::from_slice(&text).expect("JSON");
    value["dataVersion"]["counter"].clone()
}

#[test]
fn test_what_a_rocketmq_broker_wrote_while_it_owned_the_store_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["a", "b", "c"]);
    store
        .commit_offsets("g", vec![("t".into(), 0, 1)])
        .expect("committed");
    store.close().expect("closed");
    drop(store);
    let theirs = json!({"offsetTable": {"t@g": {"0": 2}, "t@other": {"0": 3}}});
    fs::write(
        dir.path().join("config/consumerOffset.json"),
        theirs.to_string(),
    )
    .expect("written");
    let store = open(dir.path());
    assert_eq!(store.group_offsets("g"), [("t".to_owned(), 0, 2)]);
    assert_eq!(store.group_offsets("other"), [("t".to_owned(), 0, 3)]);
    store
        .commit_offsets("g", vec![("t".into(), 0, 1)])
        .expect("committed");
    store.close().expect("closed");
    drop(store);
    let store = open(dir.path());
    assert_eq!(
        store.group_offsets("g"),
        [("t".to_owned(), 0, 1)],
        "taken over once"
    );
}

#[test]
fn test_a_store_where_nothing_can_be_made_is_refused() {
    // The kernel finds no name there, whatever lies above it.
    for place in ["/proc/store", "/proc/below/store"] {
        let refused = Store::open(Path::new(place), options(), environment()).map(drop);
        let said = refused.expect_err("nothing can be made").to_string();
        assert!(said.contains(place), "{said}");
    }
}

#[test]
fn test_a_log_that_lacks_its_last_file_is_refused_until_a_rebuild_is_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let sent = bulk(&store, "t", 250);
    store.close().expect("closed");
    drop(store);
    let mut files: Vec<_> = fs::read_dir(dir.path().join("commitlog"))
        .expect("files")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    fs::remove_file(files.last().expect("a file")).expect("removed");
    let refused = Store::open(dir.path(), options(), environment()).expect_err("files are missing");
    assert_eq!(refused.code(), "DATA_CORRUPT");
    assert!(
        refused.to_string().contains("files are missing"),
        "{refused}"
    );
    Store::rebuild(dir.path(), options(), environment()).expect("what is left");
    let store = open(dir.path());
    let left = bodies_of_records(&store);
    assert!(left.len() > 50 && left.len() < sent.len());
    assert_eq!(left, sent[..left.len()]);
    let placed = send(&store, "t", &["next"]).placed;
    assert_eq!(
        placed[0].queue_offset,
        sent.len() as i64,
        "no offset is given twice"
    );
}

/// Bodies of what can be read; a message that is gone is passed over.
fn bodies_of_records(store: &Store) -> Vec<String> {
    let mut out = Vec::new();
    let mut request = crate::support::everything(0);
    let end = store.bounds("t", 0).expect("a queue").max;
    while request.offset < end {
        let meta = store
            .read("t", 0, &request, |record, _| {
                out.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        request.offset = meta.next_offset;
    }
    out
}

#[test]
fn test_damage_is_remembered_over_starts_until_its_files_expire() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 300);
    store.close().expect("closed");
    drop(store);
    let path = dir.path().join("commitlog").join("0".repeat(20));
    let mut bytes = fs::read(&path).expect("the log");
    let at = bytes
        .windows(3)
        .position(|w| w == b"12-")
        .expect("message 12");
    bytes[at + 100] ^= 1;
    fs::write(&path, bytes).expect("written");
    Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
    let store = open(dir.path());
    assert!(store.report().clean && !store.report().rebuilt);
    assert_eq!(store.report().quarantined_bytes, 0, "nothing new");
    let damaged = stat(&store, "quarantined_bytes");
    assert!(damaged > 500.0 && damaged < 1500.0, "{damaged}");
    store.close().expect("closed");
    drop(store);
    let store = open(dir.path());
    assert_eq!(stat(&store, "quarantined_bytes"), damaged);
    let hours_100 = 100 * 3_600_000;
    store
        .expire(store.now_ms() + hours_100, true)
        .expect("expired");
    let min = stat(&store, "commitlog_min_offset");
    assert!(min > 0.0);
    store.close().expect("closed");
    drop(store);
    let store = open(dir.path());
    assert_eq!(stat(&store, "quarantined_bytes"), 0.0, "its file is gone");
    let marks = Watermarks::open_for_reading(&dir.path().join("lakemq/watermarks"));
    let marks = marks.expect("readable").expect("a page");
    assert_eq!(
        marks.log_min() as f64,
        min,
        "a reader knows where the log begins"
    );
    let first = store.bounds("t", 0).expect("a queue").min;
    assert_eq!(bodies(&store, "t").len() as i64, 300 - first);
}

#[test]
fn test_a_rebuild_applies_no_change_twice_and_indexes_no_message_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let sent = bulk(&store, "t", 40);
    store
        .commit_offsets("g", vec![("t".into(), 0, 1)])
        .expect("committed");
    store
        .commit_offsets("g", vec![("t".into(), 0, 2)])
        .expect("committed");
    store.close().expect("closed");
    drop(store);
    let files = [
        "topics.json",
        "subscriptionGroup.json",
        "consumerOffset.json",
    ];
    let before = files.map(|file| version(dir.path(), file));
    for _ in 0..2 {
        let report = Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
        assert!(report.rebuilt && report.from_offset == 0);
        assert_eq!(files.map(|file| version(dir.path(), file)), before);
    }
    let store = open(dir.path());
    assert_eq!(bodies(&store, "t"), sent);
    for body in &sent {
        let found = store.messages_json("t", &format!("key-{body}"), (0, i64::MAX), 10);
        assert_eq!(found.expect("searched").len(), 1);
    }
}
