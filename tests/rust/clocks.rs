//! Delays, stamps and ages where the clock jumps, and delayed messages where the disk is full.
//!
//! Contract: a delay lasts as long as it should; nothing grows old by a jump; what expires undelivered is counted.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lakemq_store::environment::{Clock, Disk, Environment, RealDisk};
use lakemq_store::events::Severity;
use lakemq_store::message::NewMessage;
use lakemq_store::store::Store;

use crate::jumping_clock::{HOUR, JumpingClock, open_at};
use crate::keys::keyed;
use crate::support::{FindJson, SOON, bodies, environment, message, options, request, send};

pub fn delayed(body: &str, level: u32) -> NewMessage<'_> {
    NewMessage {
        delay_level: level,
        ..message(body)
    }
}

pub fn send_delayed(store: &Store, topic: &str, body: &str, level: u32) {
    let done = store
        .append(&request(topic), &[delayed(body, level)])
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
}

pub fn arrives(store: &Store, topic: &str) -> bool {
    (0..1000).any(|_| {
        store.progress_wait(Duration::from_millis(10), || {
            store.bounds(topic, 0).is_ok_and(|b| b.max > 0)
        })
    })
}

/// Has the scheduler look once: what it has to deliver comes before this message.
pub fn scheduler_looked(store: &Store, clock: &JumpingClock, topic: &str) {
    send_delayed(store, topic, "wakes the scheduler", 1);
    clock.pass(1_000);
    send_delayed(store, topic, "again", 1);
    assert!(arrives(store, topic));
}

#[test]
fn test_a_delay_lasts_as_long_as_it_should_after_the_clock_was_ahead_for_a_moment() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    send_delayed(&store, "before", "five minutes, from before", 9);
    for ahead in [30_000, 600_000, 9_000 * HOUR] {
        clock.jump(ahead);
        send(&store, "other", &["stamped ahead"]);
        clock.jump(-ahead);
    }
    send_delayed(&store, "after", "one minute", 5);
    let max = |topic: &str| store.bounds(topic, 0).expect("a queue").max;
    clock.pass(57_000);
    scheduler_looked(&store, &clock, "early");
    assert_eq!(max("after"), 0, "not before its time");
    clock.pass(2_100);
    scheduler_looked(&store, &clock, "due");
    assert!(arrives(&store, "after"), "and not after it");
    assert_eq!(max("before"), 0);
    clock.pass(240_000);
    scheduler_looked(&store, &clock, "late");
    assert!(arrives(&store, "before"));
}

#[test]
fn test_a_message_that_is_due_at_a_time_waits_the_shortest_level_that_is_as_long_as_what_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    let now = 1_000 * HOUR;
    let waits = |level: u32, due_at: i64| {
        let late = NewMessage {
            due_at: Some(due_at),
            ..delayed("late", level)
        };
        let placed = &store
            .append(&request("late"), &[late])
            .expect("stored")
            .placed[0];
        if placed.scheduled {
            placed.queue_id + 1
        } else {
            0
        }
    };
    for (left_ms, level) in [
        (10_001, 4),
        (29_999, 4),
        (10_000, 3),
        (9_999, 3),
        (1_000, 1),
        (1, 1),
        (0, 0),
        (-1, 0),
    ] {
        assert_eq!(waits(4, now + left_ms), level, "{left_ms} ms are left");
    }
    assert_eq!(waits(4, now + HOUR), 4, "no longer than its level");
    assert_eq!(waits(99, now + 7_100_000), 18, "the last level");
    assert_eq!(waits(99, i64::MAX), 18);
    assert_eq!(waits(99, 0), 0);
    assert_eq!(waits(0, now + HOUR), 0, "without a level it does not wait");
}

#[test]
fn test_a_delay_of_which_less_is_left_is_the_same_request() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    let due_at = 1_000 * HOUR + 10_000;
    let send = |level: u32, due_at: Option<i64>| {
        let late = NewMessage {
            due_at,
            ..delayed("late", level)
        };
        store.append(&keyed("t", "k"), &[late])
    };
    let first = send(3, Some(due_at)).expect("stored");
    assert!(first.placed[0].scheduled);
    clock.pass(8_000);
    for again in [Some(due_at), Some(due_at + 1), None] {
        let known = send(3, again).expect("the same request");
        assert!(known.duplicate);
        assert_eq!(known.placed, first.placed);
    }
    clock.pass(8_000);
    assert!(send(3, Some(due_at)).expect("the same request").duplicate);
    assert!(
        send(1, Some(due_at)).is_err(),
        "another level is another request"
    );
}

#[test]
fn test_store_timestamps_follow_a_clock_that_is_set_back_by_more_than_a_minute() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    let stamp_of = |body: &str| {
        send(&store, "t", &[body]);
        let found = store
            .messages_json("t", &format!("key-{body}"), (0, i64::MAX), 1)
            .expect("searched");
        let text = String::from_utf8(found[0].clone()).expect("text");
        let at = text.find("\"store_timestamp\":").expect("a stamp") + 18;
        let digits: String = text[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<i64>().expect("a number") - 1_000 * HOUR
    };
    assert_eq!(stamp_of("a"), 0);
    clock.jump(-30_000);
    assert_eq!(stamp_of("b"), 0, "never back by a little");
    clock.jump(-60_000);
    assert_eq!(stamp_of("c"), -90_000);
}

#[test]
fn test_a_jump_ahead_takes_neither_files_nor_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let environment = || Environment {
        clock: clock.clone(),
        ..environment()
    };
    let opened = || Store::open(dir.path(), options(), environment()).expect("a store");
    let store = opened();
    store
        .append(&keyed("t", "k"), &[message("a")])
        .expect("stored");
    crate::support::bulk(&store, "t", 300);
    clock.jump(9_000 * HOUR);
    assert_eq!(store.expire(store.now_for_ages(), true).expect("looked"), 0);
    store
        .append(&keyed("t", "another"), &[message("b")])
        .expect("stored");
    let repeated = |store: &Store| {
        store
            .append(&keyed("t", "k"), &[message("a")])
            .expect("known")
            .duplicate
    };
    assert!(repeated(&store));
    drop(store);
    let store = opened();
    assert_eq!(store.expire(store.now_for_ages(), true).expect("looked"), 0);
    assert!(repeated(&store), "after a start too");
    clock.jump(-9_000 * HOUR);
    clock.pass(100 * HOUR);
    assert!(store.expire(store.now_for_ages(), true).expect("expired") > 0);
    assert!(
        !store
            .append(&keyed("t", "k"), &[message("a")])
            .expect("a request of its own")
            .duplicate,
        "its first result went with the log"
    );
}

/// A disk as full as a test says.
#[derive(Default)]
struct FillingDisk {
    full: AtomicBool,
}

impl Disk for FillingDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }

    fn used_ratio(&self, _path: &Path) -> io::Result<f64> {
        Ok(if self.full.load(Ordering::SeqCst) {
            0.9
        } else {
            0.1
        })
    }
}

#[test]
fn test_expiry_keeps_delayed_messages_until_they_are_delivered() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    send_delayed(&store, "t", "two hours", 18);
    crate::support::bulk(&store, "busy", 400);
    let long_after = || clock.now_ms() + 100 * HOUR;
    assert_eq!(store.expire(long_after(), true).expect("looked"), 0);
    clock.pass(2 * HOUR);
    scheduler_looked(&store, &clock, "wake");
    assert!(arrives(&store, "t"));
    assert_eq!(bodies(&store, "t"), ["two hours"]);
    let end = store.watermarks().0;
    assert!(store.wait_dispatched(end, SOON));
    assert!(store.expire(long_after(), true).expect("expired") > 0);
}

#[test]
fn test_delayed_messages_that_a_full_disk_takes_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let disk = Arc::new(FillingDisk::default());
    let environment = Environment {
        clock: clock.clone(),
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    for body in ["one", "two", "three"] {
        send_delayed(&store, "t", body, 18);
    }
    crate::support::bulk(&store, "busy", 400);
    disk.full.store(true, Ordering::SeqCst);
    assert!(store.expire(clock.now_ms(), true).expect("expired") > 0);
    let dropped = || {
        let stats = store.stats();
        let found = stats.iter().find(|(n, _)| *n == "delayed_dropped_total");
        found.map_or(0.0, |(_, count)| *count)
    };
    let counted = |count: f64| {
        (0..1000).any(|_| store.progress_wait(Duration::from_millis(10), || dropped() >= count))
    };
    assert!(counted(3.0));
    clock.pass(2 * HOUR);
    send_delayed(&store, "later", "goes on", 18);
    clock.pass(2 * HOUR);
    scheduler_looked(&store, &clock, "wake");
    assert!(arrives(&store, "later"), "the level goes on");
    assert_eq!(dropped(), 3.0);
    let events = store.take_events();
    assert!(events.iter().any(|e| {
        e.severity == Severity::Error
            && e.text
                .contains("3 delayed messages of level 18 expired before they were due")
    }));
    assert!(store.take_events().is_empty(), "each is told once");
}
