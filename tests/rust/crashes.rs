//! The power fails at a call of the disk, again at a call of the recovery from that, and a third time at a call of the
//! recovery after.
//!
//! Contract: that of `power.rs`, however often a recovery is cut and wherever.
//! `LAKEMQ_CRASH_CHANCE` is the chance in a hundred of each call to be one that cuts (default 5): 100 takes every n-th
//! call, every m-th of its recovery and every k-th of the next. `LAKEMQ_CRASH_STEPS` is how much is asked of the store
//! (default 20), `LAKEMQ_CRASH_SEEDS` sets the number of seeds (default 4), `LAKEMQ_CRASH_SEED` runs one alone.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::actions::UNSYNCED;
use crate::dice::Dice;
use crate::numbers::count_in;
use crate::power::{open_at_rest_on, run};
use crate::power_disk::{Ailment, Durable, PowerDisk, Unsynced};
use crate::support::copy;
use crate::workload::{Left, check, scratch, seeds};

/// Recovers what is left, and cuts the power at the calls chosen; gives what each of these cuts leaves.
pub fn cut_the_recovery(
    left: &Left,
    dice: &mut Dice,
    chosen: impl Fn(&mut Dice, usize) -> bool + Send + 'static,
    home: &Path,
) -> Vec<Left> {
    let root = home.join("recovering");
    copy(&left.directory, &root);
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let on_call = {
        let (cuts, home, mut dice) = (Arc::clone(&cuts), home.to_owned(), Dice(dice.roll()));
        let left = left.clone();
        move |durable: &Durable, call: usize| {
            if chosen(&mut dice, call) {
                let unsynced = UNSYNCED[dice.below(4)];
                let directory = home.join(format!("call-{call}"));
                durable.lose_power(unsynced, &mut dice, &directory);
                let label = format!(
                    "{}; call {call} of the recovery, unsynced {unsynced:?}",
                    left.label
                );
                cuts.lock().expect("no panic").push(Left {
                    label,
                    directory,
                    ..left.clone()
                });
            }
        }
    };
    let disk = Arc::new(PowerDisk::new(&root, Ailment::default(), on_call));
    let store = open_at_rest_on(&disk, &root, dice);
    disk.kill(store.unwrap_or_else(|error| panic!("{}: no start: {error:?}", left.label)));
    std::fs::remove_dir_all(&root).expect("removed");
    std::mem::take(&mut *cuts.lock().expect("no panic"))
}

#[test]
fn test_a_recovery_that_is_cut_twice_at_any_call_loses_nothing_and_invents_nothing() {
    let chance = count_in("LAKEMQ_CRASH_CHANCE").unwrap_or(5);
    let steps = count_in("LAKEMQ_CRASH_STEPS").unwrap_or(20) as usize;
    let mut count = 0;
    for seed in seeds("LAKEMQ_CRASH_SEEDS", "LAKEMQ_CRASH_SEED", 4) {
        let mut dice = Dice(seed);
        let home = scratch();
        let kinds: &[Unsynced] = &[Unsynced::Mixed];
        let mut at = Dice(dice.roll());
        let first = move |_| at.in_a_hundred(chance);
        for mut left in run(&mut dice, (steps, None), kinds, first, home.path()) {
            left.label = format!("seed {seed}, {}", left.label);
            let scratches = (scratch(), scratch());
            let again = move |dice: &mut Dice, _| dice.in_a_hundred(chance);
            for left in cut_the_recovery(&left, &mut dice, again, scratches.0.path()) {
                for left in cut_the_recovery(&left, &mut dice, again, scratches.1.path()) {
                    check(&left);
                    std::fs::remove_dir_all(&left.directory).expect("removed");
                    count += 1;
                }
            }
        }
    }
    println!("{count} times cut twice inside the recovery");
}
