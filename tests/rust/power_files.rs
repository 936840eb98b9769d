//! Files of the log that come and go without a flush, on a disk that loses power: a roll, an expiry, a start that
//! removes what lies behind the log's end.
//!
//! Contract: of files that were made or removed one after the other a power cut never leaves a later one without those
//! between: the store opens, what was flushed is there, and nothing is that was not sent.

use std::path::Path;

use lakemq_store::store::{Store, Work};

use crate::dice::Dice;
use crate::machine::{Left, Machine, cut_at_each_call, still};
use crate::support::{bodies, copy, message, options, request};
use crate::workload::scratch;

const SEEDS: u64 = 3;
/// Messages in a file of the log, about.
const A_FILE: usize = 12;

fn open_on(machine: &Machine<usize>, dice: &mut Dice) -> Store {
    let environment = machine.environment(dice);
    Store::open_at_rest(&machine.root, options(), environment).expect("a store")
}

fn body(number: usize) -> String {
    format!("{number}-{}", "x".repeat(2_500))
}

fn append(store: &Store, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let body = body(number);
        store
            .append(&request("t"), &[message(&body)])
            .expect("stored");
    }
}

/// The numbers of the messages that a store shows which was left by a cut, in a row.
fn shown(left: &Left<usize>, dice: &mut Dice) -> std::ops::Range<usize> {
    let label = &left.label;
    let store = Store::open_at_rest(&left.root, options(), still(dice))
        .unwrap_or_else(|error| panic!("{label}: the store does not open: {error:?}"));
    assert_eq!(store.report().quarantined_bytes, 0, "{label}");
    if store.topic("t").is_none() {
        return 0..0;
    }
    let min = store.bounds("t", 0).expect("bounds").min as usize;
    let bodies = bodies(&store, "t");
    for (number, is) in (min..).zip(&bodies) {
        assert!(*is == body(number), "{label}: {is:.9} is at {number}");
    }
    min..min + bodies.len()
}

#[test]
fn test_files_that_the_log_rolled_to_before_a_flush_leave_no_hole() {
    for seed in 0..SEEDS {
        let (mut dice, home) = (Dice(seed), scratch());
        let work = |machine: &Machine<usize>, dice: &mut Dice| {
            let store = open_on(machine, dice);
            append(&store, 0..2);
            store.work(Work::FlushAlone).expect("flushed");
            machine.say(|flushed| *flushed = 2);
            append(&store, 2..4 * A_FILE);
            machine.disk.kill(store);
        };
        let label = format!("seed {seed}");
        for left in cut_at_each_call(&label, &mut dice, home.path(), |_| (), work) {
            let whole = left.label.contains("at the end");
            if whole {
                check_start(&left, &mut dice);
            }
            let shown = shown(&left, &mut dice);
            assert!(
                shown.start == 0 && shown.end >= left.said,
                "{}: {shown:?} of {}",
                left.label,
                left.said
            );
        }
    }
}

/// A start from what is left, whose power fails at each call too: it removes files behind the end that it finds.
fn check_start(left: &Left<usize>, dice: &mut Dice) {
    let home = scratch();
    let before = |root: &Path| copy(&left.root, root);
    let work = |machine: &Machine<usize>, dice: &mut Dice| {
        machine.say(|flushed| *flushed = left.said);
        let store = open_on(machine, dice);
        machine.disk.kill(store);
    };
    for again in cut_at_each_call(&left.label, dice, home.path(), before, work) {
        let shown = shown(&again, dice);
        assert!(
            shown.end >= left.said,
            "{}: {shown:?} of {}",
            again.label,
            left.said
        );
    }
}

#[test]
fn test_files_that_expire_together_leave_no_hole() {
    const SENT: usize = 5 * A_FILE;
    for seed in 0..SEEDS {
        let (mut dice, home) = (Dice(seed), scratch());
        let work = |machine: &Machine<usize>, dice: &mut Dice| {
            let store = open_on(machine, dice);
            append(&store, 0..SENT);
            store.work(Work::Flush).expect("flushed");
            while store.watermarks().2 < store.watermarks().0 {
                store.work(Work::Dispatch).expect("dispatched");
            }
            machine.disk.settle();
            machine.say(|flushed| *flushed = SENT);
            let long_after = store.now_ms() + 30 * 86_400_000;
            let removed = store.expire(long_after, true).expect("expired");
            assert!(removed > 3, "{removed} files");
            machine.disk.kill(store);
        };
        let label = format!("seed {seed}");
        for left in cut_at_each_call(&label, &mut dice, home.path(), |_| (), work) {
            let shown = shown(&left, &mut dice);
            assert!(shown.end >= left.said, "{}: {shown:?}", left.label);
        }
    }
}
