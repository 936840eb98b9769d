//! What replication needs of the log, without a network: raw bytes taken from a master and appended to a slave, roles
//! and epochs, and a cut where two logs part.
//!
//! Contract: a slave's log is its master's, byte for byte, files, rolls and end markers included; a request is on it
//! whole or not at all; a master whose epoch is over is refused; nothing confirmed is cut, and what is cut never
//! comes back, not for a reader that mapped it either.

mod support;
mod takeover;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemq_store::commitlog::LogRange;
use lakemq_store::error::Result;
use lakemq_store::filter::Filter;
use lakemq_store::message::{NewMessage, RecordView};
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Options, Role, Store, TopicChange};
use support::*;

fn open_slave(path: &Path) -> Store {
    let options = Options {
        role: Role::Slave,
        ..options()
    };
    Store::open(path, options, environment()).expect("a store")
}

/// Brings the slave up to its master's flushed end, a few bytes at a time.
fn follow(master: &Store, slave: &Store, max_bytes: usize) -> i64 {
    let (_, epoch) = master.role();
    let (appended, ..) = master.watermarks();
    assert!(master.wait_flushed(appended, SOON));
    loop {
        let (at, ..) = slave.watermarks();
        let range = master.read_log(at, max_bytes).expect("bytes");
        if range.next_offset == at {
            assert!(slave.wait_flushed(at, SOON));
            return at;
        }
        slave.append_replicated(epoch, &range).expect("appended");
    }
}

/// The log's files as they lie on the disk.
fn log_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    image(&root.join("commitlog"))
        .into_iter()
        .map(|(path, bytes)| (path.to_string_lossy().into_owned(), bytes))
        .collect()
}

fn mixed(store: &Store) -> i64 {
    bulk(store, "t", 150);
    store
        .put_topic("made", &TopicChange::default())
        .expect("made");
    store
        .put_group("g", "{\"retry_max_times\":3}")
        .expect("a group");
    let keyed = AppendRequest {
        idempotency_key: Some("once"),
        ..request("t")
    };
    let batch: Vec<NewMessage<'_>> = ["a", "b", "c"].iter().map(|body| message(body)).collect();
    store.append(&keyed, &batch).expect("stored");
    bulk(store, "u", 150);
    store.delete_topic("made").expect("deleted");
    let (end, ..) = store.watermarks();
    assert!(store.wait_dispatched(end, SOON));
    end
}

#[test]
fn test_a_slave_has_its_masters_log_byte_for_byte_and_shows_what_is_confirmed() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    let end = mixed(&master);
    for max_bytes in [1, 5_000] {
        assert_eq!(follow(&master, &slave, max_bytes), end);
    }
    let (appended, flushed, dispatched, confirmed) = slave.watermarks();
    assert_eq!(
        (appended, flushed, dispatched, confirmed),
        (end, end, 0, 0),
        "its master said nothing yet"
    );
    assert!(slave.topics().keys().all(|topic| topic != "t"));
    slave.replicated(end);
    assert!(slave.wait_dispatched(end, SOON));
    for topic in ["t", "u"] {
        assert_eq!(bodies(&slave, topic), bodies(&master, topic), "{topic}");
    }
    assert_eq!(slave.topics(), master.topics());
    assert_eq!(slave.groups(), master.groups());
    let files = log_files(a.path());
    assert!(files.len() > 3, "several files");
    assert_eq!(log_files(b.path()), files);
    master.close().expect("closed");
    slave.close().expect("closed");
    // What a stop leaves is a slave's log still.
    let slave = open_slave(b.path());
    assert_eq!(slave.watermarks(), (end, end, end, end));
    assert_eq!(log_files(b.path()), files);
}

#[test]
fn test_a_slave_takes_no_message_and_a_master_no_bytes() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    send(&master, "t", &["one"]);
    follow(&master, &slave, 1 << 20);
    let refusals = [
        slave.append(&request("t"), &[message("x")]).map(drop),
        slave.put_topic("x", &TopicChange::default()).map(drop),
        slave.delete_topic("t").map(drop),
        slave.put_group("x", "{}").map(drop),
        slave
            .commit_offsets("g", vec![("t".into(), 0, 1)])
            .map(drop),
        slave.acquire_lease("g", "o", 1000).map(drop),
        master
            .append_replicated(1, &master.read_log(0, 1).expect("bytes"))
            .map(drop),
        master.truncate_to(0),
    ];
    for refused in refusals {
        assert_eq!(
            refused.expect_err("refused").code(),
            "SERVICE_NOT_AVAILABLE"
        );
    }
    assert_eq!(log_files(a.path()), log_files(b.path()));
}

#[test]
fn test_bytes_that_are_not_whole_valid_next_requests_are_refused_and_leave_nothing() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    send(&master, "t", &["one"]);
    let at = follow(&master, &slave, 1 << 20);
    send(&master, "t", &["two", "three", "four"]);
    send(&master, "t", &["five"]);
    let good = master.read_log(at, 1 << 20).expect("bytes");
    let code = |range: &LogRange| {
        let refused = slave.append_replicated(1, range).expect_err("refused");
        assert_eq!(slave.watermarks().0, at, "nothing was appended");
        refused.code()
    };
    let later = master
        .read_log(master.read_log(at, 1).expect("bytes").next_offset, 1)
        .expect("bytes");
    assert_eq!(code(&later), "OFFSET_ILLEGAL");
    assert_eq!(
        code(&master.read_log(0, 1).expect("bytes")),
        "OFFSET_ILLEGAL"
    );
    for (at_byte, bit) in [(0, 1), (5, 8), (30, 1), (120, 4), (good.bytes.len() - 1, 1)] {
        let mut flipped = good.clone();
        flipped.bytes[at_byte] ^= bit;
        assert_eq!(code(&flipped), "DATA_CORRUPT", "byte {at_byte}");
    }
    let first = RecordView::parse(&good.bytes).expect("a record").total_size as usize;
    for length in [first, first + 7, good.bytes.len() - 1] {
        let mut cut = good.clone();
        cut.bytes.truncate(length);
        cut.next_offset = cut.offset + length as i64;
        assert_eq!(code(&cut), "DATA_CORRUPT", "{length} bytes");
    }
    let mut gap = good.clone();
    gap.next_offset += 64;
    assert_eq!(code(&gap), "DATA_CORRUPT");
    let mut marker = good.clone();
    marker.bytes.extend_from_slice(&[0, 0, 1, 0]);
    marker
        .bytes
        .extend_from_slice(&(-875_286_124_i32).to_be_bytes());
    assert_eq!(code(&marker), "DATA_CORRUPT", "no file ends there");
    slave.append_replicated(1, &good).expect("appended");
    assert_eq!(log_files(a.path()), log_files(b.path()));
}

#[test]
fn test_a_slave_that_takes_over_goes_on_where_its_master_was() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    let end = mixed(&master);
    let soon = NewMessage {
        delay_level: 1,
        ..message("delayed")
    };
    let delayed = master.append(&request("late"), &[soon]).expect("stored");
    follow(&master, &slave, 10_000);
    slave.replicated(end);
    drop(master);

    let begins = slave.become_master(2, false).expect("the master now");
    assert_eq!(begins, delayed.end_offset);
    let next = slave
        .append(&request("t"), &[message("after")])
        .expect("stored");
    assert_eq!(next.placed[0].queue_offset, 153);
    assert!(slave.wait_dispatched(next.end_offset, SOON));
    let keyed = AppendRequest {
        idempotency_key: Some("once"),
        ..request("t")
    };
    let batch: Vec<NewMessage<'_>> = ["a", "b", "c"].iter().map(|body| message(body)).collect();
    assert!(slave.append(&keyed, &batch).expect("known").duplicate);
    assert!(
        slave.progress_wait(SOON, || slave.bounds("late", 0).is_ok_and(|b| b.max == 1)),
        "the delayed message is delivered by the new master"
    );
    assert_eq!(bodies(&slave, "late"), ["delayed"]);
    assert_eq!(slave.role(), (Role::Master, 2));
}

#[test]
fn test_an_old_master_is_fenced_cut_where_the_logs_part_and_follows() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let old = open(a.path());
    old.ask_replicas(Some(0));
    let new = open_slave(b.path());
    bulk_unconfirmed(&old, 0..40);
    let both = follow(&old, &new, 1 << 20);
    old.replicated(both);
    new.replicated(both);
    assert!(old.wait_dispatched(both, SOON) && new.wait_dispatched(both, SOON));
    // The old master writes what nobody takes, over several files.
    bulk_unconfirmed(&old, 40..300);
    let lost = old.watermarks().0;
    assert!(old.wait_flushed(lost, SOON));
    let beside = Reader::open(a.path()).expect("a reader");
    assert_eq!(read_beside(&beside).len(), 40);

    assert_eq!(new.become_master(2, false).expect("elected"), both);
    let stale = old.read_log(both, 1).expect("bytes");
    old.become_slave(2).expect("a slave now");
    assert_eq!(
        new.become_slave(1).expect_err("over").code(),
        "SERVICE_NOT_AVAILABLE"
    );
    assert_eq!(
        old.append_replicated(1, &stale).expect_err("over").code(),
        "SERVICE_NOT_AVAILABLE",
        "bytes of a master whose epoch is over"
    );
    let at = old.common_end(&new.epochs(), new.watermarks().0);
    assert_eq!(at, Some(both));
    assert_eq!(
        old.truncate_to(both - 1).expect_err("confirmed").code(),
        "ARGUMENT_ILLEGAL"
    );
    assert_eq!(
        old.truncate_to(both + 100).expect_err("no end").code(),
        "ARGUMENT_ILLEGAL"
    );
    assert_eq!(
        old.truncate_to(lost + 1).expect_err("behind").code(),
        "ARGUMENT_ILLEGAL"
    );
    assert_eq!(old.watermarks().0, lost, "refused, nothing was cut");
    let cut = fs::read(a.path().join("commitlog").join(format!("{:020}", 0))).expect("the file")
        [both as usize..]
        .to_vec();
    old.truncate_to(both).expect("cut");
    let kept = a.path().join("lakemq/cut").join(format!("{both:020}.0"));
    let kept = fs::read(kept).expect("kept");
    assert_eq!(kept.len() as i64, lost - both);
    assert!(kept.starts_with(&cut[..10_000]));
    assert_eq!(old.watermarks(), (both, both, both, both));
    assert_eq!(read_beside(&beside).len(), 40);

    let expected: Vec<String> = (0..200)
        .map(|at| format!("new {at} {}", "y".repeat(700)))
        .collect();
    for body in &expected {
        send(&new, "t", &[body]);
    }
    let end = follow(&new, &old, 3_000);
    old.replicated(end);
    assert!(old.wait_dispatched(end, SOON));
    assert_eq!(log_files(a.path()), log_files(b.path()));
    assert_eq!(old.epochs(), new.epochs());
    assert_eq!(bodies(&old, "t"), bodies(&new, "t"));
    assert_eq!(bodies(&old, "t")[40..], expected);
    assert_eq!(
        read_beside(&beside),
        bodies(&old, "t"),
        "a reader that had mapped what was cut"
    );
    // And after a crash of it.
    let crashed = tempfile::tempdir().expect("a directory");
    copy(a.path(), crashed.path());
    let again = open_slave(crashed.path());
    assert_eq!(again.watermarks().0, end);
    assert_eq!(bodies(&again, "t"), bodies(&new, "t"));
}

fn bulk_unconfirmed(store: &Store, numbers: std::ops::Range<usize>) {
    for at in numbers {
        let body = format!("{at} {}", "x".repeat(600));
        store
            .append(&request("t"), &[message(&body)])
            .expect("stored");
    }
}

fn read_beside(reader: &Reader) -> Vec<String> {
    let everything = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        filter: Filter::All,
    };
    let mut out = Vec::new();
    let meta = reader
        .read("t", 0, &everything, |record, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        })
        .expect("readable");
    assert!(meta.damaged.is_empty(), "{:?}", meta.damaged);
    out
}

#[test]
fn test_a_crash_in_the_middle_of_a_cut_leaves_a_log_that_can_be_cut_again() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    bulk_unconfirmed(&master, 0..30);
    let keep = follow(&master, &slave, 1 << 20);
    slave.replicated(keep);
    bulk_unconfirmed(&master, 30..200);
    follow(&master, &slave, 1 << 20);
    assert!(slave.wait_dispatched(keep, SOON));
    slave.checkpoint().expect("a checkpoint");
    let before = log_files(b.path());
    // Every set of files that a cut which ends early can leave: the later ones go from the last on, then zeros.
    let whole = tempfile::tempdir().expect("a directory");
    copy(b.path(), whole.path());
    slave.truncate_to(keep).expect("cut");
    for gone in 0..before.len() {
        let crashed = tempfile::tempdir().expect("a directory");
        copy(whole.path(), crashed.path());
        fs::copy(
            b.path().join("lakemq/watermarks"),
            crashed.path().join("lakemq/watermarks"),
        )
        .expect("lowered first");
        for name in before.keys().rev().take(gone) {
            fs::remove_file(crashed.path().join("commitlog").join(name)).expect("gone");
        }
        let again = open_slave(crashed.path());
        again.truncate_to(keep).expect("cut again");
        assert_eq!(again.watermarks(), (keep, keep, keep, keep), "{gone} gone");
        follow(&master, &again, 1 << 20);
        assert_eq!(log_files(crashed.path()), before, "{gone} gone");
    }
}

#[test]
fn test_opening_as_a_slave_erases_nothing_until_bytes_come() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let master = open(a.path());
    send(&master, "t", &["one", "two"]);
    let slave = open_slave(b.path());
    let end = follow(&master, &slave, 1 << 20);
    let crashed = tempfile::tempdir().expect("a directory");
    copy(b.path(), crashed.path());
    let path = crashed.path().join("commitlog").join(format!("{:020}", 0));
    let mut bytes = fs::read(&path).expect("a file");
    bytes[end as usize + 40..end as usize + 90].fill(7);
    fs::write(&path, &bytes).expect("written");
    let slave = open_slave(crashed.path());
    assert_eq!(slave.watermarks().0, end);
    assert_eq!(
        fs::read(&path).expect("a file"),
        bytes,
        "opening wrote nothing"
    );
    send(&master, "t", &["x"]);
    follow(&master, &slave, 1 << 20);
    assert_eq!(log_files(crashed.path()), log_files(a.path()));
}

#[test]
fn test_bytes_taken_while_the_log_is_cut_are_whole_requests_or_none() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    bulk_unconfirmed(&master, 0..250);
    let stop = AtomicBool::new(false);
    let looked = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut looked = 0u32;
            while !stop.load(Ordering::SeqCst) {
                let Ok(range) = slave.read_log(0, 1 << 20) else {
                    continue;
                };
                check(&range).expect("whole");
                looked += u32::from(!range.bytes.is_empty());
            }
            looked
        });
        for _ in 0..30 {
            follow(&master, &slave, 1 << 20);
            slave.truncate_to(0).expect("cut");
        }
        stop.store(true, Ordering::SeqCst);
        reader.join().expect("no torn bytes")
    });
    assert!(looked > 0);
}

/// Whether all of it but an end marker are records with good checksums.
fn check(range: &LogRange) -> Result<()> {
    let mut at = 0;
    while range.bytes.len() - at > 8 {
        let record = RecordView::parse_checked(&range.bytes[at..], range.offset + at as i64)
            .unwrap_or_else(|error| panic!("torn at {at}: {error:?}"));
        at += record.total_size as usize;
    }
    Ok(())
}

fn pair() -> (tempfile::TempDir, tempfile::TempDir, Store, Store) {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (master, slave) = (open(a.path()), open_slave(b.path()));
    (a, b, master, slave)
}

#[test]
fn test_no_offset_is_given_twice_after_a_cut_though_the_queue_could_not_be_written() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let master = open(a.path());
    let disk = std::sync::Arc::new(FlakyDisk::default());
    let environment = lakemq_store::environment::Environment {
        disk: disk.clone(),
        ..environment()
    };
    let options = Options {
        role: Role::Slave,
        ..options()
    };
    let slave = Store::open(b.path(), options, environment).expect("a store");
    for body in ["u0", "u1", "u2", "u3", "u4"] {
        master
            .append(&request("t"), &[message(body)])
            .expect("stored");
    }
    let end = follow(&master, &slave, 1 << 20);
    disk.fail_write.store(true, Ordering::SeqCst);
    slave.replicated(end);
    assert!(slave.progress_wait(SOON, || slave.dispatch_failure().is_some()));
    disk.fail_write.store(false, Ordering::SeqCst);
    slave.truncate_to(end).expect("nothing to cut");
    slave.become_master(2, false).expect("the master now");
    let next = slave
        .append(&request("t"), &[message("u5")])
        .expect("stored");
    assert_eq!(next.placed[0].queue_offset, 5);
    assert!(slave.wait_dispatched(next.end_offset, SOON));
    assert_eq!(bodies(&slave, "t"), ["u0", "u1", "u2", "u3", "u4", "u5"]);
}

#[test]
fn test_who_waits_for_what_is_cut_is_not_told_that_it_is_there() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let both = follow(&x, &y, 1 << 20);
    x.ask_replicas(Some(both));
    let mine = x
        .append(&request("t"), &[message("mine")])
        .expect("stored")
        .end_offset;
    assert!(x.wait_flushed(mine, SOON));
    y.become_master(2, false).expect("elected");
    for body in ["new 0", "new 1", "new 2"] {
        send(&y, "t", &[body]);
    }
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| x.wait_dispatched(mine, SOON));
        x.become_slave(2).expect("a slave now");
        x.truncate_to(both).expect("cut");
        let end = follow(&y, &x, 1 << 20);
        x.replicated(end);
        assert!(x.progress_wait(SOON, || x.watermarks().2 >= mine));
        // Who began to wait after the cut waits for another record: only one from before it is meant here.
        let _ = waiter.join().expect("ended");
    });
    assert_eq!(bodies(&x, "t"), ["one", "new 0", "new 1", "new 2"]);
}

#[test]
fn test_a_master_whose_time_is_over_is_not_made_one_again_nor_by_a_restart() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["one"]);
    follow(&x, &y, 1 << 20);
    y.become_slave(5).expect("heard");
    for epoch in [1, 3, 5] {
        let refused = y.become_master(epoch, false).expect_err("over");
        assert_eq!(refused.code(), "SERVICE_NOT_AVAILABLE", "epoch {epoch}");
    }
    y.close().expect("closed");
    drop(y);
    let refused = Store::open(b.path(), options(), environment()).expect_err("a slave's");
    assert_eq!(refused.code(), "ARGUMENT_ILLEGAL");
    let y = open_slave(b.path());
    assert_eq!(y.role(), (Role::Slave, 5));
    y.become_master(6, false).expect("a later one");
    y.close().expect("closed");
    drop(y);
    assert_eq!(open(b.path()).role(), (Role::Master, 6));
}

#[test]
fn test_a_cut_inside_a_request_is_refused() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let at = follow(&x, &y, 1 << 20);
    send(&x, "t", &["a", "b", "c"]);
    let end = follow(&x, &y, 1 << 20);
    let batch = x.read_log(at, 1).expect("bytes").bytes;
    let mut inside = at;
    for _ in 0..2 {
        let size = RecordView::parse(&batch[(inside - at) as usize..])
            .expect("a record")
            .total_size;
        inside += i64::from(size);
        assert_eq!(
            y.truncate_to(inside).expect_err("half a request").code(),
            "ARGUMENT_ILLEGAL"
        );
    }
    assert_eq!(y.watermarks().0, end);
    y.replicated(inside + 10);
    assert!(y.wait_dispatched(inside, SOON));
    y.checkpoint().expect("a checkpoint");
    assert_eq!(
        y.watermarks().2,
        inside,
        "no record is dispatched that is confirmed by half"
    );
    y.close()
        .expect("and a stop does not wait for the other half");
}

#[test]
fn test_leases_of_a_new_master_begin_with_what_the_log_says() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let (first, _) = x.acquire_lease("g", "o1", 60_000).expect("granted");
    let end = follow(&x, &y, 1 << 20);
    y.become_master(2, true).expect("elected");
    let refused = y.acquire_lease("g", "o2", 60_000).expect_err("held");
    assert!(matches!(
        refused.code(),
        "LEASE_CONFLICT" | "SERVICE_NOT_AVAILABLE"
    ));
    y.ask_replicas(None);
    assert!(y.wait_dispatched(end, SOON));
    assert_eq!(
        y.acquire_lease("g", "o2", 60_000)
            .expect_err("grace")
            .code(),
        "LEASE_CONFLICT"
    );
    assert!(y.release_lease("g", "o1"));
    let (second, _) = y.acquire_lease("g", "o2", 60_000).expect("granted");
    assert!(second > first);
    // The old master knows nothing of that, and neither renews nor gives back any more.
    x.become_slave(2).expect("a slave now");
    assert_eq!(
        x.acquire_lease("g", "o1", 60_000)
            .expect_err("a slave")
            .code(),
        "SERVICE_NOT_AVAILABLE"
    );
    assert!(!x.release_lease("g", "o1") && x.lease("g").is_none());
    let end = follow(&y, &x, 1 << 20);
    x.replicated(end);
    assert!(x.wait_dispatched(end, SOON));
    x.become_master(3, false).expect("again");
    assert_eq!(
        x.acquire_lease("g", "o1", 60_000).expect_err("o2's").code(),
        "LEASE_CONFLICT"
    );
    assert_eq!(
        x.acquire_lease("g", "o2", 60_000).expect("renewed").0,
        second
    );
}

#[test]
fn test_bytes_no_master_has_are_refused_without_harm() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let good = x.read_log(0, 1 << 20).expect("bytes");
    let later = LogRange {
        epoch: i64::MAX,
        ..good.clone()
    };
    assert_eq!(
        y.append_replicated(1, &later).expect_err("of later").code(),
        "DATA_CORRUPT"
    );
    y.become_slave(2).expect("still possible");
    y.append_replicated(2, &good).expect("appended");
}

#[test]
fn test_a_masters_word_counts_as_far_as_the_log_is_known_to_be_its_own() {
    let (_a, _b, x, y) = pair();
    x.ask_replicas(Some(0));
    send_unconfirmed(&x, "one");
    let both = follow(&x, &y, 1 << 20);
    x.replicated(both);
    send_unconfirmed(&x, "two");
    y.become_master(2, false).expect("elected");
    let new = send(&y, "t", &["new", "newer"]).end_offset;
    x.become_slave(2).expect("a slave now");
    x.replicated(new);
    assert_eq!(
        x.watermarks().3,
        both,
        "its own tail is not confirmed by that"
    );
    x.truncate_to(both).expect("cut");
    let end = follow(&y, &x, 1 << 20);
    x.replicated(end);
    assert!(x.wait_dispatched(end, SOON));
    assert_eq!(bodies(&x, "t"), ["one", "new", "newer"]);
}

fn send_unconfirmed(store: &Store, body: &str) {
    store
        .append(&request("t"), &[message(body)])
        .expect("stored");
}

#[test]
fn test_a_slave_with_a_damaged_record_opens_and_goes_on() {
    let (_a, b, x, y) = pair();
    let first = send(&x, "t", &["one"]).end_offset;
    let second = send(&x, "t", &["two"]).end_offset;
    send(&x, "t", &["three"]);
    let end = follow(&x, &y, 1 << 20);
    drop(y);
    let path = b.path().join("commitlog").join(format!("{:020}", 0));
    let mut bytes = fs::read(&path).expect("a file");
    bytes[(first + second) as usize / 2] ^= 1;
    fs::write(&path, &bytes).expect("written");
    fs::write(b.path().join("abort"), "").expect("a crash");
    let y = open_slave(b.path());
    assert_eq!(y.watermarks().0, end);
    assert!(y.report().quarantined_bytes > 0);
    send(&x, "t", &["four"]);
    follow(&x, &y, 1 << 20);
}

#[test]
fn test_what_could_not_be_erased_is_erased_by_the_next_start() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let master = open(a.path());
    send(&master, "t", &["one"]);
    let disk = std::sync::Arc::new(FlakyDisk::default());
    let environment = lakemq_store::environment::Environment {
        disk: disk.clone(),
        ..environment()
    };
    let slave_options = Options {
        role: Role::Slave,
        ..options()
    };
    let slave = Store::open(b.path(), slave_options, environment).expect("a store");
    let keep = follow(&master, &slave, 1 << 20);
    send(&master, "t", &["cut me"]);
    let end = follow(&master, &slave, 1 << 20);
    disk.fail_write.store(true, Ordering::SeqCst);
    slave.truncate_to(keep).expect_err("the disk fails");
    disk.fail_write.store(false, Ordering::SeqCst);
    assert_eq!(slave.watermarks().0, keep);
    slave.close().expect("closed");
    assert!(b.path().join("abort").exists(), "no clean stop");
    drop(slave);
    let slave = open_slave(b.path());
    let now = slave.watermarks().0;
    assert!([keep, end].contains(&now));
    slave.truncate_to(keep).expect("cut");
    slave.become_master(2, false).expect("the master now");
    send(&slave, "t", &["other"]);
    drop(slave);
    assert_eq!(bodies(&open(b.path()), "t"), ["one", "other"]);
}

#[test]
fn test_every_cut_is_kept_aside_and_the_eight_last_of_them() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["one"]);
    let keep = follow(&x, &y, 1 << 20);
    send(&x, "t", &["two"]);
    for _ in 0..10 {
        follow(&x, &y, 1 << 20);
        y.truncate_to(keep).expect("cut");
    }
    let kept: Vec<_> = fs::read_dir(b.path().join("lakemq/cut"))
        .expect("cuts")
        .map(|entry| {
            fs::read(entry.expect("an entry").path())
                .expect("a file")
                .len()
        })
        .collect();
    assert_eq!(kept.len(), 8);
    assert!(kept.iter().all(|bytes| *bytes > 0));
}
