//! What the store keeps beside messages: idempotence keys, leases, topics, delays, and the clock they go by.
//!
//! Contract: a promise made before a crash, a clock's jump or an expiry holds after it.

mod clocks;
mod jumping_clock;
mod keys;
mod leases;
mod support;

use std::borrow::Cow;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lakemq_store::message::NewMessage;
use lakemq_store::state::GroupConfig;
use lakemq_store::store::{Appended, GroupChange, Options, Store, TopicChange, Work};

use clocks::{arrives, delayed, scheduler_looked};
use jumping_clock::{HOUR, JumpingClock, open_at};
use leases::open_on;
use support::{
    FindJson, FlakyDisk, SOON, copy, environment, message, message_json, options, request, send,
};

#[test]
fn test_a_message_has_all_its_keys_in_the_index_though_the_disk_was_full_between_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(FlakyDisk::default());
    let small = Options {
        index_entries: 8,
        ..options()
    };
    let store = open_on(dir.path(), disk.clone(), small);
    send(&store, "t", &["before"]);
    disk.full.store(true, Ordering::SeqCst);
    let keys: Vec<String> = (0..20).map(|at| format!("k{at}")).collect();
    let many = NewMessage {
        keys: Some(Cow::Owned(keys.join(" "))),
        ..message("many")
    };
    let done = store.append(&request("t"), &[many]).expect("stored");
    let failed = || {
        let tried = |(name, count): &(&str, f64)| *name == "dispatch_errors_total" && *count > 0.0;
        store.stats().iter().any(tried)
    };
    assert!(
        (0..1000).any(|_| store.progress_wait(Duration::from_millis(20), failed)),
        "the index could not grow"
    );
    disk.full.store(false, Ordering::SeqCst);
    assert!(store.wait_dispatched(done.end_offset, SOON));
    for key in &keys {
        let found = store
            .messages_json("t", key, (0, i64::MAX), 10)
            .expect("searched");
        assert_eq!(found.len(), 1, "{key}");
    }
}

#[test]
fn test_a_message_is_found_by_its_id_in_any_topic_its_delayed_form_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(500_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    for at in 0..50 {
        send(&store, &format!("topic-{at}"), &["x"]);
    }
    let id_of = |done: &Appended| done.placed[0].message_id.clone();
    let plain = id_of(&send(&store, "plain", &["plain"]));
    let done = store
        .append(&request("zlate"), &[delayed("late", 1)])
        .expect("stored");
    let late = id_of(&done);
    assert!(store.wait_dispatched(done.end_offset, SOON));
    let foreign = NewMessage {
        message_id: Some("an id of another layout".into()),
        ..message("foreign")
    };
    let done = store
        .append(&request("foreign"), &[foreign])
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    let topic_of = |id: &str, topic: Option<&str>| {
        let found = message_json(&store, id, topic)?;
        let text = String::from_utf8(found).expect("text");
        let at = text.find("\"topic\":\"").expect("a topic") + 9;
        text[at..].split('"').next().map(str::to_owned)
    };
    assert_eq!(topic_of(&plain, None).as_deref(), Some("plain"));
    assert_eq!(topic_of(&plain, Some("foreign")), None);
    let done = store
        .append(
            &request("keyed"),
            &[NewMessage {
                keys: Some("18 19".into()),
                ..message("keyed")
            }],
        )
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    assert_eq!(topic_of("18", None), None, "a key is no id");
    assert_eq!(topic_of("18", Some("keyed")), None, "a key is no id");
    assert_eq!(
        topic_of("an id of another layout", None).as_deref(),
        Some("foreign")
    );
    assert_eq!(
        topic_of(&late, None).as_deref(),
        Some("SCHEDULE_TOPIC_XXXX")
    );
    clock.pass(1_000);
    scheduler_looked(&store, &clock, "wake");
    assert!(arrives(&store, "zlate"));
    assert_eq!(topic_of(&late, None).as_deref(), Some("zlate"));
    // Months later the id's time comes out wrong, and the message is found all the same.
    clock.pass(100 * 24 * HOUR);
    assert_eq!(topic_of(&plain, None).as_deref(), Some("plain"));
}

#[test]
fn test_one_offset_among_two_hundred_thousand_writes_no_snapshot_and_is_there_after_a_crash() {
    const GROUPS: usize = 200;
    const QUEUES: u32 = 1000;
    let (dir, crashed) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let large = Options {
        commitlog_file_size: 16 << 20,
        ..options()
    };
    let store = open_on(dir.path(), Arc::new(FlakyDisk::default()), large.clone());
    let change = TopicChange {
        read_queue_nums: Some(QUEUES),
        write_queue_nums: Some(QUEUES),
        ..TopicChange::default()
    };
    store.put_topic("t", &change).expect("made");
    let mut end = 0;
    for group in 0..GROUPS {
        let offsets = (0..QUEUES)
            .map(|queue| ("t".to_owned(), queue, 0))
            .collect();
        end = store
            .commit_offsets(&format!("g{group}"), offsets)
            .expect("committed");
    }
    assert!(store.wait_dispatched(end, SOON));
    assert!(
        store.checkpoint_if_due().expect("taken"),
        "none is written yet"
    );
    let place = dir.path().join("lakemq/snapshot.json");
    let written = fs::read(&place).expect("a snapshot");
    assert!(
        written.len() > GROUPS * QUEUES as usize * 5,
        "{} bytes",
        written.len()
    );
    send(&store, "t", &["a message"]);
    let committed = vec![("t".to_owned(), 0, 1)];
    for _ in 0..3 {
        let end = store
            .commit_offsets("g7", committed.clone())
            .expect("committed");
        assert!(store.wait_dispatched(end, SOON));
        assert!(!store.checkpoint_if_due().expect("looked"));
    }
    let grown = store.watermarks().2 - snapshot_offset(&written);
    assert!(grown < 10_000, "{grown} bytes of the log tell the change");
    assert!(
        fs::read(&place).expect("a snapshot") == written,
        "nothing was written"
    );
    copy(dir.path(), crashed.path());
    let body = "b".repeat(60_000);
    for _ in 0..written.len() / body.len() + 1 {
        let large = NewMessage {
            keys: None,
            ..message(&body)
        };
        let done = store.append(&request("t"), &[large]).expect("stored");
        assert!(store.wait_dispatched(done.end_offset, SOON));
    }
    assert!(
        store.checkpoint_if_due().expect("taken"),
        "the log grew by as much"
    );
    let after = open_on(crashed.path(), Arc::new(FlakyDisk::default()), large);
    let stands_at = after.group_offsets("g7");
    assert_eq!(
        (stands_at.len(), &stands_at[0]),
        (QUEUES as usize, &committed[0])
    );
    assert_eq!(after.group_offsets("g6")[0].2, 0);
}

fn snapshot_offset(bytes: &[u8]) -> i64 {
    let value: serde_json::Value = serde_json::from_slice(&bytes[9..]).expect("JSON");
    value["applied_offset"].as_i64().expect("an offset")
}

#[test]
fn test_changes_of_a_group_are_laid_over_what_is_appended_and_not_dispatched() {
    let dir = tempfile::tempdir().expect("a directory");
    let at_rest = || Store::open_at_rest(dir.path(), options(), environment()).expect("a store");
    let put = |store: &Store, change: GroupChange| store.put_group("g", &change).expect("changed");
    let changed = |config: GroupConfig| (config.retry_max_times, config.consume_enable);
    let store = at_rest();
    put(
        &store,
        GroupChange {
            retry_max_times: Some(3),
            ..GroupChange::default()
        },
    );
    assert!(store.group("g").is_none(), "nobody dispatched it");
    put(
        &store,
        GroupChange {
            consume_enable: Some(false),
            ..GroupChange::default()
        },
    );
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
    assert_eq!(store.group("g").map(changed), Some((3, false)));
    assert!(store.topic("%RETRY%g").is_some());
    // What the log has beyond the last snapshot is gone on from as well.
    drop(store);
    let store = at_rest();
    put(
        &store,
        GroupChange {
            consume_broadcast_enable: Some(false),
            ..GroupChange::default()
        },
    );
    store.delete_group("g").expect("known");
    put(
        &store,
        GroupChange {
            consume_enable: Some(false),
            ..GroupChange::default()
        },
    );
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
    assert_eq!(store.group("g").map(changed), Some((16, false)));
    assert!(
        store
            .group("g")
            .is_some_and(|config| config.consume_broadcast_enable)
    );
}
