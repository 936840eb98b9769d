//! The confirmed mark: what a failover may take back is in no queue, no index, no state and no snapshot.
//!
//! Contract: appended >= flushed >= confirmed >= dispatched; where replicas are asked, nothing behind what they
//! hold is confirmed, and nothing behind what is confirmed is dispatched, not even by a checkpoint or a stop.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::environment::{Environment, RealDisk};
use lakemq_store::message::NewMessage;
use lakemq_store::paths::StorePaths;
use lakemq_store::snapshot::Snapshot;
use lakemq_store::store::{Options, Store, TopicChange, Work};
use support::*;

/// A master that asks its replicas, without threads.
fn open_synchronous(path: &Path, clock: &Arc<TestClock>) -> Store {
    let options = Options {
        asks_replicas: true,
        ..options()
    };
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    Store::open_at_rest(path, options, environment).expect("a store")
}

fn clock() -> Arc<TestClock> {
    Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)))
}

/// Has the replicas confirm all that was appended.
fn confirm(store: &Store) {
    store.work(Work::Flush).expect("flushed");
    store.replicated(store.watermarks().1);
    store.work(Work::Dispatch).expect("dispatched");
}

fn newest_snapshot(root: &Path) -> Snapshot {
    let snapshot = Snapshot::read(&StorePaths::new(root), &RealDisk);
    snapshot.expect("readable").expect("a snapshot")
}

#[test]
fn test_nothing_is_dispatched_before_the_replicas_hold_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let first = send(&store, "t", &["one"]);
    store.ask_replicas(Some(first.end_offset));
    let second = store
        .append(&request("t"), &[message("two")])
        .expect("stored");
    let third = store
        .append(&request("t"), &[message("three")])
        .expect("stored");
    let changed = store
        .put_topic("later", &TopicChange::default())
        .expect("changed");
    assert!(store.wait_flushed(changed, SOON));
    store.checkpoint().expect("a checkpoint");
    let (appended, flushed, dispatched, confirmed) = store.watermarks();
    assert_eq!((appended, flushed), (changed, changed));
    assert_eq!(
        (dispatched, confirmed),
        (first.end_offset, first.end_offset)
    );
    assert_eq!(bodies(&store, "t"), ["one"]);
    assert!(
        store
            .messages_json("t", "key-two", (0, i64::MAX), 10)
            .expect("a look")
            .is_empty()
    );
    assert!(!store.topics().contains_key("later"));
    let snapshot = newest_snapshot(dir.path());
    assert_eq!(snapshot.applied_offset, first.end_offset);

    store.replicated(second.end_offset);
    assert!(store.wait_dispatched(second.end_offset, SOON));
    assert_eq!(bodies(&store, "t"), ["one", "two"]);
    store.replicated(first.end_offset);
    assert_eq!(
        store.watermarks().3,
        second.end_offset,
        "what is confirmed is never taken back"
    );
    assert_eq!(store.watermarks().2, second.end_offset);

    store.ask_replicas(None);
    assert!(store.wait_dispatched(changed, SOON));
    assert_eq!(bodies(&store, "t"), ["one", "two", "three"]);
    assert!(third.end_offset < changed && store.topics().contains_key("later"));
}

#[test]
fn test_a_stop_confirms_nothing_by_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let first = send(&store, "t", &["one"]);
    store.ask_replicas(Some(first.end_offset));
    let second = store
        .append(&request("t"), &[message("two")])
        .expect("stored");
    store.close().expect("closed");
    drop(store);
    let snapshot = newest_snapshot(dir.path());
    assert_eq!(snapshot.applied_offset, first.end_offset);
    // Opened as a master that asks nobody, all of the log counts.
    let store = open(dir.path());
    assert_eq!(store.watermarks().3, second.end_offset);
    assert_eq!(bodies(&store, "t"), ["one", "two"]);
}

#[test]
fn test_a_delivery_that_was_not_confirmed_before_a_restart_is_not_made_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = clock();
    let store = open_synchronous(dir.path(), &clock);
    let soon = NewMessage {
        delay_level: 1,
        ..message("in a second")
    };
    store.append(&request("late"), &[soon]).expect("stored");
    confirm(&store);
    clock.0.fetch_add(2_000, Ordering::SeqCst);
    let before = store.watermarks().0;
    store.work(Work::Deliver).expect("delivered");
    let delivered = store.watermarks().0;
    assert!(delivered > before, "it is in the log");
    store.work(Work::Flush).expect("flushed");
    store.close().expect("closed");
    drop(store);

    let store = open_synchronous(dir.path(), &clock);
    assert_eq!(
        (store.watermarks().0, store.watermarks().2),
        (delivered, before)
    );
    store.work(Work::Deliver).expect("nothing to do yet");
    assert_eq!(store.watermarks().0, delivered, "it is in the log already");
    confirm(&store);
    store.work(Work::Deliver).expect("nothing to do");
    confirm(&store);
    assert_eq!(store.bounds("late", 0).expect("a queue").max, 1);
}

#[test]
fn test_a_lease_that_was_not_confirmed_before_a_restart_gives_nobody_its_epoch_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let first = send(&store, "t", &["one"]);
    store.ask_replicas(Some(first.end_offset));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.acquire_lease("g", "one", 60_000));
        assert!(comes_true(&store, || store.watermarks().1 > first.end_offset));
        store.close().expect("closed");
        assert!(waits.join().expect("no panic").is_err(), "not confirmed");
    });
    drop(store);

    // Its record may be with a replica, and may have been confirmed as far as that one knows.
    let store = open_synchronous(dir.path(), &clock());
    let refused = store.acquire_lease("g", "two", 60_000);
    assert_eq!(
        refused.expect_err("not yet").code(),
        "SERVICE_NOT_AVAILABLE"
    );
    confirm(&store);
    let refused = store.acquire_lease("g", "two", 60_000);
    assert_eq!(refused.expect_err("held").code(), "LEASE_CONFLICT");
    assert_eq!(store.lease("g").expect("held").owner, "one");
}

#[test]
fn test_a_group_that_was_held_before_a_restart_is_held_until_the_log_says_otherwise() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.acquire_lease("g", "one", 60_000).expect("granted");
    let granted = store.watermarks().2;
    store.ask_replicas(Some(granted));
    store
        .append(&request("t"), &[message("not confirmed")])
        .expect("stored");
    store.close().expect("closed");
    drop(store);
    let store = open_synchronous(dir.path(), &clock());
    assert_eq!(store.watermarks().2, granted);
    let held = store.lease_or_claim("g").expect("held");
    assert_eq!((held.owner.as_str(), held.epoch), ("one", 1));
}
