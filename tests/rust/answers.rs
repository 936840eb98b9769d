//! What the store tells others: the answer to a delayed send, lists in pages, what a verification finds.
//!
//! Contract: a position in an answer is where the message stands; a page costs what is on it; a directory
//! that holds no store, or lacks a file of one, is never called good.

mod support;

use std::fs;

use lakemq_store::inspect::{Dump, verify};
use lakemq_store::message::NewMessage;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Appended, GroupChange, TopicChange};
use lakemq_store::wire::answer::AppendAnswer;
use support::*;

fn answer(done: &Appended, many: bool) -> serde_json::Value {
    let answer = AppendAnswer {
        topic: "t",
        broker_name: "broker-a",
        store_host: ([127, 0, 0, 1], 8090).into(),
        many,
        full_results: false,
        duplicate: done.duplicate,
        placed: &done.placed,
    };
    serde_json::from_slice(&answer.render("SEND_OK")).expect("JSON")
}

fn delayed(body: &str, queue_id: u32, delay_level: u32) -> NewMessage<'_> {
    NewMessage {
        queue_id: Some(queue_id),
        delay_level,
        ..message(body)
    }
}

#[test]
fn test_the_answer_to_a_delayed_send_says_that_its_position_is_the_schedules() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let keyed = AppendRequest {
        idempotency_key: Some("once"),
        ..request("t")
    };
    let first = store.append(&keyed, &[delayed("a", 3, 5)]).expect("stored");
    let given = answer(&first, false);
    assert_eq!(given["topic"], "t");
    assert_eq!(given["scheduled"], true);
    assert_eq!(
        (&given["queue_id"], &given["queue_offset"]),
        (&4.into(), &0.into())
    );
    let again = answer(
        &store
            .append(&keyed, &[delayed("a", 3, 5)])
            .expect("the first result"),
        false,
    );
    assert_eq!(again["duplicate"], true);
    assert_eq!(
        (&again["scheduled"], &again["queue_id"]),
        (&true.into(), &4.into())
    );
    let plain = answer(
        &store
            .append(&request("t"), &[message("b")])
            .expect("stored"),
        false,
    );
    assert!(plain.get("scheduled").is_none());

    let mixed = [
        delayed("c", 0, 5),
        delayed("d", 1, 0),
        delayed("e", 1, 5),
        delayed("f", 1, 6),
    ];
    let given = answer(&store.append(&request("t"), &mixed).expect("stored"), true);
    assert_eq!(
        given["queues"],
        serde_json::json!([
            {"queue_id": 1, "first_queue_offset": 0, "count": 1},
            {"queue_id": 4, "first_queue_offset": 1, "count": 2, "scheduled": true},
            {"queue_id": 5, "first_queue_offset": 0, "count": 1, "scheduled": true},
        ])
    );
}

#[test]
fn test_pages_of_topics_and_groups_hold_every_name_once_and_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut end = 0;
    for n in 0..7 {
        end = store
            .put_topic(&format!("topic-{n}"), &TopicChange::default())
            .expect("made");
    }
    for n in 0..3 {
        end = store
            .put_group(&format!("group-{n}"), &GroupChange::default())
            .expect("made")
            .max(end);
    }
    end = store
        .commit_offsets("committed", vec![("topic-0".into(), 0, 0)])
        .expect("committed")
        .max(end);
    assert!(store.wait_dispatched(end, SOON));
    let all: Vec<_> = store.topics().into_keys().collect();
    let groups: Vec<_> = store.groups().into_keys().collect();
    assert_eq!(groups, ["committed", "group-0", "group-1", "group-2"]);
    for limit in 1..=all.len() + 1 {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let after = seen.last().cloned().unwrap_or_default();
            let page = store.topics_after(&after, limit);
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            seen.extend(page.into_iter().map(|(topic, _)| topic));
        }
        assert_eq!(seen, all, "pages of {limit}");
    }
    let first: Vec<_> = store
        .groups_after("", 2)
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    let rest: Vec<_> = store
        .groups_after(&first[1], 9)
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    assert_eq!([first, rest].concat(), groups);
    assert!(store.group("committed").is_some() && store.group("group-9").is_none());
}

#[test]
fn test_a_reader_of_a_file_is_told_that_it_is_no_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "text").expect("written");
    for path in [file.clone(), file.join("below")] {
        let refused = Reader::open(&path).expect_err("no store");
        assert_eq!(refused.code(), "ARGUMENT_ILLEGAL", "{refused}");
        assert!(refused.detail().contains("is no store"), "{refused}");
    }
}

#[test]
fn test_verify_refuses_what_is_no_store() {
    let dir = tempfile::tempdir().expect("a directory");
    for step in 0..2 {
        let refused = verify(dir.path()).expect_err("no store");
        assert_eq!(refused.code(), "ARGUMENT_ILLEGAL", "step {step}: {refused}");
        assert!(refused.detail().contains("is no store"), "{refused}");
        assert_eq!(
            Dump::open(dir.path(), 0, None)
                .expect_err("no store")
                .code(),
            "ARGUMENT_ILLEGAL"
        );
        fs::create_dir_all(dir.path().join("commitlog")).expect("a directory");
    }
}

#[test]
fn test_verify_finds_log_files_that_are_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 400);
    store.close().expect("closed");
    assert!(verify(dir.path()).expect("a store").ok);
    let mut files: Vec<_> = fs::read_dir(dir.path().join("commitlog"))
        .expect("a log")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 3, "{files:?}");
    fs::remove_file(&files[1]).expect("removed");
    let found = verify(dir.path()).expect("a store");
    assert!(!found.ok);
    assert_eq!(found.damaged_ranges, [(65_536, 131_072)]);
    for file in files {
        let _ = fs::remove_file(file);
    }
    let found = verify(dir.path()).expect("a store");
    assert!(!found.ok, "{found:?}");
}
