//! A queue's maximum and the entries before it.

use std::sync::Arc;

use lakemq_store::consumequeue::{ENTRY_BYTES, Entry, Queue, QueueKey, QueueStore};
use lakemq_store::error::Result;
use lakemq_store::sync::atomic::{AtomicI64, Ordering};
use loom::cell::UnsafeCell;
use loom::thread;

/// Entries in memory that only the queue's bounds guard, and how far they are synced.
#[derive(Debug)]
struct Kept([UnsafeCell<[u8; ENTRY_BYTES]>; 3], AtomicI64);

// SAFETY: the checker ends a run in which two threads come to an entry without an order between them.
unsafe impl Sync for Kept {}

impl QueueStore for Kept {
    fn write(&self, _: &QueueKey, offset: i64, entries: &[u8]) -> Result<()> {
        for (place, entry) in self.0[offset as usize..]
            .iter()
            .zip(entries.chunks(ENTRY_BYTES))
        {
            // SAFETY: one thread writes; the checker looks.
            place.with_mut(|place| unsafe { (*place).copy_from_slice(entry) });
        }
        Ok(())
    }

    fn read(&self, _: &QueueKey, offset: i64, out: &mut [u8]) -> Result<usize> {
        let count = out.len() / ENTRY_BYTES;
        for (place, entry) in self.0[offset as usize..]
            .iter()
            .zip(out.chunks_mut(ENTRY_BYTES))
        {
            // SAFETY: nobody reads behind the maximum; the checker looks.
            place.with(|place| entry.copy_from_slice(unsafe { &*place }));
        }
        Ok(count)
    }

    fn begins_storage(&self, _: i64, _: i64) -> bool {
        false
    }
    fn reserve(&self, _: &QueueKey, _: i64, _: i64) -> Result<()> {
        Ok(())
    }
    fn extent(&self, _: &QueueKey) -> Result<Option<(i64, i64)>> {
        Ok(Some((0, self.0.len() as i64)))
    }
    fn intact_until(&self, _: &QueueKey, _: i64, to: i64) -> Result<i64> {
        Ok(to)
    }
    fn can_be_torn(&self, _: i64) -> bool {
        false
    }
    fn truncate(&self, _: &QueueKey, _: i64) -> Result<()> {
        Ok(())
    }
    fn expire(&self, _: &QueueKey, _: i64) -> Result<usize> {
        Ok(0)
    }
    fn sync(&self, _: &QueueKey, _: i64, to: i64) -> Result<()> {
        self.1.store(to, Ordering::Release);
        Ok(())
    }
    fn sync_all(&self) -> Result<()> {
        Ok(())
    }
    fn remove_topic(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn sweep(&self) {}
    fn topics(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    fn queues(&self, _: &str) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }
    fn let_go(&self) {}
    fn open_files(&self) -> usize {
        0
    }
}

fn entry(offset: i64) -> Entry {
    Entry {
        physical_offset: offset * 100,
        size: 100,
        tags_code: 7,
    }
}

fn queue() -> (Arc<Queue>, Arc<Kept>) {
    let key = QueueKey {
        topic: "t".into(),
        queue_id: 0,
        serial: 0,
    };
    let entries = std::array::from_fn(|_| UnsafeCell::new([0; ENTRY_BYTES]));
    let kept = Arc::new(Kept(entries, AtomicI64::new(0)));
    let store: Arc<dyn QueueStore> = kept.clone();
    (Arc::new(Queue::new(key, store)), kept)
}

fn put(queue: &Queue, offsets: std::ops::Range<i64>) {
    for offset in offsets {
        let staged = queue.stage(offset, entry(offset), |from, to| (from, to));
        staged.expect("staged");
    }
    queue.flush().expect("stored");
}

/// Looks again until it holds; the checker lets others run meanwhile.
fn until(holds: impl Fn() -> bool) {
    while !holds() {
        thread::yield_now();
    }
}

#[test]
fn test_who_sees_a_queues_end_sees_all_entries_before_it() {
    loom::model(|| {
        let (queue, _) = queue();
        put(&queue, 0..1);
        let dispatcher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || put(&queue, 1..3))
        };
        until(|| queue.max_offset() == 3);
        for offset in 0..3 {
            assert_eq!(queue.entry(offset).expect("readable"), Some(entry(offset)));
        }
        dispatcher.join().expect("no panic");
    });
}

#[test]
fn test_what_a_sync_does_not_reach_stays_dirty() {
    loom::model(|| {
        let (queue, kept) = queue();
        put(&queue, 0..1);
        let checkpoint = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.sync().expect("synced"))
        };
        put(&queue, 1..2);
        checkpoint.join().expect("no panic");
        match queue.dirty_from() {
            None => assert_eq!(kept.1.load(Ordering::Acquire), 2),
            dirty => assert_eq!(dirty, Some(100)),
        }
    });
}

#[test]
fn test_a_queues_start_never_overtakes_its_end() {
    loom::model(|| {
        let (queue, _) = queue();
        put(&queue, 0..2);
        let expiry = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.raise_min(200).expect("readable"))
        };
        let dispatcher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || put(&queue, 2..3))
        };
        until(|| queue.min_offset() == 2);
        let max = queue.max_offset();
        assert!((2..=3).contains(&max), "{max}");
        expiry.join().expect("no panic");
        dispatcher.join().expect("no panic");
        assert_eq!((queue.min_offset(), queue.max_offset()), (2, 3));
    });
}
