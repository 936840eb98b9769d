//! The store on a disk of which one call fails, and which loses power later.
//!
//! Contract: whichever call it is, and whatever the error, nothing acknowledged is lost and nothing is stored by half,
//! neither before a restart nor after it; a store that takes no more says why; one that goes on shows all it
//! acknowledged. A start that fails leaves what the next one needs.
//! `LAKEMQ_ERROR_SEEDS` sets the number of seeds (default 3, and 1 for the syncs), `LAKEMQ_ERROR_SEED` runs one alone.

use std::fs;
use std::sync::{Arc, Mutex};

use lakemq_store::environment::Environment;

use crate::dice::Dice;
use crate::power_disk::{Ailment, Failure, PowerDisk, Synced, Unsynced};
use crate::support::{SOON, environment};
use crate::workload::{Done, Left, Worked, check, open_in, scratch, seeds, step};

const STEPS: usize = 25;

/// Works on a disk of which one call fails, with restarts and at last a power cut; false when the call was not reached.
fn run(seed: u64, failure: Failure) -> bool {
    let mut dice = Dice(seed);
    let home = scratch();
    let root = home.path().join("store");
    fs::create_dir_all(&root).expect("a directory");
    let done = Mutex::new(Done::default());
    let ailment = Ailment {
        failure: Some(failure),
        ..Ailment::default()
    };
    let disk = Arc::new(PowerDisk::new(&root, ailment, |_, _| ()));
    let label = format!("seed {seed}, {failure:?}");
    let look = |label: String, directory| {
        let now = done.lock().expect("no panic").clone();
        check(&Left {
            label,
            directory,
            before: now.clone(),
            after: now,
        });
    };
    let open = || {
        open_in(
            &root,
            Environment {
                disk: disk.clone(),
                ..environment()
            },
        )
    };
    let mut left = STEPS;
    while left > 0 {
        let again = |_| {
            open().unwrap_or_else(|error| panic!("{label}: the second start failed: {error:?}"))
        };
        let store = open().unwrap_or_else(again);
        let until_restart = left.min(1 + dice.below(STEPS));
        for _ in 0..until_restart {
            if let Err(error) = step(&store, Worked::ByThreads, &mut dice, &done) {
                assert!(disk.failures() > 0, "{label}: {error} before it");
            }
        }
        left -= until_restart;
        if store.poisoned().is_none() {
            let appended = store.watermarks().0;
            assert!(
                store.wait_dispatched(appended, SOON),
                "{label}: what is stored is not dispatched"
            );
        }
        for unsynced in [Unsynced::Lost, Unsynced::Mixed] {
            let directory = home.path().join(format!("cut-{left}-{unsynced:?}"));
            disk.look(|durable| durable.lose_power(unsynced, &mut dice, &directory));
            look(format!("{label}, unsynced {unsynced:?}"), directory);
        }
        if dice.in_a_hundred(50) {
            // A stop that fails is an unclean one.
            drop(store.close());
            drop(store);
        } else {
            disk.kill(store);
        }
        look(label.clone(), root.clone());
    }
    disk.failures() > 0
}

#[test]
fn test_whichever_call_of_the_disk_fails_nothing_acknowledged_is_lost_and_all_heals() {
    for seed in seeds("LAKEMQ_ERROR_SEEDS", "LAKEMQ_ERROR_SEED", 3) {
        let mut dice = Dice(seed.wrapping_mul(977));
        let mut number = 1 + dice.below(7);
        loop {
            let error = [libc::EIO, libc::ENOSPC, libc::EMFILE, libc::EINTR][dice.below(4)];
            if !run(
                seed,
                Failure {
                    of: None,
                    number,
                    times: 1,
                    error,
                    leaves: [0, 50, 100][dice.below(3)],
                },
            ) {
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
            Synced::Index,
            Synced::Queue,
            Synced::Keys,
            Synced::Own,
            Synced::OwnNames,
            Synced::LogNames,
        ] {
            for number in 1.. {
                if !run(
                    seed,
                    Failure {
                        of: Some(of),
                        number,
                        times: 1,
                        error: libc::EIO,
                        leaves: 0,
                    },
                ) {
                    break;
                }
            }
        }
    }
}
