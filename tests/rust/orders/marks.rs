//! The marks and what lies before them.

use std::sync::Arc;

use lakemq_store::confirmation::Confirmation;
use lakemq_store::environment::RealDisk;
use lakemq_store::watermarks::Watermarks;
use loom::cell::UnsafeCell;
use loom::thread;

/// A byte of the log that only the marks guard.
struct Log(UnsafeCell<u8>);

// SAFETY: the checker ends a run in which two threads come to it without an order between them.
unsafe impl Sync for Log {}

fn marks() -> Arc<Watermarks> {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let path = dir.expect("a directory").keep();
    let marks = Watermarks::open_owned(&path.join("watermarks"), &RealDisk).expect("a page");
    std::fs::remove_dir_all(path).expect("removed");
    Arc::new(marks)
}

/// Appends, flushes, confirms and dispatches in three threads; a fourth reads.
#[test]
fn test_marks_never_overtake_each_other_and_what_lies_before_them_is_seen() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let marks = marks();
        let log = Arc::new(Log(UnsafeCell::new(0)));
        let confirmation = Arc::new(Confirmation::new(Arc::clone(&marks)));
        let appender = {
            let (marks, log) = (Arc::clone(&marks), Arc::clone(&log));
            thread::spawn(move || {
                // SAFETY: nobody reads before the mark says so; the checker looks.
                log.0.with_mut(|byte| unsafe { *byte = 7 });
                marks.set_appended(8);
            })
        };
        let flusher = {
            let (marks, confirmation) = (Arc::clone(&marks), Arc::clone(&confirmation));
            thread::spawn(move || {
                marks.set_flushed(marks.appended());
                confirmation.advance();
                marks.set_dispatched(marks.confirmed());
            })
        };
        let dispatched = marks.dispatched();
        let (confirmed, flushed) = (marks.confirmed(), marks.flushed());
        let appended = marks.appended();
        assert!(dispatched <= confirmed && confirmed <= flushed && flushed <= appended);
        if dispatched == 8 {
            // SAFETY: as above.
            assert_eq!(log.0.with(|byte| unsafe { *byte }), 7);
        }
        appender.join().expect("no panic");
        flusher.join().expect("no panic");
    });
}

#[test]
fn test_of_a_flush_and_a_replica_at_once_the_later_confirms() {
    loom::model(|| {
        let marks = marks();
        let confirmation = Arc::new(Confirmation::new(Arc::clone(&marks)));
        confirmation.follow_replicas(0);
        marks.set_appended(8);
        let replica = {
            let confirmation = Arc::clone(&confirmation);
            thread::spawn(move || confirmation.replicated(8))
        };
        marks.set_flushed(8);
        let by_flush = confirmation.advance();
        let by_replica = replica.join().expect("no panic");
        assert_eq!(marks.confirmed(), 8);
        assert!(by_flush != by_replica, "one of them says that it moved");
    });
}

#[test]
fn test_a_frozen_mark_stays_where_it_is() {
    loom::model(|| {
        let marks = marks();
        let confirmation = Arc::new(Confirmation::new(Arc::clone(&marks)));
        marks.set_appended(8);
        let flusher = {
            let (marks, confirmation) = (Arc::clone(&marks), Arc::clone(&confirmation));
            thread::spawn(move || {
                marks.set_flushed(8);
                confirmation.advance();
            })
        };
        confirmation.freeze();
        let frozen = marks.confirmed();
        flusher.join().expect("no panic");
        assert_eq!(marks.confirmed(), frozen);
    });
}

#[test]
fn test_a_mark_that_is_held_stays_and_goes_on_afterwards() {
    loom::model(|| {
        let marks = marks();
        let confirmation = Arc::new(Confirmation::new(Arc::clone(&marks)));
        marks.set_appended(8);
        let flusher = {
            let (marks, confirmation) = (Arc::clone(&marks), Arc::clone(&confirmation));
            thread::spawn(move || {
                marks.set_flushed(8);
                confirmation.advance();
            })
        };
        let held = confirmation.hold();
        let before = marks.confirmed();
        thread::yield_now();
        assert_eq!(marks.confirmed(), before);
        drop(held);
        flusher.join().expect("no panic");
        assert_eq!(marks.confirmed(), 8);
    });
}
