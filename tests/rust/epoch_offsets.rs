//! Where the epochs of a log begin in its queues, as its owner says it and as a reader beside it does.
//!
//! Contract: a queue offset that a promoted slave gives a second time lies at or behind where its epoch begins; a queue
//! shows no message of an epoch that is not told with it, however late the dispatcher is. Where retention has taken what
//! tells the first offset of an epoch, that is said; what is told as exact stays so.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::environment::Environment;
use lakemq_store::read::{Bounds, EpochOffset, QueueEpochs};
use lakemq_store::reader::Reader;
use lakemq_store::store::Store;

use crate::pair::*;
use crate::support::*;

fn told(max: i64, epochs: &[(i64, i64)]) -> QueueEpochs {
    told_from(0, max, epochs, &[])
}

/// The same of a queue that begins at `min`, with epochs of which the first offset is only a bound.
fn told_from(min: i64, max: i64, epochs: &[(i64, i64)], bounds: &[i64]) -> QueueEpochs {
    let at = |&(epoch, first_offset)| EpochOffset {
        epoch,
        first_offset,
        at_or_before: bounds.contains(&epoch),
    };
    QueueEpochs {
        queue_id: 0,
        bounds: Bounds { min, max },
        epochs: epochs.iter().map(at).collect(),
    }
}

/// What both say of the first queue of topic "t".
fn first_queue(store: &Store, root: &Path) -> (bool, QueueEpochs) {
    let (settled, queues) = store.queue_epochs("t").expect("queues");
    let reader = Reader::open(root).expect("a reader");
    assert_eq!(
        reader.queue_epochs("t").expect("queues"),
        (settled, queues.clone()),
        "who reads beside the owner is told the same"
    );
    assert_eq!(reader.epoch().expect("an epoch"), store.log_epoch());
    (settled, queues.into_iter().next().expect("a queue"))
}

#[test]
fn test_a_promoted_slave_says_from_which_queue_offset_on_its_epoch_gives_them() {
    let (a, b, x, y) = pair();
    send(&x, "t", &["both 0", "both 1"]);
    let both = follow(&x, &y, 1 << 20);
    send(&x, "t", &["lost 2", "lost 3", "lost 4"]);
    assert_eq!(first_queue(&x, a.path()), (true, told(5, &[(1, 0)])));
    y.become_master(65, false).expect("promoted by force");
    assert!(y.wait_dispatched(both, SOON));
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(2, &[(1, 0), (65, 2)])),
        "before it has a message"
    );
    send(&y, "t", &["new 2", "new 3"]);
    send(&y, "another", &["of another topic"]);
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(4, &[(1, 0), (65, 2)]))
    );
    let (_, others) = y.queue_epochs("another").expect("queues");
    assert_eq!(
        others[0].epochs,
        [EpochOffset {
            epoch: 65,
            first_offset: 0,
            at_or_before: false
        }],
        "of epochs that begin at one offset there is the newest"
    );
    y.close().expect("closed");
    drop(y);
    assert_eq!(
        first_queue(&open(b.path()), b.path()),
        (true, told(4, &[(1, 0), (65, 2)])),
        "a restart changes nothing"
    );
}

#[test]
fn test_an_epoch_behind_what_is_confirmed_is_not_told_and_nothing_of_it_is_shown() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["one"]);
    let first = follow(&x, &y, 1 << 20);
    y.replicated(first);
    assert!(y.wait_dispatched(first, SOON));
    send_unconfirmed(&x, "two");
    let end = follow(&x, &y, 1 << 20);
    y.become_master(65, true)
        .expect("promoted, and asks replicas");
    send_unconfirmed(&y, "three");
    assert_eq!(first_queue(&y, b.path()), (false, told(1, &[(1, 0)])));
    y.replicated(end);
    assert!(y.wait_dispatched(end, SOON));
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(2, &[(1, 0), (65, 2)])),
        "the messages of both have another master's epoch behind them"
    );
    let (all, ..) = y.watermarks();
    assert!(y.wait_flushed(all, SOON));
    y.replicated(all);
    assert!(y.wait_dispatched(all, SOON));
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(3, &[(1, 0), (65, 2)]))
    );
}

/// A store of which `before` messages of "t" are of epoch 1 and `behind` of epoch 65, all of which retention takes.
fn expired(path: &Path, before: usize, behind: usize) -> Store {
    let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let store = Store::open(path, options(), environment).expect("a store");
    bulk(&store, "t", before);
    bulk(&store, "another", 200);
    store.become_master(65, false).expect("promoted");
    bulk(&store, "t", behind);
    bulk(&store, "another", 200);
    clock.0.fetch_add(100 * 3_600_000, Ordering::SeqCst);
    bulk(&store, "another", 200);
    store
}

fn expire(store: &Store) {
    assert!(store.expire(store.now_ms(), true).expect("expired") > 0);
    let end = store.bounds("t", 0).expect("a queue");
    assert_eq!((end.min, end.max), (end.max, end.max), "all of it went");
}

#[test]
fn test_the_entries_of_what_has_expired_tell_where_an_epoch_began_as_long_as_they_are_stored() {
    for (before, behind) in [(30, 0), (30, 10), (60, 10), (50, 0)] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = expired(dir.path(), before, behind);
        expire(&store);
        let (at, end) = (before as i64, (before + behind) as i64);
        let told = told_from(end, end, &[(1, 0), (65, at)], &[]);
        assert_eq!(first_queue(&store, dir.path()), (true, told));
    }
}

#[test]
fn test_an_epoch_whose_first_offset_may_have_expired_is_told_as_one_that_began_there_or_before() {
    // A file of a queue has 50 entries: the one with the last message of epoch 1 goes.
    let dir = tempfile::tempdir().expect("a directory");
    let store = expired(dir.path(), 50, 10);
    expire(&store);
    let mut told = told_from(60, 60, &[(1, 0), (65, 50)], &[65]);
    assert_eq!(first_queue(&store, dir.path()), (true, told.clone()));
    assert_eq!(
        first_queue(&store, dir.path()),
        (true, told.clone()),
        "asked again"
    );
    store.become_master(129, false).expect("promoted");
    told.epochs.push(EpochOffset {
        epoch: 129,
        first_offset: 60,
        at_or_before: false,
    });
    assert_eq!(first_queue(&store, dir.path()), (true, told.clone()));
    send(&store, "t", &["of epoch 129"]);
    told.bounds.max += 1;
    assert_eq!(first_queue(&store, dir.path()), (true, told));
}

#[test]
fn test_what_was_told_before_retention_took_it_is_told_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = expired(dir.path(), 50, 10);
    let reader = Reader::open(dir.path()).expect("a reader");
    for expire_now in [true, false] {
        let told = [
            store.queue_epochs("t").expect("queues"),
            reader.queue_epochs("t").expect("queues"),
        ];
        for (_, queues) in told {
            assert_eq!(
                queues[0].epochs,
                told_from(0, 0, &[(1, 0), (65, 50)], &[]).epochs
            );
        }
        if expire_now {
            expire(&store);
        }
    }
}

#[test]
fn test_what_was_found_before_a_cut_is_not_told_after_it() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["both 0", "both 1"]);
    let both = follow(&x, &y, 1 << 20);
    y.replicated(both);
    assert!(y.wait_dispatched(both, SOON));
    assert_eq!(first_queue(&y, b.path()), (true, told(2, &[(1, 0)])));
    y.begin_epoch(65, both).expect("begun");
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(2, &[(1, 0), (65, 2)]))
    );
    y.truncate_to(both).expect("cut");
    assert_eq!(first_queue(&y, b.path()), (true, told(2, &[(1, 0)])));
    y.become_master(129, false).expect("promoted");
    send(&y, "t", &["new 2"]);
    assert_eq!(
        first_queue(&y, b.path()),
        (true, told(3, &[(1, 0), (129, 2)]))
    );
}
