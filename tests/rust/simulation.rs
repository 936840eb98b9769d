//! The store with its threads' work done in an order of chance, beside a model of what it has to show.
//!
//! Contract: whatever is asked in whatever order, and however the store stops, each queue shows what was dispatched,
//! once and in order, at the offsets the senders were told; a key repeats its first result; a delayed message arrives
//! once, when it is due; a committed offset stays; no epoch of a lease is given twice; and a rebuild shows the same.
//! `LAKEMQ_SIMULATION_SEEDS` sets the number of seeds, `LAKEMQ_SIMULATION_SEED` runs one alone. A run that fails is
//! made as short as it goes, and printed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::environment::{Clock, Environment};
use lakemq_store::message::NewMessage;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Flush, Options, Store, Work};

use crate::actions::{Action, actions};
use crate::dice::Dice;
use crate::model::{Event, Model, Queue, Sent};
use crate::power_disk::{Ailment, PowerDisk};
use crate::support::{copy, environment, everything, message, options};
use crate::workload::{scratch, seeds};

const TOPICS: [&str; 2] = ["t", "u"];
/// Takes delayed messages and is never deleted.
const LATER: &str = "later";
const GROUP: &str = "g";
const QUEUES: usize = 2;
const DELAYS_MS: [i64; 3] = [1_000, 5_000, 10_000];
const MONTH_MS: i64 = 30 * 86_400_000;
/// How long an owner keeps its lease over a start.
const GRACE_MS: i64 = 10_000;

/// Time that goes on when a run says so.
struct StandingClock(AtomicI64);

impl Clock for StandingClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.now_ms()
    }
}

struct Simulation<'h> {
    home: &'h Path,
    flush: Flush,
    clock: Arc<StandingClock>,
    disk: Arc<PowerDisk>,
    root: PathBuf,
    starts: usize,
    store: Option<Store>,
    model: Model,
    sent: usize,
    expired: bool,
    held: Option<Held>,
}

/// Who holds the group.
struct Held {
    owner: usize,
    epoch: i64,
    until: i64,
}

impl<'h> Simulation<'h> {
    fn new(home: &'h Path, flush: Flush) -> Self {
        let root = home.join("0");
        std::fs::create_dir_all(&root).expect("a directory");
        let mut simulation = Self {
            home,
            flush,
            clock: Arc::new(StandingClock(AtomicI64::new(1_700_000_000_000))),
            disk: Arc::new(PowerDisk::new(&root, Ailment::default(), |_, _| ())),
            root,
            starts: 0,
            store: None,
            model: Model::default(),
            sent: 0,
            expired: false,
            held: None,
        };
        simulation.open();
        simulation
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    fn environment(&self) -> Environment {
        Environment {
            clock: self.clock.clone(),
            disk: self.disk.clone(),
            ..environment()
        }
    }

    fn options(&self) -> Options {
        Options {
            flush: self.flush,
            ..options()
        }
    }

    fn open(&mut self) {
        let store = Store::open_at_rest(&self.root, self.options(), self.environment());
        self.store = Some(store.expect("the store opens"));
    }

    /// Goes on in another directory, as a process does that starts after a crash.
    fn go_on_in(&mut self, root: PathBuf, least: i64) {
        drop(self.store.take());
        std::fs::remove_dir_all(&self.root).expect("removed");
        self.disk = Arc::new(PowerDisk::new(&root, Ailment::default(), |_, _| ()));
        self.root = root;
        self.open();
        let report = self.store().report();
        assert_eq!(report.quarantined_bytes, 0, "{report:?}");
        let end = report.end_offset;
        assert!(end >= least, "the log ends at {end}, {least} was promised");
        let delivered = self.store().delay_progress();
        let delivered = delivered
            .into_iter()
            .filter(|(_, next, _)| *next > 0)
            .map(|(level, next, _)| (level, next))
            .collect();
        self.model.cut(end, &delivered);
        if let Some(held) = &mut self.held {
            held.until = self.clock.now_ms() + GRACE_MS;
        }
        self.look();
    }

    /// What was stored last lies in the last file of the log, which does not expire.
    fn newest_is_there(&self) {
        let Some((end, Event::Sent(sent))) = self.model.newest() else {
            return;
        };
        if sent.delay.is_none() && *end <= self.store().watermarks().2 {
            for ((queue, _), offset) in sent.messages.iter().zip(&sent.offsets).rev().take(1) {
                let bounds = self.store().bounds(sent.topic, *queue).expect("there");
                assert!(
                    bounds.min <= *offset,
                    "the newest message expired: {bounds:?}"
                );
            }
        }
    }

    fn next_root(&mut self) -> PathBuf {
        self.starts += 1;
        self.home.join(self.starts.to_string())
    }

    fn appended(&self) -> i64 {
        self.store().watermarks().0
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Send {
                topic,
                count,
                length,
                keyed,
            } => self.send(TOPICS[*topic], *count, *length, *keyed, None),
            Action::SendLater {
                level,
                count,
                keyed,
            } => self.send(LATER, *count, 10, *keyed, Some(*level)),
            Action::Repeat(which) => self.repeat(*which),
            Action::Commit(which) => self.commit(*which),
            Action::Lease { owner, ttl_ms } => self.lease(*owner, *ttl_ms),
            Action::Delete(topic) => self.delete(TOPICS[*topic]),
            Action::Pass(ms) => drop(self.clock.0.fetch_add(*ms, Ordering::SeqCst)),
            Action::Work(work) => self.work(*work),
            Action::Checkpoint => self.store().checkpoint().expect("taken"),
            Action::Expire => {
                self.expired = true;
                let now = self.store().now_for_ages() + MONTH_MS;
                self.store().expire(now, true).expect("looked");
                self.newest_is_there();
            }
            Action::CleanStop => self.stop(),
            Action::Kill => {
                let root = self.next_root();
                copy(&self.root, &root);
                let appended = self.appended();
                self.go_on_in(root, appended);
            }
            Action::PowerCut(unsynced, seed) => {
                let root = self.next_root();
                let flushed = self.store().watermarks().1;
                let mut dice = Dice(*seed);
                self.disk
                    .look(|durable| durable.lose_power(*unsynced, &mut dice, &root));
                self.go_on_in(root, flushed);
            }
            Action::Look => self.look(),
        }
    }

    fn send(
        &mut self,
        topic: &'static str,
        count: usize,
        length: usize,
        keyed: bool,
        level: Option<usize>,
    ) {
        let number = self.sent;
        self.sent += 1;
        let messages: Vec<(u32, String)> = (0..count)
            .map(|at| {
                let queue = ((number + at) % QUEUES) as u32;
                (queue, format!("{number}-{at}-{}", "x".repeat(length)))
            })
            .collect();
        let delay = level.map(|level| {
            let now = self.clock.now_ms();
            (level as u32, now + DELAYS_MS[level - 1])
        });
        let mut sent = Sent {
            topic,
            messages,
            key: keyed.then(|| format!("request-{number}")),
            delay,
            offsets: Vec::new(),
        };
        let before = self.model.all();
        let (end, duplicate, offsets) = self.append(&sent);
        assert!(!duplicate, "{number} was not sent before");
        if delay.is_none() {
            let mut ends: std::collections::BTreeMap<Queue, i64> = before
                .queues
                .iter()
                .map(|(queue, bodies)| (*queue, bodies.len() as i64))
                .collect();
            let expected: Vec<i64> = sent
                .messages
                .iter()
                .map(|(queue, _)| {
                    let end = ends.entry((topic, *queue)).or_default();
                    *end += 1;
                    *end - 1
                })
                .collect();
            assert_eq!(offsets, expected, "offsets of request {number}");
        }
        sent.offsets = offsets;
        self.model.add(end, Event::Sent(sent));
    }

    /// Returns the end of the request, whether it was one sent again, and its queue offsets.
    fn append(&self, sent: &Sent) -> (i64, bool, Vec<i64>) {
        let messages: Vec<NewMessage<'_>> = sent
            .messages
            .iter()
            .map(|(queue, body)| NewMessage {
                queue_id: Some(*queue),
                delay_level: sent.delay.map_or(0, |(level, _)| level),
                keys: Some(key_of(body).to_owned().into()),
                ..message(body)
            })
            .collect();
        let request = AppendRequest {
            topic: sent.topic,
            born_host: None,
            idempotency_key: sent.key.as_deref(),
        };
        let stored = self.store().append(&request, &messages).expect("stored");
        let offsets = stored.placed.iter().map(|place| place.queue_offset);
        (stored.end_offset, stored.duplicate, offsets.collect())
    }

    fn repeat(&mut self, which: usize) {
        if self.expired {
            return; // its first result may be gone
        }
        let keyed = self.model.keyed();
        let Some(sent) = keyed.get(which % keyed.len().max(1)) else {
            return;
        };
        let appended = self.appended();
        let (_, duplicate, offsets) = self.append(sent);
        assert!(duplicate, "{:?} was stored again", sent.key);
        assert_eq!(offsets, sent.offsets, "the first result of {:?}", sent.key);
        assert_eq!(self.appended(), appended, "nothing is stored again");
    }

    fn commit(&mut self, which: usize) {
        let known = self.model.all();
        let queues: Vec<(&Queue, usize)> = known
            .queues
            .iter()
            .map(|(queue, bodies)| (queue, bodies.len()))
            .collect();
        let Some((queue, end)) = queues.get(which % queues.len().max(1)) else {
            return;
        };
        let offset = (which % (end + 1)) as i64;
        let offsets = vec![(queue.0.to_owned(), queue.1, offset)];
        let end = self
            .store()
            .commit_offsets(GROUP, offsets)
            .expect("committed");
        self.model.add(end, Event::Committed(**queue, offset));
    }

    /// Asks for the group. Who asks waits for the disk, so the threads' work is done meanwhile.
    fn lease(&mut self, owner: usize, ttl_ms: i64) {
        let outcome = std::thread::scope(|scope| {
            let store = self.store();
            let asking =
                scope.spawn(move || store.acquire_lease(GROUP, &format!("owner-{owner}"), ttl_ms));
            while !asking.is_finished() {
                store.work(Work::Flush).expect("flushed");
                store.work(Work::Dispatch).expect("dispatched");
            }
            asking.join().expect("no panic")
        });
        self.work(Work::Flush);
        let now = self.clock.now_ms();
        let expected = match &self.held {
            Some(held) if held.owner == owner => Some(held.epoch),
            Some(held) if held.until > now => None,
            Some(held) => Some(held.epoch + 1),
            None => Some(1),
        };
        match (outcome, expected) {
            (Ok((epoch, until)), Some(expected)) => {
                assert_eq!((epoch, until), (expected, now + ttl_ms), "epoch and end");
                self.held = Some(Held {
                    owner,
                    epoch,
                    until,
                });
            }
            (Err(error), None) => assert_eq!(error.code(), "LEASE_CONFLICT"),
            (outcome, expected) => panic!("{outcome:?}, not {expected:?}"),
        }
    }

    fn delete(&mut self, topic: &'static str) {
        if self.store().topic(topic).is_none() {
            return;
        }
        let end = self.store().delete_topic(topic).expect("deleted");
        self.model.add(end, Event::Deleted(topic));
    }

    fn work(&mut self, work: Work) {
        let (appended, _, dispatched, _) = self.store().watermarks();
        self.store().work(work).expect("done");
        if work == Work::Deliver {
            let levels = self.model.due(self.clock.now_ms(), dispatched);
            let end = self.appended();
            assert_eq!(end > appended, !levels.is_empty(), "due: {levels:?}");
            if !levels.is_empty() {
                self.model.add(end, Event::Delivered(levels));
            }
        }
        if work != Work::FlushAlone {
            // A round is bounded by time, too: chance of another kind.
            while self.store().watermarks().2 < self.store().watermarks().3 {
                self.store().work(Work::Dispatch).expect("dispatched");
            }
        }
    }

    fn stop(&mut self) {
        self.work(Work::Flush);
        let appended = self.appended();
        self.store().close().expect("closed");
        let root = self.next_root();
        copy(&self.root, &root);
        self.go_on_in(root, appended);
        let report = self.store().report();
        assert!(
            report.clean && !report.rebuilt && report.repaired_queues == 0,
            "a clean stop leaves nothing to mend: {report:?}"
        );
        assert_eq!(report.from_offset, report.end_offset, "nothing to read");
    }

    /// Holds what the store shows, to its own callers and to a reader beside it, against the model.
    fn look(&self) {
        let store = self.store();
        let dispatched = store.watermarks().2;
        let view = self.model.view(dispatched);
        let reader = Reader::open(&self.root).expect("a reader");
        for topic in [TOPICS[0], TOPICS[1], LATER] {
            if self.model.is_deleted_behind(topic, dispatched) {
                continue; // it is about to go
            }
            for queue in 0..QUEUES as u32 {
                let expected = view.queues.get(&(topic, queue));
                let expected = expected.map_or(&[][..], Vec::as_slice);
                let Ok(bounds) = store.bounds(topic, queue) else {
                    assert!(expected.is_empty(), "{topic} is not there");
                    continue;
                };
                assert_eq!(
                    bounds.max,
                    expected.len() as i64,
                    "the end of {topic} {queue}"
                );
                assert!(
                    bounds.min == 0 || self.expired,
                    "{topic} {queue} begins at {}",
                    bounds.min
                );
                let left = &expected[usize::try_from(bounds.min).expect("not negative")..];
                let mut shown = Vec::new();
                let request = everything(bounds.min);
                let meta = store.read(topic, queue, &request, |record, _| {
                    shown.push(String::from_utf8_lossy(record.body).into_owned());
                    Ok(())
                });
                assert_eq!(meta.expect("readable").damaged, []);
                assert!(shown == left, "{topic} {queue} shows {:?}", numbers(&shown));
                if expected.is_empty() {
                    continue;
                }
                shown.clear();
                let meta = reader.read(topic, queue, &request, |record, _| {
                    shown.push(String::from_utf8_lossy(record.body).into_owned());
                    Ok(())
                });
                assert_eq!(meta.expect("readable").damaged, []);
                assert!(
                    shown == left,
                    "beside it, {topic} {queue} shows {:?}",
                    numbers(&shown)
                );
            }
        }
        let found: std::collections::BTreeMap<_, _> = store
            .group_offsets(GROUP)
            .into_iter()
            .map(|(topic, queue, offset)| ((topic, queue), offset))
            .collect();
        let committed = view
            .committed
            .iter()
            .map(|((topic, queue), offset)| (((*topic).to_owned(), *queue), *offset))
            .collect();
        assert_eq!(found, committed, "committed offsets");
    }

    /// All is delivered and read, found by its key, and the same after a rebuild.
    fn end(mut self) {
        for _ in 0..2 {
            self.work(Work::Flush);
            self.clock.0.fetch_add(DELAYS_MS[2], Ordering::SeqCst);
            self.work(Work::Deliver);
        }
        self.work(Work::Flush);
        assert!(
            self.model
                .all()
                .waiting
                .values()
                .all(|waiting| waiting.is_empty()),
            "all is due"
        );
        self.look();
        self.find_each();
        self.store().close().expect("closed");
        drop(self.store.take());
        Store::rebuild(&self.root, self.options(), self.environment()).expect("rebuilt");
        self.open();
        self.look();
        self.find_each();
    }

    fn find_each(&self) {
        for ((topic, queue), bodies) in &self.model.all().queues {
            let min = self.store().bounds(topic, *queue).expect("there").min;
            for body in &bodies[usize::try_from(min).expect("not negative")..] {
                let found = self.store().find(topic, key_of(body), (0, i64::MAX), 10);
                assert_eq!(found.expect("searched").len(), 1, "{}", key_of(body));
            }
        }
    }
}

/// Request and place: what stands before the second dash.
fn key_of(body: &str) -> &str {
    body.rsplit_once('-').expect("a body of a run").0
}

fn numbers(bodies: &[String]) -> Vec<&str> {
    bodies.iter().map(|body| key_of(body)).collect()
}

fn fails(actions: &[Action], flush: Flush) -> Option<String> {
    let home = scratch();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut simulation = Simulation::new(home.path(), flush);
        actions.iter().for_each(|action| simulation.act(action));
        simulation.end();
    }));
    let panic = outcome.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| {
        let text = panic.downcast_ref::<&str>().copied();
        text.unwrap_or("it said nothing").to_owned()
    }))
}

/// Leaves out what the failure does not need.
fn shortest(mut actions: Vec<Action>, flush: Flush) -> Vec<Action> {
    let mut chunk = actions.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < actions.len() {
            let mut without = actions.clone();
            without.drain(at..(at + chunk).min(actions.len()));
            if fails(&without, flush).is_some() {
                actions = without;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    actions
}

#[test]
fn test_whatever_is_asked_in_whatever_order_the_store_shows_what_the_model_does() {
    for seed in seeds("LAKEMQ_SIMULATION_SEEDS", "LAKEMQ_SIMULATION_SEED", 150) {
        let mut dice = Dice(seed);
        let flush = if dice.in_a_hundred(80) {
            Flush::Sync
        } else {
            Flush::Async
        };
        let actions = actions(&mut dice);
        if let Some(failure) = fails(&actions, flush) {
            let short = shortest(actions, flush);
            let again = fails(&short, flush);
            panic!("seed {seed}: {failure}\nin short, {flush:?}: {again:?}\n{short:#?}");
        }
    }
}
