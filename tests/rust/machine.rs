//! A machine on whose disk a store lies, and what is left of that when the power fails at each call of the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use lakemq_store::environment::{Disk, Environment};

use crate::dice::Dice;
use crate::power_disk::{Ailment, Durable, PowerDisk, Unsynced};
use crate::support::{TestClock, environment};

/// What becomes of unsynced things at a cut; mostly what is hardest.
pub const KINDS: [Unsynced; 5] = [
    Unsynced::Lost,
    Unsynced::Kept,
    Unsynced::Torn,
    Unsynced::Mixed,
    Unsynced::Mixed,
];

/// An environment whose clock stands, with random bytes from the dice.
pub fn still(dice: &mut Dice) -> Environment {
    Environment {
        clock: Arc::new(TestClock(AtomicI64::new(1_800_000_000_000))),
        random: std::array::from_fn(|_| dice.below(256) as u8),
        ..environment()
    }
}

/// A machine that loses power: its disk, a store's directory there, and what it said so far.
pub struct Machine<S> {
    pub disk: Arc<PowerDisk>,
    pub root: PathBuf,
    said: Arc<Mutex<S>>,
}

/// What a cut of the power left, and what had been said by then.
pub struct Left<S> {
    pub label: String,
    pub root: PathBuf,
    pub said: S,
}

impl<S> Machine<S> {
    /// As [`still`], on its disk.
    pub fn environment(&self, dice: &mut Dice) -> Environment {
        let disk = Arc::clone(&self.disk) as Arc<dyn Disk>;
        Environment {
            disk,
            ..still(dice)
        }
    }

    pub fn say(&self, change: impl FnOnce(&mut S)) {
        change(&mut self.said.lock().expect("no panic"));
    }
}

/// Runs `work` on a machine whose disk holds what `before` left in a store's directory, and cuts the power at each of
/// its calls, and behind the last.
pub fn cut_at_each_call<S: Clone + Default + Send + 'static>(
    label: &str,
    dice: &mut Dice,
    home: &Path,
    before: impl FnOnce(&Path),
    work: impl FnOnce(&Machine<S>, &mut Dice),
) -> Vec<Left<S>> {
    let machine = home.join("machine");
    fs::create_dir_all(&machine).expect("a directory");
    let root = machine.join("store");
    before(&root);
    let said = Arc::new(Mutex::new(S::default()));
    let left = Arc::new(Mutex::new(Vec::new()));
    let cut = {
        let (said, left, home) = (Arc::clone(&said), Arc::clone(&left), home.to_owned());
        let (dice, label) = (Mutex::new(Dice(dice.roll())), label.to_owned());
        move |durable: &Durable, when: &str, unsynced: Option<Unsynced>| {
            let mut dice = dice.lock().expect("no panic");
            let mut left = left.lock().expect("no panic");
            let unsynced = unsynced.unwrap_or(KINDS[dice.below(KINDS.len())]);
            let to = home.join(format!("cut-{}", left.len()));
            durable.lose_power(unsynced, &mut dice, &to);
            left.push(Left {
                label: format!("{label}, {when}, unsynced {unsynced:?}"),
                root: to.join("store"),
                said: said.lock().expect("no panic").clone(),
            });
        }
    };
    let cut = Arc::new(cut);
    let on_call = {
        let cut = Arc::clone(&cut);
        move |durable: &Durable, call: usize| cut(durable, &format!("call {call}"), None)
    };
    let disk = Arc::new(PowerDisk::new(&machine, Ailment::default(), on_call));
    let machine = Machine { disk, root, said };
    work(&machine, dice);
    for unsynced in KINDS {
        let cut = Arc::clone(&cut);
        machine
            .disk
            .look(|durable| cut(durable, "at the end", Some(unsynced)));
    }
    drop((machine, cut));
    let left = Arc::into_inner(left).expect("the disk is gone");
    left.into_inner().expect("no panic")
}
