//! The places of a queue that tell its bounds where no entry lies: before its first one, and at an empty queue's end.
//!
//! Contract: whatever a power cut took of them, a start has them written and synced, and leaves every entry as it is.

use std::fs;
use std::sync::Arc;

use lakemq_store::consumequeue::{ENTRY_BYTES, Queue, QueueFiles};

use crate::queue_files::{BYTES, Bench, SIZE, key, put};
use crate::records::CountingDisk;

#[test]
fn test_places_before_the_first_entry_that_were_lost_are_blank_again() {
    let bench = Bench::new();
    put(&bench.queue, 14..25);
    let whole = bench.stored(10);
    let mut bytes = fs::read(bench.file(10)).expect("a file");
    bytes[ENTRY_BYTES..3 * ENTRY_BYTES].fill(0);
    fs::write(bench.file(10), bytes).expect("written");
    bench.queue.sync().expect("synced");
    let before = bench.disk.syncs();
    bench.queue.blank_front(9).expect("mended");
    assert_eq!(bench.stored(10), whole);
    assert_eq!(bench.queue.dirty_from(), Some(9));
    bench.queue.sync().expect("synced");
    assert!(bench.disk.syncs() > before, "they are on the disk");
    bench.queue.blank_front(9).expect("whole");
    assert_eq!(bench.stored(10), whole);
    assert_eq!(bench.queue.dirty_from(), None, "nothing was written");
}

#[test]
fn test_lost_places_are_blank_again_however_many_they_are() {
    const PLACES: i64 = 10_000;
    let dir = tempfile::tempdir().expect("a directory");
    let (directory, trash) = (dir.path().join("consumequeue"), dir.path().join("trash"));
    let bytes = PLACES * ENTRY_BYTES as i64;
    let disk = Arc::new(CountingDisk::default());
    let files = QueueFiles::owned(&directory, bytes as u64, &trash, disk);
    let queue = Queue::new(key(), Arc::new(files));
    put(&queue, PLACES - 2..PLACES);
    let path = directory.join("t/0").join(format!("{:020}", 0));
    let whole = fs::read(&path).expect("a file");
    let mut lost = vec![0; whole.len() - 2 * ENTRY_BYTES];
    lost.extend_from_slice(&whole[whole.len() - 2 * ENTRY_BYTES..]);
    fs::write(&path, lost).expect("written");
    queue.blank_front(0).expect("mended");
    assert!(
        fs::read(&path).expect("a file") == whole,
        "each of {PLACES} places"
    );
}

#[test]
fn test_an_expired_file_that_came_back_does_not_hide_places_behind_a_gap() {
    let bench = Bench::new();
    put(&bench.queue, 34..36);
    let whole = bench.stored(30);
    fs::write(bench.file(0), vec![0; BYTES as usize]).expect("written");
    let mut bytes = fs::read(bench.file(30)).expect("a file");
    bytes[..3 * ENTRY_BYTES].fill(0);
    fs::write(bench.file(30), bytes).expect("written");
    bench.queue.blank_front(0).expect("mended");
    assert!(!bench.file(0).exists(), "it had expired");
    assert_eq!(bench.stored(30), whole);
    let found = bench.reader().bounds_on_disk(0, i64::MAX);
    assert_eq!(found.expect("readable"), (34, 36));
}

#[test]
fn test_a_queue_without_an_entry_has_its_end_in_a_file_again_whatever_was_lost_of_it() {
    for end in [14, 20, 21] {
        let bench = Bench::new();
        bench.queue.set_bounds(end, end);
        let file = bench.file((end - 1) / 10 * 10);
        for lost in ["the file", "its length", "what was in it"] {
            if lost == "its length" {
                fs::write(&file, []).expect("written");
            } else if lost == "what was in it" {
                fs::write(&file, [0; BYTES as usize]).expect("written");
            }
            assert!(bench.queue.show_end(0).expect("mended"), "{lost}");
            assert!(bench.queue.dirty_from().is_some(), "{lost}");
            let before = bench.disk.syncs();
            bench.queue.sync().expect("synced");
            assert_eq!(
                bench.disk.syncs(),
                before + 1,
                "{lost}: its end is on the disk"
            );
            bench.queue.blank_front(0).expect("mended");
            assert!(!bench.queue.show_end(0).expect("shown"), "{lost}");
            let found = bench.reader().bounds_on_disk(0, i64::MAX);
            assert_eq!(found.expect("readable").1, end, "{lost}");
            assert_eq!(fs::metadata(&file).expect("a file").len(), BYTES, "{lost}");
        }
    }
}

#[test]
fn test_places_before_the_minimum_may_be_lost_unless_what_came_behind_them_is_on_the_disk() {
    let bench = Bench::new();
    let queue = &bench.queue;
    assert!(!queue.front_may_be_lost(0).expect("there is none"));
    put(queue, 14..25);
    assert!(!queue.front_may_be_lost(14 * SIZE + 1).expect("read"));
    assert!(queue.front_may_be_lost(14 * SIZE).expect("read"));
    queue.set_bounds(25, 25);
    assert!(!queue.front_may_be_lost(24 * SIZE + 1).expect("read"));
    assert!(queue.front_may_be_lost(24 * SIZE).expect("read"));
    queue.set_bounds(14, 14);
    assert!(queue.front_may_be_lost(25 * SIZE).expect("a blank"));
    queue.set_bounds(30, 30);
    assert!(queue.front_may_be_lost(25 * SIZE).expect("nothing there"));
}
