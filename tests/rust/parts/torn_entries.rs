//! Entries of a consume queue that lie over two sectors of a disk that lost its power.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lakemq_store::consumequeue::{
    ENTRY_BYTES, Entry, Queue, QueueFiles, QueueKey, QueueStore, TailState,
};
use lakemq_store::environment::RealDisk;

/// Bytes of each record.
const SIZE: i64 = 100;

fn opened(root: &Path) -> Queue {
    let key = QueueKey {
        topic: "t".into(),
        queue_id: 0,
        serial: 1,
    };
    let (directory, trash) = (root.join("consumequeue"), root.join("trash"));
    let bytes = 200 * ENTRY_BYTES as u64;
    let files = QueueFiles::owned(&directory, bytes, &trash, Arc::new(RealDisk));
    Queue::new(key, Arc::new(files))
}

/// The entry of the message at `offset`: one record of the log each.
fn entry(offset: i64) -> Entry {
    Entry {
        physical_offset: offset * SIZE,
        size: SIZE as i32,
        tags_code: 7,
    }
}

/// Entries 25 and 51 lie over two sectors with a part of their tags in the second, 76 and 102 with a part of their log
/// offset in the first: what stands there may not be what was written.
#[test]
fn test_of_an_entry_over_two_sectors_the_log_says_whether_it_is_the_one_that_was_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let queue = opened(dir.path());
    for offset in 0..110 {
        let staged = queue.stage(offset, entry(offset), |from, to| (from, to));
        staged.expect("staged");
    }
    queue.flush().expect("disk space");
    let file = dir.path().join("consumequeue/t/0/00000000000000000000");
    let whole = fs::read(&file).expect("a file");
    let tail_state = |durable: i64, in_log: Option<bool>| {
        let queue = opened(dir.path());
        queue.set_bounds(0, 103);
        queue.set_log_start(0);
        queue
            .tail_state(durable * SIZE, 103 * SIZE, |offset, at| {
                assert!([25, 51, 76, 102].contains(&offset), "{offset}");
                in_log.map(|in_log| (in_log || offset < 102) && at.physical_offset == offset * SIZE)
            })
            .expect("readable")
    };
    let until = |offset: i64| TailState::CutAt {
        offset,
        log_offset: offset * SIZE,
    };
    for in_log in [Some(true), None] {
        assert_eq!(tail_state(103, in_log), TailState::Whole);
        let mut bytes = whole.clone();
        bytes[102 * ENTRY_BYTES..102 * ENTRY_BYTES + 8].fill(0);
        fs::write(&file, &bytes).expect("written");
        assert_eq!(tail_state(102, in_log), until(102));
        assert_eq!(tail_state(60, in_log), until(102));
        fs::write(&file, &whole).expect("written");
    }
    assert_eq!(tail_state(102, Some(false)), until(102), "it is another's");
    // A record that is damaged has nobody else to speak for its tombstone.
    let tombstone = Entry::tombstone(102 * SIZE, 103 * SIZE).encode();
    let mut bytes = whole.clone();
    bytes[102 * ENTRY_BYTES..103 * ENTRY_BYTES].copy_from_slice(&tombstone);
    fs::write(&file, &bytes).expect("written");
    assert_eq!(tail_state(103, Some(false)), TailState::Whole);
    bytes[102 * ENTRY_BYTES..102 * ENTRY_BYTES + 8].fill(0);
    fs::write(&file, &bytes).expect("written");
    assert_eq!(tail_state(102, Some(false)), until(102));
}

#[test]
fn test_only_an_entry_that_lies_over_two_sectors_can_be_torn() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = QueueFiles::for_reading(dir.path(), 200 * ENTRY_BYTES as u64);
    let torn = (0..200).filter(|offset| files.can_be_torn(*offset));
    // Entry 127 ends with the fifth sector.
    assert_eq!(torn.collect::<Vec<_>>(), [25, 51, 76, 102, 153, 179]);
    let second_file = (200..328).filter(|offset| files.can_be_torn(*offset));
    assert_eq!(second_file.collect::<Vec<_>>(), [225, 251, 276, 302]);
}
