//! The index where files come and go beside it, and where a start gives some of them up.

use std::fs;
use std::sync::atomic::Ordering;

use lakemq_store::index::Index;

use crate::records::CountingDisk;
use crate::small_index::{self, SHAPE, found, index};

fn put(index: &Index, disk: &CountingDisk, properties: &[(&str, &str)], offset: i64) {
    small_index::put(index, disk, properties, (offset, 10 * offset));
}

#[test]
fn test_the_first_record_of_the_log_is_indexed_with_its_id_and_keys_and_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    let properties = [("UNIQ_KEY", "id"), ("KEYS", " a  b ")];
    for _ in 0..2 {
        put(&index, &disk, &properties, 0);
        for key in ["id", "a", "b"] {
            assert_eq!(found(&index, key), [0], "{key}");
        }
    }
    put(&index, &disk, &[("UNIQ_KEY", ""), ("KEYS", "c")], 100);
    assert!(found(&index, "").is_empty(), "an empty id is none");
    assert_eq!(index.state()[0].1.count, 5, "four entries");
}

#[test]
fn test_a_reader_takes_up_files_that_came_and_lets_go_of_those_that_went_or_were_replaced() {
    let (dir, other) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let disk = CountingDisk::default();
    let owner = index(dir.path(), &disk);
    let reader = Index::open(dir.path(), SHAPE, false, &disk).expect("opened");
    put(&owner, &disk, &[("KEYS", "a")], 100);
    assert!(found(&reader, "a").is_empty());
    reader.refresh().expect("listed");
    assert_eq!(found(&reader, "a"), [100]);
    put(&owner, &disk, &[("KEYS", "b c d e f")], 200);
    reader.refresh().expect("listed");
    assert_eq!(
        (found(&reader, "a"), found(&reader, "f")),
        (vec![100], vec![200])
    );
    // Another file under the first one's name.
    let another = index(other.path(), &disk);
    put(&another, &disk, &[("KEYS", "x")], 100);
    let name = &owner.state()[0].0;
    fs::rename(
        other.path().join(&another.state()[0].0),
        dir.path().join(name),
    )
    .expect("replaced");
    reader.refresh().expect("listed");
    assert_eq!(
        (found(&reader, "a"), found(&reader, "x")),
        (vec![], vec![100])
    );
    assert_eq!(found(&reader, "f"), [200]);
    for path in owner.expire(201) {
        fs::remove_file(path).expect("removed");
    }
    reader.refresh().expect("listed");
    assert!(found(&reader, "x").is_empty());
    assert_eq!(found(&reader, "f"), [200]);
}

#[test]
fn test_an_index_that_is_given_up_is_deleted_for_good_and_what_is_kept_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let index = index(dir.path(), &disk);
    put(&index, &disk, &[("KEYS", "a b c d e f")], 100);
    index.sync(&disk).expect("synced");
    let directories = disk.directories.load(Ordering::SeqCst);
    index.remove_given_up(&disk).expect("nothing to do");
    assert_eq!(disk.directories.load(Ordering::SeqCst), directories);
    assert_eq!(fs::read_dir(dir.path()).expect("files").count(), 2);
    index.clear();
    assert!(found(&index, "a").is_empty() && index.state().is_empty());
    index.remove_given_up(&disk).expect("removed");
    assert_eq!(fs::read_dir(dir.path()).expect("files").count(), 0);
    assert_eq!(disk.directories.load(Ordering::SeqCst), directories + 1);
    // It is built anew from the first record on.
    put(&index, &disk, &[("KEYS", "a")], 100);
    assert_eq!(found(&index, "a"), [100]);
}

/// Contract: a full file is never written again, so that a start has the last alone to take back, and only where it
/// cannot trust what stands there.
#[test]
fn test_a_start_after_a_clean_stop_writes_to_no_index_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = CountingDisk::default();
    let owner = index(dir.path(), &disk);
    put(&owner, &disk, &[("KEYS", "a b c d e f")], 100);
    owner.sync(&disk).expect("synced");
    let state = owner.state();
    for (trusted, changed) in [(true, 0), (false, 1)] {
        let again = index(dir.path(), &disk);
        again.sync(&disk).expect("synced");
        let syncs = disk.syncs();
        let missing = again.restore(&state, trusted, 0, &disk).expect("restored");
        assert_eq!((missing, again.state()), (None, state.clone()));
        again.sync(&disk).expect("synced");
        assert_eq!(disk.syncs(), syncs + changed, "trusted: {trusted}");
    }
}
