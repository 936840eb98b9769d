//! A workload driven by dice, what it did, and what a store has to show of it afterwards.
//!
//! Invariants: what is expected is noted before the store is asked, and what was acknowledged after it answered, so
//! that a look at both from another thread never expects too much.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lakemq_store::environment::Environment;
use lakemq_store::store::{AppendRequest, Options, Store, Work};

use crate::derived::check_derived;
use crate::dice::Dice;
use crate::numbers::{count_in, number_in};
use crate::support::{SOON, bodies, copy, environment, message, options, send};

const TOPICS: [&str; 2] = ["t", "u"];

/// One request.
#[derive(Debug, Clone)]
struct Sent {
    topic: &'static str,
    bodies: Vec<String>,
    key: Option<String>,
    /// Offset of its first message, once the store said so.
    first: Option<usize>,
    acknowledged: bool,
}

/// What a workload did so far.
#[derive(Debug, Clone, Default)]
pub struct Done {
    sent: Vec<Sent>,
    /// Offsets that a group committed, and how many of them are acknowledged.
    committed: Vec<i64>,
    committed_for_good: usize,
    /// Log files may be gone.
    expired: bool,
}

impl Done {
    /// The power failed: another request may have the place of one that was not acknowledged.
    pub fn forget_places_of_what_may_be_lost(&mut self) {
        for sent in self.sent.iter_mut().filter(|sent| !sent.acknowledged) {
            sent.first = None;
        }
    }
}

/// A directory to be looked at, with what was done before and after it came to be.
#[derive(Clone)]
pub struct Left {
    pub label: String,
    pub directory: PathBuf,
    pub before: Done,
    pub after: Done,
}

pub fn small() -> Options {
    Options {
        idempotence_max_keys: 20,
        consumequeue_file_entries: 150,
        index_entries: 60,
        ..options()
    }
}

pub fn open_in(root: &Path, environment: Environment) -> lakemq_store::error::Result<Store> {
    Store::open(root, small(), environment)
}

/// Memory where there is a file system of it: what counts as synced is the test's own business.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).expect("a directory")
    } else {
        tempfile::tempdir().expect("a directory")
    }
}

/// Who flushes and dispatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worked {
    ByThreads,
    /// By the workload itself, as the dice say: what it does is done again by the same dice.
    ByDice,
}

/// Sends, commits, takes a checkpoint or expires.
///
/// # Errors
/// What the store refused, or that it did not flush.
pub fn step(
    store: &Store,
    worked: Worked,
    dice: &mut Dice,
    done: &Mutex<Done>,
) -> Result<(), String> {
    let lock = || done.lock().expect("no panic");
    match dice.below(20) {
        0 | 1 => store.checkpoint().map_err(|error| format!("{error:?}")),
        2..4 => commit(store, worked, dice, done),
        4 => {
            // Noted before files go, and taken back where none did.
            let before = std::mem::replace(&mut lock().expired, true);
            let day_ms = 86_400_000;
            let expired = store.expire(store.now_ms() + 30 * day_ms, true);
            let removed = expired.map_err(|error| format!("{error:?}"))?;
            lock().expired = before || removed > 0;
            Ok(())
        }
        _ => append(store, worked, dice, done),
    }
}

fn commit(
    store: &Store,
    worked: Worked,
    dice: &mut Dice,
    done: &Mutex<Done>,
) -> Result<(), String> {
    let lock = || done.lock().expect("no panic");
    let stored: usize = {
        let of_t = |sent: &&Sent| sent.topic == "t" && sent.acknowledged;
        lock()
            .sent
            .iter()
            .filter(of_t)
            .map(|sent| sent.bodies.len())
            .sum()
    };
    let offset = lock().committed.last().map_or(1, |last| last + 1);
    if offset > stored as i64 {
        return Ok(());
    }
    lock().committed.push(offset);
    let end = store
        .commit_offsets("g", vec![("t".into(), 0, offset)])
        .map_err(|error| format!("{error:?}"))?;
    flushed(store, worked, dice, end)?;
    let mut done = lock();
    done.committed_for_good = done.committed.len();
    Ok(())
}

fn append(
    store: &Store,
    worked: Worked,
    dice: &mut Dice,
    done: &Mutex<Done>,
) -> Result<(), String> {
    let lock = || done.lock().expect("no panic");
    let number = lock().sent.len();
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
    let sent = Sent {
        topic,
        bodies: bodies.clone(),
        key: key.clone(),
        first: None,
        acknowledged: false,
    };
    lock().sent.push(sent);
    let messages: Vec<_> = bodies.iter().map(|body| message(body)).collect();
    let request = AppendRequest {
        topic,
        born_host: None,
        idempotency_key: key.as_deref(),
    };
    let stored = store
        .append(&request, &messages)
        .map_err(|error| format!("{error:?}"))?;
    let first = stored.placed.first().expect("a place").queue_offset;
    lock().sent[number].first = Some(usize::try_from(first).expect("not negative"));
    flushed(store, worked, dice, stored.end_offset)?;
    lock().sent[number].acknowledged = true;
    Ok(())
}

fn flushed(store: &Store, worked: Worked, dice: &mut Dice, end: i64) -> Result<(), String> {
    if worked == Worked::ByDice {
        work(store, dice).map_err(|error| format!("{error:?}"))?;
    }
    if store.wait_flushed(end, SOON) {
        Ok(())
    } else {
        Err("not flushed".into())
    }
}

/// Turns of the store's threads, a flush among them.
fn work(store: &Store, dice: &mut Dice) -> lakemq_store::error::Result<()> {
    let flush = [Work::Flush, Work::FlushAlone][dice.below(2)];
    for turn in [Work::Prepare, Work::Dispatch, flush, Work::Dispatch] {
        if turn == flush || dice.in_a_hundred(40) {
            store.work(turn)?;
        }
    }
    Ok(())
}

/// What a topic shows.
struct Shown {
    min: usize,
    bodies: Vec<String>,
    claimed: Vec<bool>,
}

impl Shown {
    fn of(store: &Store, topic: &str) -> Self {
        let bounds = store.topic(topic).and_then(|_| store.bounds(topic, 0).ok());
        let Some(bounds) = bounds else {
            return Self {
                min: 0,
                bodies: Vec::new(),
                claimed: Vec::new(),
            };
        };
        let bodies = bodies(store, topic);
        let min = usize::try_from(bounds.min).expect("not negative");
        let max = usize::try_from(bounds.max).expect("not negative");
        assert_eq!(bodies.len(), max - min, "{topic} shows all it has");
        Self {
            min,
            claimed: vec![false; bodies.len()],
            bodies,
        }
    }

    fn max(&self) -> usize {
        self.min + self.bodies.len()
    }
}

/// Opens what is left in a copy, and holds it against what was done.
pub fn check(left: &Left) {
    let scratch = scratch();
    let again = scratch.path().join("again");
    copy(&left.directory, &again);
    let store = open_in(&again, environment())
        .unwrap_or_else(|error| panic!("{}: the store does not open: {error:?}", left.label));
    let report = store.report();
    assert_eq!(report.quarantined_bytes, 0, "{}: {report:?}", left.label);
    let mut shown: BTreeMap<&str, Shown> = TOPICS
        .iter()
        .map(|topic| (*topic, Shown::of(&store, topic)))
        .collect();
    check_messages(left, &mut shown);
    check_offset(left, &store);
    check_newest_key(left, &store, &shown);
    check_rebuilt(left, &store, &again, scratch.path());
    send(&store, "t", &["after"]);
    assert_eq!(
        bodies(&store, "t").last().map(String::as_str),
        Some("after"),
        "{}",
        left.label
    );
}

/// What is there was sent, whole, in order, and has all that was acknowledged.
fn check_messages(left: &Left, shown: &mut BTreeMap<&str, Shown>) {
    let label = &left.label;
    let mut lost = None;
    for (number, sent) in left.after.sent.iter().enumerate() {
        let shown = shown.get_mut(sent.topic).expect("a topic");
        let acknowledged = left
            .before
            .sent
            .get(number)
            .is_some_and(|sent| sent.acknowledged);
        let Some(first) = sent.first else { continue };
        if first >= shown.max() {
            lost = lost.or(Some(number));
            assert!(
                !acknowledged,
                "{label}: request {number} was acknowledged and is lost"
            );
            continue;
        }
        assert_eq!(
            lost, None,
            "{label}: request {number} is there, an earlier one is not"
        );
        for (place, body) in (first..)
            .zip(&sent.bodies)
            .filter(|(place, _)| *place >= shown.min)
        {
            let there = shown.bodies.get(place - shown.min);
            assert_eq!(there, Some(body), "{label}: {} {place}", sent.topic);
            shown.claimed[place - shown.min] = true;
        }
    }
    for (topic, shown) in shown {
        assert!(
            shown.min == 0 || left.after.expired,
            "{label}: {topic} begins at {}",
            shown.min
        );
        let mut unknown = shown
            .bodies
            .iter()
            .zip(&shown.claimed)
            .filter(|(_, claimed)| !**claimed)
            .peekable();
        // Of a request that was not answered nobody knows the place: it is there as a whole, or not at all.
        for sent in left
            .after
            .sent
            .iter()
            .filter(|sent| sent.first.is_none() && sent.topic == *topic)
        {
            if unknown
                .peek()
                .is_some_and(|(body, _)| Some(*body) == sent.bodies.first())
            {
                for body in &sent.bodies {
                    assert_eq!(
                        unknown.next().map(|(body, _)| body),
                        Some(body),
                        "{label}: half a request"
                    );
                }
            }
        }
        assert_eq!(unknown.next(), None, "{label}: nobody sent that to {topic}");
    }
}

fn check_offset(left: &Left, store: &Store) {
    let label = &left.label;
    let Some((_, _, found)) = store.group_offsets("g").first().cloned() else {
        assert_eq!(
            left.before.committed_for_good, 0,
            "{label}: the committed offset is lost"
        );
        return;
    };
    let place = left
        .after
        .committed
        .iter()
        .position(|offset| *offset == found);
    let place = place.unwrap_or_else(|| panic!("{label}: nobody committed {found}"));
    assert!(
        place + 1 >= left.before.committed_for_good,
        "{label}: the offset went back"
    );
}

/// The newest keyed request that is there is not stored again.
fn check_newest_key(left: &Left, store: &Store, shown: &BTreeMap<&str, Shown>) {
    let newest = left
        .before
        .sent
        .iter()
        .rfind(|sent| sent.key.is_some() && sent.acknowledged);
    let Some(sent) = newest.filter(|sent| shown[sent.topic].bodies.contains(&sent.bodies[0]))
    else {
        return;
    };
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
        left.label, sent.key
    );
}

/// Queues and index are what a rebuild of the same log makes of them.
fn check_rebuilt(left: &Left, store: &Store, directory: &Path, scratch: &Path) {
    let keys: Vec<_> = left
        .after
        .sent
        .iter()
        .flat_map(|sent| {
            sent.bodies
                .iter()
                .map(|body| (sent.topic, format!("key-{body}")))
        })
        .collect();
    let expired = left.after.expired;
    check_derived(&left.label, (store, directory), scratch, expired, &keys);
}

/// Copies a running store as kill -9 would leave it, in its place.
pub fn kill(store: Store, root: &Path, scratch: &Path) {
    let crashed = scratch.join("crashed");
    copy(root, &crashed);
    drop(store);
    fs::remove_dir_all(root).expect("removed");
    fs::rename(&crashed, root).expect("renamed");
}

/// The seeds to run: `many` (`..._SEEDS`) sets how many, `..._FIRST` the first of them, `one` one alone.
pub fn seeds(many: &str, one: &str, default: u64) -> Vec<u64> {
    match number_in(one) {
        Some(seed) => vec![seed],
        None => {
            let first = number_in(&many.replace("_SEEDS", "_FIRST")).unwrap_or(0);
            (first..first + count_in(many).unwrap_or(default)).collect()
        }
    }
}
