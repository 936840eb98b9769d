//! The store with its threads' work done in an order of chance, beside a model of what it has to show.
//!
//! Contract: whatever is asked in whatever order, whichever calls of the disk fail, however the clock jumps and however
//! the store stops, each queue shows what was dispatched, once and in order, at the offsets the senders were told; a
//! key repeats its first result while that is in the log; a delayed message arrives once, when it is due; a committed
//! offset stays; no epoch of a lease is given twice; a refused request is stored whole or not at all; and a rebuild
//! shows the same. `requests.rs` has what is asked, `looks.rs` what is held against the model.
//! `LAKEMQ_SIMULATION_SEEDS` sets the number of seeds and `LAKEMQ_SIMULATION_FIRST` the first,
//! `LAKEMQ_SIMULATION_SEED` runs one alone. A run that fails is made as short as it goes, and printed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lakemq_store::environment::{Clock, Environment};
use lakemq_store::error::StoreError;
use lakemq_store::message::record::MAGIC_BLANK;
use lakemq_store::reader::Reader;
use lakemq_store::store::{Flush, Options, Store, Work};

use crate::actions::{Action, UNSYNCED, run};
use crate::dice::Dice;
use crate::jumping_clock::JumpingClock;
use crate::model::{Event, Model};
use crate::power_disk::{Ailment, FailingRead, Failure, PowerDisk, Synced, Unsynced};
use crate::support::{environment, options};
use crate::workload::{scratch, seeds};

/// The last is never deleted.
pub const TOPICS: [&str; 3] = ["t", "u", "later"];
pub const GROUP: &str = "g";
/// Queues of a topic that are sent to, where it takes so many.
pub const QUEUES: usize = 3;
const MONTH_MS: i64 = 30 * 86_400_000;
/// How far ages may follow a clock that jumps ahead.
const FOLLOWED_MS: i64 = 60_000;
/// How long an owner keeps its lease over a start.
const GRACE_MS: i64 = 10_000;

pub struct Simulation<'h> {
    home: &'h Path,
    flush: Flush,
    pub clock: Arc<JumpingClock>,
    pub disk: Arc<PowerDisk>,
    root: PathBuf,
    starts: u64,
    store: Option<Store>,
    /// Beside the store; it lives as long as the machine does.
    pub reader: Option<Reader>,
    pub model: Model,
    /// Requests so far.
    pub sent: usize,
    pub expired: bool,
    pub held: Option<Held>,
    /// A flush failed: its thread is gone.
    pub flusher_ended: bool,
    /// The read of the next start that fails.
    failing_read: Option<(usize, FailingRead)>,
}

/// Who holds the group, and until when by the time that passes.
pub struct Held {
    pub owner: usize,
    pub epoch: i64,
    pub until: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Clean,
    Killed,
    PowerCut(Unsynced, u64),
}

impl<'h> Simulation<'h> {
    fn new(home: &'h Path, flush: Flush) -> Self {
        let root = home.join("0");
        std::fs::create_dir_all(&root).expect("a directory");
        let mut simulation = Self {
            home,
            flush,
            clock: JumpingClock::at(1_700_000_000_000),
            disk: Arc::new(PowerDisk::new(&root, Ailment::default(), |_, _| ())),
            root,
            starts: 0,
            store: None,
            reader: None,
            model: Model::default(),
            sent: 0,
            expired: false,
            held: None,
            flusher_ended: false,
            failing_read: None,
        };
        simulation.store = Some(simulation.open().expect("the store opens"));
        simulation
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn environment(&self) -> Environment {
        Environment {
            clock: self.clock.clone(),
            disk: self.disk.clone(),
            // A start draws others; the same run the same ones.
            random: [self.starts as u8; 16],
            ..environment()
        }
    }

    fn options(&self) -> Options {
        Options {
            flush: self.flush,
            ..options()
        }
    }

    fn open(&self) -> lakemq_store::error::Result<Store> {
        Store::open_at_rest(&self.root, self.options(), self.environment())
    }

    pub fn appended(&self) -> i64 {
        self.store().watermarks().0
    }

    pub fn is_poisoned(&self) -> bool {
        self.store().poisoned().is_some()
    }

    /// An error has its reason: the disk failed meanwhile, or the store takes nothing more.
    pub fn excuse(&self, failures: usize, error: &StoreError) {
        let failed = self.disk.failures() > failures;
        let refused = self.is_poisoned() && error.code() == "STORE_POISONED";
        assert!(failed || refused, "for no reason: {error:?}");
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
                topic,
                level,
                count,
                keyed,
            } => self.send(TOPICS[*topic], *count, 10, *keyed, Some(*level)),
            Action::Repeat(which) => self.repeat(*which),
            Action::Commit(which) => self.commit(*which),
            Action::Lease { owner, ttl_ms } => self.lease(*owner, *ttl_ms),
            Action::Queues(topic, count) => self.shrink(TOPICS[*topic], *count),
            Action::Delete(topic) => self.delete(TOPICS[*topic]),
            Action::Pass(ms) => self.clock.pass(*ms),
            Action::Jump(ms) => self.jump(*ms),
            Action::Work(work) => self.work(*work),
            Action::Checkpoint => {
                let failures = self.disk.failures();
                if let Err(error) = self.store().checkpoint() {
                    self.excuse(failures, &error);
                }
            }
            Action::Expire { all } => self.expire(*all),
            Action::Fail(failure) => self.disk.fail(Some(*failure)),
            Action::FailRead { number, error } => {
                self.failing_read = Some((*number, FailingRead::With(*error)));
            }
            Action::CleanStop => self.restart(Stop::Clean),
            Action::Kill => self.restart(Stop::Killed),
            Action::PowerCut(unsynced, seed) => self.restart(Stop::PowerCut(*unsynced, *seed)),
            Action::Look => self.look(),
        }
    }

    /// Nothing grows old by a jump of the clock.
    fn jump(&self, ms: i64) {
        let before = self.store().now_for_ages();
        self.clock.jump(ms);
        let aged = self.store().now_for_ages() - before;
        assert!(aged <= FOLLOWED_MS, "{aged} ms older by a jump of {ms}");
    }

    fn expire(&mut self, all: bool) {
        self.expired |= all;
        let ahead = if all { MONTH_MS } else { 0 };
        let failures = self.disk.failures();
        match self
            .store()
            .expire(self.store().now_for_ages() + ahead, true)
        {
            Ok(removed) => assert!(all || removed == 0, "{removed} files that are not old"),
            Err(error) => self.excuse(failures, &error),
        }
        self.newest_is_there();
        // What is in the log is known.
        (0..self.model.keyed(self.log_min()).len()).for_each(|which| self.repeat(which));
    }

    pub fn work(&mut self, work: Work) {
        let failures = self.disk.failures();
        match work {
            Work::Flush | Work::FlushAlone if self.flusher_ended => {}
            Work::Deliver => self.deliver(),
            _ => {
                if let Err(error) = self.store().work(work) {
                    self.excuse(failures, &error);
                    self.flusher_ended |= matches!(work, Work::Flush | Work::FlushAlone);
                }
            }
        }
        // A round is bounded by time, too: chance of another kind. After one that failed the next is another action's.
        while work != Work::FlushAlone
            && self.disk.failures() == failures
            && self.store().watermarks().2 < self.store().watermarks().3
        {
            if let Err(error) = self.store().work(Work::Dispatch) {
                self.excuse(failures, &error);
            }
        }
    }

    fn restart(&mut self, stop: Stop) {
        if stop == Stop::Clean {
            self.work(Work::Flush);
        }
        let failures = self.disk.failures();
        let poisoned = self.is_poisoned();
        let healthy = !poisoned && self.store().dispatch_failure().is_none();
        let (appended, flushed, ..) = self.store().watermarks();
        let file_size = self.store().options().commitlog_file_size as i64;
        let store = self.store.take().expect("open");
        let mut least = appended;
        match stop {
            Stop::Clean => {
                let closed = store.close();
                assert!(
                    closed.is_ok() || self.disk.failures() > failures,
                    "{closed:?}"
                );
                drop(store);
            }
            Stop::Killed => self.disk.kill(store),
            Stop::PowerCut(unsynced, seed) => {
                self.disk.kill(store);
                self.cut_power(unsynced, &mut Dice(seed));
                least = flushed;
            }
        }
        self.starts += 1;
        let mut dice = Dice(self.starts);
        self.disk.fail_read(self.failing_read.take());
        while self.store.is_none() {
            let failures = self.disk.failures();
            match self.open() {
                Ok(store) => self.store = Some(store),
                Err(error) => {
                    assert!(self.disk.failures() > failures, "no start: {error:?}");
                    if dice.in_a_hundred(30) {
                        self.cut_power(UNSYNCED[dice.below(4)], &mut dice);
                        least = flushed;
                    }
                }
            }
        }
        self.disk.fail_read(None);
        self.flusher_ended = false;
        self.started(least);
        assert!(
            !poisoned || !self.store().report().clean,
            "what a failed flush left is to be looked at"
        );
        if stop == Stop::Clean && healthy && self.disk.failures() == failures {
            let report = self.store().report();
            assert!(
                report.clean && !report.rebuilt && report.repaired_queues == 0,
                "a clean stop leaves nothing to mend: {report:?}"
            );
            // A file that was ended, and whose next one could not be made, ends in a blank that nobody has to dispatch.
            if report.end_offset % file_size != 0 {
                assert_eq!(report.from_offset, report.end_offset, "nothing to read");
            }
        }
        self.look();
    }

    fn cut_power(&mut self, unsynced: Unsynced, dice: &mut Dice) {
        self.reader = None;
        let root = self.home.join(format!("{}-{}", self.starts, dice.roll()));
        self.disk.lose_power(unsynced, dice, &root);
        std::fs::remove_dir_all(&self.root).expect("removed");
        self.root = root;
        self.clock.boot();
    }

    /// Where the last record of a log ends: a file that was closed there may have had others in the place of its blank,
    /// which a power cut took back.
    fn end_of_records(&self, end: i64) -> i64 {
        let file_size = self.store().options().commitlog_file_size as i64;
        let base = (end - 1).max(0) / file_size * file_size;
        let Ok(log) = std::fs::read(self.root.join(format!("commitlog/{base:020}"))) else {
            return end; // nothing lies before the last file any more
        };
        let mut at = 0;
        while let Some(head) = log.get(at..at + 8)
            && base + (at as i64) < end
            && head[4..] != MAGIC_BLANK.to_be_bytes()
        {
            let size = u32::from_be_bytes(head[..4].try_into().expect("four bytes")) as usize;
            assert!(size > 0, "no record begins at {}", base + at as i64);
            at += size;
        }
        base + at as i64
    }

    /// Takes up what the start found.
    fn started(&mut self, least: i64) {
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
        let now = (self.clock.now_ms(), self.clock.monotonic_ms());
        self.model.start(self.end_of_records(end), &delivered, now);
        self.held = self.model.all().lease.map(|(owner, epoch)| Held {
            owner,
            epoch,
            until: self.clock.monotonic_ms() + GRACE_MS,
        });
        let shown = self.store().lease(GROUP);
        assert_eq!(
            shown.map(|hold| (hold.owner, hold.epoch)),
            self.held
                .as_ref()
                .map(|held| (format!("owner-{}", held.owner), held.epoch)),
            "who holds the group"
        );
    }

    /// What was stored last lies in the last file of the log, which does not expire.
    fn newest_is_there(&self) {
        let Some((end, Event::Sent(sent))) = self.model.newest() else {
            return;
        };
        if sent.delay.is_none() && end <= self.store().watermarks().2 {
            let last = sent.messages.iter().zip(&sent.offsets).next_back();
            if let Some(((queue, _), offset)) = last {
                let bounds = self.store().bounds(sent.topic, *queue).expect("there");
                assert!(
                    bounds.min <= *offset,
                    "the newest message expired: {bounds:?}"
                );
            }
        }
    }

    /// All is delivered and read, found by its key, and the same after a rebuild.
    fn end(mut self) {
        self.disk.fail(None);
        if self.is_poisoned() {
            self.restart(Stop::Killed);
        }
        for _ in 0..2 {
            self.work(Work::Flush);
            self.clock
                .pass(*crate::model::DELAYS_MS.last().expect("a level"));
            self.work(Work::Deliver);
        }
        self.work(Work::Flush);
        let all = self.model.all();
        let waits = all.waiting.values().any(|waiting| !waiting.is_empty());
        assert!(!waits, "all is due");
        self.look();
        self.find_each();
        self.store().close().expect("closed");
        drop(self.store.take());
        Store::rebuild(&self.root, self.options(), self.environment()).expect("rebuilt");
        self.store = Some(self.open().expect("the store opens"));
        self.look();
        self.find_each();
    }
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

/// Seeds that failed once, when they were as many as a night has.
const FOUND: [u64; 6] = [228_564, 287_670, 388_159, 388_617, 404_908, 413_412];

#[test]
fn test_whatever_is_asked_in_whatever_order_the_store_shows_what_the_model_does() {
    let seeds = seeds("LAKEMQ_SIMULATION_SEEDS", "LAKEMQ_SIMULATION_SEED", 150);
    let found: &[u64] = if seeds.len() > 1 { &FOUND } else { &[] };
    for &seed in found.iter().chain(&seeds) {
        let (flush, actions) = run(&mut Dice(seed));
        if let Some(failure) = fails(&actions, flush) {
            let short = shortest(actions, flush);
            let again = fails(&short, flush);
            panic!("seed {seed}: {failure}\nin short, {flush:?}: {again:?}\n{short:#?}");
        }
    }
}

#[test]
fn test_a_key_is_remembered_over_a_crash_when_the_clock_was_wrong_at_first() {
    let send = |count, length| Action::Send {
        topic: 1,
        count,
        length,
        keyed: true,
    };
    let actions = [
        Action::Jump(-375 * 86_400_000),
        send(2, 6_000),
        Action::Jump(375 * 86_400_000),
        Action::Kill,
        send(5, 10),
        Action::Repeat(0),
    ];
    assert_eq!(fails(&actions, Flush::Sync), None);
}

#[test]
fn test_a_clean_stop_behind_a_file_whose_next_one_could_not_be_made_leaves_nothing_to_mend() {
    let send = |length| Action::Send {
        topic: 0,
        count: 1,
        length,
        keyed: false,
    };
    // The file is full before the last send; its next one is made when that comes, and fails.
    for number in 1..40 {
        let mut actions = vec![send(6_000); 10];
        actions.push(Action::Fail(Failure {
            of: None,
            number,
            times: 1,
            error: 5,
            leaves: 100,
        }));
        actions.extend([send(6_000), Action::Work(Work::Flush), Action::CleanStop]);
        assert_eq!(fails(&actions, Flush::Sync), None, "{number}");
    }
}

/// A start clears an entry that a start before it made, and whose record is lost; then comes another entry there.
#[test]
fn test_what_a_start_clears_of_a_queue_does_not_come_back_with_a_power_cut() {
    let later = |topic, level, keyed| Action::SendLater {
        topic,
        level,
        count: 1,
        keyed,
    };
    let actions = [
        Action::CleanStop,
        Action::Fail(Failure {
            of: Some(Synced::OwnNames),
            number: 1,
            times: 1,
            error: 28,
            leaves: 100,
        }),
        later(1, 3, true),
        Action::Send {
            topic: 0,
            count: 3,
            length: 10,
            keyed: true,
        },
        Action::Lease {
            owner: 1,
            ttl_ms: 1_000,
        },
        Action::Delete(0),
        later(0, 2, false),
        later(0, 2, false),
        Action::Kill,
        later(1, 3, false),
        later(0, 2, false),
        Action::CleanStop,
        Action::PowerCut(Unsynced::Lost, 4_432_813_334_412_292_060),
    ];
    assert_eq!(fails(&actions, Flush::Sync), None);
}
