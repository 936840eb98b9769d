//! A thread of the store that panics, and an append that does.
//!
//! Contract: the store says so and takes nothing more, nobody waits in vain, reads go on, and the next start
//! finds everything that was acknowledged.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lakemq_store::environment::Environment;
use lakemq_store::faults::FaultPoints;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Options, Store};

use crate::support::{SOON, bodies, environment, message, open, options, request, send};

fn failing(directory: &Path, fault: &str) -> Store {
    let options = Options {
        checkpoint_interval_ms: 50,
        ..options()
    };
    let faults = Arc::new(FaultPoints::parse(fault).expect("a fault"));
    let environment = Environment {
        faults,
        ..environment()
    };
    Store::open(directory, options, environment).expect("a store")
}

fn wait_poisoned(store: &Store) -> String {
    assert!(
        store.progress_wait(SOON, || store.poisoned().is_some()),
        "nobody noticed the panic"
    );
    store.poisoned().expect("a reason").to_owned()
}

#[test]
fn test_a_thread_that_panics_poisons_the_store_with_its_message() {
    for (fault, thread) in [
        ("flush.before:2:panic", "lakemq-flusher"),
        ("dispatch.mid:3:panic", "lakemq-"),
        ("checkpoint.mid:2:panic", "lakemq-maintain"),
        ("deliver.before:1:panic", "lakemq-scheduler"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = failing(dir.path(), fault);
        let first = store
            .append(&request("t"), &[message("one")])
            .expect("stored");
        // Maintenance goes by the clock: on a busy machine its panic may come first.
        let readable = store.wait_dispatched(first.end_offset, SOON);
        assert!(readable || store.poisoned().is_some(), "{fault}");
        let delayed = NewMessage {
            delay_level: 1,
            ..message("later")
        };
        let second = store.append(&request("t"), &[message("two"), delayed]);
        let reason = wait_poisoned(&store);
        assert!(reason.starts_with(thread), "{fault}: {reason}");
        assert!(
            reason.contains("ended in a panic: injected at "),
            "{fault}: {reason}"
        );
        if let Ok(second) = second {
            let started = Instant::now();
            store.wait_dispatched(second.end_offset, SOON);
            assert!(
                started.elapsed() < SOON,
                "{fault}: nobody waits for a dead thread"
            );
        }
        let refused = store.append(&request("t"), &[message("three")]);
        assert_eq!(
            refused.expect_err("poisoned").code(),
            "STORE_POISONED",
            "{fault}"
        );
        if readable {
            assert_eq!(bodies(&store, "t")[0], "one");
        }
        store.close().expect("closed");
        drop(store);
        let store = open(dir.path());
        assert!(!store.report().clean, "{fault}");
        assert_eq!(bodies(&store, "t")[0], "one");
        send(&store, "t", &["after"]);
    }
}

#[test]
fn test_an_append_that_panics_under_its_lock_poisons_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = failing(dir.path(), "append.mid:4:panic");
    send(&store, "t", &["one", "two"]);
    let panicked = std::thread::scope(|scope| {
        let append = || store.append(&request("t"), &[message("three")]).is_ok();
        scope.spawn(append).join().is_err()
    });
    assert!(panicked);
    let refused = store.append(&request("t"), &[message("four")]);
    assert_eq!(refused.expect_err("poisoned").code(), "STORE_POISONED");
    assert!(
        store
            .poisoned()
            .is_some_and(|reason| reason.contains("panic"))
    );
    drop(store);
    let store = open(dir.path());
    assert_eq!(bodies(&store, "t")[..2], ["one", "two"]);
    send(&store, "t", &["after"]);
}
