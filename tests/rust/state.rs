//! What the store keeps beside messages: idempotence keys, leases, topics, delays, and the clock they go by.
//!
//! Contract: a promise made before a crash, a clock's jump or an expiry holds after it.

mod support;

use std::borrow::Cow;
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use lakemq_store::environment::{Clock, Disk, Environment, RealDisk};
use lakemq_store::error::StoreError;
use lakemq_store::events::Severity;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Appended, Options, Store, TopicChange};
use support::{FlakyDisk, SOON, bodies, copy, environment, message, open, options, request, send};

fn keyed<'a>(topic: &'a str, key: &'a str) -> AppendRequest<'a> {
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
fn test_a_delayed_message_keeps_its_key_and_shows_the_queue_its_sender_was_told() {
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

/// A disk whose syncs wait until the gate is open.
#[derive(Default)]
struct GatedDisk {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl GatedDisk {
    fn set_closed(&self, closed: bool) {
        *self.closed.lock().expect("a lock") = closed;
        self.changed.notify_all();
    }
}

impl Disk for GatedDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let closed = self.closed.lock().expect("a lock");
        drop(
            self.changed
                .wait_while(closed, |closed| *closed)
                .expect("a lock"),
        );
        RealDisk.sync(file)
    }
}

fn open_on(path: &Path, disk: Arc<dyn Disk>, options: Options) -> Store {
    let environment = Environment {
        disk,
        ..environment()
    };
    Store::open(path, options, environment).expect("a store")
}

#[test]
fn test_a_lease_is_granted_when_its_record_is_on_the_disk_and_not_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let power_cut = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(GatedDisk::default());
    let store = open_on(dir.path(), disk.clone(), options());
    send(&store, "t", &["a"]);
    let durable = store.watermarks().1;
    copy(dir.path(), power_cut.path());
    disk.set_closed(true);
    let answered = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let granted = store.acquire_lease("g", "one", 60_000);
            answered.store(true, Ordering::SeqCst);
            granted
        });
        let tick = Duration::from_millis(10);
        let appended = || store.watermarks().0 > durable;
        assert!((0..300).any(|_| store.progress_wait(tick, appended)));
        let renewed = scope.spawn(|| store.acquire_lease("g", "one", 60_000));
        std::thread::sleep(Duration::from_millis(100));
        let told = answered.load(Ordering::SeqCst);
        let shown = store.lease("g").is_some();
        let claimed = store.lease_or_claim("g").map(|hold| hold.owner);
        // Before anything is asserted: a test that fails must not leave the store waiting for its disk.
        disk.set_closed(false);
        assert!(!told, "told before it is durable");
        assert!(!shown, "shown before it is durable");
        assert_eq!(
            claimed.as_deref(),
            Some("one"),
            "nobody else moves the group from its record on"
        );
        let epoch = first.join().expect("no panic").expect("granted").0;
        assert_eq!(epoch, 1);
        assert_eq!(renewed.join().expect("no panic").expect("renewed").0, epoch);
    });
    assert_eq!(store.lease("g").expect("confirmed").epoch, 1);
    assert!(store.watermarks().1 > durable);
    // Where the power went while it waited, nobody had the epoch, and the next owner gets it.
    let after = open(power_cut.path());
    assert_eq!(after.acquire_lease("g", "two", 1000).expect("free").0, 1);
}

#[test]
fn test_a_lease_whose_record_cannot_be_flushed_is_not_granted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = support::open_on_flaky_disk(dir.path());
    disk.fail_sync.store(true, Ordering::SeqCst);
    let refused = store
        .acquire_lease("g", "one", 60_000)
        .expect_err("not durable");
    assert_eq!(refused.code(), "STORE_POISONED");
}

#[test]
fn test_the_epoch_of_a_group_goes_on_over_its_deletion_and_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.put_group("g", "{}").expect("made");
    let (first, _) = store.acquire_lease("g", "one", 60_000).expect("free");
    let end = store.delete_group("g").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    assert!(store.lease("g").is_none());
    let (second, _) = store.acquire_lease("g", "two", 60_000).expect("free again");
    assert!(second > first);
    store.put_group("g", "{}").expect("made again");
    assert!(store.release_lease("g", "two"));
    let end = {
        let made = store.watermarks().0;
        assert!(store.wait_dispatched(made, SOON));
        store.delete_group("g").expect("deleted again")
    };
    assert!(store.wait_dispatched(end, SOON));
    drop(store);
    let store = open(dir.path());
    let (third, _) = store.acquire_lease("g", "three", 60_000).expect("free");
    assert!(third > second);
}

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
        let found = store.find("t", key, (0, i64::MAX), 10).expect("searched");
        assert_eq!(found.len(), 1, "{key}");
    }
}

/// A clock whose time of day a test may set while time goes on.
#[derive(Default)]
struct JumpingClock {
    time_of_day: AtomicI64,
    passed: AtomicI64,
}

impl JumpingClock {
    fn at(time_of_day: i64) -> Arc<Self> {
        Arc::new(Self {
            time_of_day: AtomicI64::new(time_of_day),
            passed: AtomicI64::new(5),
        })
    }

    fn pass(&self, ms: i64) {
        self.time_of_day.fetch_add(ms, Ordering::SeqCst);
        self.passed.fetch_add(ms, Ordering::SeqCst);
    }

    fn jump(&self, ms: i64) {
        self.time_of_day.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ms(&self) -> i64 {
        self.time_of_day.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.passed.load(Ordering::SeqCst)
    }
}

const HOUR: i64 = 3_600_000;

fn open_at(path: &Path, clock: &Arc<JumpingClock>) -> Store {
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    Store::open(path, options(), environment).expect("a store")
}

#[test]
fn test_a_lease_lives_by_the_time_that_passes_wherever_the_clock_jumps() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    store.acquire_lease("g", "one", 60_000).expect("free");
    clock.jump(24 * HOUR);
    store
        .acquire_lease("g", "two", 60_000)
        .expect_err("no minute has passed");
    clock.jump(-48 * HOUR);
    clock.pass(60_000);
    store
        .acquire_lease("g", "two", 60_000)
        .expect("a minute has passed");
}

fn delayed(body: &str, level: u32) -> NewMessage<'_> {
    NewMessage {
        delay_level: level,
        ..message(body)
    }
}

fn send_delayed(store: &Store, topic: &str, body: &str, level: u32) {
    let done = store
        .append(&request(topic), &[delayed(body, level)])
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
}

fn arrives(store: &Store, topic: &str) -> bool {
    (0..1000).any(|_| {
        store.progress_wait(Duration::from_millis(10), || {
            store.bounds(topic, 0).is_ok_and(|b| b.max > 0)
        })
    })
}

/// Has the scheduler look once: what it has to deliver comes before this message.
fn scheduler_looked(store: &Store, clock: &JumpingClock, topic: &str) {
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
fn test_store_timestamps_follow_a_clock_that_is_set_back_by_more_than_a_minute() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    let stamp_of = |body: &str| {
        send(&store, "t", &[body]);
        let found = store
            .find("t", &format!("key-{body}"), (0, i64::MAX), 1)
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
    support::bulk(&store, "t", 300);
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
    support::bulk(&store, "busy", 400);
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
    support::bulk(&store, "busy", 400);
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
        let found = store.find_by_id(id, topic).expect("searched")?;
        let text = String::from_utf8(found).expect("text");
        let at = text.find("\"topic\":\"").expect("a topic") + 9;
        text[at..].split('"').next().map(str::to_owned)
    };
    assert_eq!(topic_of(&plain, None).as_deref(), Some("plain"));
    assert_eq!(topic_of(&plain, Some("foreign")), None);
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
    let stands = vec![("t".to_owned(), 0, 1)];
    for _ in 0..3 {
        let end = store
            .commit_offsets("g7", stands.clone())
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
        (QUEUES as usize, &stands[0])
    );
    assert_eq!(after.group_offsets("g6")[0].2, 0);
}

fn snapshot_offset(bytes: &[u8]) -> i64 {
    let value: serde_json::Value = serde_json::from_slice(&bytes[9..]).expect("JSON");
    value["applied_offset"].as_i64().expect("an offset")
}
