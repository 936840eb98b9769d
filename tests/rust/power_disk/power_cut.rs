//! What a power cut leaves of a disk, sector by sector and name by name, as the dice say.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::durable::{Durable, Node, SECTOR, listing, read_all, sector};
use crate::dice::Dice;

/// What becomes of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsynced {
    Lost,
    Kept,
    /// Every name is there; each sector is decided by itself, with a chance that differs from file to file.
    Torn,
    /// Each sector and each name is decided by itself, with a chance that differs from file to file.
    Mixed,
}

impl Durable {
    /// Writes what a power cut now would leave to `to`.
    pub fn lose_power(&self, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        self.leave(Path::new(""), unsynced, dice, to);
    }

    fn leave(&self, relative: &Path, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        fs::create_dir_all(to).expect("a directory");
        let here = self.root.join(relative);
        let now = listing(&here).unwrap_or_default();
        let nothing = BTreeMap::new();
        let then = self.names.get(relative).unwrap_or(&nothing);
        let all: BTreeSet<&OsString> = now.keys().chain(then.keys()).collect();
        for name in all {
            let (old, new) = (then.get(name), now.get(name));
            let is_new = match unsynced {
                Unsynced::Lost => false,
                Unsynced::Kept | Unsynced::Torn => true,
                Unsynced::Mixed => dice.in_a_hundred(50),
            };
            match if is_new { new } else { old } {
                None => {}
                Some(Node::Directory) => {
                    self.leave(&relative.join(name), unsynced, dice, &to.join(name));
                }
                Some(Node::File(inode)) => {
                    self.leave_file(*inode, &here.join(name), unsynced, dice, &to.join(name));
                }
            }
        }
    }

    fn leave_file(&self, inode: u64, now: &Path, unsynced: Unsynced, dice: &mut Dice, to: &Path) {
        let nothing = Vec::new();
        let platter = self.files.get(&inode);
        let (old, new) = match platter {
            Some(platter) => (&platter.content, read_all(&platter.file)),
            None => (&nothing, File::open(now).and_then(|file| read_all(&file))),
        };
        let new = new.unwrap_or_default();
        let chance = match unsynced {
            Unsynced::Lost => 0,
            Unsynced::Kept => 100,
            Unsynced::Torn | Unsynced::Mixed => [0, 10, 50, 90, 100][dice.below(5)],
        };
        let length = if dice.in_a_hundred(chance) {
            new.len()
        } else {
            old.len()
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(to)
            .expect("a file");
        file.set_len(length as u64).expect("a length");
        for number in 0..length.div_ceil(SECTOR) {
            let (then, now) = (sector(old, number), sector(&new, number));
            let forgotten =
                platter.is_some_and(|platter| platter.forgotten.get(&number) == Some(&now));
            let is_new = then != now && !forgotten && dice.in_a_hundred(chance);
            let at = number * SECTOR;
            let left = &(if is_new { now } else { then })[..SECTOR.min(length - at)];
            if left.iter().any(|byte| *byte != 0) {
                file.write_all_at(left, at as u64).expect("written");
            }
        }
    }
}
