//! What a start reads, says, mends and leaves alone: small stores, each stopped or killed in a way of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemq_store::environment::Environment;
use lakemq_store::options::Role;
use lakemq_store::store::{AppendRequest, Options, Store, Work};
use tempfile::TempDir;

use crate::jumping_clock::{HOUR, JumpingClock};
use crate::support::{
    FindJson, SOON, bodies, bulk, copy, environment, message, open, options, request, send,
};

const DAY: i64 = 1_700_000_000_000;

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// The directory as a kill would leave it now.
fn killed(root: &Path) -> TempDir {
    let copied = scratch();
    copy(root, copied.path());
    copied
}

fn at_rest(root: &Path) -> Store {
    Store::open_at_rest(root, options(), environment()).expect("a store")
}

fn closed(store: Store) {
    store.close().expect("closed");
    drop(store);
}

fn gauge(store: &Store, name: &str) -> f64 {
    let stats = store.stats();
    stats.iter().find(|(of, _)| *of == name).expect("a gauge").1
}

fn queue_file(root: &Path, topic: &str, base: usize) -> PathBuf {
    root.join(format!("consumequeue/{topic}/0/{base:020}"))
}

/// Leaves rubbish behind the entries of a queue's file, as a lost write may.
fn spoil_behind(file: &Path, entries: usize) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[entries * 20..(entries + 1) * 20].copy_from_slice(&[1; 20]);
    fs::write(file, bytes).expect("written");
}

fn is_clear_behind(file: &Path, entries: usize) -> bool {
    let bytes = fs::read(file).expect("a file");
    bytes[entries * 20..].iter().all(|byte| *byte == 0)
}

#[test]
fn test_a_start_reads_from_the_snapshot_and_says_so() {
    let dir = scratch();
    let store = open(dir.path());
    bulk(&store, "t", 20);
    store.checkpoint().expect("taken");
    let (snapshot, ..) = store.watermarks();
    send(&store, "t", &["behind", "it"]);
    let (end, ..) = store.watermarks();
    let copied = killed(dir.path());
    closed(store);
    let report = at_rest(copied.path()).report().clone();
    assert!(!report.clean && !report.rebuilt);
    assert_eq!((report.from_offset, report.end_offset), (snapshot, end));
    assert_eq!((report.records, report.truncated_bytes), (1 + 1, 0));
    assert_eq!((report.repaired_queues, report.quarantined_bytes), (0, 0));
    assert!((0..60_000).contains(&report.elapsed_ms), "{report:?}");
    let report = at_rest(dir.path()).report().clone();
    assert!(report.clean && !report.rebuilt);
    assert_eq!((report.from_offset, report.records), (end, 0));
}

#[test]
fn test_what_lies_behind_a_queues_end_is_cleared_after_a_kill_and_with_a_repair() {
    let dir = scratch();
    let store = open(dir.path());
    send(&store, "t", &["one", "two"]);
    bulk(&store, "u", 60);
    closed(store);
    let spoilt = queue_file(dir.path(), "t", 0);
    spoil_behind(&spoilt, 4);
    fs::create_dir_all(dir.path().join("consumequeue/ghost/0")).expect("made");
    // A clean stop left nothing to look at.
    let clean = killed(dir.path());
    closed(open(clean.path()));
    assert!(!is_clear_behind(&queue_file(clean.path(), "t", 0), 2));
    assert!(clean.path().join("consumequeue/ghost").exists());
    // One with a queue that is to be repaired did.
    let repaired = killed(dir.path());
    fs::remove_file(queue_file(repaired.path(), "u", 1000)).expect("removed");
    let store = open(repaired.path());
    assert!(store.report().clean && store.report().repaired_queues == 1);
    assert_eq!(bodies(&store, "u").len(), 60);
    closed(store);
    // So does a kill.
    let store = open(dir.path());
    let crashed = killed(dir.path());
    closed(store);
    let store = open(crashed.path());
    assert!(!store.report().clean && store.report().repaired_queues == 0);
    assert_eq!(bodies(&store, "t"), ["one", "two"]);
    closed(store);
    for place in [repaired.path(), crashed.path()] {
        assert!(is_clear_behind(&queue_file(place, "t", 0), 2));
        assert!(!place.join("consumequeue/ghost").exists());
    }
}

#[test]
fn test_damage_that_ends_where_the_log_begins_is_forgotten() {
    let dir = scratch();
    let store = open(dir.path());
    bulk(&store, "t", 300);
    closed(store);
    let first = dir.path().join("commitlog").join("0".repeat(20));
    let mut bytes = fs::read(&first).expect("the log");
    let behind = bytes.iter().rposition(|byte| *byte != 0).expect("records");
    let at = bytes[..behind].windows(20).rposition(|w| w == [b'x'; 20]);
    bytes[at.expect("a body")] ^= 1;
    fs::write(&first, bytes).expect("written");
    let report = Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
    let store = open(dir.path());
    let damaged = gauge(&store, "quarantined_bytes");
    assert!(damaged > 500.0 && damaged < 20_000.0, "{damaged}");
    assert_eq!(report.quarantined_bytes as f64, damaged);
    closed(store);
    // Only that file goes: the damage ends at its end.
    fs::remove_file(&first).expect("removed");
    let store = open(dir.path());
    assert_eq!(gauge(&store, "commitlog_min_offset"), 65_536.0);
    assert_eq!(gauge(&store, "quarantined_bytes"), 0.0);
}

fn as_a(role: Role, root: &Path) -> Store {
    let options = Options { role, ..options() };
    Store::open_at_rest(root, options, environment()).expect("a store")
}

#[test]
fn test_a_slave_dispatches_nothing_that_was_not_confirmed_and_cuts_nothing() {
    let dir = scratch();
    let store = at_rest(dir.path());
    let send = |store: &Store, body: &str| {
        let done = store
            .append(&request("t"), &[message(body)])
            .expect("stored");
        store.work(Work::FlushAlone).expect("flushed");
        done.end_offset
    };
    let first = send(&store, "one");
    store.work(Work::Dispatch).expect("dispatched");
    store.ask_replicas(Some(first));
    let second = send(&store, "two");
    let left = [(); 2].map(|()| killed(dir.path()));
    drop(store);
    // Behind the end lies what a torn write left.
    for copied in &left {
        let log = copied.path().join("commitlog").join("0".repeat(20));
        let mut bytes = fs::read(&log).expect("the log");
        bytes[second as usize + 8..second as usize + 40].fill(7);
        fs::write(&log, bytes).expect("written");
    }
    let [slave, master] = left;
    let store = as_a(Role::Slave, slave.path());
    assert_eq!(store.watermarks(), (second, second, first, first));
    assert_eq!(bodies(&store, "t"), ["one"]);
    assert_eq!(
        store.report().truncated_bytes,
        0,
        "its master may know better"
    );
    let log = |root: &Path| fs::read(root.join("commitlog").join("0".repeat(20)));
    let tail = |root: &Path| log(root).expect("the log")[second as usize..].to_vec();
    assert!(tail(slave.path()).contains(&7));
    let store = as_a(Role::Master, master.path());
    assert_eq!(store.watermarks(), (second, second, second, second));
    assert_eq!(bodies(&store, "t"), ["one", "two"]);
    assert_eq!(store.report().truncated_bytes, 4096);
    assert!(!tail(master.path()).contains(&7));
}

#[test]
fn test_keys_are_known_as_long_as_the_settings_say_and_over_damage_in_the_log() {
    let dir = scratch();
    let clock = JumpingClock::at(DAY);
    let open = |root: &Path| {
        let environment = Environment {
            clock: clock.clone(),
            ..environment()
        };
        let options = Options {
            idempotence_hours: 3,
            ..options()
        };
        Store::open_at_rest(root, options, environment).expect("a store")
    };
    let repeats = |store: &Store, key: &str| {
        let keyed = AppendRequest {
            idempotency_key: Some(key),
            ..request("t")
        };
        let stored = store.append(&keyed, &[message(key)]).expect("stored");
        store.work(Work::Flush).expect("flushed");
        store.work(Work::Dispatch).expect("dispatched");
        stored.duplicate
    };
    let store = open(dir.path());
    for key in ["first", "second", "third"] {
        assert!(!repeats(&store, key));
    }
    closed(store);
    for (hours, known) in [(2, true), (4, false)] {
        let copied = killed(dir.path());
        let store = open(copied.path());
        assert!(store.take_events().is_empty(), "their file has them all");
        clock.pass(hours * HOUR);
        // What is old goes when another comes.
        assert!(!repeats(&store, "other"));
        assert_eq!(repeats(&store, "first"), known, "after {hours} hours");
        clock.jump(-hours * HOUR);
    }
    // Their file is gone, and the log is damaged where the second lies.
    fs::remove_file(dir.path().join("lakemq/idempotence.keys")).expect("removed");
    let log = dir.path().join("commitlog").join("0".repeat(20));
    let mut bytes = fs::read(&log).expect("the log");
    let at = bytes.windows(6).position(|w| w == b"second").expect("it");
    bytes[at] ^= 1;
    fs::write(&log, bytes).expect("written");
    let store = open(dir.path());
    assert!(repeats(&store, "first") && repeats(&store, "third"));
    assert!(!repeats(&store, "second"), "nobody knows it any more");
    let events = store.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.text.contains("has 0 of 3 keys"))
    );
}

#[test]
fn test_files_behind_the_logs_end_go_and_it_ends_where_its_records_do() {
    let dir = scratch();
    let store = open(dir.path());
    let sent = bulk(&store, "t", 120);
    let copied = killed(dir.path());
    closed(store);
    let files = || {
        let names = fs::read_dir(copied.path().join("commitlog")).expect("a log");
        let mut names: Vec<_> = names.map(|name| name.expect("a name").path()).collect();
        names.sort();
        names
    };
    // Behind the first file stands nothing any more, as where the power took what was not flushed.
    let behind = &files()[1..];
    assert!(!behind.is_empty());
    for file in behind {
        fs::write(file, vec![0; 65_536]).expect("written");
    }
    let marks = copied.path().join("lakemq/watermarks");
    let mut bytes = fs::read(&marks).expect("marks");
    for mark in 1..5 {
        bytes[mark * 8..mark * 8 + 8].copy_from_slice(&60_000u64.to_ne_bytes());
    }
    fs::write(&marks, bytes).expect("written");
    let store = open(copied.path());
    let left = bodies(&store, "t");
    assert!(left.len() > 40 && left.len() < 120, "{}", left.len());
    assert_eq!(left, sent[..left.len()]);
    let (end, ..) = store.watermarks();
    assert_eq!(store.report().end_offset, end);
    assert!(end > 60_000 && end <= 65_536, "{end}");
    send(&store, "t", &["next"]);
    assert_eq!(bodies(&store, "t").len(), left.len() + 1);
}

#[test]
fn test_a_topic_deleted_behind_the_snapshot_is_not_repaired_and_all_else_is() {
    let dir = scratch();
    let store = open(dir.path());
    send(&store, "gone", &["a"]);
    send(&store, "stays", &["b"]);
    let busy = bulk(&store, "busy", 150);
    store.checkpoint().expect("taken");
    let end = store.delete_topic("gone").expect("deleted");
    assert!(store.wait_dispatched(end, crate::support::SOON));
    let copied = killed(dir.path());
    closed(store);
    let other = killed(copied.path());
    fs::remove_dir_all(other.path().join("consumequeue/stays")).expect("removed");
    let store = at_rest(copied.path());
    assert!(store.report().records < 5, "{:?}", store.report());
    assert_eq!(store.report().repaired_queues, 0);
    let store = at_rest(other.path());
    assert_eq!(store.report().repaired_queues, 1);
    assert!(store.report().records > 150, "{:?}", store.report());
    assert_eq!(bodies(&store, "stays"), ["b"]);
    assert_eq!(bodies(&store, "busy"), busy);
    assert!(store.topic("gone").is_none());
}

#[test]
fn test_a_rebuild_without_its_snapshot_goes_by_what_the_files_hold() {
    let dir = scratch();
    let store = open(dir.path());
    let sent = bulk(&store, "t", 70);
    send(&store, "gone", &["a"]);
    let end = store.delete_topic("gone").expect("deleted");
    assert!(store.wait_dispatched(end, crate::support::SOON));
    send(&store, "gone", &["b"]);
    closed(store);
    for name in ["snapshot.json", "snapshot.json.bak"] {
        let _ = fs::remove_file(dir.path().join("lakemq").join(name));
    }
    let store = at_rest(dir.path());
    let report = store.report();
    assert!(report.rebuilt && report.from_offset == 0);
    assert_eq!(bodies(&store, "t"), sent);
    assert_eq!(bodies(&store, "gone"), ["b"]);
    for body in [&sent[0], &sent[69]] {
        let found = crate::support::FindJson::messages_json(
            &store,
            "t",
            &format!("key-{body}"),
            (0, i64::MAX),
            10,
        );
        assert_eq!(found.expect("searched").len(), 1);
    }
}

#[test]
fn test_a_start_of_a_new_directory_says_nothing_of_a_rebuild() {
    let dir = scratch();
    let clock: Arc<JumpingClock> = JumpingClock::at(DAY);
    let environment = Environment {
        clock,
        ..environment()
    };
    let store = Store::open_at_rest(dir.path(), options(), environment).expect("a store");
    let report = store.report();
    assert_eq!((report.from_offset, report.end_offset), (0, 0));
    assert!(!report.rebuilt && report.elapsed_ms == 0, "{report:?}");
}

#[test]
fn test_an_index_that_was_lost_is_built_whole_although_a_topic_is_deleted_behind_the_snapshot() {
    let dir = scratch();
    let store = open(dir.path());
    send(&store, "gone", &["a"]);
    let busy = bulk(&store, "busy", 150);
    store.checkpoint().expect("taken");
    let end = store.delete_topic("gone").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    let copied = killed(dir.path());
    closed(store);
    fs::remove_dir_all(copied.path().join("index")).expect("removed");
    let store = at_rest(copied.path());
    for number in [0, 75, 149] {
        let key = format!("key-{}", busy[number]);
        let found = store
            .messages_json("busy", &key, (0, i64::MAX), 10)
            .expect("searched");
        assert_eq!(found.len(), 1, "{key}");
    }
}
