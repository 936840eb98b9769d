//! The index by itself: searches by time, files that are full, damaged ones, and what a start takes back.

use std::fs;
use std::sync::atomic::Ordering;

use lakemq_store::index::{Index, IndexFile, key_hash};

use crate::records::CountingDisk;
use crate::small_index::{self, SHAPE, found, index};

/// Entries that a file holds: the first place is never used.
const HELD: usize = 5;

/// Puts a record with these keys into the index.
fn put(index: &Index, disk: &CountingDisk, keys: &str, offset: i64, time: i64) {
    small_index::put(index, disk, &[("KEYS", keys)], (offset, time));
}

#[test]
fn test_a_search_takes_entries_of_its_key_and_of_its_seconds_newest_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let file = IndexFile::open_owned(&dir.path().join("1"), SHAPE, &disk).expect("a file");
    assert_eq!(
        (file.end_physical_offset(), file.header().used_slots),
        (-1, 0)
    );
    for (offset, hash, time) in [
        (100, 3, 10_000),
        (200, 10, 11_500),
        (300, 3, 12_999),
        (400, 4, 20_000),
    ] {
        file.put(hash, offset, time, &disk).expect("disk space");
    }
    let header = file.header();
    assert_eq!(
        (header.count, header.used_slots),
        (5, 2),
        "10 falls into the slot of 3"
    );
    assert_eq!(
        (header.begin_timestamp, header.end_timestamp),
        (10_000, 20_000)
    );
    assert_eq!(
        (header.begin_physical_offset, file.end_physical_offset()),
        (100, 400)
    );
    let find = |hash, begin, end, limit| {
        let mut out = Vec::new();
        file.find(hash, begin, end, limit, &mut out);
        out
    };
    assert_eq!(find(3, 0, i64::MAX, 9), [300, 100]);
    assert_eq!(find(3, 0, i64::MAX, 1), [300]);
    assert_eq!(find(10, 0, i64::MAX, 9), [200]);
    assert!(find(5, 0, i64::MAX, 9).is_empty());
    // Entries know the second behind the file's first: 300 was stored in the one that begins at 12,000.
    assert_eq!(find(3, 12_999, i64::MAX, 9), [300]);
    assert!(find(3, 13_000, i64::MAX, 9).is_empty());
    assert_eq!(find(3, 0, 12_000, 9), [300, 100]);
    assert_eq!(find(3, 0, 11_999, 9), [100]);
    assert!(find(3, 20_001, i64::MAX, 9).is_empty() && find(3, 0, 9_999, 9).is_empty());
    assert_eq!(find(4, 20_000, 20_000, 9), [400]);
    assert_eq!(file.last_of(400), (1, 4));
    assert_eq!(file.last_of(300), (0, 4));
    assert!(!file.is_full());
    file.put(4, 500, 21_000, &disk).expect("disk space");
    assert!(file.is_full());
}

/// Contract: a put changes entry, slot and header one after the other; who searches meanwhile has looked at an older
/// header than slot.
#[test]
fn test_a_search_beside_a_put_finds_what_was_there_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("1");
    let disk = CountingDisk::default();
    let file = IndexFile::open_owned(&path, SHAPE, &disk).expect("a file");
    file.put(3, 100, 10_000, &disk).expect("disk space");
    let header = fs::read(&path).expect("a file")[..40].to_vec();
    for (hash, offset) in [(10, 200), (3, 300)] {
        file.put(hash, offset, 10_000, &disk).expect("disk space");
        let mut bytes = fs::read(&path).expect("a file");
        bytes[..40].copy_from_slice(&header);
        let seen = dir.path().join("2");
        fs::write(&seen, bytes).expect("written");
        let seen = IndexFile::open_for_reading(&seen, SHAPE).expect("of the right length");
        let mut found = Vec::new();
        seen.find(3, 0, i64::MAX, 100, &mut found);
        assert_eq!(found, [100], "beside the put of {offset}");
    }
}

#[test]
fn test_damage_in_a_file_is_no_circle_and_no_panic() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("1");
    let disk = CountingDisk::default();
    let file = IndexFile::open_owned(&path, SHAPE, &disk).expect("a file");
    for offset in [100, 200, 300] {
        file.put(3, offset, 10_000, &disk).expect("disk space");
    }
    let whole = fs::read(&path).expect("a file");
    let entry = |number: usize| 40 + 7 * 4 + number * 20;
    let damaged = |at: usize, value: &[u8]| {
        let mut bytes = whole.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        fs::write(&path, bytes).expect("written");
        let file = IndexFile::open_for_reading(&path, SHAPE).expect("of the right length");
        let mut out = Vec::new();
        file.find(3, 0, i64::MAX, 100, &mut out);
        out
    };
    for previous in [2i32, 3, 6, i32::MAX] {
        let found = damaged(entry(2) + 16, &previous.to_be_bytes());
        assert_eq!(found, [300, 200], "an entry that leads to {previous}");
    }
    for slot in [4i32, 5, i32::MAX, 0, -1] {
        assert!(
            damaged(40 + 3 * 4, &slot.to_be_bytes()).is_empty(),
            "a slot that leads to {slot}"
        );
    }
    // A time of the file that cannot be.
    assert_eq!(damaged(0, &i64::MAX.to_be_bytes()), [300, 200, 100]);
    let seconds = [i32::MAX.to_be_bytes(), i32::MIN.to_be_bytes()];
    for value in seconds {
        assert!(damaged(entry(3) + 12, &value).ends_with(&[200, 100]));
    }
}

#[test]
fn test_a_time_at_the_end_of_all_times_is_looked_at_without_harm() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("1");
    let disk = CountingDisk::default();
    let file = IndexFile::open_owned(&path, SHAPE, &disk).expect("a file");
    file.put(3, 100, 10_000, &disk).expect("disk space");
    file.put(3, 200, 12_000, &disk).expect("disk space");
    let mut bytes = fs::read(&path).expect("a file");
    for at in [0, 8] {
        bytes[at..at + 8].copy_from_slice(&i64::MAX.to_be_bytes());
    }
    fs::write(&path, &bytes).expect("written");
    let file = IndexFile::open_for_reading(&path, SHAPE).expect("of the right length");
    let mut out = Vec::new();
    file.find(3, 0, i64::MAX, 100, &mut out);
    assert_eq!(out, [200, 100]);
}

#[test]
fn test_a_record_is_indexed_once_however_often_it_comes_and_with_all_of_its_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    put(&index, &disk, "a b", 100, 1000);
    put(&index, &disk, "a b", 100, 1000);
    // Five entries fill a file: the keys of this one stand in two.
    put(&index, &disk, "c d e f", 200, 2000);
    put(&index, &disk, "c d e f", 200, 2000);
    put(&index, &disk, "a", 150, 1500);
    let state = index.state();
    assert_eq!(
        state
            .iter()
            .map(|(_, header)| header.count)
            .collect::<Vec<_>>(),
        [6, 2]
    );
    for key in ["a", "b"] {
        assert_eq!(found(&index, key), [100], "{key}");
    }
    for key in ["c", "d", "e", "f"] {
        assert_eq!(found(&index, key), [200], "{key}");
    }
    put(&index, &disk, "a", 300, 900);
    assert_eq!(found(&index, "a"), [300, 100], "the newest file first");
    assert_eq!(index.find("t", "a", 0, i64::MAX, 1), [300]);
    let hashes = [key_hash("t", "a"), key_hash("t", "f")];
    assert_eq!(
        index.find_any(hashes.into_iter(), 0, i64::MAX, 100),
        [300, 200, 100]
    );
    assert_eq!(
        index.find_any(hashes.into_iter(), 0, i64::MAX, 2),
        [300, 200]
    );
    let names: Vec<String> = state.into_iter().map(|(name, _)| name).collect();
    assert!(names.is_sorted() && names.len() == 2);
}

#[test]
fn test_names_of_files_grow_though_the_clock_is_set_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    for (number, time) in [50_000, 40_000, 50_000, 50_001].into_iter().enumerate() {
        let keys: Vec<String> = (0..HELD).map(|key| format!("k{key}")).collect();
        put(
            &index,
            &disk,
            &keys.join(" "),
            100 * (number as i64 + 1),
            time,
        );
    }
    let names: Vec<String> = index.state().into_iter().map(|(name, _)| name).collect();
    let milliseconds: Vec<&str> = names.iter().map(|name| &name[12..]).collect();
    assert_eq!(milliseconds, ["50000", "50001", "50002", "50003"]);
}

#[test]
fn test_files_expire_with_their_last_record_and_the_newest_never_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    for number in 0..3 {
        put(
            &index,
            &disk,
            "a b c d e",
            100 * (number + 1),
            1000 * (number + 1),
        );
    }
    assert!(
        index.expire(100).is_empty(),
        "its last record is the log's first"
    );
    assert_eq!(index.expire(101).len(), 1);
    assert_eq!(found(&index, "a"), [300, 200]);
    assert_eq!(index.expire(10_000).len(), 1, "the newest stays");
    assert_eq!(found(&index, "a"), [300]);
}

#[test]
fn test_a_sync_brings_changed_files_and_their_names_to_the_disk_and_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    put(&index, &disk, "a b c d e f", 100, 1000);
    index.sync(&disk).expect("synced");
    let directories = || disk.directories.load(Ordering::SeqCst);
    assert_eq!((disk.syncs(), directories()), (2, 1));
    index.sync(&disk).expect("nothing to do");
    assert_eq!((disk.syncs(), directories()), (2, 1));
    put(&index, &disk, "g", 200, 2000);
    index.sync(&disk).expect("synced");
    assert_eq!(
        (disk.syncs(), directories()),
        (3, 1),
        "one file, no new name"
    );
    put(&index, &disk, "h i j k", 300, 3000);
    index.sync(&disk).expect("synced");
    assert_eq!(
        (disk.syncs(), directories()),
        (5, 2),
        "two files, a new name"
    );
}

#[test]
fn test_a_start_takes_the_index_back_to_its_snapshot_and_says_what_is_missing() {
    let disk = CountingDisk::default();
    let filled = || {
        let dir = tempfile::tempdir().expect("a directory");
        let index = index(dir.path(), &disk);
        put(&index, &disk, "a b c d e", 100, 1000);
        put(&index, &disk, "a b c d e", 200, 2000);
        put(&index, &disk, "a", 300, 3000);
        let state = index.state();
        put(&index, &disk, "late", 400, 4000);
        (dir, state)
    };
    for trusted in [true, false] {
        let (dir, state) = filled();
        let index = index(dir.path(), &disk);
        assert_eq!(
            index.restore(&state, trusted, 0, &disk).expect("restored"),
            None
        );
        assert_eq!(index.state(), state);
        assert_eq!(
            (found(&index, "late"), found(&index, "a")),
            (vec![], vec![300, 200, 100])
        );
    }
    let (dir, state) = filled();
    let names: Vec<String> = state.iter().map(|(name, _)| name.clone()).collect();
    fs::remove_file(dir.path().join(&names[1])).expect("removed");
    let again = index(dir.path(), &disk);
    assert_eq!(
        again.restore(&state, true, 0, &disk).expect("restored"),
        Some(100),
        "behind the first file"
    );
    assert_eq!(found(&again, "a"), [100]);
    again.remove_given_up(&disk).expect("removed");
    assert_eq!(fs::read_dir(dir.path()).expect("files").count(), 1);

    let (dir, state) = filled();
    fs::remove_file(dir.path().join(&names[0])).expect("removed");
    let again = index(dir.path(), &disk);
    assert_eq!(
        again.restore(&state, true, 0, &disk).expect("restored"),
        Some(0),
        "from the log's start"
    );
    let again = index(dir.path(), &disk);
    assert_eq!(
        again.restore(&state, true, 101, &disk).expect("restored"),
        None,
        "it has expired"
    );
    assert_eq!(found(&again, "a"), [300, 200]);
    let again = index(dir.path(), &disk);
    assert_eq!(
        again.restore(&state, true, 100, &disk).expect("restored"),
        Some(100),
        "not all of it"
    );
}

#[test]
fn test_a_file_of_another_length_is_removed_by_the_owner_and_passed_over_by_a_reader() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    put(&index(dir.path(), &disk), &disk, "a", 100, 1000);
    let damaged = dir.path().join("20260102030405006");
    fs::write(&damaged, b"no index").expect("written");
    let reader = Index::open(dir.path(), SHAPE, false, &disk).expect("opened");
    assert_eq!(found(&reader, "a"), [100]);
    assert!(damaged.exists());
    let owner = index(dir.path(), &disk);
    assert_eq!(found(&owner, "a"), [100]);
    assert!(!damaged.exists());
}

#[test]
fn test_an_empty_file_that_is_missing_has_not_expired() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let header = IndexFile::open_owned(&dir.path().join("1"), SHAPE, &disk)
        .expect("a file")
        .header();
    fs::remove_file(dir.path().join("1")).expect("removed");
    let state = vec![("1".to_owned(), header)];
    let index = index(dir.path(), &disk);
    assert_eq!(
        index.restore(&state, true, 500, &disk).expect("restored"),
        Some(500)
    );
}
