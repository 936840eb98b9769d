//! Expiry of the log's files, asked for by several at once.
//!
//! Contract: a file goes only when its own messages are older than the retention, whoever asks and how often.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lakemq_store::environment::{Environment, Faults, Point};
use lakemq_store::store::Store;

use crate::support::{SOON, TestClock, bulk, environment, options};

#[test]
fn test_expiry_asked_for_at_once_deletes_only_what_the_retention_gives_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
    // Held up between deciding about the oldest file and taking it off, so that others decide meanwhile.
    let faults = Faults::hooked(|point| {
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
