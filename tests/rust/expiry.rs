//! Expiry of the log's files, asked for by several at once.
//!
//! Contract: a file goes only when its own messages are older than the retention, whoever asks and how often.

use std::fs;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use lakemq_store::environment::{Clock, Environment};
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::filter::Filter;
use lakemq_store::read::SliceRequest;
use lakemq_store::store::Store;

use crate::support::{SOON, TestClock, bulk, environment, options};

#[test]
fn test_expiry_asked_for_at_once_deletes_only_what_the_retention_gives_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
    // Held up between deciding about the oldest file and taking it off, so that others decide meanwhile.
    let faults = FaultPoints::hooked(|point| {
        if point == Point::ExpireDecided {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let environment = Environment {
        clock: clock.clone(),
        faults: Arc::new(faults),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    bulk(&store, "t", 500);
    let first_kept = store.watermarks().0 / 65_536 * 65_536;
    clock.0.fetch_add(100 * 3_600_000, Ordering::SeqCst);
    bulk(&store, "t", 500);
    assert!(store.wait_dispatched(store.watermarks().0, SOON));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| store.expire(store.now_ms(), true).expect("expired"));
        }
    });
    let mut names: Vec<String> = fs::read_dir(dir.path().join("commitlog"))
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
    assert_eq!(names.first(), Some(&format!("{first_kept:020}")));
}

const HOUR: i64 = 3_600_000;

#[test]
fn test_expired_messages_are_never_called_damaged_while_their_files_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let (third, third_file) = mpsc::sync_channel::<()>(0);
    let (go_on, received) = mpsc::sync_channel::<()>(0);
    let received = Mutex::new(received);
    let seen = AtomicUsize::new(0);
    let faults = FaultPoints::hooked(move |point| {
        if point == Point::ExpireDecided && seen.fetch_add(1, Ordering::SeqCst) == 2 {
            third.send(()).expect("somebody waits");
            received.lock().expect("no panic").recv().expect("received");
        }
    });
    let environment = Environment {
        faults: Arc::new(faults),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    bulk(&store, "t", 800);
    let from_the_start = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 1000,
        max_bytes: usize::MAX,
        filter: Filter::All,
    };
    std::thread::scope(|scope| {
        let now = store.now_ms() + 100 * HOUR;
        let store = &store;
        scope.spawn(move || store.expire(now, true).expect("expired"));
        third_file.recv_timeout(SOON).expect("three files go");
        let meta = store
            .read("t", 0, &from_the_start, |_, _| Ok(()))
            .expect("readable");
        go_on.send(()).expect("it waits");
        assert_eq!(
            (meta.status.name(), meta.damaged.is_empty()),
            ("OFFSET_ILLEGAL", true)
        );
        assert!(meta.min_offset > 0);
    });
}

/// Time of day and the time that passes, each set by the test.
struct TwoClocks {
    day: AtomicI64,
    passed: AtomicI64,
}

impl Clock for TwoClocks {
    fn now_ms(&self) -> i64 {
        self.day.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl TwoClocks {
    fn pass(&self, ms: i64) {
        self.day.fetch_add(ms, Ordering::SeqCst);
        self.passed.fetch_add(ms, Ordering::SeqCst);
    }
}

#[test]
fn test_a_clock_that_was_behind_for_a_while_makes_no_fresh_file_old() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(TwoClocks {
        day: AtomicI64::new(1_000_000 * HOUR),
        passed: AtomicI64::new(0),
    });
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    bulk(&store, "t", 500);
    clock.pass(60_000);
    clock.day.fetch_sub(200 * HOUR, Ordering::SeqCst);
    clock.pass(60_000);
    // Rolls of the log and of the index meanwhile: neither may take a step a millisecond.
    bulk(&store, "t", 300);
    clock.pass(60_000);
    clock.day.fetch_add(200 * HOUR, Ordering::SeqCst);
    clock.pass(60_000);
    bulk(&store, "t", 10);
    for _ in 0..75 {
        clock.pass(60_000);
        store.now_for_ages();
    }
    let before = store.bounds("t", 0).expect("bounds");
    assert_eq!(
        store.expire(store.now_for_ages(), true).expect("expired"),
        0
    );
    assert_eq!(store.bounds("t", 0).expect("bounds"), before);
    for _ in 0..100 * 60 {
        clock.pass(60_000);
        store.now_for_ages();
    }
    assert!(
        store.expire(store.now_for_ages(), true).expect("expired") > 0,
        "what is 100 hours old goes"
    );
}
