//! Files of a consume queue, as a reader beside the owner finds them and as a start does.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lakemq_store::consumequeue::{ENTRY_BYTES, Entry, Queue, QueueFiles, QueueKey, TailState};

use super::{Unsynced, scratch};

/// Bytes of a file, and how many are looked at in all: three files.
const FILE_BYTES: usize = 20 * ENTRY_BYTES;
const MOST_BYTES: usize = 3 * FILE_BYTES;

fn key() -> QueueKey {
    QueueKey {
        topic: "t".into(),
        queue_id: 0,
        serial: 1,
    }
}

/// Lays the bytes out as files that follow each other; the last has the length that is left.
fn laid_out(root: &Path, bytes: &[u8]) {
    let directory = root.join("consumequeue/t/0");
    fs::create_dir_all(&directory).expect("a directory");
    for (number, part) in bytes.chunks(FILE_BYTES).enumerate() {
        let name = format!("{:020}", number * FILE_BYTES);
        fs::write(directory.join(name), part).expect("written");
    }
}

/// Bounds lie where entries are and count none behind the limit; a walk gives what expected there; what is cut off is
/// gone, what expected before it stays, and the queue goes on.
pub fn queue(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
    let entries: Vec<Option<Entry>> = bytes.chunks_exact(ENTRY_BYTES).map(Entry::decode).collect();
    for entry in entries.iter().flatten() {
        assert_eq!(Entry::decode(&entry.encode()), Some(*entry));
    }
    let middle = entries.iter().flatten().nth(entries.len() / 2);
    let (from, to) = middle.map_or((0, i64::MAX), |entry| (entry.physical_offset, entry.end()));
    for (log_min, limit) in [(0, i64::MAX), (from, i64::MAX), (0, to), (from, to)] {
        as_a_reader(bytes, &entries, log_min, limit);
    }
    as_the_owner(bytes, from, to);
}

fn as_a_reader(bytes: &[u8], entries: &[Option<Entry>], log_min: i64, limit: i64) {
    let root = scratch("queue");
    laid_out(&root, bytes);
    let files = QueueFiles::for_reading(&root.join("consumequeue"), FILE_BYTES as u64);
    let queue = Queue::new(key(), Arc::new(files));
    let (min, max) = queue.bounds_on_disk(log_min, limit).expect("readable");
    assert!(0 <= min && min <= max && max as usize <= entries.len());
    if min < max {
        let last = entries[max as usize - 1].expect("an entry");
        assert!(last.is_blank() || last.end() <= limit);
        assert_eq!(queue.entry(max - 1).expect("readable"), Some(last));
    }
    assert_eq!(
        queue.bounds_on_disk(log_min, limit).expect("readable"),
        (min, max),
        "nothing changed"
    );
    let mut seen = Vec::new();
    queue
        .walk(min, max, |offset, entry| {
            assert_eq!(offset, min + seen.len() as i64);
            seen.push(Some(entry));
            Ok(true)
        })
        .expect("readable");
    let expected = entries[min as usize..max as usize]
        .iter()
        .take_while(|entry| entry.is_some());
    assert!(expected.copied().eq(seen.iter().copied()));
    let first = queue.first_at_or_behind(log_min, min, max);
    assert!((min..=max).contains(&first.expect("readable")));
}

fn as_the_owner(bytes: &[u8], durable: i64, applied: i64) {
    let root = scratch("queue");
    let whole = bytes.len().div_ceil(FILE_BYTES) * FILE_BYTES;
    let mut bytes = bytes.to_vec();
    bytes.resize(whole, 0);
    laid_out(&root, &bytes);
    let (directory, trash) = (root.join("consumequeue"), root.join("trash"));
    let files = QueueFiles::owned(&directory, FILE_BYTES as u64, &trash, Arc::new(Unsynced));
    let queue = Queue::new(key(), Arc::new(files));
    let places = (bytes.len() / ENTRY_BYTES) as i64;
    queue.set_bounds(0, places);
    let good = match queue
        .tail_state(durable, applied, |_, _| Some(true))
        .expect("readable")
    {
        TailState::Whole => places,
        TailState::CutAt { offset, log_offset } => {
            assert!((0..places).contains(&offset));
            assert!(offset == 0 || log_offset <= applied);
            offset
        }
    };
    queue.set_bounds(0, good);
    queue.truncate(good).expect("cut");
    for offset in 0..places {
        let at = offset as usize * ENTRY_BYTES;
        let wanted = if offset < good {
            Entry::decode(&bytes[at..])
        } else {
            None
        };
        assert_eq!(queue.entry(offset).expect("readable"), wanted);
    }
    let next = Entry {
        physical_offset: i64::MAX - 500,
        size: 91,
        tags_code: 3,
    };
    queue
        .stage(good, next, |from, to| (from, to))
        .expect("staged");
    queue.flush().expect("disk space");
    queue.sync().expect("synced");
    assert_eq!(queue.max_offset(), good + 1);
    assert_eq!(queue.entry(good).expect("readable"), Some(next));
}
