//! The store on a disk that loses power, at any call and with any part of what was not synced.
//!
//! Contract: what was acknowledged with the flush is there, at its offset; nothing is there that was not sent, and of a
//! request all messages or none; what is lost is the end of the log; a committed offset and the key of a request
//! are as new as what was acknowledged; queues and index equal a rebuild. A second cut, inside the recovery, changes none of it.
//! `LAKEMQ_POWER_SEEDS` sets the number of seeds (default 4); a failure names its seed, and
//! `LAKEMQ_POWER_SEED` runs that one alone.

mod power_disk;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lakemq_store::environment::Environment;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Options, Store, TopicChange};

use power_disk::{Dice, Durable, PowerDisk, Synced, Unsynced};
use support::{SOON, bodies, copy, environment, image, message, options, send};

const STEPS: usize = 60;
const CUTS: usize = 8;
/// Calls of the disk that a run makes, at the least; cuts lie among them.
const CALLS: usize = 400;
/// Seeds until a disk that lies is noticed, at the most.
const LYING_SEEDS: u64 = 40;
const TOPICS: [&str; 2] = ["t", "u"];

/// One request of a workload.
#[derive(Debug, Clone)]
struct Sent {
    topic: &'static str,
    bodies: Vec<String>,
    key: Option<String>,
    acknowledged: bool,
}

/// What a workload did so far.
#[derive(Debug, Clone, Default)]
struct Done {
    sent: Vec<Sent>,
    /// Offsets that a group committed, and how many of them are acknowledged.
    committed: Vec<i64>,
    committed_for_good: usize,
    expired: bool,
}

/// A cut: the directory it left, and what was done before and after it was taken.
struct Cut {
    label: String,
    directory: PathBuf,
    before: Done,
    after: Done,
}

fn small() -> Options {
    Options {
        idempotence_max_keys: 20,
        consumequeue_file_entries: 150,
        ..options()
    }
}

fn open_on(disk: &Arc<PowerDisk>, root: &Path) -> lakemq_store::error::Result<Store> {
    let disk = Arc::clone(disk);
    Store::open(
        root,
        small(),
        Environment {
            disk,
            ..environment()
        },
    )
}

/// Memory where there is a file system of it: what counts as synced is the test's own business.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a directory")
    } else {
        tempfile::tempdir().expect("a directory")
    }
}

fn seeds() -> Vec<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    match number("LAKEMQ_POWER_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("LAKEMQ_POWER_SEEDS").unwrap_or(4)).collect(),
    }
}

/// Sends, commits, takes checkpoints and restarts, as the dice say, and cuts the power at some calls.
fn run(dice: &mut Dice, lies_about: Option<Synced>, home: &Path) -> Vec<Cut> {
    let root = home.join("store");
    fs::create_dir_all(&root).expect("a directory");
    let done = Arc::new(Mutex::new(Done::default()));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let cut = {
        let (done, cuts) = (Arc::clone(&done), Arc::clone(&cuts));
        let (home, dice) = (home.to_owned(), Mutex::new(Dice(dice.roll())));
        Arc::new(move |durable: &Durable, when: &str| {
            let before = done.lock().expect("no panic").clone();
            for unsynced in [
                Unsynced::Lost,
                Unsynced::Kept,
                Unsynced::Torn,
                Unsynced::Mixed,
            ] {
                let mut cuts = cuts.lock().expect("no panic");
                let directory = home.join(format!("cut-{}", cuts.len()));
                durable.lose_power(unsynced, &mut dice.lock().expect("no panic"), &directory);
                let after = done.lock().expect("no panic").clone();
                let label = format!("{when}, unsynced {unsynced:?}");
                cuts.push(Cut {
                    label,
                    directory,
                    before: before.clone(),
                    after,
                });
            }
        })
    };
    let on_call = {
        let at: Vec<usize> = (0..CUTS).map(|_| 1 + dice.below(CALLS)).collect();
        let cut = Arc::clone(&cut);
        move |durable: &Durable, call: usize| {
            if at.contains(&call) {
                cut(durable, &format!("call {call}"));
            }
        }
    };
    let disk = Arc::new(PowerDisk::new(&root, lies_about, on_call));
    let mut steps = STEPS;
    while steps > 0 {
        let store = open_on(&disk, &root).expect("a store");
        let until_restart = 1 + dice.below(steps);
        for _ in 0..until_restart {
            step(&store, dice, &done);
        }
        steps -= until_restart;
        if dice.in_a_hundred(50) {
            store.close().expect("closed");
            disk.look(|durable| cut(durable, "after a clean stop"));
        } else {
            // Its process is killed: what it has mapped and written is there for the next one.
            let crashed = home.join("crashed");
            copy(&root, &crashed);
            drop(store);
            fs::remove_dir_all(&root).expect("removed");
            fs::rename(&crashed, &root).expect("renamed");
            disk.settle();
        }
    }
    drop((disk, cut));
    Arc::into_inner(cuts)
        .expect("the stores are gone")
        .into_inner()
        .expect("no panic")
}

fn step(store: &Store, dice: &mut Dice, done: &Mutex<Done>) {
    match dice.below(20) {
        0 | 1 => store.checkpoint().expect("taken"),
        2..4 => {
            let mut model = done.lock().expect("no panic");
            let in_t = model.sent.iter().filter(|sent| sent.topic == "t");
            let stored: usize = in_t.map(|sent| sent.bodies.len()).sum();
            let offset = model.committed.last().map_or(1, |last| last + 1);
            if offset > stored as i64 {
                return;
            }
            model.committed.push(offset);
            drop(model);
            let end = store
                .commit_offsets("g", vec![("t".into(), 0, offset)])
                .expect("committed");
            assert!(store.wait_flushed(end, SOON));
            let mut done = done.lock().expect("no panic");
            done.committed_for_good = done.committed.len();
        }
        4 => {
            done.lock().expect("no panic").expired = true;
            let day_ms = 86_400_000;
            store
                .expire(store.now_ms() + 30 * day_ms, true)
                .expect("expired");
        }
        _ => {
            let mut model = done.lock().expect("no panic");
            let number = model.sent.len();
            let count = if dice.in_a_hundred(70) {
                1
            } else {
                2 + dice.below(12)
            };
            let length = [10, 300, 2_400][dice.below(3)];
            let bodies: Vec<String> = (0..count)
                .map(|at| format!("{number}-{at}-{}", "x".repeat(dice.below(length))))
                .collect();
            let topic = TOPICS[dice.below(2)];
            let key = dice.in_a_hundred(30).then(|| format!("request-{number}"));
            model.sent.push(Sent {
                topic,
                bodies: bodies.clone(),
                key: key.clone(),
                acknowledged: false,
            });
            drop(model);
            let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
            let request = AppendRequest {
                topic,
                born_host: None,
                idempotency_key: key.as_deref(),
            };
            let placed = store.append(&request, &messages).expect("stored");
            assert!(store.wait_flushed(placed.end_offset, SOON));
            done.lock().expect("no panic").sent[number].acknowledged = true;
        }
    }
}

/// Opens what a cut left and holds it against what was done.
fn check(cut: &Cut, dice: &mut Dice, deeper: bool) {
    let scratch = scratch();
    let again = scratch.path().join("again");
    if deeper {
        cut_the_recovery(cut, dice, scratch.path());
    }
    copy(&cut.directory, &again);
    let store = Store::open(&again, small(), environment())
        .unwrap_or_else(|error| panic!("{}: the store does not open: {error:?}", cut.label));
    assert_eq!(
        store.report().quarantined_bytes,
        0,
        "{}: {:?}",
        cut.label,
        store.report()
    );
    let mut lost_from = None;
    let mut places: BTreeMap<&str, (Vec<String>, usize, usize)> = BTreeMap::new();
    for topic in TOPICS {
        let exists = store.topic(topic).is_some() && store.bounds(topic, 0).is_ok();
        let (found, min) = if exists {
            let min = store.bounds(topic, 0).expect("bounds").min;
            (
                bodies(&store, topic),
                usize::try_from(min).expect("not negative"),
            )
        } else {
            (Vec::new(), 0)
        };
        assert!(
            min == 0 || cut.after.expired,
            "{}: {topic} begins at {min}",
            cut.label
        );
        places.insert(topic, (found, min, 0));
    }
    for (number, sent) in cut.after.sent.iter().enumerate() {
        let (found, min, at) = places.get_mut(sent.topic).expect("a topic");
        let there = *at < *min + found.len();
        if there {
            assert_eq!(
                lost_from, None,
                "{}: request {number} is there, an earlier one is not",
                cut.label
            );
            for body in &sent.bodies {
                let place = *at;
                *at += 1;
                if place >= *min {
                    assert_eq!(
                        found.get(place - *min),
                        Some(body),
                        "{}: {} {place}",
                        cut.label,
                        sent.topic
                    );
                }
            }
        } else {
            lost_from = lost_from.or(Some(number));
            let acknowledged = cut
                .before
                .sent
                .get(number)
                .is_some_and(|sent| sent.acknowledged);
            assert!(
                !acknowledged,
                "{}: request {number} was acknowledged and is lost",
                cut.label
            );
        }
    }
    for (topic, (found, min, at)) in &places {
        assert!(
            found.len() + min <= *at,
            "{}: {topic} has more than was sent",
            cut.label
        );
    }
    check_offset(cut, &store);
    check_keys(cut, &store, &places);
    check_derived(cut, &store, &again, scratch.path());
    send(&store, "t", &["after"]);
    assert_eq!(
        bodies(&store, "t").last().map(String::as_str),
        Some("after"),
        "{}",
        cut.label
    );
}

fn check_offset(cut: &Cut, store: &Store) {
    let offsets = store.group_offsets("g");
    let found = offsets.first().map(|(_, _, offset)| *offset);
    match found {
        None => assert_eq!(
            cut.before.committed_for_good, 0,
            "{}: the committed offset is lost",
            cut.label
        ),
        Some(found) => {
            let place = cut
                .after
                .committed
                .iter()
                .position(|offset| *offset == found);
            let place = place.unwrap_or_else(|| panic!("{}: nobody committed {found}", cut.label));
            assert!(
                place + 1 >= cut.before.committed_for_good,
                "{}: the offset went back",
                cut.label
            );
        }
    }
}

/// The newest keyed request that is there is not stored again.
fn check_keys(cut: &Cut, store: &Store, places: &BTreeMap<&str, (Vec<String>, usize, usize)>) {
    let newest = cut
        .before
        .sent
        .iter()
        .rfind(|sent| sent.key.is_some() && sent.acknowledged);
    let Some(sent) = newest else { return };
    let (found, _, _) = &places[sent.topic];
    if !found.contains(&sent.bodies[0]) {
        return; // expired
    }
    let messages: Vec<_> = sent.bodies.iter().map(|body| message(body)).collect();
    let request = AppendRequest {
        topic: sent.topic,
        born_host: None,
        idempotency_key: sent.key.as_deref(),
    };
    let again = store.append(&request, &messages).expect("answered");
    assert!(
        again.duplicate,
        "{}: the key {:?} is forgotten",
        cut.label, sent.key
    );
}

/// Queues and index are what a rebuild of the same log makes of them.
fn check_derived(cut: &Cut, store: &Store, directory: &Path, scratch: &Path) {
    store.checkpoint().expect("taken");
    let rebuilt = scratch.join("rebuilt");
    copy(directory, &rebuilt);
    Store::rebuild(&rebuilt, small(), environment()).expect("rebuilt");
    for part in ["consumequeue", "index"] {
        let (is, should) = (image(&directory.join(part)), image(&rebuilt.join(part)));
        if cut.after.expired {
            continue; // a queue's first file keeps entries that no log has any more
        }
        let names =
            |of: &[(PathBuf, Vec<u8>)]| of.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(
            names(&is),
            names(&should),
            "{}: the files of {part}",
            cut.label
        );
        for ((path, is), (_, should)) in is.iter().zip(&should) {
            let differs = (0..is.len()).find(|at| is.get(*at) != should.get(*at));
            assert_eq!(
                differs,
                None,
                "{}: {part}/{} is not as a rebuild has it",
                cut.label,
                path.display()
            );
        }
    }
}

/// Recovers on a disk that loses power again, and checks what that leaves.
fn cut_the_recovery(cut: &Cut, dice: &mut Dice, scratch: &Path) {
    let first = scratch.join("recovering");
    copy(&cut.directory, &first);
    let at = 1 + dice.below(40);
    let unsynced = [Unsynced::Lost, Unsynced::Kept, Unsynced::Mixed][dice.below(3)];
    let second = scratch.join("second");
    let on_call = {
        let (second, mut dice) = (second.clone(), Dice(dice.roll()));
        move |durable: &Durable, call: usize| {
            if call == at {
                durable.lose_power(unsynced, &mut dice, &second);
            }
        }
    };
    let disk = Arc::new(PowerDisk::new(&first, None, on_call));
    drop(open_on(&disk, &first).expect("a store"));
    if second.exists() {
        let label = format!(
            "{}; then call {at} of the recovery, unsynced {unsynced:?}",
            cut.label
        );
        let (before, after) = (cut.before.clone(), cut.after.clone());
        check(
            &Cut {
                label,
                directory: second,
                before,
                after,
            },
            dice,
            false,
        );
    }
}

fn run_and_check(seed: u64, lies_about: Option<Synced>) {
    let mut dice = Dice(seed);
    let home = scratch();
    let cuts = run(&mut dice, lies_about, home.path());
    assert!(
        !cuts.is_empty(),
        "seed {seed} made fewer calls than {CALLS}"
    );
    for mut cut in cuts {
        cut.label = format!("seed {seed}, {}", cut.label);
        check(&cut, &mut dice, true);
    }
}

#[test]
fn test_a_power_cut_at_any_call_loses_nothing_acknowledged_and_invents_nothing() {
    for seed in seeds() {
        run_and_check(seed, None);
    }
}

/// Whether any check fails when the disk says that it synced `what`, and does not.
fn is_needed(what: Synced) -> bool {
    (0..LYING_SEEDS)
        .any(|seed| std::panic::catch_unwind(|| run_and_check(seed, Some(what))).is_err())
}

/// Of the rest: the file system is synced where many queues are (below); `Root` is RocketMQ's checkpoint and the content of the abort file, which nobody reads here, and
/// `ConfigNames` is where only RocketMQ looks; the watermarks are synced where a log is cut (`cuts.rs`).
#[test]
fn test_a_disk_that_lies_about_one_kind_of_sync_is_noticed() {
    for what in [
        Synced::Log,
        Synced::LogNames,
        Synced::Queue,
        Synced::Index,
        Synced::Keys,
        Synced::Own,
        Synced::OwnNames,
        Synced::Config,
        Synced::RootNames,
    ] {
        assert!(
            is_needed(what),
            "{what:?}: no check noticed that it was not synced"
        );
    }
}

#[test]
fn test_after_a_clean_stop_with_many_queues_all_of_their_entries_are_on_the_disk() {
    const QUEUES: u32 = 70;
    for lies_about in [None, Some(Synced::FileSystem)] {
        let home = scratch();
        let root = home.path().join("store");
        fs::create_dir_all(&root).expect("a directory");
        let disk = Arc::new(PowerDisk::new(&root, lies_about, |_, _| ()));
        let store = open_on(&disk, &root).expect("a store");
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
            let done = store
                .append(&support::request("many"), &messages)
                .expect("stored");
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
