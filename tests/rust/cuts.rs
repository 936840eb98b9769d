//! A cut where two logs part.
//!
//! Contract: nothing confirmed and no half request is cut; what is cut never comes back, not after a crash at any step
//! and not for a reader that mapped it; no offset is given twice.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use lakemq_store::commitlog::LogRange;
use lakemq_store::error::Result;
use lakemq_store::message::RecordView;
use lakemq_store::reader::Reader;
use lakemq_store::store::{Options, Role, Store};

use crate::pair::*;
use crate::support::*;

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
    assert_eq!(read_beside(&beside, "t", 0).len(), 40);

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
    assert_eq!(read_beside(&beside, "t", 0).len(), 40);

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
        read_beside(&beside, "t", 0),
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
    assert!(comes_true(&slave, || slave.dispatch_failure().is_some()));
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
