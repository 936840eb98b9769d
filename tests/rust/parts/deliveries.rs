//! Delayed messages, with the scheduler's turns in the test's hands: what is due, on which level, and what keeps the log.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Options, Store, Work};

use crate::jumping_clock::{HOUR, JumpingClock};
use crate::support::{bodies, environment, message, options, request};

const DAY: i64 = 1_700_000_000_000;

fn open(root: &Path, clock: &Arc<JumpingClock>, levels: &[i64]) -> Store {
    open_with(root, clock, levels, FaultPoints::default())
}

fn open_with(root: &Path, clock: &Arc<JumpingClock>, levels: &[i64], faults: FaultPoints) -> Store {
    let environment = Environment {
        clock: clock.clone(),
        faults: Arc::new(faults),
        ..environment()
    };
    let options = Options {
        delay_levels_ms: levels.to_vec(),
        ..options()
    };
    Store::open_at_rest(root, options, environment).expect("a store")
}

fn delayed(body: &str, level: u32) -> NewMessage<'_> {
    NewMessage {
        delay_level: level,
        ..message(body)
    }
}

fn put(store: &Store, messages: &[NewMessage<'_>]) {
    store.append(&request("t"), messages).expect("stored");
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
}

/// What has arrived after a turn of the scheduler.
fn arrived(store: &Store) -> Vec<String> {
    store.work(Work::Deliver).expect("looked");
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
    if store.bounds("t", 0).is_ok() {
        bodies(store, "t")
    } else {
        Vec::new()
    }
}

fn gauge(store: &Store, name: &str) -> f64 {
    let stats = store.stats();
    stats.iter().find(|(of, _)| *of == name).expect("a gauge").1
}

#[test]
fn test_each_level_is_delivered_when_it_is_due_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(DAY);
    let store = open(dir.path(), &clock, &[1_000, 5_000, 60_000]);
    put(&store, &[delayed("3", 3), delayed("1", 1), delayed("2", 2)]);
    for (passes, expected) in [
        (999, &[][..]),
        (1, &["1"]),
        (3_999, &["1"]),
        (1, &["1", "2"]),
        (54_999, &["1", "2"]),
        (1, &["1", "2", "3"]),
    ] {
        clock.pass(passes);
        assert_eq!(arrived(&store), expected);
        assert_eq!(
            gauge(&store, "delayed_delivered_total"),
            expected.len() as f64
        );
    }
    assert_eq!(store.delay_progress(), [(1, 1, 1), (2, 1, 1), (3, 1, 1)]);
    assert_eq!(gauge(&store, "delayed_dropped_total"), 0.0);
}

/// Contract: a record from before a start is held no longer than its level's delay from then on, whatever its stamp says.
#[test]
fn test_after_a_start_a_level_holds_no_longer_than_its_own_delay() {
    for (levels, level, holds) in [
        (&[1_000, 60_000][..], 1, 1_000),
        (&[1_000, 60_000], 2, 60_000),
        (&[1_000], 2, 1_000),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = JumpingClock::at(DAY);
        let store = open(dir.path(), &clock, &[HOUR, HOUR]);
        put(&store, &[delayed("late", level)]);
        store.close().expect("closed");
        drop(store);
        clock.jump(-10 * HOUR);
        let store = open(dir.path(), &clock, levels);
        clock.pass(holds - 1);
        assert!(arrived(&store).is_empty(), "level {level} of {levels:?}");
        clock.pass(1);
        assert_eq!(arrived(&store), ["late"], "level {level} of {levels:?}");
    }
}

#[test]
fn test_expiry_keeps_the_log_from_the_oldest_message_that_is_not_delivered() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(DAY);
    let store = open(dir.path(), &clock, &[2_000, 1_000]);
    let filler = "x".repeat(3_000);
    let fill = || {
        for _ in 0..25 {
            let plain = NewMessage {
                keys: None,
                ..message(&filler)
            };
            store.append(&request("other"), &[plain]).expect("stored");
            store.work(Work::Flush).expect("flushed");
        }
    };
    // Level 2 lies in the first file and is due first, level 1 in the second or third.
    put(&store, &[delayed("first", 2), delayed("second", 2)]);
    fill();
    put(&store, &[delayed("third", 1)]);
    let third = store.watermarks().0;
    fill();
    fill();
    let expire = || {
        store
            .expire(store.now_ms() + 100 * HOUR, true)
            .expect("expired");
        gauge(&store, "commitlog_min_offset")
    };
    assert_eq!(expire(), 0.0, "nothing is delivered");
    clock.pass(1_000);
    assert_eq!(arrived(&store), ["first", "second"]);
    let kept = expire();
    assert!(kept > 0.0 && kept < third as f64, "{kept}");
    clock.pass(1_000);
    assert_eq!(arrived(&store).last().map(String::as_str), Some("third"));
    assert!(expire() > third as f64);
    assert_eq!(gauge(&store, "delayed_dropped_total"), 0.0);
}

/// More entries than a turn delivers of one level: the next turn is at once, and nothing is twice.
#[test]
fn test_a_turn_delivers_so_many_of_each_level_and_the_next_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(DAY);
    let store = open(dir.path(), &clock, &[1_000, 2_000]);
    let texts: Vec<String> = (0..1_030).map(|number| number.to_string()).collect();
    for texts in texts.chunks(103) {
        let messages: Vec<_> = texts.iter().map(|text| delayed(text, 1)).collect();
        put(&store, &messages);
    }
    put(&store, &[delayed("other", 2)]);
    clock.pass(1_500);
    assert_eq!(arrived(&store).len(), 1_024);
    assert_eq!(arrived(&store), texts);
    assert_eq!(arrived(&store).len(), 1_030, "none is twice");
    clock.pass(1_000);
    assert_eq!(arrived(&store).len(), 1_031);
}

/// A hook that has the store at hand.
fn hooked(armed: &Arc<AtomicBool>, act: fn(&Store)) -> (FaultPoints, Arc<OnceLock<Weak<Store>>>) {
    let place: Arc<OnceLock<Weak<Store>>> = Arc::default();
    let (armed, at) = (Arc::clone(armed), Arc::clone(&place));
    let faults = FaultPoints::hooked(move |point| {
        if point == Point::DeliverBefore
            && armed.swap(false, Ordering::SeqCst)
            && let Some(store) = at.get().and_then(Weak::upgrade)
        {
            act(&store);
        }
    });
    (faults, place)
}

#[test]
fn test_a_master_that_is_deposed_while_it_delivers_delivers_no_more_and_complains_of_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(DAY);
    let armed = Arc::new(AtomicBool::new(false));
    let (faults, place) = hooked(&armed, |store| {
        let (_, epoch) = store.role();
        store.become_slave(epoch + 1).expect("deposed");
    });
    let store = Arc::new(open_with(dir.path(), &clock, &[1_000], faults));
    place.set(Arc::downgrade(&store)).expect("once");
    put(&store, &[delayed("one", 1)]);
    clock.pass(1_000);
    armed.store(true, Ordering::SeqCst);
    store.work(Work::Deliver).expect("nothing to complain of");
    assert_eq!(gauge(&store, "delayed_delivered_total"), 0.0);
    store.work(Work::Deliver).expect("a slave delivers nothing");
    assert_eq!(gauge(&store, "delayed_delivered_total"), 0.0);
    let (_, epoch) = store.role();
    store
        .become_master(epoch + 1, false)
        .expect("a master again");
    store.work(Work::Flush).expect("flushed");
    store.work(Work::Dispatch).expect("dispatched");
    assert_eq!(arrived(&store), ["one"]);
}

/// A disk of which a test says how full it is.
#[derive(Default)]
struct Filling {
    no_room: AtomicBool,
    nearly_full: AtomicBool,
}

impl Disk for Filling {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        if self.no_room.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }

    fn used_ratio(&self, _path: &Path) -> io::Result<f64> {
        let full = self.nearly_full.load(Ordering::SeqCst);
        Ok(if full { 0.9 } else { 0.1 })
    }
}

fn open_on(disk: &Arc<Filling>, root: &Path, clock: &Arc<JumpingClock>) -> Store {
    let environment = Environment {
        clock: clock.clone(),
        disk: disk.clone(),
        ..environment()
    };
    let options = Options {
        delay_levels_ms: vec![1_000],
        ..options()
    };
    Store::open_at_rest(root, options, environment).expect("a store")
}

#[test]
fn test_a_delivery_that_finds_no_room_is_an_error_and_is_tried_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (clock, disk) = (JumpingClock::at(DAY), Arc::new(Filling::default()));
    let store = open_on(&disk, dir.path(), &clock);
    let body = "x".repeat(28_000);
    for _ in 0..2 {
        let late = NewMessage {
            keys: None,
            ..delayed(&body, 1)
        };
        put(&store, &[late]);
    }
    clock.pass(1_000);
    disk.no_room.store(true, Ordering::SeqCst);
    let refused = store.work(Work::Deliver).expect_err("the next file");
    assert_eq!(refused.code(), "DISK_FULL");
    assert_eq!(gauge(&store, "delayed_delivered_total"), 0.0);
    disk.no_room.store(false, Ordering::SeqCst);
    assert_eq!(arrived(&store).len(), 2);
}

#[test]
fn test_of_a_level_that_was_delivered_in_part_the_rest_is_counted_when_it_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let (clock, disk) = (JumpingClock::at(DAY), Arc::new(Filling::default()));
    let store = open_on(&disk, dir.path(), &clock);
    put(&store, &[delayed("one", 1), delayed("two", 1)]);
    clock.pass(1_000);
    assert_eq!(arrived(&store), ["one", "two"]);
    put(&store, &[delayed("three", 1)]);
    for _ in 0..60 {
        let filler = "x".repeat(3_000);
        put(&store, &[message(&filler)]);
    }
    disk.nearly_full.store(true, Ordering::SeqCst);
    store
        .expire(store.now_ms() + 100 * HOUR, true)
        .expect("expired");
    assert!(gauge(&store, "commitlog_min_offset") > 0.0);
    store.work(Work::Deliver).expect("looked");
    assert_eq!(gauge(&store, "delayed_dropped_total"), 1.0);
    let told = store.take_events();
    let lost = "1 delayed messages of level 1 expired";
    assert!(
        told.iter().any(|event| event.text.starts_with(lost)),
        "{told:?}"
    );
}
