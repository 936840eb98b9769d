//! A checkpoint beside a round of the dispatcher that failed.
//!
//! Contract: what the round could not store is no part of the snapshot, and what the snapshot holds is in the queues:
//! a start after it shows every message that is in the log.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use lakemq_store::environment::Environment;
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::reader::Reader;
use lakemq_store::store::{Store, Work};

use crate::support::{
    FindJson, FlakyDisk, bodies, copy, environment, message, open, options, read_beside, request,
};

fn at_rest(path: &Path) -> (Store, Arc<FlakyDisk>) {
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open_at_rest(path, options(), environment);
    (store.expect("a store"), disk)
}

/// A store at rest with a message in the topic `t`, and a reader that looked at the topic between the queues and the
/// mark, which says that there is something in them.
fn looked_at_too_early(path: &Path) -> (Store, Arc<OnceLock<Reader>>) {
    let reader: Arc<OnceLock<Reader>> = Arc::default();
    let look = {
        let (reader, looked) = (Arc::clone(&reader), AtomicBool::new(false));
        move |point| {
            if let (Point::DispatchMid, Some(reader)) = (point, reader.get())
                && !looked.swap(true, Ordering::SeqCst)
            {
                reader.bounds("t", 0).expect("a look");
            }
        }
    };
    let environment = Environment {
        faults: Arc::new(FaultPoints::hooked(look)),
        ..environment()
    };
    let store = Store::open_at_rest(path, options(), environment).expect("a store");
    let opened = Reader::open(path).expect("a reader");
    reader.set(opened).expect("the first");
    store
        .append(&request("t"), &[message("old")])
        .expect("stored");
    store.work(Work::Flush).expect("flushed");
    (store, reader)
}

#[test]
fn test_a_reader_that_looked_at_a_topic_too_early_sees_the_one_that_is_made_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, reader) = looked_at_too_early(dir.path());
    store.delete_topic("t").expect("deleted");
    store
        .append(&request("t"), &[message("new")])
        .expect("stored");
    store.work(Work::Flush).expect("flushed");
    let reader = reader.get().expect("open");
    assert_eq!(read_beside(reader, "t", 0), ["new"]);
}

#[test]
fn test_a_reader_that_looked_at_a_topic_too_early_sees_nothing_of_it_once_it_is_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, reader) = looked_at_too_early(dir.path());
    store.delete_topic("t").expect("deleted");
    store.work(Work::Flush).expect("flushed");
    let bounds = reader.get().expect("open").bounds("t", 0).expect("a look");
    assert_eq!((bounds.min, bounds.max), (0, 0));
}

#[test]
fn test_a_record_whose_index_entry_failed_is_shown_after_a_checkpoint_and_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = at_rest(dir.path());
    store
        .append(&request("t"), &[message("stored")])
        .expect("stored");
    // The index has no room yet for its first entry.
    disk.full.store(true, Ordering::SeqCst);
    store.work(Work::Flush).expect("flushed");
    assert!(store.dispatch_failure().is_some());
    disk.full.store(false, Ordering::SeqCst);
    store.checkpoint().expect("taken");
    let crashed = tempfile::tempdir().expect("a directory");
    copy(dir.path(), crashed.path());
    let store = open(crashed.path());
    assert_eq!(bodies(&store, "t"), ["stored"]);
    let found = store.messages_json("t", "key-stored", (0, i64::MAX), 10);
    assert_eq!(found.expect("searched").len(), 1);
}
