//! What replication needs of the log, without a network: raw bytes taken from a master and appended to a slave, roles
//! and epochs, and a cut where two logs part.
//!
//! Contract: a slave's log is its master's, byte for byte, files, rolls and end markers included; a request is on it
//! whole or not at all; a master whose epoch is over is refused; nothing confirmed is cut, and what is cut never
//! comes back, not for a reader that mapped it either.

mod bootstrapped;
mod cuts;
mod epoch_offsets;
mod page_cache;
mod pair;
mod support;
mod takeover;

use lakemq_store::commitlog::LogRange;
use lakemq_store::message::RecordView;
use lakemq_store::store::{Flush, GroupChange, Options, Role, Store, TopicChange};
use pair::*;
use std::fs;
use support::*;

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
        slave.put_group("x", &GroupChange::default()).map(drop),
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
fn test_queues_of_a_slaves_store_are_rebuilt_without_a_master_and_it_stays_a_slaves() {
    let (_a, b, master, slave) = pair();
    let confirmed = mixed(&master);
    follow(&master, &slave, 5_000);
    slave.replicated(confirmed);
    send_unconfirmed(&master, "nobody confirmed it");
    let end = follow(&master, &slave, 5_000);
    assert!(slave.wait_dispatched(confirmed, SOON));
    let before = bodies(&slave, "t");
    slave.close().expect("closed");
    drop(slave);
    let report = Store::rebuild(b.path(), options(), environment()).expect("rebuilt");
    assert_eq!((report.rebuilt, report.end_offset), (true, end));
    let slave = open_slave(b.path());
    assert_eq!(slave.role(), (Role::Slave, 1));
    assert_eq!(
        slave.watermarks(),
        (end, end, confirmed, confirmed),
        "what its master did not confirm stays unseen"
    );
    assert_eq!(bodies(&slave, "t"), before);
}

#[test]
fn test_queues_of_a_synchronous_masters_store_are_rebuilt_as_far_as_it_was_confirmed() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let synchronous = || Options {
        asks_replicas: true,
        ..options()
    };
    let left = |path, options| {
        Store::rebuild(path, self::options(), environment()).expect("rebuilt");
        Store::open(path, options, environment())
            .expect("a store")
            .watermarks()
    };
    let master = Store::open(a.path(), synchronous(), environment()).expect("a store");
    let confirmed = flushed_unconfirmed(&master, "a slave has it");
    master.replicated(confirmed);
    let end = flushed_unconfirmed(&master, "nobody has it");
    drop(master);
    let expected = (end, end, confirmed, confirmed);
    assert_eq!(left(a.path(), synchronous()), expected);
    assert_eq!(
        left(a.path(), options()),
        (end, end, end, end),
        "as an asynchronous one it confirms by itself"
    );
    // One that was a slave before.
    let slave = open_slave(b.path());
    let epoch = slave.become_master(2, true).map(|_| 2).expect("promoted");
    assert_eq!(slave.role(), (Role::Master, epoch));
    let end = flushed_unconfirmed(&slave, "nobody has it");
    drop(slave);
    assert_eq!(left(b.path(), synchronous()), (end, end, 0, 0));
}

fn flushed_unconfirmed(store: &Store, body: &str) -> i64 {
    send_unconfirmed(store, body);
    let (end, ..) = store.watermarks();
    assert!(store.wait_flushed(end, SOON));
    end
}

#[test]
fn test_a_master_that_asks_replicas_flushes_at_once_whatever_its_interval() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let lazy = |role, path| {
        let options = Options {
            role,
            asks_replicas: role == Role::Master,
            flush: Flush::Async,
            flush_interval_ms: 60_000,
            ..options()
        };
        Store::open(path, options, environment()).expect("a store")
    };
    let (master, slave) = (lazy(Role::Master, a.path()), open_slave(b.path()));
    for body in ["one", "two"] {
        send_unconfirmed(&master, body);
        let end = follow(&master, &slave, 5_000);
        master.replicated(end);
        assert!(master.wait_dispatched(end, SOON));
    }
    // One that was promoted to it does, too.
    slave.close().expect("closed");
    drop(slave);
    let slave = lazy(Role::Slave, b.path());
    slave.become_master(2, true).expect("promoted");
    send_unconfirmed(&slave, "three");
    let (end, ..) = slave.watermarks();
    assert!(slave.wait_flushed(end, SOON));
}
