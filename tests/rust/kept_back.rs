//! A checkpoint beside a round of the dispatcher that failed.
//!
//! Contract: what the round could not store is no part of the snapshot, and what the snapshot holds is in the queues:
//! a start after it shows every message that is in the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemq_store::environment::Environment;
use lakemq_store::store::{Store, Work};

use crate::support::{FlakyDisk, bodies, copy, environment, message, open, options, request};

fn at_rest(path: &Path) -> (Store, Arc<FlakyDisk>) {
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open_at_rest(path, options(), environment);
    (store.expect("a store"), disk)
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
    let found = store.find("t", "key-stored", (0, i64::MAX), 10);
    assert_eq!(found.expect("searched").len(), 1);
}
