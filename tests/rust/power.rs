//! The store on a disk that loses power, at any call and with any part of what was not synced.
//!
//! Contract: what was acknowledged with the flush is there, at its offset; nothing is there that was not sent, and of a
//! request all messages or none; what is lost is the end of the log; a committed offset and the key of a request
//! are as new as what was acknowledged; queues and index equal a rebuild. A second cut, inside the recovery, changes
//! none of it (nor does a third: `crashes.rs`).
//! `LAKEMQ_POWER_SEEDS` sets the number of seeds (default 4); a failure names its seed, and
//! `LAKEMQ_POWER_SEED` runs that one alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use lakemq_store::environment::{Disk, Environment};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Store, TopicChange, Work};

use crate::actions::UNSYNCED;
use crate::crashes::cut_the_recovery;
use crate::dice::Dice;
use crate::power_disk::{Ailment, Durable, Failure, PowerDisk, Synced, Unsynced};
use crate::support::{SOON, TestClock, bodies, environment, image, message, request};
use crate::workload::{Done, Left, Worked, check, open_in, scratch, seeds, small, step};

const STEPS: usize = 60;
const CUTS: usize = 8;
/// Calls of the disk that a run makes, at the least; cuts lie among them.
const CALLS: usize = 400;
/// Seeds until a disk that lies is noticed, at the most.
const LYING_SEEDS: u64 = 40;

fn ailment(lies_about: Option<Synced>) -> Ailment {
    Ailment {
        lies_about,
        failure: None,
    }
}

fn open_on(disk: &Arc<PowerDisk>, root: &Path) -> Store {
    let disk = Arc::clone(disk);
    open_in(
        root,
        Environment {
            disk,
            ..environment()
        },
    )
    .expect("a store")
}

/// A store without threads, on a clock that stands and with ids from the dice: the same dice do the same again.
pub fn open_at_rest_on(
    disk: &Arc<PowerDisk>,
    root: &Path,
    dice: &mut Dice,
) -> lakemq_store::error::Result<Store> {
    let environment = Environment {
        disk: Arc::clone(disk) as Arc<dyn Disk>,
        clock: Arc::new(TestClock(AtomicI64::new(1_700_000_000_000))),
        random: std::array::from_fn(|_| dice.below(256) as u8),
        ..environment()
    };
    Store::open_at_rest(root, small(), environment)
}

/// Sends, commits, takes checkpoints and restarts, as the dice say, and cuts the power at the calls chosen and after
/// each clean stop, each time in every way of `kinds`.
pub fn run(
    dice: &mut Dice,
    (steps, lies_about): (usize, Option<Synced>),
    kinds: &'static [Unsynced],
    mut chosen: impl FnMut(usize) -> bool + Send + 'static,
    home: &Path,
) -> Vec<Left> {
    let root = home.join("store");
    fs::create_dir_all(&root).expect("a directory");
    let done = Arc::new(Mutex::new(Done::default()));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let cut = {
        let (done, cuts) = (Arc::clone(&done), Arc::clone(&cuts));
        let (home, dice) = (home.to_owned(), Mutex::new(Dice(dice.roll())));
        Arc::new(move |durable: &Durable, when: &str| {
            let before = done.lock().expect("no panic").clone();
            for unsynced in kinds {
                let mut cuts = cuts.lock().expect("no panic");
                let directory = home.join(format!("cut-{}", cuts.len()));
                durable.lose_power(*unsynced, &mut dice.lock().expect("no panic"), &directory);
                let after = done.lock().expect("no panic").clone();
                let label = format!("{when}, unsynced {unsynced:?}");
                cuts.push(Left {
                    label,
                    directory,
                    before: before.clone(),
                    after,
                });
            }
        })
    };
    let on_call = {
        let cut = Arc::clone(&cut);
        move |durable: &Durable, call: usize| {
            if chosen(call) {
                cut(durable, &format!("call {call}"));
            }
        }
    };
    let disk = Arc::new(PowerDisk::new(&root, ailment(lies_about), on_call));
    let mut steps = steps;
    while steps > 0 {
        let store = open_at_rest_on(&disk, &root, dice).expect("a store");
        let until_restart = 1 + dice.below(steps);
        for _ in 0..until_restart {
            step(&store, Worked::ByDice, dice, &done).expect("no call fails");
        }
        steps -= until_restart;
        if dice.in_a_hundred(50) {
            store.close().expect("closed");
            disk.look(|durable| cut(durable, "after a clean stop"));
        } else {
            disk.kill(store);
        }
    }
    drop((disk, cut));
    Arc::into_inner(cuts)
        .expect("the stores are gone")
        .into_inner()
        .expect("no panic")
}

fn run_and_check(seed: u64, lies_about: Option<Synced>) {
    let mut dice = Dice(seed);
    let home = scratch();
    let at: Vec<usize> = (0..CUTS).map(|_| 1 + dice.below(CALLS)).collect();
    let chosen = move |call| at.contains(&call);
    let cuts = run(
        &mut dice,
        (STEPS, lies_about),
        &UNSYNCED,
        chosen,
        home.path(),
    );
    assert!(
        !cuts.is_empty(),
        "seed {seed} made fewer calls than {CALLS}"
    );
    for mut cut in cuts {
        cut.label = format!("seed {seed}, {}", cut.label);
        check(&cut);
        // Also inside the recovery, once.
        let at = 1 + dice.below(40);
        let scratch = scratch();
        for again in cut_the_recovery(&cut, &mut dice, move |_, call| call == at, scratch.path()) {
            check(&again);
        }
    }
}

#[test]
fn test_a_power_cut_at_any_call_loses_nothing_acknowledged_and_invents_nothing() {
    for seed in seeds("LAKEMQ_POWER_SEEDS", "LAKEMQ_POWER_SEED", 4) {
        run_and_check(seed, None);
    }
}

/// Names and contents.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// What cuts at calls of chance leave of a run and of the recoveries from them, byte by byte.
fn left_by(seed: u64) -> Vec<(String, Files)> {
    let mut dice = Dice(seed);
    let home = scratch();
    let mut at = Dice(dice.roll());
    let chosen = move |_| at.in_a_hundred(3);
    let kinds: &[Unsynced] = &[Unsynced::Mixed];
    let mut out = Vec::new();
    for cut in run(&mut dice, (STEPS, None), kinds, chosen, home.path()) {
        out.push((cut.label.clone(), image(&cut.directory)));
        let scratch = scratch();
        let chosen = |dice: &mut Dice, _| dice.in_a_hundred(5);
        for again in cut_the_recovery(&cut, &mut dice, chosen, scratch.path()) {
            out.push((again.label, image(&again.directory)));
        }
    }
    out
}

#[test]
fn test_the_same_dice_leave_the_same_bytes() {
    for seed in 0..4 {
        let (first, again) = (left_by(seed), left_by(seed));
        assert_eq!(first.len(), again.len(), "seed {seed}");
        for ((label, first), (label_again, again)) in first.iter().zip(&again) {
            assert_eq!(label, label_again, "seed {seed}");
            let differs = first.iter().zip(again).find(|(a, b)| a != b);
            let name = differs.map(|((name, _), _)| name);
            assert!(
                first == again,
                "seed {seed}, {label}: {name:?} is another one"
            );
        }
    }
}

/// Whether any check fails when the disk says that it synced `what`, and does not.
fn is_needed(what: Synced) -> bool {
    (0..LYING_SEEDS)
        .any(|seed| std::panic::catch_unwind(|| run_and_check(seed, Some(what))).is_err())
}

/// Of the rest: keys that their file lacks are read from the log again, its sync only keeps a start short; the file
/// system is synced where many queues are (below); `Root` is RocketMQ's checkpoint and the content of the abort file, which nobody reads here, `Config` and
/// `ConfigNames` are RocketMQ's files, written anew at each start; the watermarks are synced where a log is cut (`cuts.rs`).
#[test]
fn test_a_disk_that_lies_about_one_kind_of_sync_is_noticed() {
    for what in [
        Synced::Log,
        Synced::LogNames,
        Synced::Queue,
        Synced::Index,
        Synced::Own,
        Synced::OwnNames,
        Synced::RootNames,
    ] {
        assert!(
            is_needed(what),
            "{what:?}: no check noticed that it was not synced"
        );
    }
}

/// Deletes a topic, makes it again, and loses the power; the first sync of the names of queues fails, or none.
fn check_a_deletion(sync_fails: bool) {
    let home = scratch();
    let (root, cut) = (home.path().join("store"), home.path().join("cut"));
    fs::create_dir_all(&root).expect("a directory");
    let disk = Arc::new(PowerDisk::new(&root, ailment(None), |_, _| ()));
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open_at_rest(&root, small(), environment).expect("a store");
    let send = |body| {
        store
            .append(&request("t"), &[message(body)])
            .expect("stored");
        store.work(Work::Flush).expect("flushed");
    };
    send("old");
    // Queue files, their directories and all above are on the disk.
    disk.settle();
    store.delete_topic("t").expect("deleted");
    disk.fail(sync_fails.then_some(Failure {
        of: Some(Synced::Queue),
        number: 1,
        times: 1,
        error: libc::EIO,
        leaves: 0,
    }));
    store.work(Work::Flush).expect("flushed");
    let failed = usize::from(sync_fails);
    assert_eq!(disk.failures(), failed, "the directory's sync");
    store.work(Work::Dispatch).expect("dispatched");
    send("new");
    store.checkpoint().expect("taken");
    disk.kill(store);
    disk.lose_power(Unsynced::Lost, &mut Dice(1), &cut);
    let store = open_on(&disk, &cut);
    assert_eq!(bodies(&store, "t"), ["new"]);
}

#[test]
fn test_a_deletion_is_not_undone_by_a_power_cut_whether_its_sync_failed_at_first_or_not() {
    for sync_fails in [false, true] {
        check_a_deletion(sync_fails);
    }
}

#[test]
fn test_after_a_clean_stop_with_many_queues_all_of_their_entries_are_on_the_disk() {
    const QUEUES: u32 = 70;
    for lies_about in [None, Some(Synced::FileSystem)] {
        let home = scratch();
        let root = home.path().join("store");
        fs::create_dir_all(&root).expect("a directory");
        let disk = Arc::new(PowerDisk::new(&root, ailment(lies_about), |_, _| ()));
        let store = open_on(&disk, &root);
        let nums = TopicChange {
            read_queue_nums: Some(QUEUES),
            write_queue_nums: Some(QUEUES),
            ..TopicChange::default()
        };
        store.put_topic("many", &nums).expect("made");
        for number in 0..40 {
            let body = number.to_string();
            let to = |queue| NewMessage {
                queue_id: Some(queue),
                ..message(&body)
            };
            let messages: Vec<_> = (0..QUEUES).map(to).collect();
            let done = store.append(&request("many"), &messages).expect("stored");
            assert!(store.wait_dispatched(done.end_offset, SOON));
        }
        store.close().expect("closed");
        let whole = image(&root.join("consumequeue"));
        let mut dice = Dice(1);
        let left = (0..4).map(|number| {
            let directory = home.path().join(format!("cut-{number}"));
            disk.look(|durable| durable.lose_power(Unsynced::Torn, &mut dice, &directory));
            image(&directory.join("consumequeue"))
        });
        let differ = left.filter(|left| *left != whole).count();
        assert_eq!(
            differ > 0,
            lies_about.is_some(),
            "{differ} of 4 power cuts took entries"
        );
    }
}
