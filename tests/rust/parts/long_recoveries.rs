//! Starts that read more of the log than one write of queue entries takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lakemq_store::environment::Environment;
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Options, Store, Work};

use crate::support::{FindJson, bodies, copy, environment, options, request};

fn large() -> Options {
    Options {
        commitlog_file_size: 4 << 20,
        ..options()
    }
}

fn hooked(hook: impl Fn(Point) + Send + Sync + 'static) -> Environment {
    Environment {
        faults: Arc::new(FaultPoints::hooked(hook)),
        ..environment()
    }
}

fn key(number: usize) -> String {
    format!("key-{number}")
}

/// A store with records of 30 KB, those from `checkpoint` on behind its snapshot.
fn filled(root: &Path, count: usize, checkpoint: usize) -> Store {
    let store = Store::open_at_rest(root, large(), environment()).expect("a store");
    for number in 0..count {
        if number == checkpoint {
            store.checkpoint().expect("taken");
        }
        let message = NewMessage {
            body: format!("{number}-{}", "x".repeat(30_000))
                .into_bytes()
                .into(),
            keys: Some(key(number).into()),
            queue_id: Some(0),
            ..NewMessage::default()
        };
        store.append(&request("t"), &[message]).expect("stored");
        store.work(Work::Flush).expect("flushed");
    }
    store
}

#[test]
fn test_queue_entries_are_written_once_a_mebibyte_and_at_the_end() {
    let (dir, copied) = (scratch(), scratch());
    let store = filled(dir.path(), 65, 20);
    copy(dir.path(), copied.path());
    let written = Arc::new(AtomicUsize::new(0));
    let counted = {
        let written = Arc::clone(&written);
        move |point| {
            written.fetch_add(usize::from(point == Point::DispatchMid), Ordering::SeqCst);
        }
    };
    let again = Store::open_at_rest(copied.path(), large(), hooked(counted)).expect("a store");
    assert_eq!(again.report().records, 45);
    assert_eq!(written.load(Ordering::SeqCst), 2);
    assert_eq!(bodies(&again, "t"), bodies(&store, "t"));
}

#[test]
fn test_a_rebuild_that_is_killed_leaves_an_index_that_the_next_start_does_not_trust() {
    let (dir, copied) = (scratch(), scratch());
    let store = filled(dir.path(), 65, 0);
    store.close().expect("closed");
    drop(store);
    let copies = AtomicUsize::new(0);
    let (from, to) = (dir.path().to_owned(), copied.path().to_owned());
    let killing = move |point| {
        // A mebibyte of the log is indexed again.
        if point == Point::DispatchMid && copies.fetch_add(1, Ordering::SeqCst) == 0 {
            copy(&from, &to);
        }
    };
    Store::rebuild(dir.path(), large(), hooked(killing)).expect("rebuilt");
    let store = Store::open_at_rest(copied.path(), large(), environment()).expect("a store");
    assert_eq!(bodies(&store, "t").len(), 65);
    for number in 0..65 {
        let found = store.messages_json("t", &key(number), (0, i64::MAX), 10);
        assert_eq!(found.expect("searched").len(), 1, "{}", key(number));
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}
