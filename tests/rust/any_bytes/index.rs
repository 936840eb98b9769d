//! An index file, as a reader finds it, and as a start takes it back to what a snapshot says.

use std::fs;
use std::path::Path;

use lakemq_store::index::{Header, IndexFile, Shape};

use super::{Unsynced, is_damage_of, scratch};

const SHAPE: Shape = Shape {
    slots: 7,
    entries: 20,
};
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 20;
const ENTRIES_AT: usize = HEADER_BYTES + 7 * 4;
const BYTES: usize = ENTRIES_AT + 20 * ENTRY_BYTES;

/// Hash and log offset of an entry.
fn entry(bytes: &[u8], number: usize) -> (i32, i64) {
    let at = ENTRIES_AT + number * ENTRY_BYTES;
    let hash = i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let offset = i64::from_be_bytes(bytes[at + 4..at + 12].try_into().expect("eight bytes"));
    (hash, offset)
}

/// A search ends, and finds entries of the hash only; whatever stands in the file, a start takes it back to a state
/// that can be written on.
pub fn index(bytes: &[u8]) {
    let path = scratch("index").join("20260102030405006");
    if bytes.len() != BYTES && !bytes.is_empty() {
        fs::write(&path, bytes).expect("written");
        let refused = IndexFile::open_for_reading(&path, SHAPE).expect_err("of no length");
        is_damage_of(&refused, &path);
    }
    let mut bytes = bytes.to_vec();
    bytes.resize(BYTES, 0);
    fs::write(&path, &bytes).expect("written");
    let file = IndexFile::open_for_reading(&path, SHAPE).expect("of the right length");
    let mut hashes: Vec<i32> = (0..20).map(|number| entry(&bytes, number).0).collect();
    hashes.extend([0, 1, 6, i32::MAX, i32::MIN]);
    for hash in hashes {
        let of_hash: Vec<i64> = (0..20)
            .map(|number| entry(&bytes, number))
            .filter(|(of, _)| *of == hash)
            .map(|(_, offset)| offset)
            .collect();
        for (begin, end) in [(0, i64::MAX), (i64::MIN, i64::MAX), (1_000_000, 2_000_000)] {
            let mut found = Vec::new();
            file.find(hash, begin, end, usize::MAX, &mut found);
            assert!(found.len() <= of_hash.len(), "one was found twice");
            assert!(found.iter().all(|offset| of_hash.contains(offset)));
            let mut one = Vec::new();
            file.find(hash, begin, end, 1, &mut one);
            assert_eq!(one.first(), found.first());
        }
    }
    let (of, all) = file.last_of(entry(&bytes, 1).1);
    assert!(of <= all);
    drop(file);
    for count in [1, 2, 10, 20] {
        taken_back(&path, &bytes, count);
    }
}

fn taken_back(path: &Path, bytes: &[u8], count: i32) {
    fs::write(path, bytes).expect("written");
    let file = IndexFile::open_owned(path, SHAPE, &Unsynced).expect("of the right length");
    let then = Header {
        begin_timestamp: 1_000_000,
        end_timestamp: 2_000_000,
        begin_physical_offset: 100,
        end_physical_offset: 5000,
        used_slots: 3,
        count,
    };
    file.restore(&then, &Unsynced).expect("restored");
    assert_eq!(file.header(), then);
    let image = fs::read(path).expect("a file");
    let behind = ENTRIES_AT + count as usize * ENTRY_BYTES;
    assert!(image[behind..].iter().all(|byte| *byte == 0), "cleared");
    let before = ENTRIES_AT..behind;
    assert!(
        image[before.clone()] == bytes[before],
        "what it counts stands"
    );
    let slots = image[HEADER_BYTES..ENTRIES_AT].chunks_exact(4);
    assert!(
        slots
            .map(|slot| i32::from_be_bytes(slot.try_into().expect("four bytes")))
            .all(|value| value < count)
    );
    let mut at = 6000;
    while !file.is_full() {
        file.put(5, at, 2_001_000, &Unsynced).expect("disk space");
        at += 100;
    }
    let mut found = Vec::new();
    file.find(5, 0, i64::MAX, 100, &mut found);
    let mut newest: Vec<i64> = (6000..at).step_by(100).collect();
    newest.reverse();
    assert!(found.starts_with(&newest), "{found:?}");
}
