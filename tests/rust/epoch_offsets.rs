//! Where the epochs of a log begin in its queues, as its owner says it and as a reader beside it does.
//!
//! Contract: a queue offset that a promoted slave gives a second time lies at or behind where its epoch begins; a queue
//! shows no message of an epoch that is not told with it, however late the dispatcher is.

use std::path::Path;

use lakemq_store::read::{Bounds, EpochOffset, QueueEpochs};
use lakemq_store::reader::Reader;
use lakemq_store::store::Store;

use crate::pair::*;
use crate::support::*;

fn told(max: i64, epochs: &[(i64, i64)]) -> QueueEpochs {
    let at = |&(epoch, first_offset)| EpochOffset {
        epoch,
        first_offset,
    };
    QueueEpochs {
        queue_id: 0,
        bounds: Bounds { min: 0, max },
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
            first_offset: 0
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
