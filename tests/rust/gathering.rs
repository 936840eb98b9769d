//! Flushes that are asked for once for many appends, and who is woken by them.
//!
//! Contract: what is appended for a later flush is flushed by one, and without being asked too; each append that asks
//! for itself is flushed at once. What is confirmed is dispatched at once, however much it is and whoever confirms it:
//! nobody waits for a thread that looks up now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lakemq_store::environment::Environment;
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Options, Store};

use crate::support::{SOON, environment, message, open, options, request};

/// A thread with nothing to do looks up twice a second: so long would a wake-up that is lost take, now and then.
const LOOKS: usize = 20;
const WITHOUT_LOOKING_UP: Duration = Duration::from_secs(3);

/// A store and how often it flushed.
fn counted(directory: &std::path::Path) -> (Store, Arc<AtomicUsize>) {
    let flushes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&flushes);
    let faults = FaultPoints::hooked(move |point| {
        if point == Point::FlushBefore {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let environment = Environment {
        faults: Arc::new(faults),
        ..environment()
    };
    let store = Store::open(directory, options(), environment).expect("a store");
    (store, flushes)
}

#[test]
fn test_what_is_appended_for_a_later_flush_is_flushed_by_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, flushes) = counted(dir.path());
    let begun = Instant::now();
    let mut end = 0;
    for number in 0..200 {
        let body = number.to_string();
        let done = store.append_unflushed(&request("t"), &[message(&body)]);
        end = done.expect("stored").end_offset;
    }
    store.flush_soon();
    assert!(store.wait_dispatched(end, SOON));
    // The flusher looks up now and then.
    let unasked = begun.elapsed().as_millis() as usize / 500 + 1;
    assert!(flushes.load(Ordering::SeqCst) <= 1 + unasked);
}

#[test]
fn test_what_nobody_asks_a_flush_for_is_flushed_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let done = store.append_unflushed(&request("t"), &[message("one")]);
    assert!(store.wait_flushed(done.expect("stored").end_offset, SOON));
}

#[test]
fn test_each_append_that_asks_for_its_flush_has_it_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let begun = Instant::now();
    for _ in 0..LOOKS {
        let done = store.append(&request("t"), &[message("one")]);
        assert!(store.wait_flushed(done.expect("stored").end_offset, SOON));
        let later = store.append_unflushed(&request("t"), &[message("two")]);
        store.flush_soon();
        assert!(store.wait_dispatched(later.expect("stored").end_offset, SOON));
    }
    assert!(begun.elapsed() < WITHOUT_LOOKING_UP);
}

#[test]
fn test_a_large_flush_is_dispatched_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        commitlog_file_size: 64 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    let body = "x".repeat(400 << 10);
    let begun = Instant::now();
    for _ in 0..LOOKS {
        let large = NewMessage {
            keys: None,
            ..message(&body)
        };
        let done = store.append(&request("t"), &[large]);
        assert!(store.wait_dispatched(done.expect("stored").end_offset, SOON));
    }
    assert!(begun.elapsed() < WITHOUT_LOOKING_UP);
}

#[test]
fn test_what_the_replicas_have_is_dispatched_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.ask_replicas(Some(0));
    let begun = Instant::now();
    for _ in 0..LOOKS {
        let end = store
            .append(&request("t"), &[message("one")])
            .expect("stored")
            .end_offset;
        assert!(store.wait_flushed(end, SOON));
        store.replicated(end);
        assert!(store.wait_dispatched(end, SOON));
    }
    assert!(begun.elapsed() < WITHOUT_LOOKING_UP);
}

#[test]
fn test_what_no_replica_is_asked_for_any_more_is_dispatched_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut end = 0;
    let begun = Instant::now();
    for _ in 0..LOOKS {
        store.ask_replicas(Some(end));
        end = store
            .append(&request("t"), &[message("one")])
            .expect("stored")
            .end_offset;
        assert!(store.wait_flushed(end, SOON));
        store.ask_replicas(None);
        assert!(store.wait_dispatched(end, SOON));
    }
    assert!(begun.elapsed() < WITHOUT_LOOKING_UP);
}
