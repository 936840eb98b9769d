//! Killed with SIGKILL while large and small requests are appended side by side, over many log files.
//!
//! Contract: what was acknowledged is there, with async flush too (the machine stays up); a request is there
//! all or none; queue offsets are dense, and each writer's requests stand in its order.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use lakemq_store::store::{Flush, Options, Store};

use crate::support::{SOON, bodies, environment, message, options, request};

const CHILD: &str = "LAKEMQ_TEST_KILL_9";
/// Messages of each writer's requests. Those of 400 take more than the store calls large.
const WRITERS: [usize; 4] = [400, 400, 3, 1];

fn beside_large_requests(flush: Flush) -> Options {
    Options {
        flush,
        commitlog_file_size: 4 << 20,
        ..options()
    }
}

/// Writes from several threads until it is killed, and says what was acknowledged.
fn write_until_killed(store: &Store) {
    let write = |writer: usize| {
        for request_number in 0.. {
            let count = WRITERS[writer];
            let bodies: Vec<String> = (0..count)
                .map(|at| format!("{writer} {request_number} {at} {}", "x".repeat(700)))
                .collect();
            let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
            let done = store.append(&request("t"), &messages).expect("stored");
            let safe = store.options().flush == Flush::Async
                || store.wait_dispatched(done.end_offset, SOON);
            assert!(safe);
            println!("\nacknowledged {writer} {request_number}");
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS.len() {
            scope.spawn(move || write(writer));
        }
    });
}

/// Runs the test `name` in a process of its own, which writes, and kills it; gives the last request of each
/// writer that was acknowledged.
fn kill_while_writing(name: &str, directory: &Path) -> HashMap<usize, usize> {
    let mut child = Command::new(env::current_exe().expect("this test"))
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut acknowledged = HashMap::new();
    let mut seen = 0;
    // What stands in the pipe when the child dies was acknowledged too.
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        let mut words = line.split(' ');
        if words.next() == Some("acknowledged")
            && let (Some(writer), Some(number)) = (words.next(), words.next())
        {
            acknowledged.insert(
                writer.parse().expect("a writer"),
                number.parse().expect("a number"),
            );
            seen += 1;
        }
        if seen >= 200 && acknowledged.len() == WRITERS.len() {
            let _ = child.kill();
        }
    }
    child.wait().expect("dead");
    acknowledged
}

fn check_after_kill_9(name: &str, flush: Flush) {
    let options = || beside_large_requests(flush);
    if let Some(directory) = env::var_os(CHILD) {
        let store = Store::open(Path::new(&directory), options(), environment()).expect("a store");
        write_until_killed(&store);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let acknowledged = kill_while_writing(name, dir.path());
    assert_eq!(acknowledged.len(), WRITERS.len(), "the child wrote");
    let store = Store::open(dir.path(), options(), environment()).expect("a store");
    assert!(!store.report().clean);
    let stored = bodies(&store, "t");
    assert_eq!(
        store.bounds("t", 0).expect("bounds").max as usize,
        stored.len(),
        "dense"
    );
    let mut requests: HashMap<usize, usize> = HashMap::new();
    let mut at = 0;
    while at < stored.len() {
        let number = |body: &str, word: usize| -> usize {
            body.split(' ')
                .nth(word)
                .expect("a word")
                .parse()
                .expect("a number")
        };
        let writer = number(&stored[at], 0);
        let next = requests.entry(writer).or_default();
        for message in 0..WRITERS[writer] {
            let body = stored
                .get(at + message)
                .expect("a request is stored all or none");
            let place = (number(body, 0), number(body, 1), number(body, 2));
            assert_eq!(place, (writer, *next, message), "whole and in order");
        }
        *next += 1;
        at += WRITERS[writer];
    }
    for (writer, last) in acknowledged {
        assert!(
            requests[&writer] > last,
            "writer {writer}: {last} was acknowledged, {requests:?} are stored"
        );
    }
}

#[test]
fn test_beside_large_requests_nothing_acknowledged_is_lost_with_async_flush() {
    let name = "kill_9::test_beside_large_requests_nothing_acknowledged_is_lost_with_async_flush";
    check_after_kill_9(name, Flush::Async);
}

#[test]
fn test_beside_large_requests_nothing_acknowledged_is_lost_with_sync_flush() {
    let name = "kill_9::test_beside_large_requests_nothing_acknowledged_is_lost_with_sync_flush";
    check_after_kill_9(name, Flush::Sync);
}
