//! Idempotence keys by themselves: which are remembered, for how long, and what of them the file keeps.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lakemq_store::idempotence::{IdempotenceTable, KeyFile, KeyPlace};
use lakemq_store::paths::StorePaths;

use crate::records::CountingDisk;
use crate::refusing_disk::{Call, RefusingDisk};

fn place(physical_offset: i64) -> KeyPlace {
    KeyPlace {
        physical_offset,
        store_timestamp: 10 * physical_offset,
    }
}

fn table(keys: usize, max_age_ms: i64) -> IdempotenceTable {
    IdempotenceTable::new(keys, max_age_ms)
}

fn paths(root: &Path) -> StorePaths {
    let paths = StorePaths::new(root);
    fs::create_dir_all(paths.lakemq()).expect("a directory");
    paths
}

#[test]
fn test_the_first_place_of_a_key_stays_until_it_is_forgotten() {
    let mut table = table(3, i64::MAX);
    assert!(table.is_empty() && table.oldest_offset() == i64::MAX);
    table.insert("a", place(1));
    table.insert("a", place(2));
    assert_eq!((table.get("a"), table.len()), (Some(place(1)), 1));
    table.insert("b", place(3));
    table.insert("c", place(4));
    table.insert("a", place(5));
    assert_eq!(
        (table.len(), table.oldest_offset()),
        (3, 1),
        "no room was needed"
    );
    table.insert("d", place(6));
    assert_eq!(
        (table.get("a"), table.len(), table.oldest_offset()),
        (None, 3, 3)
    );
    table.insert("a", place(7));
    assert_eq!(table.get("a"), Some(place(7)), "a new one");
}

#[test]
fn test_keys_go_by_age_to_the_millisecond() {
    let mut table = table(100, 50);
    table.set_now(100);
    for offset in 4..8 {
        table.insert(&format!("k{offset}"), place(offset));
    }
    assert_eq!(table.oldest_offset(), 5, "50 ms old is not too old, 60 is");
    assert_eq!(table.len(), 3);
}

#[test]
fn test_keys_before_and_behind_a_cut_of_the_log_are_forgotten() {
    let filled = || {
        let mut table = table(100, i64::MAX);
        for offset in 1..=6 {
            table.insert(&format!("k{offset}"), place(offset));
        }
        table
    };
    let known = |table: &IdempotenceTable| -> Vec<i64> {
        (1..=6)
            .filter(|offset| table.get(&format!("k{offset}")).is_some())
            .collect()
    };
    let mut table = filled();
    table.forget_before(3);
    assert_eq!(
        (known(&table), table.oldest_offset()),
        (vec![3, 4, 5, 6], 3)
    );
    let mut table = filled();
    table.forget_from(4);
    assert_eq!((known(&table), table.len()), (vec![1, 2, 3], 3));
    table.insert("k5", place(9));
    assert_eq!(table.get("k5"), Some(place(9)));
}

#[test]
fn test_the_file_gives_back_the_keys_of_a_range_and_keeps_no_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let (paths, disk) = (paths(dir.path()), CountingDisk::default());
    let mut file = KeyFile::new(&paths);
    file.pending().append(0, 0, &disk).expect("nothing to do");
    assert!(!paths.idempotence_keys().exists() && disk.syncs() == 0);
    for offset in 1..=5 {
        file.note(&format!("k{offset}"), place(offset));
    }
    let lines = file.pending();
    file.note("k6", place(6));
    lines.append(6, 0, &disk).expect("disk space");
    assert_eq!(disk.syncs(), 1, "they are on the disk");
    file.written(&lines);
    let late = file.pending();
    late.append(6, 0, &disk).expect("disk space");
    file.written(&late);
    let load = |from, to| {
        let mut table = table(100, i64::MAX);
        KeyFile::new(&paths)
            .load(from, to, &mut table, &disk)
            .expect("readable");
        (1..=6)
            .filter(|offset| table.get(&format!("k{offset}")) == Some(place(*offset)))
            .collect::<Vec<_>>()
    };
    assert_eq!(load(0, 7), [1, 2, 3, 4, 5, 6], "each was written once");
    let before = fs::read_to_string(paths.idempotence_keys()).expect("a file");
    assert_eq!(before.lines().filter(|line| !line.is_empty()).count(), 6);
    assert_eq!(
        load(2, 6),
        [2, 3, 4, 5],
        "from the first to before the last"
    );
    let after = fs::read_to_string(paths.idempotence_keys()).expect("a file");
    assert_eq!(
        after.lines().count(),
        4,
        "the others will not be asked for again"
    );
    assert!(
        after.ends_with('\n'),
        "the next key begins a line of its own"
    );
    assert_eq!(load(0, 7), [2, 3, 4, 5]);
    assert_eq!(load(9, 10), Vec::<i64>::new());
    assert_eq!(load(0, 7), Vec::<i64>::new());
}

#[test]
fn test_the_file_is_written_anew_when_most_of_it_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let (paths, disk) = (paths(dir.path()), CountingDisk::default());
    let mut file = KeyFile::new(&paths);
    let lines = || {
        let text = fs::read_to_string(paths.idempotence_keys()).expect("a file");
        text.lines().filter(|line| !line.is_empty()).count()
    };
    let append = |file: &mut KeyFile, offsets: std::ops::Range<i64>, remembered, oldest| {
        for offset in offsets {
            file.note(&format!("k{offset}"), place(offset));
        }
        let pending = file.pending();
        pending
            .append(remembered, oldest, &disk)
            .expect("disk space");
        file.written(&pending);
    };
    // Twice what is remembered and 4,096 more may stand there.
    append(&mut file, 0..4106, 5, 4101);
    assert_eq!(lines(), 4106);
    append(&mut file, 4106..4107, 5, 4102);
    assert_eq!(lines(), 5, "those that are remembered");
    append(&mut file, 4107..4109, 5, 4104);
    assert_eq!(lines(), 7);
    // A start knows how many stand there.
    let mut again = KeyFile::new(&paths);
    let mut known = table(100, i64::MAX);
    again
        .load(0, i64::MAX, &mut known, &disk)
        .expect("readable");
    append(&mut again, 4109..4109 + 4099, 5, 8203);
    assert_eq!(lines(), 4106);
    append(&mut again, 8208..8209, 5, 8204);
    assert_eq!(lines(), 5);
}

#[test]
fn test_keys_that_cannot_be_read_or_removed_are_not_taken_for_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let (paths, disk) = (paths(dir.path()), RefusingDisk::default());
    let mut file = KeyFile::new(&paths);
    let load = |file: &mut KeyFile| file.load(0, 9, &mut table(100, i64::MAX), &disk);
    assert_eq!(load(&mut file).expect("there is no file"), 0);
    file.clear(&disk).expect("there is no file");
    for offset in 1..=3 {
        file.note(&format!("k{offset}"), place(offset));
    }
    file.pending().append(3, 0, &disk).expect("disk space");
    disk.refuse(Call::Read, ErrorKind::PermissionDenied, 1);
    load(&mut file).expect_err("refused");
    assert_eq!(load(&mut file).expect("readable"), 3, "lines");
    assert_eq!(file.pending().in_file(), 3);
    disk.refuse(Call::Remove, ErrorKind::PermissionDenied, 1);
    file.clear(&disk).expect_err("refused");
    assert!(paths.idempotence_keys().exists());
    file.clear(&disk).expect("removed");
    assert!(!paths.idempotence_keys().exists());
    assert_eq!(file.pending().in_file(), 0);
}

#[test]
fn test_a_start_leaves_a_key_file_alone_whose_lines_are_all_of_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let (paths, disk) = (paths(dir.path()), CountingDisk::default());
    let mut file = KeyFile::new(&paths);
    for offset in 1..=3 {
        file.note(&format!("k{offset}"), place(offset));
    }
    file.pending().append(3, 0, &disk).expect("disk space");
    let which = || {
        fs::metadata(paths.idempotence_keys())
            .expect("a file")
            .ino()
    };
    let (before, mut known) = (which(), table(100, i64::MAX));
    file.load(0, 9, &mut known, &disk).expect("readable");
    assert!(!known.is_empty() && which() == before);
    file.load(2, 9, &mut known, &disk).expect("readable");
    assert_ne!(which(), before, "one is of no more use");
}

#[test]
fn test_what_is_noted_while_nothing_is_written_waits_for_the_next_checkpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let (paths, disk) = (paths(dir.path()), CountingDisk::default());
    let mut file = KeyFile::new(&paths);
    let nothing = file.pending();
    file.note("first", place(0));
    file.written(&nothing);
    file.pending().append(1, 0, &disk).expect("disk space");
    let mut known = table(100, i64::MAX);
    file.load(0, 9, &mut known, &disk).expect("readable");
    assert_eq!(known.get("first"), Some(place(0)));
}
