//! A consume queue over its files: bounds, gaps, cuts, what is synced, and what expires.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemq_store::consumequeue::files::found_file_bytes;
use lakemq_store::consumequeue::{
    ENTRY_BYTES, Entry, Queue, QueueFiles, QueueKey, QueueStore, QueueTable, Staged, TailState,
};
use lakemq_store::environment::{Disk, RealDisk};

use crate::records::CountingDisk;

/// Entries of a file.
const FILE: i64 = 10;
pub const BYTES: u64 = FILE as u64 * ENTRY_BYTES as u64;
/// Bytes of each record.
pub const SIZE: i64 = 100;

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub disk: Arc<CountingDisk>,
    pub queue: Queue,
}

impl Bench {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(CountingDisk::default());
        let queue = opened(dir.path(), &disk);
        Self { dir, disk, queue }
    }

    pub fn file(&self, base: i64) -> PathBuf {
        let name = format!("{:020}", base * ENTRY_BYTES as i64);
        self.dir.path().join("consumequeue/t/0").join(name)
    }

    /// Entries as the file has them.
    pub fn stored(&self, base: i64) -> Vec<Option<Entry>> {
        let bytes = fs::read(self.file(base)).expect("a file");
        bytes.chunks_exact(ENTRY_BYTES).map(Entry::decode).collect()
    }

    /// A reader's view of the same files.
    pub fn reader(&self) -> Queue {
        let files = QueueFiles::for_reading(&self.dir.path().join("consumequeue"), BYTES);
        Queue::new(key(), Arc::new(files))
    }
}

pub fn key() -> QueueKey {
    QueueKey {
        topic: "t".into(),
        queue_id: 0,
        serial: 1,
    }
}

fn opened(root: &Path, disk: &Arc<CountingDisk>) -> Queue {
    Queue::new(key(), Arc::new(files(root, disk)))
}

fn files(root: &Path, disk: &Arc<CountingDisk>) -> QueueFiles {
    let (directory, trash) = (root.join("consumequeue"), root.join("trash"));
    QueueFiles::owned(&directory, BYTES, &trash, Arc::clone(disk) as Arc<dyn Disk>)
}

/// The entry of the message at `offset`: one record of the log each.
pub fn entry(offset: i64) -> Entry {
    Entry {
        physical_offset: offset * SIZE,
        size: SIZE as i32,
        tags_code: 7,
    }
}

pub fn put(queue: &Queue, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        queue
            .stage(offset, entry(offset), |from, to| (from, to))
            .expect("staged");
    }
    queue.flush().expect("disk space");
}

#[test]
fn test_a_queue_that_begins_late_has_blanks_before_its_first_entry_in_that_file_alone() {
    let bench = Bench::new();
    put(&bench.queue, 13..25);
    assert_eq!(
        (bench.queue.min_offset(), bench.queue.max_offset()),
        (13, 25)
    );
    assert_eq!(bench.queue.log_start(), 13 * SIZE);
    let first = bench.stored(10);
    assert!(first[..3].iter().all(|e| e.is_some_and(|e| e.is_blank())));
    assert_eq!(first[3], Some(entry(13)));
    let second = bench.stored(20);
    assert_eq!(second[0], Some(entry(20)));
    assert_eq!(second[4], Some(entry(24)));
    assert!(second[5..].iter().all(Option::is_none));
    assert!(!bench.file(0).exists());
    for file in [10, 20] {
        assert_eq!(fs::metadata(bench.file(file)).expect("a file").len(), BYTES);
    }
    // Whoever has no owner to ask finds the same.
    assert_eq!(
        bench
            .reader()
            .bounds_on_disk(0, i64::MAX)
            .expect("readable"),
        (13, 25)
    );
}

#[test]
fn test_bounds_count_blanks_as_places_and_nothing_behind_the_limit_or_before_the_log() {
    let bench = Bench::new();
    put(&bench.queue, 3..25);
    let bounds = |log_min, limit| {
        bench
            .reader()
            .bounds_on_disk(log_min, limit)
            .expect("readable")
    };
    assert_eq!(bounds(0, 25 * SIZE), (3, 25));
    assert_eq!(
        bounds(0, 25 * SIZE - 1),
        (3, 24),
        "the last one ends behind it"
    );
    assert_eq!(
        bounds(3 * SIZE, 25 * SIZE),
        (3, 25),
        "at the log's beginning"
    );
    assert_eq!(bounds(3 * SIZE + 1, 25 * SIZE), (4, 25));
    assert_eq!(bounds(17 * SIZE, 20 * SIZE), (17, 20));
    assert_eq!(bounds(25 * SIZE, 25 * SIZE), (25, 25), "all of it expired");
    let reader = bench.reader();
    reader.set_bounds(3, 10);
    assert_eq!(
        reader.bounds_on_disk(0, 25 * SIZE).expect("readable"),
        (3, 25),
        "from what was known"
    );
    let first = |log_min, min, max| {
        reader
            .first_at_or_behind(log_min, min, max)
            .expect("readable")
    };
    assert_eq!(first(0, 0, 25), 3, "a blank is no message");
    assert_eq!(first(5 * SIZE, 3, 25), 5);
    assert_eq!(first(5 * SIZE, 7, 25), 7);
    assert_eq!(first(90 * SIZE, 3, 25), 25);
    assert_eq!(first(0, 25, 25), 25);
}

#[test]
fn test_an_entry_that_is_in_changes_nothing_and_a_gap_is_filled_only_where_records_fit() {
    let bench = Bench::new();
    let queue = &bench.queue;
    let stage = |offset, entry| {
        queue
            .stage(offset, entry, |from, to| (from + 5, to - 5))
            .expect("staged")
    };
    assert_eq!(stage(0, entry(0)), Staged::First);
    assert_eq!(stage(1, entry(1)), Staged::Next);
    assert_eq!(stage(1, entry(9)), Staged::Known);
    queue.flush().expect("disk space");
    assert_eq!(stage(1, entry(9)), Staged::Known);
    // Between 200 and 473 there is more for three records of 91 bytes and no more.
    let late = |more: i64| Entry {
        physical_offset: 200 + more,
        ..entry(0)
    };
    assert_eq!(stage(5, late(3 * 91 - 1)), Staged::Impossible);
    assert_eq!(stage(5, late(3 * 91)), Staged::First);
    assert_eq!(stage(6, late(3 * 91 + 100)), Staged::Next);
    // Behind what is staged there is no room.
    assert_eq!(stage(8, late(3 * 91 + 200)), Staged::Impossible);
    queue.flush().expect("disk space");
    assert_eq!(queue.max_offset(), 7);
    for offset in 2..5 {
        let found = queue.entry(offset).expect("readable").expect("a tombstone");
        assert!(found.is_tombstone());
        assert_eq!(
            (found.physical_offset, found.end()),
            (205, 200 + 3 * 91 - 5),
            "the damaged range"
        );
    }
    assert_eq!(queue.entry(5).expect("readable"), Some(late(3 * 91)));
    assert_eq!(queue.entry(1).expect("readable"), Some(entry(1)));
}

#[test]
fn test_a_walk_gives_what_stands_between_its_ends_and_stops_when_it_is_told() {
    let bench = Bench::new();
    put(&bench.queue, 0..95);
    let walk = |from, end, last: i64| {
        let mut seen = Vec::new();
        let each = |offset, found: Entry| {
            assert_eq!(found, entry(offset));
            seen.push(offset);
            Ok(offset < last)
        };
        bench.queue.walk(from, end, each).expect("readable");
        seen
    };
    assert_eq!(walk(3, 7, 99), [3, 4, 5, 6]);
    assert_eq!(walk(8, 30, 11), [8, 9, 10, 11]);
    assert_eq!(walk(0, 95, 99), (0..95).collect::<Vec<_>>());
    assert_eq!(
        walk(93, 200, 999),
        [93, 94],
        "no further than there are entries"
    );
    assert!(walk(5, 5, 99).is_empty() && walk(7, 5, 99).is_empty());
}

#[test]
fn test_a_cut_clears_every_place_behind_it_and_leaves_those_before_it() {
    for cut in [0, 1, 9, 10, 11, 20, 24] {
        let bench = Bench::new();
        put(&bench.queue, 0..25);
        bench.queue.truncate(cut).expect("cut");
        for offset in 0..30 {
            let wanted = (offset < cut).then(|| entry(offset));
            assert_eq!(
                bench.queue.entry(offset).expect("readable"),
                wanted,
                "{offset} of {cut}"
            );
        }
        for base in [0, 10, 20] {
            assert_eq!(
                bench.file(base).exists(),
                base < cut,
                "the file at {base}, cut at {cut}"
            );
            if base < cut {
                assert_eq!(fs::metadata(bench.file(base)).expect("a file").len(), BYTES);
            }
        }
    }
    let bench = Bench::new();
    put(&bench.queue, 0..8);
    let before = fs::metadata(bench.file(0))
        .expect("a file")
        .modified()
        .expect("a time");
    bench.queue.truncate(8).expect("cut");
    let after = fs::metadata(bench.file(0))
        .expect("a file")
        .modified()
        .expect("a time");
    assert_eq!(before, after, "what is right is left alone");
    // A file of another length than it must have gets it back.
    let short = fs::OpenOptions::new()
        .write(true)
        .open(bench.file(0))
        .expect("a file");
    short.set_len(BYTES - 1).expect("shorter");
    bench.queue.truncate(8).expect("cut");
    assert_eq!(short.metadata().expect("a file").len(), BYTES);
}

#[test]
fn test_a_sync_brings_what_was_stored_since_the_last_one_to_the_disk_and_tells_how_far() {
    let bench = Bench::new();
    let queue = &bench.queue;
    assert_eq!(queue.dirty_from(), None);
    queue.sync().expect("nothing to do");
    assert_eq!(bench.disk.syncs(), 0);
    put(queue, 5..8);
    assert_eq!(queue.dirty_from(), Some(5 * SIZE));
    put(queue, 8..23);
    assert_eq!(queue.dirty_from(), Some(5 * SIZE), "the first");
    queue.sync().expect("synced");
    assert_eq!(
        (bench.disk.syncs(), queue.dirty_from()),
        (3, None),
        "three files"
    );
    put(queue, 23..24);
    queue.sync().expect("synced");
    assert_eq!(bench.disk.syncs(), 4, "only the last file");
    put(queue, 24..35);
    bench.disk.take_writes();
    bench.disk.fail_sync.store(true, Ordering::SeqCst);
    queue.sync().expect_err("injected");
    assert_eq!(
        queue.dirty_from(),
        Some(24 * SIZE),
        "it is to be synced again"
    );
    let written: usize = bench
        .disk
        .take_writes()
        .iter()
        .map(|(_, length)| length)
        .sum();
    assert_eq!(written, 11 * ENTRY_BYTES, "and was written again");
    assert_eq!(queue.entry(34).expect("readable"), Some(entry(34)));
    bench.disk.fail_sync.store(false, Ordering::SeqCst);
    queue.sync().expect("synced");
    assert_eq!((bench.disk.syncs(), queue.dirty_from()), (6, None));
}

#[test]
fn test_files_go_when_all_their_entries_have_expired() {
    let bench = Bench::new();
    put(&bench.queue, 0..35);
    assert!(!bench.queue.raise_min(0).expect("readable"));
    assert!(bench.queue.raise_min(19 * SIZE).expect("readable"));
    assert_eq!(bench.queue.min_offset(), 19);
    assert_eq!(bench.queue.drop_expired().expect("removed"), 1);
    assert!(!bench.file(0).exists() && bench.file(10).exists());
    assert!(bench.queue.raise_min(20 * SIZE).expect("readable"));
    assert!(
        bench.queue.log_start() >= 20 * SIZE,
        "a repair need not read before it"
    );
    assert_eq!(bench.queue.drop_expired().expect("removed"), 1);
    assert!(!bench.file(10).exists() && bench.file(20).exists());
    assert_eq!(bench.queue.entry(20).expect("readable"), Some(entry(20)));
}

#[test]
fn test_what_was_flushed_before_a_power_cut_is_trusted_and_the_rest_is_looked_at() {
    let bench = Bench::new();
    put(&bench.queue, 0..25);
    let standing = |durable: i64, applied: i64| {
        let queue = opened(bench.dir.path(), &bench.disk);
        queue.set_bounds(0, 25);
        queue.set_log_start(0);
        queue
            .tail_state(durable * SIZE, applied * SIZE, |_, _| Some(true))
            .expect("readable")
    };
    let until = |offset: i64| TailState::CutAt {
        offset,
        log_offset: offset * SIZE,
    };
    assert_eq!(standing(25, 25), TailState::Whole);
    assert_eq!(standing(0, 25), TailState::Whole);
    assert_eq!(
        standing(10, 24),
        until(24),
        "the last of them lies behind what was applied"
    );
    // A place that was lost with the power.
    let mut bytes = fs::read(bench.file(20)).expect("a file");
    bytes[2 * ENTRY_BYTES..3 * ENTRY_BYTES].fill(0);
    fs::write(bench.file(20), &bytes).expect("written");
    assert_eq!(
        standing(25, 25),
        TailState::Whole,
        "it counts as on the disk"
    );
    assert_eq!(standing(10, 25), until(22));
    assert_eq!(standing(22, 25), until(22));
    // Entries that go back in the log are none of this queue's.
    bytes[2 * ENTRY_BYTES..3 * ENTRY_BYTES].copy_from_slice(&entry(5).encode());
    fs::write(bench.file(20), &bytes).expect("written");
    assert_eq!(standing(10, 25), until(22));
    fs::remove_file(bench.file(10)).expect("removed");
    assert_eq!(standing(25, 25), until(10), "a file is missing");
    let queue = opened(bench.dir.path(), &bench.disk);
    assert_eq!(
        queue.tail_state(0, 0, |_, _| None).expect("readable"),
        TailState::Whole,
        "of a queue without entries"
    );
}

#[test]
fn test_entries_that_may_not_be_on_the_disk_bound_what_a_snapshot_says_of_queues() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(CountingDisk::default());
    let table = QueueTable::new(Arc::new(files(dir.path(), &disk)));
    assert_eq!(table.durable_offset(900), 900);
    for queue_id in [0, 1, 5] {
        let queue = table.get_or_create("t", queue_id);
        put(&queue, i64::from(queue_id) + 3..9);
        table.note_dirty(queue);
    }
    assert_eq!(table.durable_offset(900), 3 * SIZE, "the lowest of them");
    table.sync_some(|| false).expect("synced");
    assert_eq!(
        table.durable_offset(900),
        4 * SIZE,
        "one at least, the one that waits longest"
    );
    disk.fail_sync.store(true, Ordering::SeqCst);
    table.sync_all().expect_err("injected");
    assert_eq!(table.durable_offset(900), 4 * SIZE);
    disk.fail_sync.store(false, Ordering::SeqCst);
    table.sync_all().expect("synced");
    assert_eq!(table.durable_offset(900), 900);
    let ids: Vec<u32> = table.of_topic("t").into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [0, 1, 5]);
    let before = table.get("t", 1).expect("a queue");
    table.note_dirty(Arc::clone(&before));
    table.remove_topic("t").expect("removed");
    assert!(table.get("t", 1).is_none() && table.of_topic("t").is_empty());
    assert!(!dir.path().join("consumequeue/t").exists());
    assert_eq!(
        table.get_or_create("t", 1).max_offset(),
        0,
        "made again it is another queue"
    );
}

#[test]
fn test_storage_is_made_where_it_begins_and_is_found_by_whoever_looks() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(CountingDisk::default());
    let store = files(dir.path(), &disk);
    for (from, to, begins) in [
        (3, 3, false),
        (0, 1, true),
        (10, 11, true),
        (1, 10, false),
        (9, 10, false),
        (1, 11, true),
        (19, 21, true),
    ] {
        assert_eq!(store.begins_storage(from, to), begins, "{from} to {to}");
    }
    let directory = dir.path().join("consumequeue");
    assert_eq!(
        found_file_bytes(&directory, &RealDisk).expect("listed"),
        None
    );
    assert_eq!(store.extent(&key()).expect("readable"), None);
    store.reserve(&key(), 15, 41).expect("disk space");
    let names = || {
        let listed = fs::read_dir(directory.join("t/0")).expect("files");
        let mut names: Vec<_> = listed
            .map(|file| file.expect("a file").file_name())
            .collect();
        names.sort();
        names
    };
    let wanted: Vec<_> = [10, 20, 30, 40]
        .map(|base| std::ffi::OsString::from(format!("{:020}", base * ENTRY_BYTES)))
        .into();
    assert_eq!(names(), wanted);
    assert_eq!(
        found_file_bytes(&directory, &RealDisk).expect("listed"),
        Some(BYTES)
    );
    assert_eq!(store.extent(&key()).expect("readable"), Some((10, 50)));
    let intact = |from, to| store.intact_until(&key(), from, to).expect("readable");
    assert_eq!(
        (intact(10, 50), intact(12, 45), intact(50, 50)),
        (50, 45, 50)
    );
    assert_eq!(intact(10, 51), 50, "there is no such file");
    assert_eq!(intact(5, 50), 5);
    for name in ["65535", "65536", "no number"] {
        fs::create_dir_all(directory.join("t").join(name)).expect("a directory");
    }
    assert_eq!(store.queues("t").expect("listed"), [0, 65_535]);
    assert_eq!(store.topics().expect("listed"), ["t"]);
    let mut out = [7; 3 * ENTRY_BYTES];
    assert_eq!(
        store.read(&key(), 48, &mut out).expect("readable"),
        2,
        "up to the file's end"
    );
    assert_eq!(store.read(&key(), 50, &mut out).expect("readable"), 0);
    assert_eq!(store.read(&key(), -1, &mut out).expect("readable"), 0);
    // What was removed before and not swept yet is in nobody's way.
    for _ in 0..2 {
        fs::create_dir_all(directory.join("u/0")).expect("a directory");
        store.remove_topic("u").expect("removed");
    }
    store.remove_topic("u").expect("it is gone");
    assert_eq!(
        fs::read_dir(dir.path().join("trash"))
            .expect("a directory")
            .count(),
        2
    );
    store.sweep();
    assert_eq!(
        fs::read_dir(dir.path().join("trash"))
            .expect("a directory")
            .count(),
        0
    );
}

#[test]
fn test_room_is_wanted_for_the_first_entries_and_those_that_reach_another_file() {
    let bench = Bench::new();
    let queue = &bench.queue;
    let stage = |offset| {
        queue
            .stage(offset, entry(offset), |from, to| (from, to))
            .expect("staged");
    };
    assert!(!queue.wants_reserve());
    stage(3);
    assert!(queue.wants_reserve());
    queue.reserve().expect("disk space");
    assert!(bench.file(0).exists());
    queue.flush().expect("stored");
    stage(4);
    assert!(!queue.wants_reserve());
    queue.unstage();
    assert!(!queue.flush().expect("nothing to do"));
    assert_eq!(queue.max_offset(), 4, "it was not staged any more");
    (4..11).for_each(stage);
    assert!(queue.wants_reserve());
    queue.reserve().expect("disk space");
    assert!(bench.file(10).exists());
    queue.flush().expect("stored");
    assert_eq!(queue.max_offset(), 11);
    queue.fill(18, 5000, 6000).expect("disk space");
    assert_eq!(queue.max_offset(), 18);
    for offset in 11..18 {
        let found = queue.entry(offset).expect("readable").expect("a tombstone");
        assert_eq!(
            (found.is_tombstone(), found.physical_offset, found.end()),
            (true, 5000, 6000)
        );
    }
    assert_eq!(queue.entry(18).expect("readable"), None);
}
