//! The store as its owner sees it: append, flush, dispatch, read, close, and come back.
//!
//! Contract: queue offsets are dense; state is in the log; a key or a delay takes effect once, crash or not.

mod support;

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::environment::Environment;
use lakemq_store::error::StoreError;
use lakemq_store::filter::Filter;
use lakemq_store::message::{NewMessage, RecordView};
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Flush, GroupChange, Options, Store, TopicChange};
use support::{
    FindJson, SOON, TestClock, bodies, bulk, copy, environment, message, open, options, request,
    send,
};

#[test]
fn test_messages_come_back_in_order_over_several_files_and_after_a_clean_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 400);
    assert!(
        fs::read_dir(dir.path().join("commitlog"))
            .expect("files")
            .count()
            >= 4,
        "the log rolled"
    );
    assert_eq!(bodies(&store, "t"), expected);
    store.close().expect("closed");
    assert!(!dir.path().join("abort").exists());
    let store = open(dir.path());
    assert!(store.report().clean && !store.report().rebuilt);
    assert_eq!(
        store.report().records,
        0,
        "a clean start reads nothing again"
    );
    assert_eq!(bodies(&store, "t"), expected);
    assert_eq!(
        store
            .messages_json("t", &format!("key-{}", expected[7]), (0, i64::MAX), 10)
            .expect("found")
            .len(),
        1
    );
}

#[test]
fn test_a_repeated_idempotency_key_answers_the_first_result_also_after_a_crash() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let keyed = AppendRequest {
        idempotency_key: Some("batch-7"),
        ..request("t")
    };
    let first = store
        .append(&keyed, &[message("a"), message("b")])
        .expect("stored");
    assert!(store.wait_dispatched(first.end_offset, SOON));
    let again = store
        .append(&keyed, &[message("a"), message("b")])
        .expect("known");
    assert!(again.duplicate && again.placed == first.placed);
    copy(dir.path(), crashed.path());
    for round in 0..2 {
        let store = open(crashed.path());
        let again = store
            .append(&keyed, &[message("a"), message("b")])
            .expect("known");
        assert!(again.duplicate, "round {round}");
        assert_eq!(again.placed, first.placed);
        assert_eq!(bodies(&store, "t"), ["a", "b"]);
    }
}

#[test]
fn test_a_delayed_message_is_delivered_once_when_it_is_due_whatever_crashes() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let at = |path: &Path| {
        let environment = Environment {
            clock: clock.clone(),
            ..environment()
        };
        Store::open(path, options(), environment).expect("a store")
    };
    let store = at(dir.path());
    let late = |body| NewMessage {
        delay_level: 2,
        ..message(body)
    };
    let send_late = |store: &Store, topic: &str, body| {
        let done = store
            .append(&request(topic), &[late(body)])
            .expect("stored");
        assert!(store.wait_dispatched(done.end_offset, SOON));
    };
    send_late(&store, "t", "late");
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 0);
    let scratch = tempfile::tempdir().expect("a directory");
    let crashed = scratch.path().join("crashed");
    copy(dir.path(), &crashed);
    store.close().expect("closed");
    for round in 0..3 {
        let store = at(&crashed);
        // The level delivers in order: when a later message has arrived, all before it was looked at.
        let behind = format!("behind-{round}");
        send_late(&store, &behind, "behind");
        clock.0.fetch_add(5000, Ordering::SeqCst);
        send_late(&store, "other", "wakes the scheduler");
        let looked =
            store.progress_wait(SOON, || store.bounds(&behind, 0).is_ok_and(|b| b.max > 0));
        assert!(looked, "round {round}");
        assert_eq!(bodies(&store, "t"), ["late"], "round {round}");
        let next = scratch.path().join(format!("crashed-{round}"));
        copy(&crashed, &next);
        drop(store);
        fs::remove_dir_all(&crashed).expect("removed");
        fs::rename(next, &crashed).expect("renamed");
    }
}

#[test]
fn test_a_reader_beside_the_owner_sees_what_is_confirmed_and_survives_expiry() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 300);
    let reader = Reader::open(dir.path()).expect("a reader");
    let read = |offset: i64| {
        let request = SliceRequest {
            offset,
            end_offset: None,
            max_messages: 1000,
            max_bytes: usize::MAX,
            filter: Filter::of_tags("*").expect("a filter"),
        };
        let mut out = Vec::new();
        let meta = reader
            .read("t", 0, &request, |record, _| {
                out.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        (meta, out)
    };
    assert_eq!(read(0).1, expected);
    send(&store, "t", &["new"]);
    assert_eq!(read(300).1, ["new"]);
    let removed = store
        .expire(store.now_ms() + 100 * 3_600_000, true)
        .expect("expired");
    assert!(removed > 0);
    let (meta, _) = read(0);
    assert_eq!(meta.status.name(), "OFFSET_ILLEGAL");
    assert_eq!(meta.min_offset, store.bounds("t", 0).expect("bounds").min);
    assert_eq!(
        read(meta.min_offset).1.last().map(String::as_str),
        Some("new")
    );
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.bounds("t", 0).expect("bounds").min, meta.min_offset);
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 301);
}

#[test]
fn test_state_is_in_the_log_and_survives_without_its_snapshots() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store
        .put_topic(
            "t",
            &TopicChange {
                read_queue_nums: Some(2),
                write_queue_nums: Some(2),
                ..TopicChange::default()
            },
        )
        .expect("made");
    send(&store, "t", &["a"]);
    store.put_group("g", &GroupChange::default()).expect("made");
    let end = store
        .commit_offsets("g", vec![("t".into(), 0, 1)])
        .expect("noted");
    let (epoch, _) = store.acquire_lease("g", "me", 1000).expect("taken");
    assert!(store.wait_dispatched(end, SOON));
    let id = store.topic("t").expect("a topic").topic_id;
    store.close().expect("closed");
    drop(store);
    for name in ["lakemq/snapshot.json", "config"] {
        let path = dir.path().join(name);
        let gone = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        gone.expect("removed");
    }
    let _ = fs::remove_file(dir.path().join("lakemq/snapshot.json.bak"));
    let store = open(dir.path());
    assert_eq!(store.topic("t").expect("a topic").topic_id, id);
    assert_eq!(store.group_offsets("g"), [("t".to_owned(), 0, 1)]);
    assert!(store.groups().contains_key("g"));
    let conflict = store
        .acquire_lease("g", "you", 1000)
        .expect_err("held over the restart");
    assert!(matches!(conflict, StoreError::LeaseConflict { .. }));
    assert_eq!(
        store.acquire_lease("g", "me", 1000).expect("renewed").0,
        epoch
    );
}

#[test]
fn test_a_topic_created_again_starts_anew_with_another_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["old"]);
    let before = store.topic("t").expect("a topic").topic_id;
    let reader = Reader::open(dir.path()).expect("a reader");
    let read = || {
        let request = SliceRequest {
            offset: 0,
            end_offset: None,
            max_messages: 10,
            max_bytes: usize::MAX,
            filter: Filter::of_tags("*").expect("a filter"),
        };
        let mut out = Vec::new();
        let each = |record: &RecordView<'_>, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        };
        reader.read("t", 0, &request, each).expect("readable");
        out
    };
    assert_eq!(read(), ["old"]);
    let end = store.delete_topic("t").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    assert_eq!(
        store.queues("t").expect_err("gone").code(),
        "TOPIC_NOT_EXIST"
    );
    send(&store, "t", &["new"]);
    assert_ne!(store.topic("t").expect("a topic").topic_id, before);
    assert_eq!(bodies(&store, "t"), ["new"]);
    assert_eq!(
        read(),
        ["new"],
        "a reader that knew the old topic reads the new one"
    );
    drop(store);
    fs::remove_dir_all(dir.path().join("consumequeue")).expect("removed");
    assert_eq!(
        bodies(&open(dir.path()), "t"),
        ["new"],
        "a rebuild comes to the same"
    );
}

#[test]
fn test_a_second_owner_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let refused = Store::open(dir.path(), options(), environment()).expect_err("locked");
    assert_eq!(refused.code(), "STORE_LOCKED");
    fs::remove_file(dir.path().join("lock")).expect("taken for stale");
    let refused = Store::open(dir.path(), options(), environment()).expect_err("locked");
    assert_eq!(refused.code(), "STORE_LOCKED");
    drop(store);
    open(dir.path());
}

#[test]
fn test_a_store_is_not_opened_with_other_lengths_of_files_than_it_was_made_with() {
    let dir = tempfile::tempdir().expect("a directory");
    open(dir.path());
    let asked = [
        (
            "commitlog_file_size",
            Options {
                commitlog_file_size: 2 * options().commitlog_file_size,
                ..options()
            },
        ),
        (
            "consumequeue_file_entries",
            Options {
                consumequeue_file_entries: 51,
                ..options()
            },
        ),
        (
            "index_slots",
            Options {
                index_slots: 102,
                ..options()
            },
        ),
        (
            "index_entries",
            Options {
                index_entries: 201,
                ..options()
            },
        ),
    ];
    for (name, other) in asked {
        let refused = Store::open(dir.path(), other, environment()).expect_err("made otherwise");
        assert_eq!(refused.code(), "ARGUMENT_ILLEGAL");
        assert!(refused.to_string().contains(name), "{refused}");
    }
    // Who says nothing about lengths asks for none.
    drop(
        Store::open(dir.path(), Options::default(), environment()).expect("opened as it was made"),
    );
}

#[test]
fn test_shrinking_that_strands_messages_is_refused_unless_forced() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["a"]);
    let shrink = TopicChange {
        read_queue_nums: Some(1),
        ..TopicChange::default()
    };
    assert_eq!(
        store.put_topic("t", &shrink).expect_err("refused").code(),
        "TOPIC_CONFLICT"
    );
    assert!(
        store
            .put_topic(
                "t",
                &TopicChange {
                    force: true,
                    ..shrink
                }
            )
            .is_ok()
    );
}

#[test]
fn test_async_flush_shows_nothing_before_it_is_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        flush: Flush::Async,
        flush_interval_ms: 20,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    for round in 0..50 {
        let body = format!("{round}");
        let done = store
            .append(&request("t"), &[message(&body)])
            .expect("stored");
        let (appended, flushed, dispatched, confirmed) = store.watermarks();
        assert!(dispatched <= confirmed && confirmed <= flushed && flushed <= appended);
        assert_eq!(appended, done.end_offset);
    }
    assert!(store.wait_dispatched(store.watermarks().0, SOON));
    assert_eq!(bodies(&store, "t").len(), 50);
}

#[test]
fn test_one_key_sent_by_many_at_once_is_stored_once_and_answered_alike() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        flush: Flush::Async,
        commitlog_file_size: 4 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    let body = "x".repeat(1000);
    let messages: Vec<_> = (0..400).map(|_| message(&body)).collect();
    let send = || {
        let request = AppendRequest {
            idempotency_key: Some("once"),
            ..request("t")
        };
        store.append(&request, &messages).expect("stored or known")
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
        senders
            .into_iter()
            .map(|sender| sender.join().expect("an answer"))
            .collect()
    });
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    assert!(
        answers
            .iter()
            .all(|answer| answer.end_offset == answers[0].end_offset && answer.placed.len() == 400)
    );
    assert!(store.wait_dispatched(answers[0].end_offset, SOON));
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 400);
}

#[test]
fn test_a_topic_is_made_by_the_first_message_that_is_stored_and_not_by_a_refused_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let long = "v".repeat(40_000);
    let refused = [
        NewMessage {
            queue_id: Some(99),
            ..message("m")
        },
        NewMessage {
            keys: Some(Cow::Borrowed(&long)),
            ..message("m")
        },
        NewMessage {
            body: Cow::Owned(vec![b'b'; 70_000]),
            ..message("m")
        },
    ];
    let before = store.watermarks().0;
    for message in refused {
        let error = store
            .append(&request("new"), &[message])
            .expect_err("refused");
        assert!(
            ["QUEUE_NOT_EXIST", "MESSAGE_ILLEGAL", "REQUEST_TOO_LARGE"].contains(&error.code()),
            "{error}"
        );
        assert!(store.topic("new").is_none(), "{error}");
        assert_eq!(store.watermarks().0, before, "{error}");
    }
    send(&store, "new", &["m"]);
    assert_eq!(bodies(&store, "new"), ["m"]);
    drop(store);
    assert_eq!(bodies(&open(dir.path()), "new"), ["m"]);
}

#[test]
fn test_a_read_of_no_messages_passes_none_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["one"]);
    let nothing = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 0,
        max_bytes: usize::MAX,
        filter: Filter::All,
    };
    let meta = store
        .read("t", 0, &nothing, |_, _| Ok(()))
        .expect("readable");
    assert_eq!((meta.count, meta.next_offset), (0, 0));
    assert!(meta.damaged.is_empty(), "{:?}", meta.damaged);
}
