//! What a takeover goes on with and what a cut leaves: offsets, leases, delays, epochs, keys, topics, and the order in
//! which a cut reaches the disk.
//!
//! Contract: nothing of what was cut is remembered; nothing is erased before the marks say on the disk that it is no
//! part of the log; what a new master appends waits for replicas where it is to.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Options, Role, Store, TopicChange};

use crate::pair::*;
use crate::support::*;

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

/// A disk that notes what was asked of it, each with the length of the file.
#[derive(Default)]
struct NotedDisk(Mutex<Vec<(&'static str, u64)>>);

impl NotedDisk {
    fn note(&self, call: &'static str, file: &File) {
        let length = file.metadata().expect("a file").len();
        self.0.lock().expect("notes").push((call, length));
    }
}

impl Disk for NotedDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.note("write", file);
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.note("sync", file);
        RealDisk.sync(file)
    }
}

#[test]
fn test_the_lowered_marks_and_the_kept_bytes_are_on_the_disk_before_anything_is_erased() {
    let (a, b) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let master = open(a.path());
    send(&master, "t", &["one"]);
    let disk = Arc::new(NotedDisk::default());
    let slave = Store::open(
        b.path(),
        Options {
            role: Role::Slave,
            ..options()
        },
        Environment {
            disk: disk.clone(),
            ..environment()
        },
    )
    .expect("a store");
    let keep = follow(&master, &slave, 1 << 20);
    send(&master, "t", &["two"]);
    let end = follow(&master, &slave, 1 << 20);
    disk.0.lock().expect("notes").clear();
    slave.truncate_to(keep).expect("cut");
    let noted = disk.0.lock().expect("notes").clone();
    let log = options().commitlog_file_size;
    let kept = (end - keep) as u64;
    let at = |call: (&str, u64)| noted.iter().position(|known| *known == call);
    let erased = at(("write", log)).expect("zeros");
    assert!(at(("sync", kept)).expect("kept") < erased, "{noted:?}");
    assert!(at(("sync", 4096)).expect("lowered") < erased, "{noted:?}");
    assert!(at(("sync", log)).expect("durable") > erased, "{noted:?}");
}

#[test]
fn test_keys_topics_and_epochs_of_what_was_cut_are_forgotten() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let both = follow(&x, &y, 1 << 20);
    y.replicated(both);
    assert!(y.wait_dispatched(both, SOON));
    // Epoch 2 is x's alone, and half of it gets to y.
    x.become_slave(1).expect("for a moment");
    x.become_master(2, false).expect("again");
    let keyed = AppendRequest {
        idempotency_key: Some("once"),
        ..request("made")
    };
    x.append(&keyed, &[message("lost")]).expect("stored");
    x.put_topic(
        "t",
        &TopicChange {
            write_queue_nums: Some(2),
            read_queue_nums: Some(4),
            ..TopicChange::default()
        },
    )
    .expect("changed");
    follow(&x, &y, 1 << 20);
    assert_eq!(y.epochs().len(), 2);
    y.truncate_to(both).expect("cut");
    assert_eq!(y.epochs().len(), 1);
    assert_eq!(y.common_end(&x.epochs(), x.watermarks().0), Some(both));
    y.become_master(3, false).expect("elected");
    let placed = y.append(&keyed, &[message("kept")]).expect("stored");
    assert!(!placed.duplicate && placed.placed[0].queue_offset == 0);
    assert!(y.wait_dispatched(placed.end_offset, SOON));
    assert_eq!(bodies(&y, "made"), ["kept"]);
    assert_eq!(y.topic("t").expect("a topic").write_queue_nums, 4);
}

#[test]
fn test_raw_bytes_are_of_one_epoch_and_those_of_an_older_one_do_not_follow() {
    let (_a, _b, x, y) = pair();
    let first = send(&x, "t", &["one"]).end_offset;
    x.become_slave(1).expect("for a moment");
    x.become_master(2, false).expect("again");
    send(&x, "t", &["two"]);
    let range = x.read_log(0, 1 << 20).expect("bytes");
    assert_eq!((range.epoch, range.next_offset), (1, first));
    y.append_replicated(2, &range).expect("appended");
    let mut range = x.read_log(first, 1 << 20).expect("bytes");
    assert_eq!(range.epoch, 2);
    y.append_replicated(2, &range).expect("appended");
    let at = send(&x, "t", &["three"]).end_offset;
    range = x.read_log(y.watermarks().0, 1 << 20).expect("bytes");
    assert_eq!(range.next_offset, at);
    range.epoch = 1;
    let refused = y.append_replicated(2, &range).expect_err("older");
    assert_eq!(refused.code(), "DATA_CORRUPT");
    assert_eq!(y.epochs(), x.epochs());
}

#[test]
fn test_what_a_new_master_appends_waits_for_replicas_where_it_is_to() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let both = follow(&x, &y, 1 << 20);
    y.become_master(2, true).expect("elected");
    y.replicated(both);
    assert!(y.wait_dispatched(both, SOON));
    let mine = y.append(&request("t"), &[message("two")]).expect("stored");
    assert!(y.wait_flushed(mine.end_offset, SOON));
    y.checkpoint().expect("a checkpoint");
    assert_eq!(y.watermarks().3, both);
    y.replicated(mine.end_offset);
    assert!(y.wait_dispatched(mine.end_offset, SOON));
}

#[test]
fn test_a_new_master_that_asks_replicas_confirms_nothing_of_before_by_itself() {
    let (_a, _b, x, y) = pair();
    send(&x, "t", &["one"]);
    let first = follow(&x, &y, 1 << 20);
    y.replicated(first);
    assert!(y.wait_dispatched(first, SOON));
    send(&x, "t", &["two"]);
    let end = follow(&x, &y, 1 << 20);
    drop(x);
    assert_eq!(y.become_master(2, true).expect("the master"), end);
    assert_eq!(
        y.watermarks(),
        (end, end, first, first),
        "its own word is none"
    );
    y.replicated(end);
    assert!(y.wait_dispatched(end, SOON));
    assert_eq!(bodies(&y, "t"), ["one", "two"]);
}

#[test]
fn test_a_slave_notes_an_epoch_that_has_no_byte_yet() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["one"]);
    let end = follow(&x, &y, 1 << 20);
    let code = |epoch, offset| {
        y.begin_epoch(epoch, offset)
            .map_err(|refused| refused.code())
    };
    assert_eq!(code(3, end - 1), Err("OFFSET_ILLEGAL"));
    assert_eq!(code(3, end), Ok(()));
    assert_eq!(code(3, end), Ok(()), "once is enough");
    assert_eq!(
        y.epochs()
            .last()
            .map(|last| (last.epoch, last.start_offset)),
        Some((3, end))
    );
    y.become_slave(4).expect("heard");
    assert_eq!(code(3, end), Err("SERVICE_NOT_AVAILABLE"), "over");
    assert_eq!(
        x.begin_epoch(9, end).map_err(|refused| refused.code()),
        Err("SERVICE_NOT_AVAILABLE")
    );
    drop(y);
    let again = open_slave(b.path());
    assert_eq!(
        again.epochs().last().map(|last| last.epoch),
        Some(3),
        "also after a restart"
    );
}

#[test]
fn test_a_delayed_message_of_a_slave_is_due_by_its_own_clock() {
    let (_a, b, x, y) = pair();
    drop(y);
    let soon = NewMessage {
        delay_level: 5,
        ..message("in a minute")
    };
    let stored = x.append(&request("late"), &[soon]).expect("stored");
    assert!(x.wait_dispatched(stored.end_offset, SOON));
    // A slave that has run for an hour when it gets the message.
    let clock = Arc::new(TestClock(std::sync::atomic::AtomicI64::new(
        x.now_ms() - 3_600_000,
    )));
    let y = Store::open(
        b.path(),
        Options {
            role: Role::Slave,
            ..options()
        },
        Environment {
            clock: clock.clone(),
            ..environment()
        },
    )
    .expect("a store");
    clock
        .0
        .fetch_add(3_600_000, std::sync::atomic::Ordering::SeqCst);
    let end = follow(&x, &y, 1 << 20);
    y.become_master(2, false).expect("elected");
    assert!(y.wait_dispatched(end, SOON));
    let soon = y.append(&request("wake"), &[message("x")]).expect("stored");
    assert!(y.wait_dispatched(soon.end_offset, SOON));
    assert!(
        !y.progress_wait(std::time::Duration::from_millis(500), || y
            .bounds("late", 0)
            .is_ok_and(|b| b.max > 0)),
        "its minute is not over"
    );
    clock
        .0
        .fetch_add(61_000, std::sync::atomic::Ordering::SeqCst);
    send(&y, "wake", &["y"]);
    y.append(
        &request("wake"),
        &[NewMessage {
            delay_level: 1,
            ..message("wakes the scheduler")
        }],
    )
    .expect("stored");
    assert!(y.progress_wait(SOON, || y.bounds("late", 0).is_ok_and(|b| b.max == 1)));
}

#[test]
fn test_an_epoch_that_wrote_nothing_before_a_restart_is_still_its_masters() {
    let (_a, b, x, y) = pair();
    send(&x, "t", &["one"]);
    let both = follow(&x, &y, 1 << 20);
    y.become_master(2, false).expect("elected");
    y.close().expect("closed");
    drop(y);
    let y = open(b.path());
    send(&y, "t", &["two"]);
    assert_eq!(y.read_log(both, 1).expect("bytes").epoch, 2);
}
