//! A consume queue where it begins, begins anew, or is filled and synced from its first entry on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemq_store::consumequeue::{ENTRY_BYTES, Entry, Queue, QueueFiles, QueueTable, Staged};
use lakemq_store::environment::Disk;

use crate::records::CountingDisk;

/// Entries of a file, and bytes of each record.
const FILE: u64 = 10;
const SIZE: i64 = 1000;

struct Bench {
    _dir: tempfile::TempDir,
    disk: Arc<CountingDisk>,
    table: QueueTable,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(CountingDisk::default());
        let files = QueueFiles::owned(
            &dir.path().join("consumequeue"),
            FILE * ENTRY_BYTES as u64,
            &dir.path().join("trash"),
            Arc::clone(&disk) as Arc<dyn Disk>,
        );
        let table = QueueTable::new(Arc::new(files));
        Self {
            _dir: dir,
            disk,
            table,
        }
    }

    fn queue(&self) -> Arc<Queue> {
        self.table.get_or_create("t", 0)
    }
}

fn entry(offset: i64) -> Entry {
    Entry {
        physical_offset: offset * SIZE,
        size: SIZE as i32,
        tags_code: 7,
    }
}

fn put(queue: &Queue, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        let staged = queue.stage(offset, entry(offset), |from, to| (from, to));
        staged.expect("staged");
    }
    queue.flush().expect("disk space");
}

#[test]
fn test_a_tombstone_is_no_message_and_no_blank_however_much_of_the_log_is_damaged() {
    assert!(!entry(0).is_tombstone() && !Entry::BLANK.is_tombstone());
    for (from, to) in [(0, 1 << 40), (0, i64::from(i32::MAX)), (5, 5), (9, 5)] {
        let found = Entry::decode(&Entry::tombstone(from, to).encode()).expect("an entry");
        assert!(found.is_tombstone() && !found.is_blank(), "{from} to {to}");
        assert!(found.end() > from, "{from} to {to}");
    }
}

/// Contract: there is no gap to be filled before the first message that a queue still has.
#[test]
fn test_a_queue_all_of_whose_messages_have_expired_begins_at_the_next_one() {
    let bench = Bench::new();
    let queue = bench.queue();
    put(&queue, 0..5);
    queue.set_bounds(5, 5);
    let staged = queue.stage(8, entry(8), |_, _| panic!("nothing is damaged"));
    assert_eq!(staged.expect("staged"), Staged::First);
    queue.flush().expect("disk space");
    assert_eq!((queue.min_offset(), queue.max_offset()), (8, 9));
    assert_eq!(queue.log_start(), 8 * SIZE);
}

#[test]
fn test_tombstones_reach_to_the_end_that_is_wanted_and_no_further() {
    for begin in [0, 1, 2, 7] {
        let bench = Bench::new();
        let queue = bench.queue();
        put(&queue, 0..begin);
        queue.fill(23, 100, 200).expect("disk space");
        assert_eq!(queue.max_offset(), 23, "from {begin}");
        let tombstone = Entry::tombstone(100, 200);
        for offset in 0..25 {
            let wanted = match offset {
                at if at < begin => Some(entry(at)),
                23.. => None,
                _ => Some(tombstone),
            };
            let found = queue.entry(offset).expect("readable");
            assert_eq!(found, wanted, "{offset} from {begin}");
        }
        queue.fill(20, 300, 400).expect("nothing to do");
        assert_eq!(queue.max_offset(), 23);
    }
}

#[test]
fn test_what_a_failed_sync_was_about_is_written_again_from_wherever_it_begins() {
    for begin in [0, 1, 9] {
        let bench = Bench::new();
        let queue = bench.queue();
        put(&queue, 0..begin);
        queue.sync().expect("synced");
        put(&queue, begin..15);
        bench.disk.take_writes();
        bench.disk.fail_sync.store(true, Ordering::SeqCst);
        queue.sync().expect_err("injected");
        let written = bench.disk.take_writes();
        let bytes: usize = written.iter().map(|(_, length)| length).sum();
        assert_eq!(bytes, (15 - begin) as usize * ENTRY_BYTES, "from {begin}");
        assert_eq!(queue.dirty_from(), Some(begin * SIZE));
    }
}

#[test]
fn test_after_one_sync_for_many_queues_none_of_them_waits_for_another() {
    let bench = Bench::new();
    let queues: Vec<_> = (0..65)
        .map(|queue_id| {
            let queue = bench.table.get_or_create("t", queue_id);
            put(&queue, 0..2);
            bench.table.note_dirty(Arc::clone(&queue));
            queue
        })
        .collect();
    assert_eq!(bench.table.durable_offset(900), 0);
    bench.table.sync_all().expect("synced");
    assert_eq!(bench.table.durable_offset(900), 900);
    assert!(queues.iter().all(|queue| queue.dirty_from().is_none()));
    assert_eq!(bench.disk.syncs(), 0, "of the file system, not of each");
    // The next round's are few: one by one.
    for queue in &queues[..64] {
        put(queue, 2..3);
        bench.table.note_dirty(Arc::clone(queue));
    }
    assert_eq!(bench.table.durable_offset(9000), 2 * SIZE);
    bench.table.sync_all().expect("synced");
    assert_eq!(bench.disk.syncs(), 64);
}

#[test]
fn test_a_table_takes_up_the_queues_that_stand_there_and_lets_them_go() {
    let bench = Bench::new();
    for (topic, queue_id) in [("t", 0), ("t", 2), ("u", 1)] {
        put(&bench.table.get_or_create(topic, queue_id), 0..2);
    }
    let ids = |topic| -> Vec<u32> {
        let queues = bench.table.of_topic(topic).into_iter();
        queues.map(|(id, _)| id).collect()
    };
    assert!(bench.table.store().open_files() > 0);
    bench.table.forget_all();
    assert!(bench.table.all().is_empty() && bench.table.get("t", 0).is_none());
    assert_eq!(bench.table.store().open_files(), 0);
    bench.table.load_topic("u").expect("listed");
    assert_eq!((ids("t"), ids("u")), (vec![], vec![1]));
    bench.table.load_all().expect("listed");
    assert_eq!((ids("t"), ids("u")), (vec![0, 2], vec![1]));
}

#[test]
fn test_a_topic_that_is_removed_keeps_no_snapshot_back_and_the_others_do() {
    let bench = Bench::new();
    let (gone, stays) = (
        bench.table.get_or_create("gone", 0),
        bench.table.get_or_create("stays", 0),
    );
    put(&gone, 0..1);
    put(&stays, 3..4);
    // A start collects what it found not to be on the disk.
    bench.table.collect_dirty();
    assert_eq!(bench.table.durable_offset(9000), 0);
    bench.table.remove_topic("gone").expect("removed");
    assert_eq!(bench.table.durable_offset(9000), 3 * SIZE);
    bench.table.sync_all().expect("synced");
    bench.table.collect_dirty();
    assert_eq!(bench.table.durable_offset(9000), 9000);
}

/// Contract: a reader that has no owner to ask finds the end behind what it knew, however far it is.
#[test]
fn test_a_reader_finds_the_end_of_a_queue_near_and_far() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(CountingDisk::default());
    let bytes = 1000 * ENTRY_BYTES as u64;
    let root = dir.path().join("consumequeue");
    let trash = dir.path().join("trash");
    let owned = QueueFiles::owned(&root, bytes, &trash, disk as Arc<dyn Disk>);
    let owned = QueueTable::new(Arc::new(owned)).get_or_create("t", 0);
    let reading = QueueTable::new(Arc::new(QueueFiles::for_reading(&root, bytes)));
    let reader = reading.get_or_create("t", 0);
    assert_eq!(reader.bounds_on_disk(0, i64::MAX).expect("listed"), (0, 0));
    let mut end = 0;
    // Up to 256 entries are looked at behind a known end; more are searched for, in other files too.
    for more in [1, 2, 255, 256, 257, 700, 1, 2000] {
        put(&owned, end..end + more);
        end += more;
        let found = reader.bounds_on_disk(0, i64::MAX).expect("readable");
        assert_eq!(found, (0, end), "{more} more");
        assert_eq!((reader.min_offset(), reader.max_offset()), (0, end));
        let limit = (end - 1) * SIZE + SIZE - 1;
        let anew = QueueTable::new(Arc::new(QueueFiles::for_reading(&root, bytes)));
        let anew = anew.get_or_create("t", 0);
        let found = anew.bounds_on_disk(0, limit).expect("readable");
        assert_eq!(
            found,
            (0, end - 1),
            "the last of {end} ends behind the limit"
        );
    }
    let found = reader.bounds_on_disk(1500 * SIZE, i64::MAX);
    assert_eq!(found.expect("readable"), (1500, end));
}
