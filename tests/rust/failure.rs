//! The store when something fails: a crash, a torn tail, damage, a full disk, a flush that fails.
//!
//! Contract: what was flushed is never lost; a request of several messages is stored all or none; queues
//! and index can be deleted in any combination and come back byte for byte.

mod at_once;
mod durable;
mod expiry;
mod gathering;
mod kept_back;
mod kill_9;
mod numbers;
mod panics;
mod restart;
mod rolls;
mod support;
mod waiting;
mod writeback;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lakemq_store::faults::FaultPoints;
use lakemq_store::filter::Filter;
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use support::{SOON, bodies, bulk, copy, image, message, open, open_on_flaky_disk, request, send};

#[test]
fn test_a_crash_loses_nothing_that_was_flushed_and_offsets_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut expected = bulk(&store, "t", 120);
    copy(dir.path(), crashed.path());
    let store = open(crashed.path());
    assert!(!store.report().clean);
    assert_eq!(bodies(&store, "t"), expected);
    send(&store, "t", &["next"]);
    expected.push("next".into());
    assert_eq!(bodies(&store, "t"), expected);
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 121);
}

#[test]
fn test_a_tail_torn_at_any_byte_of_the_last_request_leaves_what_came_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["one", "two"]);
    let before = store.watermarks().0;
    let scratch = tempfile::tempdir().expect("a directory");
    let (early, torn) = (scratch.path().join("early"), scratch.path().join("torn"));
    copy(dir.path(), &early);
    let end = send(&store, "t", &["three", "four", "five"]).end_offset;
    let log = fs::read(dir.path().join("commitlog").join("0".repeat(20))).expect("the log");
    for cut in before..end {
        copy(&early, &torn);
        let mut bytes = log.clone();
        bytes[cut as usize..].fill(0);
        fs::write(torn.join("commitlog").join("0".repeat(20)), bytes).expect("written");
        let store = open(&torn);
        assert_eq!(
            bodies(&store, "t"),
            ["one", "two"],
            "cut at {cut} of {before}..{end}: the request is all or nothing, {:?}",
            store.report()
        );
        send(&store, "t", &["after"]);
        assert_eq!(bodies(&store, "t"), ["one", "two", "after"]);
        drop(store);
        fs::remove_dir_all(&torn).expect("removed");
    }
}

#[test]
fn test_any_subset_of_derived_files_is_rebuilt_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 130);
    bulk(&store, "u", 70);
    store.close().expect("closed");
    drop(store);
    let derived = [
        "consumequeue",
        "index",
        "checkpoint",
        "lakemq/snapshot.json",
    ];
    let expected: Vec<_> = derived[..3]
        .iter()
        .map(|d| image(&dir.path().join(d)))
        .collect();
    let checkpoint = fs::read(dir.path().join("checkpoint")).expect("a checkpoint");
    for subset in 1u32..16 {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        for (at, name) in derived
            .iter()
            .enumerate()
            .filter(|(at, _)| subset & (1 << at) != 0)
        {
            let path = copied.path().join(name);
            let gone = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            gone.unwrap_or_else(|e| panic!("{name} ({at}): {e}"));
            if *name == "lakemq/snapshot.json" {
                let _ = fs::remove_file(copied.path().join("lakemq/snapshot.json.bak"));
            }
        }
        open(copied.path()).close().expect("closed");
        for (name, expected) in derived[..3].iter().zip(&expected) {
            assert!(
                image(&copied.path().join(name)) == *expected,
                "{name} differs after subset {subset:b}"
            );
        }
        assert_eq!(
            fs::read(copied.path().join("checkpoint")).expect("a checkpoint"),
            checkpoint
        );
    }
}

#[test]
fn test_damage_in_the_middle_is_quarantined_and_what_follows_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 30);
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
    fs::remove_dir_all(dir.path().join("consumequeue")).expect("removed");
    let store = open(dir.path());
    assert!(store.report().quarantined_bytes > 500 && store.report().truncated_bytes == 0);
    let everything = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 1000,
        max_bytes: usize::MAX,
        filter: Filter::of_tags("*").expect("a filter"),
    };
    let mut read = Vec::new();
    let mut damaged = Vec::new();
    let mut request = everything;
    while request.offset < 30 {
        let meta = store
            .read("t", 0, &request, |record, _| {
                read.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        damaged.extend(meta.damaged);
        request.offset = meta.next_offset;
    }
    assert_eq!(damaged, [(12, 13)]);
    assert_eq!(read.len(), 29);
    assert!(!read.contains(&expected[12]));
}

#[test]
fn test_a_failed_flush_is_final() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_on_flaky_disk(dir.path());
    send(&store, "t", &["safe"]);
    disk.fail_sync.store(true, Ordering::SeqCst);
    let done = store
        .append(&request("t"), &[message("lost")])
        .expect("in memory");
    assert!(
        !store.wait_flushed(done.end_offset, SOON),
        "never acknowledged"
    );
    disk.fail_sync.store(false, Ordering::SeqCst);
    let refused = store
        .append(&request("t"), &[message("later")])
        .expect_err("read-only");
    assert_eq!(refused.code(), "STORE_POISONED");
    assert_eq!(
        bodies(&store, "t"),
        ["safe"],
        "what is not flushed is not shown"
    );
}

#[test]
fn test_nothing_is_acknowledged_into_a_log_that_was_removed_moved_or_replaced() {
    type Hand = fn(&Path, &Path) -> io::Result<()>;
    let hands: [(&str, Hand); 5] = [
        ("removed", |_, log| fs::remove_file(log)),
        ("its directory removed", |store, _| {
            fs::remove_dir_all(store.join("commitlog"))
        }),
        ("the store moved", |store, _| {
            fs::rename(store, store.with_extension("elsewhere"))
        }),
        ("emptied in its place", |_, log| {
            fs::File::options().write(true).open(log)?.set_len(0)
        }),
        ("replaced by a copy", |store, log| {
            fs::rename(log, store.join("old"))?;
            fs::copy(store.join("old"), log).map(drop)
        }),
    ];
    for (what, hand) in hands {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store");
        let store = open(&path);
        send(&store, "t", &["safe"]);
        let log = path.join("commitlog").join("0".repeat(20));
        hand(&path, &log).expect(what);
        // Refused where the look of an idle store came first.
        let stored = store.append(&request("t"), &[message("lost")]);
        let acknowledged = stored.is_ok_and(|done| store.wait_flushed(done.end_offset, SOON));
        assert!(!acknowledged, "{what}");
        let refused = store
            .append(&request("t"), &[message("later")])
            .expect_err(what);
        assert_eq!(refused.code(), "STORE_POISONED", "{what}");
        assert!(
            refused.detail().contains(&*log.to_string_lossy()),
            "{what}: {refused}"
        );
        if what != "emptied in its place" {
            assert_eq!(bodies(&store, "t"), ["safe"], "{what}: reads go on");
        }
    }
}

#[test]
fn test_an_idle_store_notices_that_its_log_was_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["lost"]);
    fs::remove_dir_all(dir.path().join("commitlog")).expect("removed");
    assert!(store.progress_wait(SOON, || store.poisoned().is_some()));
}

#[test]
fn test_a_store_that_was_moved_writes_nothing_into_the_one_that_has_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let moved = open(&path);
    send(&moved, "old", &["moved along"]);
    fs::rename(&path, dir.path().join("elsewhere")).expect("moved");
    assert!(moved.progress_wait(SOON, || moved.poisoned().is_some()));
    let new = open(&path);
    send(&new, "t", &["safe"]);
    new.checkpoint().expect("its own");
    let names = ["lakemq/snapshot.json", "config/topics.json", "abort"];
    let files = || names.map(|name| fs::read(path.join(name)).expect(name));
    let log = || {
        fs::read_dir(path.join("commitlog"))
            .expect("the log")
            .count()
    };
    let before = (files(), log());
    let refused = moved.checkpoint().expect_err("no longer its place");
    assert_eq!(refused.code(), "STORE_POISONED");
    drop(moved);
    assert_eq!((files(), log()), before);
    assert_eq!(bodies(&new, "t"), ["safe"]);
}

#[test]
fn test_a_store_that_writes_its_last_file_notices_that_an_older_one_was_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 1_000);
    let files = dir.path().join("commitlog");
    let count = || fs::read_dir(&files).expect("the log").count();
    assert!(count() > 2, "{}", count());
    fs::remove_file(files.join("0".repeat(20))).expect("removed");
    assert!(store.progress_wait(SOON, || store.poisoned().is_some()));
    let refused = store
        .append(&request("t"), &[message("later")])
        .expect_err("acknowledged messages are gone");
    assert_eq!(refused.code(), "STORE_POISONED");
}

#[test]
fn test_a_failed_write_to_the_log_is_final_and_half_a_request_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_on_flaky_disk(dir.path());
    let mut expected = bulk(&store, "t", 20);
    disk.fail_write.store(true, Ordering::SeqCst);
    let texts: Vec<String> = (0..20).map(|at| format!("{at:0200}")).collect();
    let request_of_many: Vec<_> = texts.iter().map(|text| message(text)).collect();
    let failed = store
        .append(&request("t"), &request_of_many)
        .expect_err("half of it stands behind the log's end");
    assert_eq!(failed.code(), "STORE_POISONED");
    disk.fail_write.store(false, Ordering::SeqCst);
    let refused = store
        .append(&request("t"), &[message("later")])
        .expect_err("read-only");
    assert_eq!(refused.code(), "STORE_POISONED");
    assert_eq!(bodies(&store, "t"), expected);
    drop(store);
    let store = open(dir.path());
    assert!(store.report().truncated_bytes > 0);
    assert_eq!(bodies(&store, "t"), expected);
    send(&store, "t", &["after"]);
    expected.push("after".into());
    assert_eq!(bodies(&store, "t"), expected);
}

#[test]
fn test_a_full_disk_refuses_cleanly_and_service_returns() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_on_flaky_disk(dir.path());
    let mut expected = bulk(&store, "t", 20);
    disk.full.store(true, Ordering::SeqCst);
    let body = "y".repeat(10_000);
    let mut stored = 0;
    let refused = loop {
        match store.append(&request("t"), &[message(&body)]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), "DISK_FULL");
    let before = store.watermarks().0;
    let refused = store
        .append(&request("new"), &[message(&body)])
        .expect_err("there is no room");
    assert_eq!(refused.code(), "DISK_FULL");
    assert_eq!(
        store.watermarks().0,
        before,
        "a refused request writes nothing"
    );
    assert!(
        store.topic("new").is_none(),
        "a refused first message makes no topic"
    );
    disk.full.store(false, Ordering::SeqCst);
    send(&store, "t", &["after"]);
    expected.extend(std::iter::repeat_n(body, stored));
    expected.push("after".into());
    assert_eq!(bodies(&store, "t"), expected);
}

#[test]
fn test_a_config_file_that_cannot_be_written_stops_no_acknowledgement_and_no_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["one"]);
    let reader = Reader::open(dir.path()).expect("a reader");
    let topics = dir.path().join("config/topics.json");
    let tick = Duration::from_millis(20);
    let has = |topic: &str| {
        let named = format!("\"{topic}\"");
        fs::read_to_string(&topics).is_ok_and(|text| text.contains(&named))
    };
    let comes = |topic: &str| (0..1000).any(|_| store.progress_wait(tick, || has(topic)));
    assert!(comes("t"));
    let before = fs::read(&topics).expect("a file");
    fs::remove_file(&topics).expect("removed");
    fs::create_dir_all(topics.join("in the way")).expect("a directory no file can replace");
    let failures = || {
        let stats = store.stats();
        let found = stats.iter().find(|(n, _)| *n == "config_errors_total");
        found.map_or(0.0, |(_, count)| *count)
    };
    send(&store, "u", &["two"]);
    assert!((0..1000).any(|_| store.progress_wait(tick, || failures() > 0.0)));
    send(&store, "v", &["three"]);
    store.checkpoint().expect("taken all the same");
    let known = reader.topics().expect("by the log");
    assert!(known["u"].write_queue_nums > 0 && known["v"].write_queue_nums > 0);
    fs::remove_dir_all(&topics).expect("removed");
    assert!(comes("v"), "written when it can be");
    // A reader that knows only the file of before follows the log.
    fs::write(&topics, before).expect("put back");
    let late = Reader::open(dir.path()).expect("a reader");
    assert!(late.topics().expect("by the log")["v"].write_queue_nums > 0);
}

#[test]
fn test_faults_are_read_and_refused_by_name() {
    assert!(FaultPoints::parse("append.mid:3,roll").is_ok_and(|f| f.is_set()));
    assert!(FaultPoints::parse("").is_ok_and(|f| !f.is_set()));
    assert!(FaultPoints::parse("flush.before:2:panic").is_ok_and(|f| f.is_set()));
    assert!(FaultPoints::parse("flush.before:2:sleep").is_err());
    assert_eq!(
        FaultPoints::parse("nowhere:1").expect_err("unknown").code(),
        "ARGUMENT_ILLEGAL"
    );
}
