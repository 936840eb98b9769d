//! Two stores, a master and a slave, and how the one follows the other.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::support::*;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, GroupChange, Options, Role, Store, TopicChange};
use std::collections::BTreeMap;
use std::path::Path;

pub fn open_slave(path: &Path) -> Store {
    let options = Options {
        role: Role::Slave,
        ..options()
    };
    Store::open(path, options, environment()).expect("a store")
}

/// Brings the slave up to its master's flushed end, a few bytes at a time.
pub fn follow(master: &Store, slave: &Store, max_bytes: usize) -> i64 {
    let (_, epoch) = master.role();
    let (appended, ..) = master.watermarks();
    assert!(master.wait_flushed(appended, SOON));
    loop {
        let (at, ..) = slave.watermarks();
        let range = master.read_log(at, max_bytes).expect("bytes");
        if range.next_offset == at {
            assert!(slave.wait_flushed(at, SOON));
            return at;
        }
        slave.append_replicated(epoch, &range).expect("appended");
    }
}

/// The log's files as they lie on the disk.
pub fn log_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    image(&root.join("commitlog"))
        .into_iter()
        .map(|(path, bytes)| (path.to_string_lossy().into_owned(), bytes))
        .collect()
}

pub fn mixed(store: &Store) -> i64 {
    bulk(store, "t", 150);
    store
        .put_topic("made", &TopicChange::default())
        .expect("made");
    store
        .put_group(
            "g",
            &GroupChange {
                retry_max_times: Some(3),
                ..GroupChange::default()
            },
        )
        .expect("a group");
    let keyed = AppendRequest {
        idempotency_key: Some("once"),
        ..request("t")
    };
    let batch: Vec<NewMessage<'_>> = ["a", "b", "c"].iter().map(|body| message(body)).collect();
    store.append(&keyed, &batch).expect("stored");
    bulk(store, "u", 150);
    store.delete_topic("made").expect("deleted");
    let (end, ..) = store.watermarks();
    assert!(store.wait_dispatched(end, SOON));
    end
}

pub fn bulk_unconfirmed(store: &Store, numbers: std::ops::Range<usize>) {
    for at in numbers {
        let body = format!("{at} {}", "x".repeat(600));
        store
            .append(&request("t"), &[message(&body)])
            .expect("stored");
    }
}

pub fn pair() -> (tempfile::TempDir, tempfile::TempDir, Store, Store) {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    (a, b, master, slave)
}

pub fn send_unconfirmed(store: &Store, body: &str) {
    store
        .append(&request("t"), &[message(body)])
        .expect("stored");
}
