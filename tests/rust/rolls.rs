//! Rolling the log while the next file is made ahead, with every step held up at random.
//!
//! Contract: after a clean stop the log has every file it needs and none it does not, and everything
//! acknowledged is read back. `LAKEMQ_TEST_ROLLS` sets how many rolls are tried.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lakemq_store::environment::Environment;
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Flush, Options, Store};

use crate::numbers::count_in;
use crate::support::{SOON, bodies, environment, message, open_on_flaky_disk, options, request};

/// Few: a file that was given to two is deleted at the stop only if it is the last one.
const ROLLS_OF_A_ROUND: usize = 3;
const WRITERS: usize = 2;
/// Three records of this length fill a file of 64 KiB; the next one is made ahead at the third.
const BODY_BYTES: usize = 10_000;

/// Holds threads up at the points of a roll: often not at all, sometimes long enough for another to overtake.
fn held_up(seed: u64) -> Environment {
    let state = AtomicU64::new(seed);
    let pause = move |point| {
        let rolling = [
            Point::NextDecided,
            Point::NextMade,
            Point::RollBefore,
            Point::Roll,
            Point::RollNamed,
        ];
        if rolling.contains(&point) {
            let step = state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            let mixed = (step ^ (step >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            match (mixed >> 33) % 8 {
                0..4 => {}
                4..6 => std::thread::yield_now(),
                long => std::thread::sleep(Duration::from_micros((mixed >> 40) % (long * 60))),
            }
        }
    };
    Environment {
        faults: Arc::new(FaultPoints::hooked(pause)),
        ..environment()
    }
}

fn small_files() -> Options {
    Options {
        flush: Flush::Async,
        flush_interval_ms: 1,
        index_entries: 2_000,
        ..options()
    }
}

/// Appends until the log has rolled often enough, stops cleanly, opens again and reads everything.
fn round(directory: &Path, seed: u64) -> usize {
    let store = Store::open(directory, small_files(), held_up(seed)).expect("a store");
    let requests = ROLLS_OF_A_ROUND * 3 / WRITERS + seed as usize % 5;
    let write = |writer: usize| {
        for number in 0..requests {
            let body = format!("{writer} {number} {}", "z".repeat(BODY_BYTES));
            store
                .append(&request("t"), &[message(&body)])
                .expect("stored");
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || write(writer));
        }
    });
    let end = store.watermarks().0;
    assert!(store.wait_dispatched(end, SOON));
    store.close().expect("a clean stop");
    drop(store);
    let files = names(&directory.join("commitlog"));
    let expected: Vec<String> = (0..(end as u64).div_ceil(65_536))
        .map(|at| format!("{:020}", at * 65_536))
        .collect();
    assert_eq!(
        files, expected,
        "seed {seed}: the files of a log of {end} bytes"
    );
    assert!(
        names(&directory.join("lakemq"))
            .iter()
            .all(|name| !name.ends_with(".next"))
    );
    let store = Store::open(directory, small_files(), environment()).expect("opens again");
    assert!(store.report().clean);
    let mut stored: Vec<String> = bodies(&store, "t")
        .into_iter()
        .map(|body| body.trim_end_matches('z').to_owned())
        .collect();
    stored.sort();
    let mut sent: Vec<String> = (0..WRITERS)
        .flat_map(|writer| (0..requests).map(move |number| format!("{writer} {number} ")))
        .collect();
    sent.sort();
    assert_eq!(stored, sent, "seed {seed}");
    files.len() - 1
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn test_a_clean_stop_keeps_every_file_however_rolls_and_making_ahead_interleave() {
    let wanted = count_in("LAKEMQ_TEST_ROLLS").unwrap_or(300) as usize;
    let (mut rolls, mut seed) = (0, 1);
    while rolls < wanted {
        let dir = tempfile::tempdir().expect("a directory");
        rolls += round(dir.path(), seed);
        seed += 1;
    }
    println!("{rolls} rolls, {} clean stops: nothing was lost", seed - 1);
}

#[test]
fn test_a_file_made_ahead_that_a_crash_left_is_removed_and_the_log_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), small_files(), environment()).expect("a store");
    let body = "z".repeat(BODY_BYTES);
    let done = store
        .append(&request("t"), &[message(&body)])
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    store.close().expect("a clean stop");
    drop(store);
    let left = dir
        .path()
        .join("lakemq")
        .join(format!("{:020}.next", 65_536));
    std::fs::write(&left, vec![7; 65_536]).expect("written");
    std::fs::write(dir.path().join("abort"), b"1").expect("written");
    let store = Store::open(dir.path(), small_files(), environment()).expect("opens");
    assert!(!left.exists());
    for _ in 0..3 {
        let done = store
            .append(&request("t"), &[message(&body)])
            .expect("stored");
        assert!(store.wait_dispatched(done.end_offset, SOON));
    }
    assert_eq!(bodies(&store, "t").len(), 4);
}

#[test]
fn test_a_next_file_that_could_neither_be_made_nor_taken_away_stops_no_later_roll() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_on_flaky_disk(dir.path());
    let body = "x".repeat(40_000);
    let large = || NewMessage {
        keys: None,
        ..message(&body)
    };
    let append = || store.append(&request("t"), &[large()]);
    append().expect("in the first file");
    disk.full.store(true, Ordering::SeqCst);
    disk.fail_remove.store(true, Ordering::SeqCst);
    assert_eq!(append().expect_err("no room").code(), "DISK_FULL");
    disk.full.store(false, Ordering::SeqCst);
    disk.fail_remove.store(false, Ordering::SeqCst);
    append().expect("in the second file");
}
