//! Idempotence keys: what a request sent again is answered.
//!
//! Contract: a key used for the same request gives the first result; for another one, the place of the first.

use std::borrow::Cow;

use lakemq_store::error::StoreError;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Store};

use crate::support::{SOON, bodies, copy, message, open, request};

pub fn keyed<'a>(topic: &'a str, key: &'a str) -> AppendRequest<'a> {
    AppendRequest {
        idempotency_key: Some(key),
        ..request(topic)
    }
}

fn reused(store: &Store, topic: &str, messages: &[NewMessage<'_>]) -> (String, i64, usize) {
    match store.append(&keyed(topic, "k"), messages) {
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
        .append(&request("t"), &[message("before")])
        .expect("stored");
    let first = [message("a"), message("b")];
    let done = store.append(&keyed("t", "k"), &first).expect("stored");
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
                .append(&keyed("t", "k"), &again)
                .expect("the same request")
                .duplicate
        );
        assert_eq!(bodies(store, "t"), ["before", "a", "b"]);
        assert!(store.topic("other").is_none());
    }
}

#[test]
fn test_a_delayed_message_keeps_its_key_and_shows_the_queue_of_its_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let late = |body: &str, level: u32| NewMessage {
        delay_level: level,
        body: Cow::Owned(body.as_bytes().to_vec()),
        ..message("late")
    };
    store
        .append(&keyed("t", "k"), &[late("x", 18)])
        .expect("stored");
    assert!(
        store
            .append(&keyed("t", "k"), &[late("x", 18)])
            .expect("known")
            .duplicate
    );
    assert_eq!(
        reused(&store, "t", &[late("x", 17)]),
        ("t".to_owned(), 0, 1)
    );
}

#[test]
fn test_keys_whose_file_is_gone_or_damaged_are_read_from_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let send = |store: &Store, key: &str| {
        let stored = store.append(&keyed("t", key), &[message(key)]);
        stored.expect("stored or known").duplicate
    };
    for key in ["a", "b", "c"] {
        assert!(!send(&store, key));
    }
    store.close().expect("closed");
    drop(store);
    let name = "lakemq/idempotence.keys";
    let lines = std::fs::read(dir.path().join(name)).expect("keys");
    let mut flipped = lines.clone();
    flipped[lines.len() / 2] ^= 1;
    for spoiled in [None, Some(&lines[..lines.len() / 2]), Some(&flipped[..])] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        let path = copied.path().join(name);
        match spoiled {
            None => std::fs::remove_file(&path).expect("removed"),
            Some(bytes) => std::fs::write(&path, bytes).expect("written"),
        }
        // The first start says it; the second finds a file that is whole.
        for said in [1, 0] {
            let store = open(copied.path());
            let events = store.take_events();
            assert_eq!(events.len(), said, "{events:?}");
            assert!(events.iter().all(|event| event.text.contains(name)));
            for key in ["a", "b", "c"] {
                assert!(send(&store, key), "{key} is known");
            }
        }
    }
}
