//! Recovery as a property: whatever sizes were appended and wherever the tail tears, what comes back is the
//! requests that were whole before the tear, in order, and nothing else.

mod support;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lakemq_store::filter::Filter;
use lakemq_store::message::NewMessage;
use lakemq_store::read::SliceRequest;
use lakemq_store::store::{AppendRequest, Options, Store};
use proptest::prelude::*;

use support::environment;

const FILE_BYTES: u64 = 64 * 1024;

const SIZES: [usize; 4] = [15_000, 15_000, 15_000, 15_000];

fn open(path: &Path) -> Store {
    try_open(path).expect("a store")
}

fn try_open(path: &Path) -> lakemq_store::error::Result<Store> {
    let options = Options {
        commitlog_file_size: FILE_BYTES,
        consumequeue_file_entries: 16,
        index_slots: 31,
        index_entries: 64,
        checkpoint_interval_ms: 3_600_000,
        ..Options::default()
    };
    Store::open(path, options, environment())
}

/// Appends one request of bodies `first`, `first + 1`, ... with the given sizes; returns its end.
fn append(store: &Store, first: usize, sizes: &[usize]) -> i64 {
    let messages: Vec<NewMessage<'_>> = sizes
        .iter()
        .enumerate()
        .map(|(at, size)| NewMessage {
            body: Cow::Owned(format!("{}:{}", first + at, "b".repeat(*size)).into_bytes()),
            queue_id: Some(0),
            wait_store_ok: true,
            ..NewMessage::default()
        })
        .collect();
    let request = AppendRequest {
        topic: "t",
        born_host: None,
        idempotency_key: None,
    };
    let done = store.append(&request, &messages).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, Duration::from_secs(10)));
    done.end_offset
}

fn numbers(store: &Store) -> Vec<usize> {
    let all = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 10_000,
        max_bytes: usize::MAX,
        filter: Filter::of_tags("*").expect("a filter"),
    };
    let mut out = Vec::new();
    if store.topic("t").is_none() {
        return out;
    }
    let meta = store
        .read("t", 0, &all, |record, _| {
            let text = String::from_utf8_lossy(record.body);
            out.push(
                text.split(':')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .expect("a number"),
            );
            Ok(())
        })
        .expect("readable");
    assert!(meta.damaged.is_empty());
    out
}

/// Copies only what a power cut leaves for sure here: the identity and the log.
fn copy_log(from: &Path, to: &Path) {
    for directory in ["commitlog", "lakemq"] {
        fs::create_dir_all(to.join(directory)).expect("a directory");
    }
    fs::copy(from.join("lakemq/store.json"), to.join("lakemq/store.json")).expect("copied");
    for file in fs::read_dir(from.join("commitlog")).expect("files") {
        let file = file.expect("a file");
        fs::copy(file.path(), to.join("commitlog").join(file.file_name())).expect("copied");
    }
    fs::write(to.join("abort"), b"").expect("written");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn test_what_was_whole_before_the_tear_comes_back_and_nothing_else(
        requests in proptest::collection::vec(proptest::collection::vec(0usize..9_000, 1..5), 1..12),
        tear in 0.0f64..1.0,
        rubbish in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let home = tempfile::tempdir().expect("a directory");
        let store = open(home.path());
        let mut ends = Vec::new();
        let mut first = 0;
        for sizes in &requests {
            ends.push((append(&store, first, sizes), first + sizes.len()));
            first += sizes.len();
        }
        let torn = tempfile::tempdir().expect("a directory");
        copy_log(home.path(), torn.path());
        let end = ends.last().map_or(0, |(end, _)| *end);
        let cut = (end as f64 * tear) as i64;
        for file in fs::read_dir(torn.path().join("commitlog")).expect("files") {
            let path = file.expect("a file").path();
            let base: i64 = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse().ok()).expect("an offset");
            let mut bytes = fs::read(&path).expect("a file");
            let from = (cut - base).clamp(0, bytes.len() as i64) as usize;
            bytes[from..].fill(0);
            let until = (from + rubbish.len()).min(bytes.len());
            bytes[from..until].copy_from_slice(&rubbish[..until - from]);
            fs::write(&path, bytes).expect("written");
        }
        let whole = ends.iter().filter(|(end, _)| *end <= cut).map(|(_, count)| *count).max().unwrap_or(0);
        let recovered = open(torn.path());
        prop_assert_eq!(numbers(&recovered), (0..whole).collect::<Vec<_>>());
        append(&recovered, whole, &[3]);
        drop(recovered);
        prop_assert_eq!(numbers(&open(torn.path())), (0..=whole).collect::<Vec<_>>());
    }
}

/// Three log files of four messages each, none of them known to be stored, as a kill leaves them.
fn three_files(dir: &Path) -> PathBuf {
    let (running, crashed) = (dir.join("running"), dir.join("crashed"));
    drop(open(&crashed)); // an identity, and a snapshot of nothing
    let store = open(&running);
    for request in 0..3 {
        append(&store, request * SIZES.len(), &SIZES);
    }
    fs::remove_dir_all(crashed.join("commitlog")).expect("removed");
    fs::remove_file(crashed.join("lakemq/watermarks")).expect("removed");
    copy_log(&running, &crashed);
    crashed
}

fn log_file(root: &Path, number: u64) -> PathBuf {
    let name = format!("{:020}", number * FILE_BYTES);
    root.join("commitlog").join(name)
}

fn empty(path: &Path) {
    assert!(path.metadata().expect("a file").len() > 0);
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(0)).expect("cut");
}

#[test]
fn test_a_log_opens_whose_file_before_the_last_lost_its_length_and_ends_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = three_files(dir.path());
    // None of it was flushed, and the power took the length of one, not of the other.
    empty(&log_file(&crashed, 1));
    let again = open(&crashed);
    let kept = numbers(&again);
    assert_eq!(kept, (0..SIZES.len()).collect::<Vec<_>>());
    append(&again, kept.len(), &SIZES);
    drop(again);
    assert_eq!(numbers(&open(&crashed)).len(), 2 * SIZES.len());
}

#[test]
fn test_an_empty_log_file_before_others_is_refused_where_its_messages_were_stored() {
    for clean in [true, false] {
        for number in [0, 1] {
            let dir = tempfile::tempdir().expect("a directory");
            let root = dir.path().join("store");
            let store = open(&root);
            for request in 0..3 {
                append(&store, request * SIZES.len(), &SIZES);
            }
            store.close().expect("closed");
            drop(store);
            if !clean {
                fs::write(root.join("abort"), b"").expect("written");
            }
            empty(&log_file(&root, number));
            let refused = try_open(&root).expect_err("messages are missing");
            assert_eq!(refused.code(), "DATA_CORRUPT");
            for number in 1..3 {
                assert!(log_file(&root, number).exists(), "nothing is deleted");
            }
        }
    }
}

#[test]
fn test_an_empty_log_file_before_others_is_refused_in_a_store_without_a_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = three_files(dir.path());
    fs::remove_dir_all(crashed.join("lakemq")).expect("removed");
    empty(&log_file(&crashed, 1));
    let refused = try_open(&crashed).expect_err("nobody knows what was stored");
    assert_eq!(refused.code(), "DATA_CORRUPT");
    assert!(log_file(&crashed, 2).exists(), "nothing is deleted");
}
