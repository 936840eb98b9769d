//! The store as its owner sees it: append, flush, dispatch, read, close, and come back after any stop.
//!
//! Contract: what was flushed is never lost; a request of several messages is stored all or none; queue
//! offsets are dense; queues and index can be deleted in any combination and come back byte for byte.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use lakemq_store::environment::{Clock, Disk, Environment, Faults, RealDisk};
use lakemq_store::error::StoreError;
use lakemq_store::filter::TagFilter;
use lakemq_store::message::{NewMessage, RecordView};
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Appended, Flush, Options, Store, TopicChange};

const SOON: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options {
        commitlog_file_size: 64 * 1024,
        consumequeue_file_entries: 50,
        index_slots: 101,
        index_entries: 200,
        checkpoint_interval_ms: 3_600_000,
        ..Options::default()
    }
}

struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A disk whose next calls can be made to fail.
#[derive(Default)]
struct FlakyDisk {
    fail_sync: AtomicBool,
    full: AtomicBool,
}

impl Disk for FlakyDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28));
        }
        RealDisk.allocate(file, offset, length)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        RealDisk.sync(file)
    }
}

fn environment() -> Environment {
    Environment::real("").expect("randomness")
}

fn open(path: &Path) -> Store {
    Store::open(path, options(), environment()).expect("a store")
}

fn request(topic: &str) -> AppendRequest<'_> {
    AppendRequest {
        topic,
        born_host: None,
        idempotency_key: None,
        full_results: false,
    }
}

fn message(body: &str) -> NewMessage<'_> {
    NewMessage {
        body: Cow::Borrowed(body.as_bytes()),
        keys: Some(Cow::Owned(format!("key-{body}"))),
        tags: Some(Cow::Borrowed("even")),
        queue_id: Some(0),
        wait_store_ok: true,
        ..NewMessage::default()
    }
}

fn send(store: &Store, topic: &str, bodies: &[&str]) -> Appended {
    let messages: Vec<_> = bodies.iter().map(|b| message(b)).collect();
    let done = store
        .append(&request(topic), &messages, bodies.len() > 1)
        .expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    done
}

fn bodies(store: &Store, topic: &str) -> Vec<String> {
    let everything = SliceRequest {
        offset: store.bounds(topic, 0).expect("a queue").min,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        tags: TagFilter::parse("*").expect("a filter"),
    };
    let mut out = Vec::new();
    let meta = store
        .read(topic, 0, &everything, |record, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        })
        .expect("readable");
    assert!(meta.damaged.is_empty(), "{:?}", meta.damaged);
    out
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Every file of a directory with its content, sorted.
fn image(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let content = fs::read(&path).expect("a file");
                out.push((path.strip_prefix(root).expect("below").to_owned(), content));
            }
        }
    }
    out.sort();
    out
}

fn bulk(store: &Store, topic: &str, count: usize) -> Vec<String> {
    let bodies: Vec<String> = (0..count)
        .map(|at| format!("{at}-{}", "x".repeat(500)))
        .collect();
    for chunk in bodies.chunks(10) {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        send(store, topic, &chunk);
    }
    bodies
}

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
            .find("t", &format!("key-{}", expected[7]), (0, i64::MAX), 10)
            .expect("found")
            .len(),
        1
    );
}

#[test]
fn test_a_crash_loses_nothing_that_was_flushed_and_offsets_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut expected = bulk(&store, "t", 120);
    copy(dir.path(), crashed.path());
    let store = open(crashed.path());
    assert!(!store.report().clean);
    assert_eq!(bodies(&store, "t"), expected);
    send(&store, "t", &["next"]);
    expected.push("next".into());
    assert_eq!(bodies(&store, "t"), expected);
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 121);
}

#[test]
fn test_a_tail_torn_at_any_byte_of_the_last_request_leaves_what_came_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["one", "two"]);
    let before = store.watermarks().0;
    let scratch = tempfile::tempdir().expect("a directory");
    let (early, torn) = (scratch.path().join("early"), scratch.path().join("torn"));
    copy(dir.path(), &early);
    let end = send(&store, "t", &["three", "four", "five"]).end_offset;
    let log = fs::read(dir.path().join("commitlog").join("0".repeat(20))).expect("the log");
    for cut in before..end {
        copy(&early, &torn);
        let mut bytes = log.clone();
        bytes[cut as usize..].fill(0);
        fs::write(torn.join("commitlog").join("0".repeat(20)), bytes).expect("written");
        let store = open(&torn);
        assert_eq!(
            bodies(&store, "t"),
            ["one", "two"],
            "cut at {cut} of {before}..{end}: the request is all or nothing, {:?}",
            store.report()
        );
        send(&store, "t", &["after"]);
        assert_eq!(bodies(&store, "t"), ["one", "two", "after"]);
        drop(store);
        fs::remove_dir_all(&torn).expect("removed");
    }
}

#[test]
fn test_any_subset_of_derived_files_is_rebuilt_byte_for_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 130);
    bulk(&store, "u", 70);
    store.close().expect("closed");
    drop(store);
    let derived = [
        "consumequeue",
        "index",
        "checkpoint",
        "lakemq/snapshot.json",
    ];
    let expected: Vec<_> = derived[..3]
        .iter()
        .map(|d| image(&dir.path().join(d)))
        .collect();
    let checkpoint = fs::read(dir.path().join("checkpoint")).expect("a checkpoint");
    for subset in 1u32..16 {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        for (at, name) in derived
            .iter()
            .enumerate()
            .filter(|(at, _)| subset & (1 << at) != 0)
        {
            let path = copied.path().join(name);
            let gone = if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            };
            gone.unwrap_or_else(|e| panic!("{name} ({at}): {e}"));
            if *name == "lakemq/snapshot.json" {
                let _ = fs::remove_file(copied.path().join("lakemq/snapshot.json.bak"));
            }
        }
        open(copied.path()).close().expect("closed");
        for (name, expected) in derived[..3].iter().zip(&expected) {
            assert!(
                image(&copied.path().join(name)) == *expected,
                "{name} differs after subset {subset:b}"
            );
        }
        assert_eq!(
            fs::read(copied.path().join("checkpoint")).expect("a checkpoint"),
            checkpoint
        );
    }
}

#[test]
fn test_damage_in_the_middle_is_quarantined_and_what_follows_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 30);
    store.close().expect("closed");
    drop(store);
    let path = dir.path().join("commitlog").join("0".repeat(20));
    let mut bytes = fs::read(&path).expect("the log");
    let at = bytes
        .windows(3)
        .position(|w| w == b"12-")
        .expect("message 12");
    bytes[at + 100] ^= 1;
    fs::write(&path, bytes).expect("written");
    fs::remove_dir_all(dir.path().join("consumequeue")).expect("removed");
    let store = open(dir.path());
    assert!(store.report().quarantined_bytes > 500 && store.report().truncated_bytes == 0);
    let everything = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 1000,
        max_bytes: usize::MAX,
        tags: TagFilter::parse("*").expect("a filter"),
    };
    let mut read = Vec::new();
    let mut damaged = Vec::new();
    let mut request = everything;
    while request.offset < 30 {
        let meta = store
            .read("t", 0, &request, |record, _| {
                read.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        damaged.extend(meta.damaged);
        request.offset = meta.next_offset;
    }
    assert_eq!(damaged, [(12, 13)]);
    assert_eq!(read.len(), 29);
    assert!(!read.contains(&expected[12]));
}

#[test]
fn test_a_failed_flush_is_final() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    send(&store, "t", &["safe"]);
    disk.fail_sync.store(true, Ordering::SeqCst);
    let done = store
        .append(&request("t"), &[message("lost")], false)
        .expect("in memory");
    assert!(
        !store.wait_flushed(done.end_offset, SOON),
        "never acknowledged"
    );
    disk.fail_sync.store(false, Ordering::SeqCst);
    let refused = store
        .append(&request("t"), &[message("later")], false)
        .expect_err("read-only");
    assert_eq!(refused.code(), "STORE_POISONED");
    assert_eq!(
        bodies(&store, "t"),
        ["safe"],
        "what is not flushed is not shown"
    );
}

#[test]
fn test_a_full_disk_refuses_cleanly_and_service_returns() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    let mut expected = bulk(&store, "t", 20);
    disk.full.store(true, Ordering::SeqCst);
    let body = "y".repeat(10_000);
    let mut stored = 0;
    let refused = loop {
        match store.append(&request("t"), &[message(&body)], false) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), "DISK_FULL");
    disk.full.store(false, Ordering::SeqCst);
    send(&store, "t", &["after"]);
    expected.extend(std::iter::repeat_n(body, stored));
    expected.push("after".into());
    assert_eq!(bodies(&store, "t"), expected);
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
        .append(&keyed, &[message("a"), message("b")], true)
        .expect("stored");
    assert!(store.wait_dispatched(first.end_offset, SOON));
    let text = |a: &Appended| String::from_utf8_lossy(&a.tail).replace("true}", "false}");
    let again = store
        .append(&keyed, &[message("a"), message("b")], true)
        .expect("known");
    assert!(again.duplicate && text(&again) == text(&first));
    copy(dir.path(), crashed.path());
    for round in 0..2 {
        let store = open(crashed.path());
        let again = store
            .append(&keyed, &[message("a"), message("b")], true)
            .expect("known");
        assert!(again.duplicate, "round {round}");
        assert_eq!(text(&again), text(&first));
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
    let late = NewMessage {
        delay_level: 2,
        ..message("late")
    };
    let done = store.append(&request("t"), &[late], false).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 0);
    let scratch = tempfile::tempdir().expect("a directory");
    let crashed = scratch.path().join("crashed");
    copy(dir.path(), &crashed);
    store.close().expect("closed");
    clock.0.fetch_add(5000, Ordering::SeqCst);
    for round in 0..3 {
        let store = at(&crashed);
        let delivered = store.progress_wait(SOON, || store.bounds("t", 0).is_ok_and(|b| b.max > 0));
        assert!(delivered, "round {round}");
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
            tags: TagFilter::parse("*").expect("a filter"),
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
    store.put_group("g", "{}").expect("made");
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
            tags: TagFilter::parse("*").expect("a filter"),
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
    drop(store);
    open(dir.path());
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
            .append(&request("t"), &[message(&body)], false)
            .expect("stored");
        let (appended, flushed, dispatched, confirmed) = store.watermarks();
        assert!(confirmed <= dispatched && dispatched <= flushed && flushed <= appended);
        assert_eq!(appended, done.end_offset);
    }
    assert!(store.wait_dispatched(store.watermarks().0, SOON));
    assert_eq!(bodies(&store, "t").len(), 50);
}

#[test]
fn test_faults_are_read_and_refused_by_name() {
    assert!(Faults::parse("append.mid:3,roll").is_ok_and(|f| f.is_set()));
    assert!(Faults::parse("").is_ok_and(|f| !f.is_set()));
    assert_eq!(
        Faults::parse("nowhere:1").expect_err("unknown").code(),
        "ARGUMENT_ILLEGAL"
    );
}
