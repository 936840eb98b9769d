//! The store on a disk of which one call fails, and which loses power later.
//!
//! Contract: whichever call it is, and whatever the error, nothing acknowledged is lost and nothing is stored by half,
//! neither before a restart nor after it; only what the call was for is refused, unless the store takes no more, and
//! then it says why; one that goes on shows all it acknowledged. A start that fails leaves what the next one needs.
//!
//! The calls of a run are counted. Then each fails in a run of its own, once with each error; one that writes also
//! with half of its bytes, and with all of them, in the file; one that reads also with half of what is there. The same
//! dice do the same again: a case that fails says what replays it. `LAKEMQ_ERROR_CHANCE` is the chance in a hundred of each case to be tried (default 3; 100 takes
//! all), `LAKEMQ_ERROR_SEEDS` sets the number of seeds (default 2), `LAKEMQ_ERROR_SEED` runs one alone and
//! `LAKEMQ_ERROR_CASE` one case of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lakemq_store::environment::Environment;
use lakemq_store::error::Result;
use lakemq_store::store::{Store, Work};

use crate::actions::UNSYNCED;
use crate::dice::Dice;
use crate::numbers::count_in;
use crate::power::open_at_rest_on;
use crate::power_disk::{Ailment, Call, FailingRead, Failure, PowerDisk, Synced, Unsynced};
use crate::support::{SOON, environment};
use crate::workload::{Done, Left, Worked, check, open_in, scratch, seeds, step};

const STEPS: usize = 25;
const ERRORS: [(&str, i32); 4] = [
    ("EIO", libc::EIO),
    ("ENOSPC", libc::ENOSPC),
    ("EMFILE", libc::EMFILE),
    ("EINTR", libc::EINTR),
];

#[derive(Debug, Clone, Copy)]
enum Fault {
    Nothing,
    Call(Failure),
    Read(usize, FailingRead),
}

/// A call that fails, with what replays it.
struct Case {
    seed: u64,
    fault: Fault,
    worked: Worked,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, worked) = (self.seed, self.worked);
        let name = |error| {
            let of = ERRORS.iter().find(|(_, of)| *of == error);
            of.map_or("?", |(name, _)| name)
        };
        let case = match self.fault {
            Fault::Call(failure) if failure.of.is_none() && worked == Worked::ByDice => {
                let error = name(failure.error);
                format!("call-{}-{error}-{}", failure.number, failure.leaves)
            }
            Fault::Read(number, FailingRead::With(error)) => {
                format!("read-{number}-{}", name(error))
            }
            Fault::Read(number, FailingRead::Short) => format!("read-{number}-short"),
            fault => return write!(f, "seed {seed}, {worked:?}, {fault:?}"),
        };
        write!(f, "LAKEMQ_ERROR_SEED={seed} LAKEMQ_ERROR_CASE={case}")
    }
}

/// Says what was under way when a check fails.
struct UnderWay<'c>(&'c Case);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: {}", self.0);
        }
    }
}

/// A store on the disk of a case, and what was done there.
struct Run<'c> {
    case: &'c Case,
    home: &'c Path,
    disk: Arc<PowerDisk>,
    root: PathBuf,
    done: Mutex<Done>,
    cuts: usize,
}

impl Run<'_> {
    /// Works, with restarts and power cuts.
    fn all(&mut self, dice: &mut Dice) {
        let mut left = STEPS;
        while left > 0 {
            let store = self.started(dice);
            let until_restart = left.min(1 + dice.below(STEPS));
            for _ in 0..until_restart {
                self.step(&store, dice);
            }
            left -= until_restart;
            if store.poisoned().is_none() {
                self.dispatched(&store);
            }
            for unsynced in [Unsynced::Lost, Unsynced::Mixed] {
                self.look_after_a_cut(unsynced, dice);
            }
            match dice.below(3) {
                0 => {
                    // A stop that fails is an unclean one.
                    drop(store.close());
                    drop(store);
                }
                1 => self.disk.kill(store),
                _ => {
                    self.disk.kill(store);
                    self.lose_power(dice);
                }
            }
            self.look(self.case.to_string(), &self.root);
        }
    }

    fn open(&self, dice: &mut Dice) -> Result<Store> {
        if self.case.worked == Worked::ByDice {
            return open_at_rest_on(&self.disk, &self.root, dice);
        }
        let disk = self.disk.clone();
        open_in(
            &self.root,
            Environment {
                disk,
                ..environment()
            },
        )
    }

    /// A start may fail at the call; the next one does not.
    fn started(&self, dice: &mut Dice) -> Store {
        let failures = self.disk.failures();
        self.open(dice).unwrap_or_else(|error| {
            assert!(self.disk.failures() > failures, "no start: {error:?}");
            self.open(dice)
                .unwrap_or_else(|error| panic!("the second start failed: {error:?}"))
        })
    }

    fn step(&self, store: &Store, dice: &mut Dice) {
        let failures = self.disk.failures();
        let Err(error) = step(store, self.case.worked, dice, &self.done) else {
            return;
        };
        let failed = self.disk.failures() > failures;
        // A thread may have met the failure before.
        let by_threads = self.case.worked == Worked::ByThreads && failures > 0;
        assert!(
            failed || by_threads || store.poisoned().is_some(),
            "for no reason: {error}"
        );
    }

    /// What is stored is dispatched, whatever failed before.
    fn dispatched(&self, store: &Store) {
        let appended = store.watermarks().0;
        if self.case.worked == Worked::ByDice {
            let failures = self.disk.failures();
            let work = || store.work(Work::Flush).and(store.work(Work::Dispatch));
            if let Err(error) = work() {
                assert!(self.disk.failures() > failures, "no work: {error:?}");
                if store.poisoned().is_some() {
                    return;
                }
                work().expect("the call fails once");
            }
            let dispatched = store.watermarks().2;
            assert_eq!(dispatched, appended, "what is stored is not dispatched");
        } else {
            let came = store.wait_dispatched(appended, SOON);
            assert!(came, "what is stored is not dispatched");
        }
    }

    fn look_after_a_cut(&mut self, unsynced: Unsynced, dice: &mut Dice) {
        self.cuts += 1;
        let directory = self.home.join(format!("cut-{}", self.cuts));
        self.disk
            .look(|durable| durable.lose_power(unsynced, dice, &directory));
        self.look(format!("{}, unsynced {unsynced:?}", self.case), &directory);
        fs::remove_dir_all(&directory).expect("removed");
    }

    /// Goes on with what a power cut leaves.
    fn lose_power(&mut self, dice: &mut Dice) {
        self.cuts += 1;
        let directory = self.home.join(format!("store-{}", self.cuts));
        let unsynced = UNSYNCED[dice.below(4)];
        self.disk.lose_power(unsynced, dice, &directory);
        fs::remove_dir_all(&self.root).expect("removed");
        self.root = directory;
        let mut done = self.done.lock().expect("no panic");
        done.forget_places_of_what_may_be_lost();
    }

    fn look(&self, label: String, directory: &Path) {
        let now = self.done.lock().expect("no panic").clone();
        check(&Left {
            label,
            directory: directory.to_owned(),
            before: now.clone(),
            after: now,
        });
    }
}

/// Runs a case on a disk of its own, which is given back.
fn run(case: &Case) -> Arc<PowerDisk> {
    let _under_way = UnderWay(case);
    let home = scratch();
    let root = home.path().join("store");
    fs::create_dir_all(&root).expect("a directory");
    let disk = Arc::new(PowerDisk::new(&root, Ailment::default(), |_, _| ()));
    match case.fault {
        Fault::Nothing => {}
        Fault::Call(failure) => disk.fail(Some(failure)),
        Fault::Read(number, failing) => disk.fail_read(Some((number, failing))),
    }
    let mut run = Run {
        case,
        home: home.path(),
        disk: Arc::clone(&disk),
        root,
        done: Mutex::new(Done::default()),
        cuts: 0,
    };
    run.all(&mut Dice(case.seed));
    disk
}

fn by_dice(seed: u64, fault: Fault) -> Case {
    Case {
        seed,
        fault,
        worked: Worked::ByDice,
    }
}

fn call(number: usize, error: i32, leaves: usize) -> Fault {
    Fault::Call(Failure {
        of: None,
        number,
        times: 1,
        error,
        leaves,
    })
}

/// The case that `LAKEMQ_ERROR_CASE` names.
fn asked_for(seed: u64) -> Option<Case> {
    let text = std::env::var("LAKEMQ_ERROR_CASE").ok()?;
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no number: {text}"));
    let error = |text: &str| {
        let known = ERRORS.iter().find(|(name, _)| *name == text);
        known.unwrap_or_else(|| panic!("no error: {text}")).1
    };
    let fault = match text.split('-').collect::<Vec<_>>()[..] {
        ["call", at, of, leaves] => call(number(at), error(of), number(leaves)),
        ["read", at, "short"] => Fault::Read(number(at), FailingRead::Short),
        ["read", at, of] => Fault::Read(number(at), FailingRead::With(error(of))),
        _ => panic!("no case: {text}"),
    };
    Some(by_dice(seed, fault))
}

/// The cases of a run in which these calls and reads are made.
fn cases(calls: &[Call], reads: &[bool]) -> Vec<Fault> {
    let mut cases = Vec::new();
    for (number, of) in (1..).zip(calls) {
        // Of a write that failed nothing may stand in the file, a half, or all.
        let left: &[usize] = if *of == Call::Write {
            &[0, 50, 100]
        } else {
            &[0]
        };
        for (_, error) in ERRORS {
            cases.extend(left.iter().map(|leaves| call(number, error, *leaves)));
        }
    }
    for (number, may_be_short) in (1..).zip(reads) {
        // No read needs space.
        for error in [libc::EIO, libc::EMFILE, libc::EINTR] {
            cases.push(Fault::Read(number, FailingRead::With(error)));
        }
        if *may_be_short {
            cases.push(Fault::Read(number, FailingRead::Short));
        }
    }
    cases
}

/// Tries the cases of a seed that the chance takes; gives how many there were.
fn each_call_fails(seed: u64, chance: u64) -> usize {
    let tries = |case: Case| {
        let failures = run(&case).failures();
        assert!(failures > 0, "{case}: the call was not made");
    };
    if let Some(case) = asked_for(seed) {
        tries(case);
        return 1;
    }
    let whole = run(&by_dice(seed, Fault::Nothing));
    let mut chosen = Dice(seed.wrapping_mul(977));
    let cases = cases(&whole.asked(), &whole.reads()).into_iter();
    let cases = cases.filter(|_| chosen.in_a_hundred(chance));
    cases.map(|fault| tries(by_dice(seed, fault))).count()
}

fn chance() -> u64 {
    count_in("LAKEMQ_ERROR_CHANCE").unwrap_or(3)
}

#[test]
fn test_whichever_call_of_the_disk_fails_nothing_acknowledged_is_lost_and_all_heals() {
    let seeds = seeds("LAKEMQ_ERROR_SEEDS", "LAKEMQ_ERROR_SEED", 2);
    let tried = seeds
        .into_iter()
        .map(|seed| each_call_fails(seed, chance()));
    println!("{} calls failed", tried.sum::<usize>());
}

/// Threads meet the failure in an order that no dice say: call n is not the same one again.
#[test]
fn test_whichever_call_of_its_threads_fails_nothing_acknowledged_is_lost_and_all_heals() {
    for seed in seeds("LAKEMQ_ERROR_SEEDS", "LAKEMQ_ERROR_SEED", 1) {
        let mut dice = Dice(seed.wrapping_mul(977));
        let mut number = 1 + dice.below(7);
        loop {
            let (_, error) = ERRORS[dice.below(4)];
            let case = Case {
                seed,
                fault: call(number, error, [0, 50, 100][dice.below(3)]),
                worked: Worked::ByThreads,
            };
            if run(&case).failures() == 0 {
                break;
            }
            number += 1 + dice.below(13);
        }
    }
}

#[test]
fn test_whichever_sync_fails_what_it_was_about_is_written_again() {
    for seed in seeds("LAKEMQ_ERROR_SEEDS", "LAKEMQ_ERROR_SEED", 1) {
        for of in [
            Synced::Log,
            Synced::LogNames,
            Synced::Index,
            Synced::Queue,
            Synced::Keys,
            Synced::Own,
            Synced::OwnNames,
            Synced::Config,
            Synced::ConfigNames,
            Synced::Root,
            Synced::RootNames,
        ] {
            let fails = |number| {
                let failure = Failure {
                    of: Some(of),
                    number,
                    times: 1,
                    error: libc::EIO,
                    leaves: 0,
                };
                run(&by_dice(seed, Fault::Call(failure))).failures() > 0
            };
            assert!(fails(1), "{of:?} is never synced");
            (2..).find(|number| !fails(*number));
        }
    }
}
