//! Who waits is woken. A wait has no end of its own here: where a wake-up is lost, the checker finds nobody to run.

use std::sync::Arc;
use std::time::Duration;

use lakemq_store::dispatch::QueueNotifications;
use lakemq_store::events::Events;
use lakemq_store::lifecycle::Lifecycle;
use lakemq_store::notify::{Progress, Signal};
use lakemq_store::sync::atomic::{AtomicI64, Ordering};
use loom::thread;

const EVER: Duration = Duration::from_secs(u32::MAX as u64);

#[test]
fn test_a_signal_that_is_set_ends_a_wait_whenever_it_comes() {
    loom::model(|| {
        let signal = Arc::new(Signal::default());
        let setters = [(); 2].map(|()| {
            let signal = Arc::clone(&signal);
            thread::spawn(move || signal.set())
        });
        signal.wait(EVER);
        for setter in setters {
            setter.join().expect("no panic");
        }
    });
}

#[test]
fn test_who_waits_for_a_mark_is_woken_by_the_move_that_reaches_it() {
    loom::model(|| {
        let progress = Arc::new(Progress::new().expect("a descriptor"));
        let mark = Arc::new(AtomicI64::new(0));
        let mover = {
            let (progress, mark) = (Arc::clone(&progress), Arc::clone(&mark));
            thread::spawn(move || {
                for to in 1..=2 {
                    mark.store(to, Ordering::Release);
                    progress.moved();
                }
            })
        };
        assert!(progress.wait_until(EVER, || mark.load(Ordering::Acquire) >= 2));
        mover.join().expect("no panic");
    });
}

#[test]
fn test_a_cut_ends_the_wait_for_what_it_cuts() {
    loom::model(|| {
        let lifecycle =
            Arc::new(Lifecycle::new(Arc::new(Events::default())).expect("a descriptor"));
        let begun = Arc::new(AtomicI64::new(0));
        let cutter = {
            let (lifecycle, begun) = (Arc::clone(&lifecycle), Arc::clone(&begun));
            thread::spawn(move || {
                while begun.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                lifecycle.note_cut();
            })
        };
        // The offset never comes: nothing else ends this wait.
        let came = lifecycle.wait(EVER, || {
            begun.store(1, Ordering::Release);
            false
        });
        assert!(!came);
        cutter.join().expect("no panic");
    });
}

#[test]
fn test_a_stop_ends_the_wait_of_each_thread() {
    loom::model(|| {
        let lifecycle =
            Arc::new(Lifecycle::new(Arc::new(Events::default())).expect("a descriptor"));
        let stopper = {
            let lifecycle = Arc::clone(&lifecycle);
            thread::spawn(move || lifecycle.stop())
        };
        lifecycle.flush_wanted.wait(EVER);
        assert!(lifecycle.stopping(), "what wakes it says why");
        let progress = &lifecycle.progress;
        assert!(progress.wait_until(EVER, || lifecycle.stopping()));
        stopper.join().expect("no panic");
    });
}

#[test]
fn test_who_watches_a_queue_and_finds_nothing_is_notified_of_its_message() {
    loom::model(|| {
        let table = Arc::new(QueueNotifications::default());
        let max = Arc::new(AtomicI64::new(0));
        let dispatcher = {
            let (table, max) = (Arc::clone(&table), Arc::clone(&max));
            thread::spawn(move || {
                max.store(1, Ordering::Release);
                table.notify("t", 0);
            })
        };
        table.watch("t", 0);
        let found = max.load(Ordering::Acquire) == 1;
        dispatcher.join().expect("no panic");
        assert!(found || table.is_pending());
        let notified = table.take();
        assert!(found || notified == [("t".to_owned(), 0)]);
        assert!(notified.len() <= 1 && !table.is_pending());
    });
}

#[test]
fn test_each_watched_queue_is_taken_once_however_taking_and_notifying_meet() {
    loom::model(|| {
        let table = Arc::new(QueueNotifications::default());
        table.watch("t", 0);
        table.watch("t", 1);
        let dispatchers = [0, 1].map(|queue_id| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.notify("t", queue_id))
        });
        let mut notified = table.take();
        for dispatcher in dispatchers {
            dispatcher.join().expect("no panic");
        }
        assert_eq!(table.is_pending(), notified.len() < 2);
        notified.extend(table.take());
        notified.sort();
        assert_eq!(notified, [("t".to_owned(), 0), ("t".to_owned(), 1)]);
    });
}
