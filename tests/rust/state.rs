//! What the store keeps beside messages: idempotence keys, leases, topics, delays, and the clock they go by.
//!
//! Contract: a promise made before a crash, a clock's jump or an expiry holds after it.

mod support;

use std::borrow::Cow;

use lakemq_store::error::StoreError;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Store};
use support::{SOON, bodies, copy, message, open, request};

fn keyed<'a>(topic: &'a str, key: &'a str) -> AppendRequest<'a> {
    AppendRequest {
        idempotency_key: Some(key),
        ..request(topic)
    }
}

fn reused(store: &Store, topic: &str, messages: &[NewMessage<'_>]) -> (String, i64, usize) {
    match store.append(&keyed(topic, "k"), messages, messages.len() > 1) {
        Err(StoreError::KeyReused(first)) => {
            assert_eq!(first.message_id.len(), 32);
            assert_eq!(first.offset_message_id.len(), 32);
            (first.topic, first.queue_offset, first.count)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn test_a_key_used_for_another_request_is_refused_with_the_place_of_the_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store
        .append(&request("t"), &[message("before")], false)
        .expect("stored");
    let first = [message("a"), message("b")];
    let done = store
        .append(&keyed("t", "k"), &first, true)
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    copy(dir.path(), crashed.path());
    for path in [dir.path(), crashed.path()] {
        let reopened;
        let store = if path == dir.path() {
            &store
        } else {
            reopened = open(path);
            &reopened
        };
        let place = ("t".to_owned(), 1, 2);
        assert_eq!(
            reused(store, "t", &[message("a"), message("c")]),
            place,
            "a body"
        );
        assert_eq!(reused(store, "t", &[message("a")]), place, "the count");
        assert_eq!(reused(store, "other", &first), place, "the topic");
        let tagged = NewMessage {
            tags: Some(Cow::Borrowed("odd")),
            ..message("b")
        };
        assert_eq!(reused(store, "t", &[message("a"), tagged]), place, "tags");
        let again = [
            NewMessage {
                born_timestamp: Some(5),
                properties: vec![("traceparent".into(), "00-1".into())],
                ..message("a")
            },
            message("b"),
        ];
        assert!(
            store
                .append(&keyed("t", "k"), &again, true)
                .expect("the same request")
                .duplicate
        );
        assert_eq!(bodies(store, "t"), ["before", "a", "b"]);
        assert!(store.topic("other").is_none());
    }
}

#[test]
fn test_a_delayed_message_keeps_its_key_and_shows_the_queue_its_sender_was_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let late = |body: &str, level: u32| NewMessage {
        delay_level: level,
        body: Cow::Owned(body.as_bytes().to_vec()),
        ..message("late")
    };
    store
        .append(&keyed("t", "k"), &[late("x", 18)], false)
        .expect("stored");
    assert!(
        store
            .append(&keyed("t", "k"), &[late("x", 18)], false)
            .expect("known")
            .duplicate
    );
    assert_eq!(
        reused(&store, "t", &[late("x", 17)]),
        ("t".to_owned(), 0, 1)
    );
}
