//! Taking an index file back to what a snapshot knew of it, after a start that follows no clean stop.
//!
//! Invariants: the file comes out with the entries and chains that the snapshot counts, whatever a power cut took.
//! Threads: the one that recovers the store.
//!
//! `header` is the snapshot's, and C its count. The file was synced before the snapshot was written, so each
//! aligned word of it (header, slots and entries are made of such words) holds, whatever a power cut took, a
//! value that it had at or since that sync. From this follows:
//!
//! * Entries before C are never written again: they stand. The header does not count: the snapshot tells it.
//! * A slot takes no value but the number of a new entry. One below C is what the snapshot knew; one from C on
//!   was changed since, and its value of then is where the chain of entries from C on comes out.
//! * A word of an entry from C on is what was written there, or the zero that stood there before. Only its
//!   `previous` is needed, and that is never written as zero: a chain that ends says -1. So what was found is
//!   right, also where the rest of the entry is torn, and a zero says that it was lost.
//! * Where it was lost (or the file is RocketMQ's, which writes zero), the slot's newest entry before C is
//!   looked for from the end. Only that looks at entries that the snapshot counts.
//! * What is cleared behind C need not be on the disk before the records are indexed again: they are the same
//!   records, so the words that a second power cut can leave are the same too.
//!
//! Bytes that nobody wrote (a disk's damage) are told by an entry that does not belong to its slot or lies at
//! a log offset before the snapshot's.

use crate::sync::atomic::Ordering;
use std::collections::HashMap;

use super::{HEADER_BYTES, Header, IndexFile, SLOT_BYTES};
use crate::environment::Disk;
use crate::error::{Result, StoreError};

impl IndexFile {
    /// Takes the file back to `header`, which it was synced with. Looks at all slots, but at no more entries
    /// than were written since; see the module for the exception.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn restore(&self, header: &Header, disk: &dyn Disk) -> Result<()> {
        let mut lost = HashMap::new();
        for (at, value) in self.slots_changed_since(header) {
            match self.value_before(at, value, header) {
                Some(value) => self.file.publish_i32(at, value),
                None => drop(lost.insert(at, 0)),
            }
        }
        self.look_for(&mut lost, header);
        for (at, value) in lost {
            self.file.publish_i32(at, value);
        }
        let context = |e| StoreError::io(format!("clearing {}", self.path().display()), e);
        self.file.clear_from(self.entry_at(header.count), disk).map_err(context)?;
        self.write_header(header);
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Places of the slots that lead to entries which `header` does not count, with what stands there.
    pub(super) fn slots_changed_since(&self, header: &Header) -> Vec<(usize, i32)> {
        let slots = self.file.bytes(HEADER_BYTES, self.shape.slots as usize * SLOT_BYTES);
        let values = slots.as_chunks::<SLOT_BYTES>().0.iter().map(|bytes| i32::from_be_bytes(*bytes));
        let changed = values.enumerate().filter(|(_, value)| *value >= header.count);
        changed.map(|(number, value)| (HEADER_BYTES + number * SLOT_BYTES, value)).collect()
    }

    /// What stood in the slot at `at`, which holds `value`, when `header` was taken; `None` where that was lost.
    pub(super) fn value_before(&self, at: usize, mut value: i32, header: &Header) -> Option<i32> {
        while value >= header.count {
            let entry = self.entry(value).filter(|e| self.slot_at(e.hash) == at)?;
            let newer = header.count <= 1 || entry.physical_offset >= header.end_physical_offset;
            if !newer || entry.previous == 0 || entry.previous >= value {
                return None;
            }
            value = entry.previous.max(0);
        }
        Some(value)
    }

    /// Finds the newest entry that `header` counts for each of the slots.
    fn look_for(&self, lost: &mut HashMap<usize, i32>, header: &Header) {
        let mut left = lost.len();
        for number in (1..header.count).rev() {
            if left == 0 {
                return;
            }
            if let Some(entry) = self.entry(number)
                && let Some(value) = lost.get_mut(&self.slot_at(entry.hash))
                && *value == 0
            {
                *value = number;
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Shape;
    use super::*;
    use crate::environment::RealDisk;

    const SHAPE: Shape = Shape { slots: 61, entries: 220 };
    type Image = Vec<u8>;

    /// Numbers that look random; the same for the same seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit
        }
    }

    fn file(directory: &tempfile::TempDir) -> IndexFile {
        IndexFile::open_owned(&directory.path().join("1"), SHAPE, &RealDisk).expect("a file")
    }

    fn image(file: &IndexFile) -> Image {
        file.file.tail(0).to_vec()
    }

    fn put(file: &IndexFile, number: i32, hash: i32) -> Image {
        let at = i64::from(number);
        file.put(hash, 1000 + at * 100, 50_000 + at * 700, &RealDisk).expect("disk space");
        image(file)
    }

    /// What a power cut may leave: each block as it was at some time since the sync.
    fn cut(file: &IndexFile, since: &[Image], grain: usize, dice: &mut Dice) {
        file.file.write(0, file.file.len(), |out| {
            for (number, block) in out.chunks_mut(grain).enumerate() {
                let at = number * grain;
                block.copy_from_slice(&since[dice.below(since.len())][at..at + block.len()]);
            }
        });
    }

    #[test]
    fn test_after_a_kill_each_chain_is_taken_back_by_its_own_entries_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file(&dir);
        (0..100).for_each(|number| drop(put(&file, number, number * 7 % 41)));
        let (then, before) = (file.header(), image(&file));
        (100..200).for_each(|number| drop(put(&file, number, number * 11 % 50)));
        let changed = file.slots_changed_since(&then);
        assert_eq!(changed.len(), 50);
        for (at, value) in changed {
            assert!(
                file.value_before(at, value, &then).is_some(),
                "slot at {at}: no other entry is looked at"
            );
        }
        file.restore(&then, &RealDisk).expect("restored");
        assert!(image(&file) == before);
    }

    #[test]
    fn test_a_file_of_rocketmq_whose_chains_end_with_zero_is_taken_back_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file(&dir);
        let zero = |number: i32| {
            let at = file.entry_at(number) + 16;
            if file.file.published_i32(at) < 0 {
                file.file.write(at, 4, |out| out.fill(0));
            }
        };
        (0..50).for_each(|number| drop(put(&file, number, number)));
        (1..51).for_each(zero);
        let (then, before) = (file.header(), image(&file));
        (50..150).for_each(|number| drop(put(&file, number, number)));
        (51..151).for_each(zero);
        file.restore(&then, &RealDisk).expect("restored");
        assert!(image(&file) == before);
    }

    #[test]
    fn test_what_nobody_wrote_behind_the_snapshot_is_not_believed() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file(&dir);
        (0..80).for_each(|number| drop(put(&file, number, number % 30)));
        let (then, before) = (file.header(), image(&file));
        (80..150).for_each(|number| drop(put(&file, number, number % 40)));
        let mut dice = Dice(9);
        for number in then.count..SHAPE.entries as i32 {
            let at = file.entry_at(number);
            let other = file.entry(number).expect("inside").hash + 1;
            file.file.write(at, 20, |out| {
                out.iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
                out[..4].copy_from_slice(&other.to_be_bytes());
            });
        }
        for slot in 45..SHAPE.slots as i32 {
            // Slots that lead nowhere, outside of the file too.
            file.file.publish_i32(file.slot_at(slot), i32::MAX - slot);
        }
        for count in [i32::MIN, 0, then.count + 1, i32::MAX] {
            file.file.write(36, 4, |out| out.copy_from_slice(&count.to_be_bytes()));
            file.restore(&then, &RealDisk).expect("restored");
            assert!(image(&file) == before, "count {count}");
        }
    }

    proptest! {
        /// Contract: whatever a power cut takes of what was written since the snapshot, in words, sectors or pages,
        /// and another one in the middle of indexing it again, the file is what it was at the snapshot, and
        /// indexing the records behind it gives the file that indexing all at once gives.
        #[test]
        fn test_a_power_cut_leaves_nothing_that_is_not_taken_back(
            hashes in prop::collection::vec(0..120i32, 2..200),
            counted in 0.0..1.0f64,
            again in 0.0..1.0f64,
            grain in prop::sample::select(vec![4usize, 8, 512, 4096]),
            seed in any::<u64>(),
        ) {
            let (dir, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
            let (file, rebuilt) = (file(&dir), file(&other));
            let mut dice = Dice(seed);
            let index = |file: &IndexFile, from: usize, to: usize| -> Vec<Image> {
                (from..to).map(|at| put(file, at as i32, hashes[at])).collect()
            };
            let all = hashes.len();
            let at_snapshot = (all as f64 * counted) as usize;
            index(&file, 0, at_snapshot);
            let then = file.header();
            // An empty file's count stands as 0 until it is written, and means 1.
            file.file.write(0, HEADER_BYTES, |out| then.encode(out));
            let before = image(&file);
            let mut since = vec![before.clone()];
            since.extend(index(&file, at_snapshot, all));
            cut(&file, &since, grain, &mut dice);
            since.push(image(&file));
            file.restore(&then, &RealDisk).expect("restored");
            prop_assert!(image(&file) == before, "after the first cut");
            since.push(image(&file));
            since.extend(index(&file, at_snapshot, at_snapshot + ((all - at_snapshot) as f64 * again) as usize));
            cut(&file, &since, grain, &mut dice);
            file.restore(&then, &RealDisk).expect("restored");
            prop_assert!(image(&file) == before, "after the second cut");
            index(&file, at_snapshot, all);
            index(&rebuilt, 0, all);
            prop_assert!(image(&file) == image(&rebuilt), "indexed again");
        }
    }
}
