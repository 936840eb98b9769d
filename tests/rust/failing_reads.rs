//! A start of which one read fails.
//!
//! Contract: it is an error, and the next start finds all that was there; or it shows what it would have shown, and takes
//! an unclean stop for one. A directory that is no store yet, or whose files nobody may put aside, stays refused; one
//! that holds messages is never begun anew. Whichever read it is: of a file, a name, a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemq_store::bootstrap::Bootstrap;
use lakemq_store::environment::Environment;
use lakemq_store::error::Result;
use lakemq_store::store::{Options, Store, TopicChange, Work};

use crate::power_disk::{Ailment, FailingRead, Failure, PowerDisk, Synced};
use crate::support::{FindJson, bodies, copy, environment, image, message, options, request};
use crate::workload::scratch;

const ERRORS: [i32; 3] = [libc::EIO, libc::EMFILE, libc::EINTR];

/// How the store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Stopped,
    Killed,
    /// Stopped after a sync of the log failed.
    Poisoned,
    /// As RocketMQ leaves it: nothing says who it is, or how long its files are.
    Foreign,
    /// It is being made from a master's.
    Unfinished,
    /// A file of RocketMQ's is not readable, and the one before it stands beside.
    Unreadable,
}

/// Lengths of files are those of a store that is made anew; one that is there keeps its own.
fn asked() -> Options {
    Options {
        index_slots: options().index_slots,
        index_entries: options().index_entries,
        ..Options::default()
    }
}

fn on(disk: &Arc<PowerDisk>) -> Environment {
    Environment {
        disk: disk.clone(),
        ..environment()
    }
}

fn disk(root: &Path) -> Arc<PowerDisk> {
    Arc::new(PowerDisk::new(root, Ailment::default(), |_, _| ()))
}

fn send(store: &Store, topic: &str, from: usize, count: usize) {
    for number in from..from + count {
        let body = format!("{number}-{}", "x".repeat(3_000));
        store
            .append(&request(topic), &[message(&body)])
            .expect("stored");
    }
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
}

/// A store of which the first files have expired: what its newest snapshot tells is in no other, and not in the log.
fn prepared(root: &Path, left: Left) {
    fs::create_dir_all(root).expect("a directory");
    let disk = disk(root);
    let store = Store::open_at_rest(root, options(), on(&disk)).expect("a store");
    let one = TopicChange {
        read_queue_nums: Some(1),
        write_queue_nums: Some(1),
        ..TopicChange::default()
    };
    store.put_topic("t", &one).expect("made");
    send(&store, "t", 0, 10);
    store.checkpoint().expect("taken");
    store
        .commit_offsets("g", vec![("t".into(), 0, 7)])
        .expect("committed");
    // An expiry takes a checkpoint itself.
    send(&store, "t", 10, 60);
    let later = store.now_ms() + 30 * 86_400_000;
    assert!(store.expire(later, true).expect("expired") > 0);
    send(&store, "u", 0, 30);
    match left {
        Left::Killed => disk.kill(store),
        Left::Poisoned => {
            disk.fail(Some(Failure {
                of: Some(Synced::Log),
                number: 1,
                times: 1,
                error: libc::EIO,
                leaves: 0,
            }));
            store
                .append(&request("u"), &[message("last")])
                .expect("stored");
            store.work(Work::Flush).expect_err("the sync failed");
            drop(store);
        }
        _ => store.close().expect("closed"),
    }
    match left {
        Left::Foreign => fs::remove_dir_all(root.join("lakemq")).expect("removed"),
        Left::Unfinished => fs::write(root.join("lakemq/bootstrap"), "").expect("written"),
        Left::Unreadable => {
            fs::write(root.join("config/topics.json"), "{").expect("written");
            fs::write(root.join("config/topics.json.bak"), "{}").expect("written");
        }
        _ => {}
    }
}

/// What a start shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    log: (i64, i64, u64),
    lengths: (u64, u32),
    topics: Vec<String>,
    bodies: Vec<(i64, Vec<String>)>,
    committed: Vec<(String, u32, i64)>,
    found: usize,
}

fn shown(store: &Store) -> Shown {
    let report = store.report();
    let of = |topic| {
        let bounds = store.bounds(topic, 0).expect("a queue");
        let shown = bodies(store, topic);
        assert_eq!(shown.len() as i64, bounds.max - bounds.min, "{topic}");
        (bounds.min, shown)
    };
    let key = format!("key-25-{}", "x".repeat(3_000));
    let found = store.messages_json("u", &key, (0, i64::MAX), 10);
    Shown {
        log: (
            store.log_min_offset(),
            report.end_offset,
            report.quarantined_bytes,
        ),
        lengths: (
            store.identity().commitlog_file_size,
            store.identity().consumequeue_file_entries,
        ),
        topics: store.topics().keys().cloned().collect(),
        bodies: ["t", "u"].map(of).into(),
        committed: store.group_offsets("g"),
        found: found.expect("a look").len(),
    }
}

/// Starts, or puts in order and starts.
fn start(root: &Path, environment: Environment, rebuild: bool) -> Result<Store> {
    if rebuild {
        Store::rebuild(root, asked(), environment.clone())?;
    }
    Store::open_at_rest(root, asked(), environment)
}

fn each_read_of_a_start_fails(left: Left, rebuild: bool) {
    let home = scratch();
    let (before, whole) = (home.path().join("before"), home.path().join("whole"));
    prepared(&before, left);
    copy(&before, &whole);
    let whole_disk = disk(&whole);
    whole_disk.fail_read(None);
    let expected = start(&whole, on(&whole_disk), rebuild);
    let reads = whole_disk.reads();
    let refused = matches!(left, Left::Unfinished | Left::Unreadable);
    assert_eq!(expected.is_err(), refused, "{left:?}: {:?}", expected.err());
    let expected = expected
        .ok()
        .map(|store| (store.report().clean, shown(&store)));
    let unclean = matches!(left, Left::Killed | Left::Poisoned);
    let mut wrong = Vec::new();
    for (number, may_be_short) in (1..).zip(&reads) {
        let short = may_be_short.then_some(FailingRead::Short);
        for failing in ERRORS.map(FailingRead::With).into_iter().chain(short) {
            let root = home.path().join("again");
            copy(&before, &root);
            let outcome = std::panic::catch_unwind(|| {
                let disk = disk(&root);
                disk.fail_read(Some((number, failing)));
                let first = start(&root, on(&disk), rebuild);
                assert!(disk.failures() > 0, "it is not read");
                disk.fail_read(None);
                let Some((_, expected)) = &expected else {
                    let refused = first.err().and(start(&root, on(&disk), rebuild).err());
                    return assert!(refused.is_some(), "no store, and it starts");
                };
                let fails = first.is_err();
                let store = match first {
                    Ok(store) => store,
                    Err(_) => start(&root, on(&disk), rebuild).expect("the second start"),
                };
                assert!(
                    !(unclean && store.report().clean && !rebuild),
                    "a clean stop"
                );
                assert_eq!(&shown(&store), expected, "fails: {fails}");
            });
            if let Err(panic) = outcome {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text
                    .or(panic.downcast_ref::<&str>().copied())
                    .unwrap_or("?");
                let text: String = text.chars().take(300).collect();
                wrong.push(format!("read {number}, {failing:?}: {text}"));
            }
            fs::remove_dir_all(&root).expect("removed");
        }
    }
    assert!(
        wrong.is_empty(),
        "{left:?}, of {} reads: {wrong:#?}",
        reads.len()
    );
}

#[test]
fn test_a_start_of_which_a_read_fails_is_an_error_or_shows_what_it_would_have_shown() {
    for left in [Left::Stopped, Left::Killed, Left::Poisoned] {
        each_read_of_a_start_fails(left, false);
    }
}

#[test]
fn test_what_rocketmq_left_is_taken_over_as_it_is_whichever_read_fails() {
    each_read_of_a_start_fails(Left::Foreign, false);
}

#[test]
fn test_what_is_refused_stays_refused_whichever_read_fails() {
    each_read_of_a_start_fails(Left::Unfinished, false);
    each_read_of_a_start_fails(Left::Unreadable, false);
}

#[test]
fn test_a_rebuild_of_which_a_read_fails_leaves_all_to_the_next() {
    each_read_of_a_start_fails(Left::Killed, true);
}

/// Begins to make a store of a master's where `read` fails; whether it was made, and how many reads there were.
fn begin(root: &Path, read: Option<(usize, FailingRead)>) -> (bool, usize) {
    let disk = disk(root);
    disk.fail_read(read);
    let begun = Bootstrap::begin(root, 64 * 1024, 0, on(&disk));
    (begun.is_ok(), disk.reads().len())
}

#[test]
fn test_a_store_that_holds_messages_is_never_begun_anew_whichever_read_fails() {
    let home = scratch();
    let root = home.path().join("store");
    prepared(&root, Left::Stopped);
    let whole = image(&root);
    let (begun, reads) = begin(&root, None);
    assert!(!begun && reads > 0);
    for number in 1..=reads {
        for error in ERRORS {
            let (begun, _) = begin(&root, Some((number, FailingRead::With(error))));
            assert!(!begun, "read {number}, {error}");
            let same = image(&root) == whole;
            assert!(same, "read {number}, {error}: files changed");
        }
    }
}

#[test]
fn test_a_store_that_is_begun_anew_keeps_nothing_of_before_whichever_read_fails() {
    let home = scratch();
    let before = home.path().join("before");
    prepared(&before, Left::Unfinished);
    let names = |root: &Path| -> Vec<PathBuf> {
        let files = image(root).into_iter();
        files
            .map(|(path, _)| path)
            .filter(|path| !path.starts_with("config"))
            .collect()
    };
    let whole = home.path().join("whole");
    copy(&before, &whole);
    let (begun, reads) = begin(&whole, None);
    assert!(begun && reads > 0);
    for number in 1..=reads {
        let root = home.path().join(number.to_string());
        copy(&before, &root);
        let (begun, _) = begin(&root, Some((number, FailingRead::With(libc::EIO))));
        if begun {
            assert_eq!(names(&root), names(&whole), "read {number}");
        }
        let (begun, _) = begin(&root, None);
        assert!(begun, "read {number}");
        assert_eq!(names(&root), names(&whole), "read {number}");
    }
}
