//! A large request is on its way to the disk before its flush begins.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::store::{Flush, Options, Store};

use crate::support::{SOON, bodies, environment, message, options, request};

const BLOCK: u64 = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Write(u64, u64),
    Begin(u64, u64),
    Sync,
}

/// Keeps what was called of the log's files, in order.
#[derive(Default)]
struct NotingDisk {
    calls: Mutex<Vec<Call>>,
    fail_begin: AtomicBool,
}

impl NotingDisk {
    fn note(&self, file: &File, call: Call) {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a file");
        if path
            .components()
            .any(|part| part.as_os_str() == "commitlog")
        {
            self.calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(call);
        }
    }

    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for NotingDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note(file, Call::Write(offset, bytes.len() as u64));
        RealDisk.write(file, offset, bytes)
    }

    fn begin_writeback(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        if self.fail_begin.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        self.note(file, Call::Begin(offset, length));
        RealDisk.begin_writeback(file, offset, length)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.note(file, Call::Sync);
        RealDisk.sync(file)
    }
}

fn open_noting(path: &std::path::Path, flush: Flush) -> (Store, Arc<NotingDisk>) {
    let disk = Arc::new(NotingDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let options = Options {
        flush,
        commitlog_file_size: 8 << 20,
        ..options()
    };
    let store = Store::open(path, options, environment).expect("a store");
    disk.take();
    (store, disk)
}

/// Appends a mebibyte in one request and returns the calls up to its flush.
fn calls_of_a_large_request(flush: Flush) -> Vec<Call> {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_noting(dir.path(), flush);
    let texts: Vec<String> = (0..1024).map(|at| format!("{at:01000}")).collect();
    let messages: Vec<_> = texts.iter().map(|text| message(text)).collect();
    let done = store.append(&request("t"), &messages).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    let calls = disk.take();
    assert_eq!(bodies(&store, "t"), texts);
    calls
}

#[test]
fn test_the_blocks_of_a_large_request_are_on_their_way_when_the_flush_begins() {
    let calls = calls_of_a_large_request(Flush::Sync);
    let begun: Vec<_> = calls
        .iter()
        .filter(|call| matches!(call, Call::Begin(..)))
        .collect();
    assert!(begun.len() >= 4, "one for each full block: {begun:?}");
    for pair in calls.windows(2) {
        if let [Call::Write(at, length), Call::Begin(from, to)] = pair {
            assert_eq!((at, length), (from, to), "what was just written, whole");
            assert!(*length <= BLOCK);
        }
    }
    let last_begin = calls
        .iter()
        .rposition(|call| matches!(call, Call::Begin(..)));
    let last_sync = calls.iter().rposition(|call| *call == Call::Sync);
    assert!(
        last_begin < last_sync,
        "the flush is still there, and last: {calls:?}"
    );
}

#[test]
fn test_where_no_answer_waits_for_the_flush_nothing_is_begun_early() {
    let calls = calls_of_a_large_request(Flush::Async);
    assert!(
        !calls.iter().any(|call| matches!(call, Call::Begin(..))),
        "{calls:?}"
    );
}

#[test]
fn test_a_small_request_is_one_write_and_one_flush() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_noting(dir.path(), Flush::Sync);
    let first = store
        .append(&request("t"), &[message("the topic is made")])
        .expect("stored");
    assert!(store.wait_dispatched(first.end_offset, SOON));
    disk.take();
    let done = store
        .append(&request("t"), &[message("small")])
        .expect("stored");
    assert!(store.wait_flushed(done.end_offset, SOON));
    let calls = disk.take();
    assert!(
        matches!(calls[..], [Call::Write(..), Call::Sync]),
        "{calls:?}"
    );
}

#[test]
fn test_a_failure_to_begin_is_a_failed_write() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_noting(dir.path(), Flush::Sync);
    let first = store
        .append(&request("t"), &[message("first")])
        .expect("stored");
    assert!(store.wait_dispatched(first.end_offset, SOON));
    disk.fail_begin.store(true, Ordering::SeqCst);
    let texts: Vec<String> = (0..1024).map(|at| format!("{at:01000}")).collect();
    let messages: Vec<_> = texts.iter().map(|text| message(text)).collect();
    let failed = store
        .append(&request("t"), &messages)
        .expect_err("not stored");
    assert_eq!(failed.code(), "STORE_POISONED");
    drop(store);
    let options = Options {
        commitlog_file_size: 8 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    assert_eq!(bodies(&store, "t"), ["first"]);
}
