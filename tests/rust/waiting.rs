//! Who waits for the dispatcher, and for how long.
//!
//! Contract: an event loop that watches queues never waits for the dispatcher; who needs its lock gets it
//! between two rounds, which are short whatever the records cost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lakemq_store::environment::Environment;
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Options, Store};

use crate::support::{SOON, bodies, bulk, environment, message, open, options, request, send};

fn hooked(directory: &std::path::Path, hook: impl Fn() + Send + Sync + 'static) -> Store {
    let faults = FaultPoints::hooked(move |point| {
        if point == Point::DispatchMid {
            hook();
        }
    });
    let environment = Environment {
        faults: Arc::new(faults),
        ..environment()
    };
    let options = Options {
        commitlog_file_size: 1 << 20,
        default_queue_nums: 400,
        ..options()
    };
    Store::open(directory, options, environment).expect("a store")
}

#[test]
fn test_watching_and_taking_notified_queues_never_wait_for_the_dispatcher() {
    let dir = tempfile::tempdir().expect("a directory");
    let (entered, inside) = sync_channel(1_000);
    let (release, released) = sync_channel::<()>(0);
    let released = Mutex::new(released);
    let store = hooked(dir.path(), move || {
        let _ = entered.send(());
        // Ends when the sender is dropped.
        let _ = released.lock().expect("no panic").recv();
    });
    let done = store
        .append(&request("t"), &[message("one")])
        .expect("stored");
    inside
        .recv_timeout(SOON)
        .expect("the dispatcher is at work");
    let (answered, answer) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            store.watch("t", 0);
            let _ = answered.send(store.take_notified_queues());
        });
        let outcome = answer.recv_timeout(SOON);
        drop(release);
        assert_eq!(outcome, Ok(vec![]), "while the dispatcher holds its lock");
    });
    assert!(store.wait_dispatched(done.end_offset, SOON));
    store.take_notified_queues();
    store.watch("t", 0);
    assert_eq!(store.take_notified_queues(), []);
    send(&store, "t", &["two"]);
    assert_eq!(store.take_notified_queues(), [("t".to_owned(), 0)]);
    send(&store, "t", &["three"]);
    assert_eq!(
        store.take_notified_queues(),
        [],
        "reported once for each watch"
    );
}

#[test]
fn test_a_round_of_the_dispatcher_ends_by_time_and_lets_the_next_one_in() {
    const QUEUES: usize = 400;
    let dir = tempfile::tempdir().expect("a directory");
    let dispatched = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dispatched);
    // A queue that takes half a millisecond, as a new one does.
    let store = hooked(dir.path(), move || {
        count.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(500));
    });
    let to = |queue| NewMessage {
        queue_id: Some(queue as u32),
        ..message("x")
    };
    let messages: Vec<_> = (0..QUEUES).map(to).collect();
    let end = store
        .append(&request("t"), &messages)
        .expect("stored")
        .end_offset;
    // How far the dispatcher was each time the lock was had.
    let mut turns = BTreeSet::new();
    while store.watermarks().2 < end {
        store.topics();
        turns.insert(dispatched.load(Ordering::SeqCst));
    }
    assert!(store.wait_dispatched(end, SOON));
    assert!(dispatched.load(Ordering::SeqCst) > QUEUES);
    assert!(turns.len() >= 10, "the lock was had after {turns:?} queues");
}

#[test]
fn test_nobody_waits_for_the_dispatch_lock_while_queue_files_are_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let (entered, inside) = sync_channel(1_000);
    let (release, released) = sync_channel::<()>(0);
    let released = Mutex::new(released);
    let environment = Environment {
        faults: Arc::new(FaultPoints::hooked(move |point| {
            if point == Point::QueuesMake {
                let _ = entered.send(());
                // Ends when the sender is dropped.
                let _ = released.lock().expect("no panic").recv();
            }
        })),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    let done = store
        .append(&request("t"), &[message("one")])
        .expect("stored");
    inside.recv_timeout(SOON).expect("files are to be made");
    let (answered, answer) = sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = answered.send((store.topics().len(), store.checkpoint().is_ok()));
        });
        let outcome = answer.recv_timeout(SOON);
        drop(release);
        assert!(
            matches!(outcome, Ok((_, true))),
            "{outcome:?}: while files are made"
        );
    });
    assert!(store.wait_dispatched(done.end_offset, SOON));
    assert_eq!(bodies(&store, "t"), ["one"]);
    // A file of 50 entries is followed by the next one.
    let many = bulk(&store, "t", 120);
    drop(store);
    let found = bodies(&open(dir.path()), "t");
    assert_eq!(found.len(), 1 + many.len());
}
