//! The confirmed mark: what a failover may take back is in no queue, no index, no state and no snapshot.
//!
//! Contract: appended >= flushed >= confirmed >= dispatched; where replicas are asked, nothing behind what they
//! hold is confirmed, and nothing behind what is confirmed is dispatched, not even by a checkpoint or a stop.

mod support;

use lakemq_store::paths::StorePaths;
use lakemq_store::snapshot::Snapshot;
use lakemq_store::store::TopicChange;
use support::*;

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
    let snapshot = Snapshot::read(&StorePaths::new(dir.path())).expect("a snapshot");
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
    let snapshot = Snapshot::read(&StorePaths::new(dir.path())).expect("a snapshot");
    assert_eq!(snapshot.applied_offset, first.end_offset);
    // Opened as a master that asks nobody, all of the log counts.
    let store = open(dir.path());
    assert_eq!(store.watermarks().3, second.end_offset);
    assert_eq!(bodies(&store, "t"), ["one", "two"]);
}
