//! Delayed messages by the machine's own clock: nothing wakes the scheduler but its own sense of time.

use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Options, Store};

use crate::support::{SOON, copy, environment, everything, message, options, request};

fn open(root: &std::path::Path) -> Store {
    let options = Options {
        delay_levels_ms: vec![300, 3_600_000],
        ..options()
    };
    Store::open(root, options, environment()).expect("a store")
}

fn delayed(body: &str, level: u32) -> NewMessage<'_> {
    NewMessage {
        delay_level: level,
        ..message(body)
    }
}

fn arrived(store: &Store, topic: &str, count: i64) -> bool {
    store.progress_wait(SOON, || {
        store
            .bounds(topic, 0)
            .is_ok_and(|bounds| bounds.max >= count)
    })
}

#[test]
fn test_a_message_comes_when_it_is_due_though_nothing_else_happens() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store
        .append(&request("t"), &[delayed("an hour", 2), delayed("soon", 1)])
        .expect("stored");
    assert!(
        arrived(&store, "t", 1),
        "the hour of another level is not waited for"
    );
    assert_eq!(crate::support::bodies(&store, "t"), ["soon"]);
    let progress = store.delay_progress();
    assert_eq!(progress, [(1, 1, 1), (2, 0, 1)]);
    // Nor is the hour waited for by one that comes alone.
    let done = store.append(&request("t"), &[delayed("later", 1)]);
    done.expect("stored");
    assert!(arrived(&store, "t", 2));
}

#[test]
fn test_more_messages_than_a_round_delivers_come_without_another_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        delay_levels_ms: vec![300],
        commitlog_file_size: 4 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    let texts: Vec<String> = (0..1100).map(|number| number.to_string()).collect();
    let messages: Vec<_> = texts.iter().map(|body| delayed(body, 1)).collect();
    store.append(&request("t"), &messages).expect("stored");
    assert!(arrived(&store, "t", 1100));
    assert_eq!(crate::support::bodies(&store, "t"), texts);
}

#[test]
fn test_a_delivered_message_is_a_request_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let keyed = AppendRequest {
        idempotency_key: Some("key-1"),
        ..request("t")
    };
    store
        .append(&keyed, &[delayed("a", 1), delayed("b", 1), delayed("c", 1)])
        .expect("stored");
    assert!(arrived(&store, "t", 3));
    copy(dir.path(), crashed.path());
    for store in [store, open(crashed.path())] {
        let mut seen = Vec::new();
        let each = |record: &lakemq_store::message::RecordView<'_>, _| {
            for (name, _) in lakemq_store::message::properties::iter(record.properties) {
                assert!(
                    !["__LMQ_KEY", "__LMQ_BATCH", "__LMQ_SUM", "DELAY"].contains(&name),
                    "{name}"
                );
            }
            assert!(record.property("__LMQ_FROM").is_some());
            seen.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        };
        store.read("t", 0, &everything(0), each).expect("readable");
        assert_eq!(
            seen,
            ["a", "b", "c"],
            "each is there, though no two were stored together"
        );
        assert_eq!(store.delay_progress()[0], (1, 3, 3));
    }
}
