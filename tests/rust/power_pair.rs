//! A slave on a disk that loses power: at any call of taking its master's bytes, of a cut where its log parts from
//! its master's, and of a store made from its master's.
//!
//! Contract: the bytes that a slave said it has are there; its log is its master's, or what it had before a cut; the
//! epoch it heard of never goes back; what is cut is kept aside first; a store that is made from a master's is whole,
//! or begun anew. After any cut of the power it follows its master to the end.
//! `LAKEMQ_PAIR_SEEDS` sets the number of seeds (default 3), `LAKEMQ_PAIR_SEED` runs one alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::bootstrap::Bootstrap;
use lakemq_store::environment::{Environment, RealDisk};
use lakemq_store::paths::numbered_files;
use lakemq_store::store::{Options, Role, Store, Work};

use crate::dice::Dice;
use crate::machine::{Left, Machine, cut_at_each_call, still};
use crate::pair::open_slave;
use crate::support::{FindJson, TestClock, bodies, environment, message, options, request};
use crate::workload::{scratch, seeds};

const FILE: u64 = 64 * 1024;
const TOPICS: [&str; 2] = ["t", "u"];
/// What the slave said so far.
#[derive(Debug, Clone, Default)]
struct Said {
    /// It has its master's log up to there.
    flushed: i64,
    epoch: i64,
    /// The making of its store, or the giving up of that, is done.
    done: bool,
}

fn slaves() -> Options {
    Options {
        role: Role::Slave,
        ..options()
    }
}

fn open_on(machine: &Machine<Said>, dice: &mut Dice) -> Store {
    let environment = machine.environment(dice);
    Store::open_at_rest(&machine.root, slaves(), environment).expect("a store")
}

/// Stores messages of about `bytes` in all.
fn fill(master: &Store, name: &str, bytes: usize, dice: &mut Dice) {
    let mut left = bytes as i64;
    let mut number = 0;
    while left > 0 {
        let body = |of: usize| format!("{name}-{number}-{of}-{}", "x".repeat(2_500));
        let sent: Vec<String> = (0..1 + dice.below(3)).map(body).collect();
        let messages: Vec<_> = sent.iter().map(|body| message(body)).collect();
        let topic = TOPICS[dice.below(2)];
        master.append(&request(topic), &messages).expect("stored");
        left -= 5_200 * sent.len() as i64;
        number += 1;
    }
    settle(master);
}

/// Flushes and dispatches all that is confirmed.
fn settle(store: &Store) {
    store.work(Work::Flush).expect("flushed");
    while store.watermarks().2 < store.watermarks().3 {
        store.work(Work::Dispatch).expect("dispatched");
    }
}

/// A master without threads.
fn master(root: &Path) -> Store {
    Store::open_at_rest(root, options(), environment()).expect("a store")
}

/// Goes on as the master of the next epoch.
fn next_epoch(master: &Store) {
    let (_, epoch) = master.role();
    master.become_slave(epoch).expect("a slave for a moment");
    master.become_master(epoch + 1, false).expect("again");
}

/// Takes the master's bytes to their end, a few at a time; `taken` hears of each stretch.
fn take(master: &Store, slave: &Store, dice: &mut Dice, mut taken: impl FnMut(&mut Dice)) {
    loop {
        let (at, ..) = slave.watermarks();
        let range = master.read_log(at, 1 + dice.below(9_000)).expect("bytes");
        if range.next_offset == at {
            break;
        }
        let epoch = range.epoch.max(slave.role().1);
        slave.append_replicated(epoch, &range).expect("appended");
        taken(dice);
    }
}

/// What a thread of the slave does now and then, and what it says then.
fn work_a_bit(machine: &Machine<Said>, slave: &Store, dice: &mut Dice) {
    machine.say(|said| said.epoch = slave.role().1);
    if dice.in_a_hundred(20) {
        slave.work(Work::Prepare).expect("prepared");
    }
    if dice.in_a_hundred(50) {
        slave.work(Work::FlushAlone).expect("flushed");
        let (_, flushed, ..) = slave.watermarks();
        machine.say(|said| said.flushed = flushed);
        if dice.in_a_hundred(50) {
            slave.replicated(flushed);
            slave.work(Work::Dispatch).expect("dispatched");
        }
    }
    if dice.in_a_hundred(10) {
        slave.checkpoint().expect("taken");
    }
}

/// The slave is its master's as far as it goes, and follows it to the end.
fn check_follows(label: &str, master: &Store, slave: &Store, dice: &mut Dice) {
    let (end, ..) = slave.watermarks();
    let began: Vec<_> = master.epochs();
    let known: Vec<_> = slave.epochs();
    assert!(
        began.starts_with(&known),
        "{label}: {known:?}, its master has {began:?}"
    );
    let lacking = began.iter().skip(known.len());
    assert_eq!(
        lacking.filter(|epoch| epoch.start_offset < end).count(),
        0,
        "{label}: bytes up to {end} of an epoch it does not know: {known:?}, {began:?}"
    );
    check_same(label, master, slave, end);
    // As a replicator does where they meet.
    let common = slave.common_end(&began, master.watermarks().0);
    assert_eq!(common, Some(end), "{label}");
    slave.truncate_to(end).expect("nothing to cut");
    take(master, slave, dice, |_| ());
    let ((_, epoch), (end, ..)) = (master.role(), master.watermarks());
    slave.begin_epoch(epoch, end).expect("noted");
    slave.work(Work::FlushAlone).expect("flushed");
    slave.replicated(end);
    settle(slave);
    assert_eq!(slave.watermarks(), (end, end, end, end), "{label}");
    check_same(label, master, slave, end);
    assert_eq!(slave.epochs(), began, "{label}");
    for topic in TOPICS {
        let (is, should) = (bodies(slave, topic), bodies(master, topic));
        assert!(
            is == should,
            "{label}: {topic} shows {} messages, its master {}",
            is.len(),
            should.len()
        );
        for body in [is.first(), is.last()].into_iter().flatten() {
            let found = |store: &Store| {
                let key = format!("key-{body}");
                store.messages_json(topic, &key, (0, i64::MAX), 10).ok()
            };
            assert!(
                found(slave) == found(master),
                "{label}: {body:.9} of {topic} is not found by its key"
            );
        }
    }
}

fn check_same(label: &str, master: &Store, slave: &Store, end: i64) {
    let digest = |store: &Store| {
        store
            .log_digest(master.log_min_offset(), end)
            .map_err(|error| error.detail().to_owned())
    };
    assert_eq!(
        digest(slave),
        digest(master),
        "{label}: the log up to {end}"
    );
}

fn opened(left: &Left<Said>, dice: &mut Dice) -> Store {
    let label = &left.label;
    let slave = Store::open_at_rest(&left.root, slaves(), still(dice))
        .unwrap_or_else(|error| panic!("{label}: the store does not open: {error:?}"));
    let (quarantined, end) = (slave.report().quarantined_bytes, slave.watermarks().0);
    assert_eq!(quarantined, 0, "{label}: {:?}", slave.report());
    assert!(
        end >= left.said.flushed,
        "{label}: it said {}, the log ends at {end}",
        left.said.flushed
    );
    assert!(
        slave.role().1 >= left.said.epoch,
        "{label}: epoch {} after {}",
        slave.role().1,
        left.said.epoch
    );
    slave
}

#[test]
fn test_a_slave_whose_power_fails_has_what_it_said_and_goes_on_behind_it() {
    for seed in seeds("LAKEMQ_PAIR_SEEDS", "LAKEMQ_PAIR_SEED", 3) {
        let (mut dice, home) = (Dice(seed), scratch());
        let master = master(&home.path().join("master"));
        for (number, bytes) in [90_000, 5_000, 70_000].into_iter().enumerate() {
            fill(&master, &format!("of-{number}"), bytes, &mut dice);
            next_epoch(&master);
        }
        let work = |machine: &Machine<Said>, dice: &mut Dice| {
            let slave = open_on(machine, dice);
            take(&master, &slave, dice, |dice| {
                work_a_bit(machine, &slave, dice);
            });
            let (end, (_, epoch)) = (slave.watermarks().0, master.role());
            slave.begin_epoch(epoch, end).expect("noted");
            slave.become_slave(epoch + 3).expect("heard");
            machine.say(|said| said.epoch = epoch + 3);
            slave.work(Work::FlushAlone).expect("flushed");
            machine.say(|said| said.flushed = end);
            machine.disk.kill(slave);
        };
        let label = format!("seed {seed}");
        let cuts = cut_at_each_call(&label, &mut dice, home.path(), |_| (), work);
        // Its master has heard of what the slave has by the time that they meet again.
        let heard = master.role().1 + 3;
        for left in cuts {
            let slave = opened(&left, &mut dice);
            let (_, seen) = slave.role();
            if seen == heard {
                let refused = slave.become_slave(seen - 1).map_err(|error| error.code());
                assert_eq!(refused, Err("SERVICE_NOT_AVAILABLE"), "{}", left.label);
                continue;
            }
            check_follows(&left.label, &master, &slave, &mut dice);
            drop(slave);
            fs::remove_dir_all(&left.root).expect("removed");
        }
    }
}

#[test]
fn test_a_cut_of_a_slaves_log_is_done_or_not_whenever_its_power_fails_and_what_goes_is_kept_first()
{
    for seed in seeds("LAKEMQ_PAIR_SEEDS", "LAKEMQ_PAIR_SEED", 3) {
        let (mut dice, home) = (Dice(seed), scratch());
        let (old, new) = (
            master(&home.path().join("old")),
            master_of_slave(&home.path().join("new")),
        );
        fill(&old, "both", 40_000, &mut dice);
        take(&old, &new, &mut dice, |_| ());
        new.work(Work::FlushAlone).expect("flushed");
        let both = new.watermarks().0;
        let length = [5_000, 100_000][dice.below(2)];
        fill(&old, "lost", length, &mut dice);
        let tail = old.watermarks().0;
        new.become_master(2, false).expect("elected");
        fill(&new, "new", 110_000, &mut dice);
        let before = |root: &Path| {
            let slave = open_slave(root);
            take(&old, &slave, &mut Dice(seed), |_| ());
            slave.replicated(both);
            slave.close().expect("closed");
        };
        let work = |machine: &Machine<Said>, dice: &mut Dice| {
            let slave = open_on(machine, dice);
            machine.say(|said| said.flushed = both);
            slave.become_slave(2).expect("heard");
            machine.say(|said| said.epoch = 2);
            assert_eq!(
                slave.common_end(&new.epochs(), new.watermarks().0),
                Some(both)
            );
            slave.truncate_to(both).expect("cut");
            take(&new, &slave, dice, |dice| work_a_bit(machine, &slave, dice));
            machine.disk.kill(slave);
        };
        let label = format!("seed {seed}");
        for left in cut_at_each_call(&label, &mut dice, home.path(), before, work) {
            let label = &left.label;
            let slave = opened(&left, &mut dice);
            let (end, ..) = slave.watermarks();
            let common = slave.common_end(&new.epochs(), new.watermarks().0);
            let common = common.unwrap_or_else(|| panic!("{label}: nothing in common"));
            assert!(common >= both.max(left.said.flushed), "{label}: {common}");
            check_same(label, &new, &slave, common);
            if end > common {
                check_same(label, &old, &slave, end);
            }
            if end < tail || common > both {
                check_kept(label, &left.root, &old, (both, tail));
            }
            slave.become_slave(2).expect("heard");
            if end > common {
                slave.truncate_to(common).expect("cut");
            }
            check_follows(label, &new, &slave, &mut dice);
            check_kept(label, &left.root, &old, (both, tail));
            drop(slave);
            fs::remove_dir_all(&left.root).expect("removed");
        }
    }
}

/// A slave that becomes a master later.
fn master_of_slave(root: &Path) -> Store {
    Store::open_at_rest(root, slaves(), environment()).expect("a store")
}

/// Some file holds what was cut, whole.
fn check_kept(label: &str, root: &Path, old: &Store, (from, to): (i64, i64)) {
    let mut should = Vec::new();
    while from + (should.len() as i64) < to {
        let at = from + should.len() as i64;
        should.extend(old.read_raw(at, (to - at) as usize).expect("bytes"));
    }
    let kept = crate::support::image(&root.join("lakemq/cut"));
    assert!(
        kept.iter().any(|(_, bytes)| *bytes == should),
        "{label}: what was cut is not kept, but {:?}",
        kept.iter()
            .map(|(path, bytes)| (path, bytes.len()))
            .collect::<Vec<_>>()
    );
}

/// A master whose log does not begin at 0 any more.
fn aged(root: &Path, dice: &mut Dice) -> Store {
    let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let master = Store::open_at_rest(root, options(), environment).expect("a store");
    fill(&master, "old", 70_000, dice);
    clock.0.fetch_add(100 * 3_600_000, Ordering::SeqCst);
    fill(&master, "young", 90_000, dice);
    assert!(master.expire(master.now_ms(), true).expect("expired") > 0);
    next_epoch(&master);
    fill(&master, "next", 10_000, dice);
    master.checkpoint().expect("taken");
    fill(&master, "newest", 20_000, dice);
    master
}

/// Copies the master's log up to its snapshot and some more; returns what makes it a store.
fn copied(
    master: &Store,
    root: &Path,
    environment: Environment,
    dice: &mut Dice,
) -> (Bootstrap, Vec<u8>) {
    let (offset, snapshot) = master.bootstrap_snapshot().expect("a snapshot");
    let first = master.log_min_offset();
    let mut made = Bootstrap::begin(root, FILE, first, environment).expect("begun");
    while made.end() < offset {
        let range = master.read_log(made.end(), 1 + dice.below(9_000));
        let range = range.expect("bytes");
        made.append(range.offset, &range.bytes, range.next_offset)
            .expect("appended");
    }
    (made, snapshot)
}

/// What is found where a store is to be made: nothing, an empty store, or one whose making was not finished.
fn found_there(master: &Store, root: &Path, seed: u64) {
    match seed % 3 {
        0 => {}
        1 => open_slave(root).close().expect("closed"),
        _ => drop(copied(master, root, environment(), &mut Dice(seed))),
    }
}

#[test]
fn test_a_store_made_from_a_masters_is_whole_or_begun_anew_whenever_the_power_fails() {
    for seed in seeds("LAKEMQ_PAIR_SEEDS", "LAKEMQ_PAIR_SEED", 3) {
        let (mut dice, home) = (Dice(seed), scratch());
        let master = aged(&home.path().join("master"), &mut dice);
        let before = |root: &Path| found_there(&master, root, seed);
        let work = |machine: &Machine<Said>, dice: &mut Dice| {
            let environment = machine.environment(dice);
            let (made, snapshot) = copied(&master, &machine.root, environment, dice);
            made.finish(&snapshot, master.epochs()).expect("finished");
            machine.say(|said| said.done = true);
            if seed % 2 == 0 {
                return;
            }
            let slave = open_on(machine, dice);
            take(&master, &slave, dice, |dice| {
                work_a_bit(machine, &slave, dice);
            });
            machine.disk.kill(slave);
        };
        let label = format!("seed {seed}");
        for left in cut_at_each_call(&label, &mut dice, home.path(), before, work) {
            let label = &left.label;
            if Bootstrap::is_wanted(&left.root).expect("looked") {
                assert!(!left.said.done, "{label}: it was finished");
                let (made, snapshot) = copied(&master, &left.root, environment(), &mut dice);
                made.finish(&snapshot, master.epochs()).expect("finished");
            }
            let slave = opened(&left, &mut dice);
            assert_eq!(slave.log_min_offset(), master.log_min_offset(), "{label}");
            assert_eq!(slave.topics(), master.topics(), "{label}");
            check_follows(label, &master, &slave, &mut dice);
            drop(slave);
            fs::remove_dir_all(&left.root).expect("removed");
        }
    }
}

#[test]
fn test_a_store_that_is_given_up_leaves_no_message_whenever_the_power_fails() {
    for seed in seeds("LAKEMQ_PAIR_SEEDS", "LAKEMQ_PAIR_SEED", 3) {
        let (mut dice, home) = (Dice(seed), scratch());
        let master = aged(&home.path().join("master"), &mut dice);
        let before = |root: &Path| found_there(&master, root, seed);
        let work = |machine: &Machine<Said>, dice: &mut Dice| {
            let environment = machine.environment(dice);
            let (made, _) = copied(&master, &machine.root, environment, dice);
            made.abandon().expect("given up");
            machine.say(|said| said.done = true);
        };
        let label = format!("seed {seed}");
        for left in cut_at_each_call(&label, &mut dice, home.path(), before, work) {
            let label = &left.label;
            let marker = left.root.join("lakemq/bootstrap");
            let files = numbered_files(&left.root.join("commitlog"), &RealDisk).expect("listed");
            assert!(
                marker.exists() || files.is_empty(),
                "{label}: {files:?} without a marker"
            );
            if marker.exists() {
                assert!(!left.said.done, "{label}: it was given up");
                let (made, _) = copied(&master, &left.root, environment(), &mut dice);
                made.abandon().expect("given up");
            }
            let slave = opened(&left, &mut dice);
            assert_eq!(slave.watermarks(), (0, 0, 0, 0), "{label}");
        }
    }
}
