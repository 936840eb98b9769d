//! Consume queues: what a store with many of them costs, and what a start makes of queues that are not as
//! they were.
//!
//! Contract: an offset is never given twice; only what is missing is built again, and how long that takes
//! hangs on the log's unflushed tail; a damaged message is passed over and said.

mod repair;
mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use lakemq_store::filter::Filter;
use lakemq_store::message::NewMessage;
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{Store, TopicChange};

use support::{
    SOON, bodies, bulk, comes_true, copy, environment, image, open, options, request, send,
};

const HOURS_100: i64 = 100 * 3_600_000;

fn everything(offset: i64, tags: &str) -> SliceRequest {
    SliceRequest {
        offset,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        filter: Filter::of_tags(tags).expect("a filter"),
    }
}

/// One message to each of `count` queues of `topic`.
fn one_to_each(store: &Store, topic: &str, count: u32) {
    let batch: Vec<NewMessage<'_>> = (0..count)
        .map(|queue_id| NewMessage {
            body: b"x"[..].into(),
            queue_id: Some(queue_id),
            wait_store_ok: true,
            ..NewMessage::default()
        })
        .collect();
    let mut end = 0;
    for part in batch.chunks(100) {
        end = store
            .append(&request(topic), part)
            .expect("stored")
            .end_offset;
    }
    assert!(store.wait_dispatched(end, Duration::from_secs(60)));
}

fn many_queues(store: &Store, topics: usize, queues: u32) {
    let change = TopicChange {
        read_queue_nums: Some(queues),
        write_queue_nums: Some(queues),
        ..TopicChange::default()
    };
    for topic in 0..topics {
        store
            .put_topic(&format!("t{topic}"), &change)
            .expect("made");
        one_to_each(store, &format!("t{topic}"), queues);
    }
}

/// Queue files this process holds open.
fn open_queue_files(root: &Path) -> usize {
    fs::read_dir("/proc/self/fd")
        .expect("descriptors")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(root.join("consumequeue")))
        .count()
}

/// The directory as a crash at this moment leaves it.
fn crash(root: &Path) -> tempfile::TempDir {
    let crashed = tempfile::tempdir().expect("a directory");
    copy(root, crashed.path());
    assert!(crashed.path().join("abort").exists());
    crashed
}

#[test]
fn test_queues_hold_no_descriptors_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    many_queues(&store, 2, 700);
    assert!(open_queue_files(dir.path()) <= 512, "written by the owner");
    let reader = Reader::open(dir.path()).expect("a reader");
    for topic in ["t0", "t1"] {
        let queues = reader.queues(topic).expect("queues");
        assert!(queues.iter().all(|(_, bounds)| bounds.max == 1) && queues.len() == 700);
    }
    assert!(
        open_queue_files(dir.path()) <= 2 * 512,
        "and read by a reader"
    );
    drop(reader);
    store.close().expect("closed");
    drop(store);
    let store = open(dir.path());
    assert!(store.report().clean && store.report().records == 0);
    for topic in ["t0", "t1"] {
        let queues = store.queues(topic).expect("queues");
        assert!(queues.iter().all(|(_, bounds)| bounds.max == 1) && queues.len() == 700);
    }
    one_to_each(&store, "t1", 700);
    assert!(open_queue_files(dir.path()) <= 512);
}

#[test]
fn test_a_quarantined_record_is_passed_over_by_all_readers() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 60);
    store.close().expect("closed");
    drop(store);
    // Message 50, and the last one of the queue.
    for number in [50, 59] {
        let needle = format!("{number}-xxx");
        for file in fs::read_dir(dir.path().join("commitlog")).expect("files") {
            let path = file.expect("a file").path();
            let mut bytes = fs::read(&path).expect("the log");
            if let Some(at) = bytes
                .windows(needle.len())
                .position(|w| w == needle.as_bytes())
            {
                bytes[at + 100] ^= 1;
                fs::write(&path, bytes).expect("written");
            }
        }
    }
    fs::remove_dir_all(dir.path().join("consumequeue")).expect("removed");
    let store = open(dir.path());
    assert!(store.report().quarantined_bytes > 0);
    for later in 0..5 {
        send(&store, "t", &[&format!("later-{later}")]);
    }
    let owner = store.bounds("t", 0).expect("bounds");
    assert_eq!((owner.min, owner.max), (0, 65));
    let reader = Reader::open(dir.path()).expect("a reader");
    assert_eq!(reader.bounds("t", 0).expect("bounds"), owner);
    for tags in ["*", "even"] {
        let mut got = Vec::new();
        let meta = reader
            .read("t", 0, &everything(0, tags), |record, _| {
                got.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        assert_eq!(meta.damaged, [(50, 51), (59, 60)], "tags {tags}");
        assert_eq!(meta.next_offset, 65);
        assert_eq!(got.len(), 63);
        assert!(!got.contains(&expected[50]) && got.contains(&"later-4".to_owned()));
    }
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.bounds("t", 0).expect("bounds").max, 65);
}

#[test]
fn test_a_delay_level_goes_on_behind_a_quarantined_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let late = |body: &'static str| NewMessage {
        delay_level: 1,
        ..support::message(body)
    };
    let store = open(dir.path());
    let all = [late("one-late"), late("two-late"), late("three-late")];
    let done = store.append(&request("t"), &all).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    let place = crash(dir.path());
    drop(store);
    let path = place.path().join("commitlog").join("0".repeat(20));
    let mut bytes = fs::read(&path).expect("the log");
    let at = bytes
        .windows(8)
        .position(|w| w == b"two-late")
        .expect("a message");
    bytes[at] ^= 1;
    fs::write(&path, bytes).expect("written");
    fs::remove_dir_all(place.path().join("consumequeue")).expect("removed");
    for name in ["snapshot.json", "snapshot.json.bak"] {
        let _ = fs::remove_file(place.path().join("lakemq").join(name));
    }
    let store = open(place.path());
    let both = || store.bounds("t", 0).is_ok_and(|bounds| bounds.max == 2);
    assert!(store.progress_wait(SOON, both), "the level goes on");
    assert_eq!(bodies(&store, "t"), ["one-late", "three-late"]);
}

#[test]
fn test_a_reader_sees_no_deleted_topics_messages_while_queues_are_built_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 40);
    let end = store.delete_topic("t").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    let new: Vec<String> = (0..40).map(|at| format!("new-{at}")).collect();
    for body in &new {
        send(&store, "t", &[body]);
    }
    bulk(&store, "busy", 1000);
    store.close().expect("closed");
    drop(store);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let reader = Reader::open(dir.path()).expect("a reader");
            let (mut whole, mut refused) = (0, 0);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut got = Vec::new();
                let outcome = reader.read("t", 0, &everything(0, "*"), |record, _| {
                    got.push(String::from_utf8_lossy(record.body).into_owned());
                    Ok(())
                });
                match outcome {
                    Ok(meta) => {
                        assert!(
                            got == new && meta.damaged.is_empty(),
                            "{} messages, {meta:?}",
                            got.len()
                        );
                        whole += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.code(), "SERVICE_NOT_AVAILABLE", "{error}");
                        refused += 1;
                    }
                }
            }
            (whole, refused)
        });
        for _ in 0..10 {
            Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let (whole, _) = watcher.join().expect("only whole reads");
        assert!(whole > 0, "it reads between the rebuilds");
    });
}

#[test]
fn test_a_reader_says_that_a_recovery_did_not_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 20);
    store.close().expect("closed");
    drop(store);
    // Recoveries stand at byte 64 of the watermarks; the owner died in the middle of one.
    let path = dir.path().join("lakemq/watermarks");
    let mut page = fs::read(&path).expect("the watermarks");
    page[64..72].copy_from_slice(&7i64.to_ne_bytes());
    fs::write(&path, page).expect("written");
    let reader = Reader::open(dir.path()).expect("a reader");
    let refused = reader
        .read("t", 0, &everything(0, "*"), |_, _| Ok(()))
        .expect_err("not yet");
    assert_eq!(refused.code(), "SERVICE_NOT_AVAILABLE");
    Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
    let mut count = 0;
    let meta = reader.read("t", 0, &everything(0, "*"), |_, _| {
        count += 1;
        Ok(())
    });
    assert!(meta.is_ok() && count == expected.len());
}

#[test]
fn test_the_files_of_deleted_topics_go_while_the_broker_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let often = lakemq_store::store::Options {
        checkpoint_interval_ms: 20,
        ..options()
    };
    let store = Store::open(dir.path(), often, environment()).expect("a store");
    for number in 0..5 {
        let topic = format!("t{number}");
        bulk(&store, &topic, 60);
        let end = store.delete_topic(&topic).expect("deleted");
        assert!(store.wait_dispatched(end, SOON));
    }
    let left = || image(&dir.path().join("lakemq/deleted")).len();
    assert!(
        comes_true(&store, || left() == 0),
        "{} files are left",
        left()
    );
}

#[test]
fn test_a_directory_of_an_impossible_number_is_no_queue() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "t", &["a", "b"]);
    store.close().expect("closed");
    drop(store);
    fs::create_dir_all(dir.path().join("consumequeue/t/400000000")).expect("made");
    fs::write(dir.path().join("abort"), b"1").expect("unclean");
    assert_eq!(bodies(&open(dir.path()), "t"), ["a", "b"]);
}
