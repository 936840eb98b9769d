//! A slave's store made from that of a master whose first log files have expired.
//!
//! Contract: it has what its master has: messages under the same offsets, topics, groups, keys; it follows from there;
//! what was begun and not finished is no store, and is begun anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::bootstrap::Bootstrap;
use lakemq_store::environment::Environment;
use lakemq_store::inspect::verify;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Options, Role, Store};

use crate::pair::{bulk_unconfirmed, follow, log_files, mixed, open_slave};
use crate::support::*;

fn keyed(key: &str) -> AppendRequest<'_> {
    AppendRequest {
        idempotency_key: Some(key),
        ..request("t")
    }
}

const FILE: u64 = 64 * 1024;

/// A master whose log begins at a later file, and a day has passed.
fn aged(path: &Path) -> (Store, Environment) {
    let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let store = Store::open(path, options(), environment.clone()).expect("a store");
    mixed(&store);
    store
        .append(&keyed("old"), &[message("old")])
        .expect("stored");
    bulk(&store, "t", 300);
    clock.0.fetch_add(100 * 3_600_000, Ordering::SeqCst);
    mixed(&store);
    store
        .append(&keyed("new"), &[message("new")])
        .expect("stored");
    let (end, ..) = store.watermarks();
    assert!(store.wait_dispatched(end, SOON));
    assert!(store.expire(store.now_ms(), true).expect("expired") > 0);
    assert!(store.log_min_offset() > 0);
    (store, environment)
}

/// Copies the master's log up to the snapshot's offset at least; returns what makes it a store.
fn copied(master: &Store, path: &Path) -> (Bootstrap, Vec<u8>) {
    let first = master.log_min_offset();
    let (offset, snapshot) = master.bootstrap_snapshot().expect("a snapshot");
    let mut bootstrap = Bootstrap::begin(path, FILE, first, environment()).expect("begun");
    while bootstrap.end() < offset {
        let range = master.read_log(bootstrap.end(), 5_000).expect("bytes");
        bootstrap
            .append(range.offset, &range.bytes, range.next_offset)
            .expect("appended");
    }
    (bootstrap, snapshot)
}

#[test]
fn test_a_slave_made_from_its_masters_store_has_all_of_it_and_follows() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, _) = aged(a.path());
    master.checkpoint().expect("a snapshot");
    let (bootstrap, snapshot) = copied(&master, b.path());
    bootstrap
        .finish(&snapshot, master.epochs())
        .expect("finished");
    let slave = open_slave(b.path());
    bulk_unconfirmed(&master, 0..200);
    let end = follow(&master, &slave, 5_000);
    slave.replicated(end);
    assert!(slave.wait_dispatched(end, SOON));
    for topic in ["t", "u"] {
        assert_eq!(bodies(&slave, topic), bodies(&master, topic), "{topic}");
        assert_eq!(
            slave.queues(topic).expect("queues"),
            master.queues(topic).expect("queues"),
            "{topic}"
        );
    }
    assert_eq!(slave.topics(), master.topics());
    assert_eq!(slave.groups(), master.groups());
    assert_eq!(slave.log_min_offset(), master.log_min_offset());
    assert_eq!(log_files(b.path()), log_files(a.path()));
    assert_eq!(slave.epochs(), master.epochs());
    let found = |store: &Store| {
        store
            .messages_json("t", "key-new", (0, i64::MAX), 10)
            .expect("searched")
    };
    assert!(!found(&master).is_empty(), "found by its key");
    assert_eq!(found(&slave), found(&master));
    // As a master it knows the keys, and goes on with the queues' offsets.
    let next = slave.epochs().last().expect("an epoch").epoch + 1;
    slave.become_master(next, false).expect("promoted");
    let again = slave
        .append(&keyed("new"), &[message("new")])
        .expect("known");
    assert!(again.duplicate);
    let before = slave.bounds("t", 0).expect("bounds").max;
    let done = send(&slave, "t", &["behind the master's"]);
    assert_eq!(
        (done.placed[0].queue_id, done.placed[0].queue_offset),
        (0, before)
    );
    slave.close().expect("closed");
    drop(slave);
    let options = Options {
        role: Role::Master,
        ..options()
    };
    Store::open(b.path(), options, environment()).expect("a store as any other");
}

#[test]
fn test_what_was_begun_and_not_finished_is_no_store_and_is_begun_anew() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, _) = aged(a.path());
    master.checkpoint().expect("a snapshot");
    let (bootstrap, snapshot) = copied(&master, b.path());
    assert_eq!(
        Store::open(b.path(), options(), environment())
            .map(drop)
            .expect_err("refused")
            .code(),
        "STORE_LOCKED"
    );
    drop(bootstrap);
    for refused in [
        Store::open(b.path(), options(), environment()).map(drop),
        Reader::open(b.path()).map(drop),
    ] {
        assert_eq!(refused.expect_err("refused").code(), "DATA_CORRUPT");
    }
    assert!(Bootstrap::is_wanted(b.path()).expect("looked"));
    // Of another part of the log, or damaged: refused, and begun anew.
    let (bootstrap, _) = copied(&master, b.path());
    let mut damaged = snapshot.clone();
    damaged[30] ^= 1;
    assert_eq!(
        bootstrap
            .finish(&damaged, master.epochs())
            .expect_err("refused")
            .code(),
        "DATA_CORRUPT"
    );
    let bootstrap = Bootstrap::begin(b.path(), FILE, 0, environment()).expect("begun");
    assert_eq!(
        bootstrap
            .finish(&snapshot, master.epochs())
            .expect_err("refused")
            .code(),
        "DATA_CORRUPT"
    );
    let (bootstrap, snapshot) = copied(&master, b.path());
    bootstrap
        .finish(&snapshot, master.epochs())
        .expect("finished");
    assert!(!Bootstrap::is_wanted(b.path()).expect("looked"));
    let again = Bootstrap::begin(b.path(), FILE, 0, environment()).map(drop);
    assert_eq!(
        again.expect_err("it holds messages").code(),
        "ARGUMENT_ILLEGAL"
    );
}

#[test]
fn test_only_the_next_range_is_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let size = FILE as i64;
    let mut bootstrap = Bootstrap::begin(dir.path(), FILE, size, environment()).expect("begun");
    for (offset, length, next) in [
        (0, 10, 10),
        (size + 1, 10, size + 11),
        (size, 10, size + 11),
        (size, 10, size + 5),
        (size, 10, size * 3),
        (size, size + 1, size * 2 + 1),
    ] {
        let refused = bootstrap.append(offset, &vec![1; length as usize], next);
        assert_eq!(
            refused.expect_err("refused").code(),
            "OFFSET_ILLEGAL",
            "{offset} {length} {next}"
        );
    }
    bootstrap
        .append(size, &[1; 10], size * 2)
        .expect("the file's end");
    bootstrap
        .append(size * 2, &[2; 10], size * 2 + 10)
        .expect("the next file");
    assert_eq!(bootstrap.end(), size * 2 + 10);
}

#[test]
fn test_what_was_begun_and_is_not_needed_leaves_an_empty_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bootstrap = Bootstrap::begin(dir.path(), FILE, 0, environment()).expect("begun");
    bootstrap.append(0, &[1; 10], 10).expect("appended");
    bootstrap.abandon().expect("given up");
    let store = open_slave(dir.path());
    assert_eq!(store.watermarks(), (0, 0, 0, 0));
}

#[test]
fn test_a_reader_of_the_store_before_says_that_it_was_replaced() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, _) = aged(a.path());
    master.checkpoint().expect("a snapshot");
    open_slave(b.path()).close().expect("closed");
    for file in log_files(b.path()).keys() {
        std::fs::remove_file(b.path().join("commitlog").join(file)).expect("an empty log");
    }
    let reader = Reader::open(b.path()).expect("a reader");
    assert!(reader.is_current());
    let replaced = |reader: &Reader| {
        let answers = [
            reader.topics().map(drop),
            reader.queues("t").map(drop),
            reader.bounds("t", 0).map(drop),
            reader.offset_by_time("t", 0, 0).map(drop),
            reader.find("t", "key-new", (0, i64::MAX), 1, |_| Ok(true)),
            reader.find_by_id("00", None, |_| Ok(())).map(drop),
        ];
        answers
            .map(|answer| answer.map_or_else(|e| e.code().to_owned(), |()| "answered".to_owned()))
    };
    let (bootstrap, snapshot) = copied(&master, b.path());
    assert_eq!(replaced(&reader), ["STORE_CLOSED"; 6], "while it is made");
    bootstrap
        .finish(&snapshot, master.epochs())
        .expect("finished");
    let slave = open_slave(b.path());
    slave.replicated(follow(&master, &slave, 5_000));
    assert_eq!(replaced(&reader), ["STORE_CLOSED"; 6], "another store");
    assert!(!reader.is_current());
    let again = Reader::open(b.path()).expect("opened anew");
    assert!(again.is_current());
    assert!(again.topics().expect("topics").contains_key("t"));
}

#[test]
fn test_what_is_still_being_made_passes_no_verification() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bootstrap = Bootstrap::begin(dir.path(), FILE, 0, environment()).expect("begun");
    bootstrap.append(0, &[0; 10], 10).expect("appended");
    drop(bootstrap);
    let refused = verify(dir.path()).expect_err("no store yet");
    assert_eq!(refused.code(), "DATA_CORRUPT");
    assert!(
        refused.detail().contains("being made from its master's"),
        "{refused}"
    );
}

#[test]
fn test_keys_that_came_in_the_log_alone_are_no_alarm() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, _) = aged(a.path());
    master.checkpoint().expect("a snapshot");
    let (bootstrap, snapshot) = copied(&master, b.path());
    bootstrap
        .finish(&snapshot, master.epochs())
        .expect("finished");
    let environment = environment();
    let slave = Options {
        role: Role::Slave,
        ..options()
    };
    let slave = Store::open(b.path(), slave, environment.clone()).expect("a store");
    let said: Vec<String> = environment
        .events
        .take()
        .into_iter()
        .map(|e| e.text)
        .collect();
    assert_eq!(said, Vec::<String>::new());
    // They are known, and the file has them from now on.
    slave.close().expect("closed");
    let text =
        std::fs::read_to_string(b.path().join("lakemq/idempotence.keys")).expect("a file of keys");
    assert!(text.contains(" new\n"), "{text}");
}
