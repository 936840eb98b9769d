//! Everything a store is asked, at once: senders, readers in this process and beside it, checkpoints and expiry.
//!
//! Contract: who was published that a message can be read reads it, and finds it by its key, whatever others do meanwhile.
//! `LAKEMQ_AT_ONCE` sets how many messages are sent (default 300). Under ThreadSanitizer the same run shows what
//! threads come to without an order between them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lakemq_store::message::NewMessage;
use lakemq_store::reader::Reader;
use lakemq_store::store::{Options, Store};

use crate::numbers::count_in;
use crate::support::{FindJson, SOON, environment, everything, message, options, request};

/// Few, so that most keys share one.
const SLOTS: u32 = 7;

/// What the threads of a run share.
struct Run<'s> {
    store: &'s Store,
    /// Messages that can be read.
    published: AtomicUsize,
    over: AtomicBool,
}

impl Run<'_> {
    /// Does it again and again with the number of a message that can be read.
    fn until_over(&self, each: impl Fn(usize)) {
        let mut turn = 0;
        while !self.over.load(Ordering::Acquire) {
            let published = self.published.load(Ordering::Acquire);
            if published > 0 {
                turn += 1;
                each(turn * 7 % published);
            }
            std::thread::yield_now();
        }
    }

    fn send(&self, count: usize) {
        for number in 0..count {
            let (body, key) = (format!("body {number}"), format!("key-{number}"));
            let keyed = NewMessage {
                keys: Some(key.as_str().into()),
                queue_id: Some(0),
                ..message(&body)
            };
            let done = self.store.append(&request("t"), &[keyed]).expect("stored");
            assert!(self.store.wait_dispatched(done.end_offset, SOON));
            self.published.store(number + 1, Ordering::Release);
        }
        self.over.store(true, Ordering::Release);
    }
}

#[test]
fn test_what_can_be_read_is_read_and_found_whatever_else_goes_on() {
    let count = count_in("LAKEMQ_AT_ONCE").unwrap_or(300) as usize;
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        index_slots: SLOTS,
        index_entries: 2_000,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    let run = Run {
        store: &store,
        published: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    let body_at = |number: usize| {
        let mut bodies = Vec::new();
        let request = everything(number as i64);
        let read = store.read("t", 0, &request, |record, _| {
            bodies.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        });
        read.expect("readable");
        bodies.into_iter().next()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run.until_over(|number| {
                let found = store.messages_json("t", &format!("key-{number}"), (0, i64::MAX), 10);
                assert_eq!(found.expect("searched").len(), 1, "key-{number}");
            });
        });
        scope.spawn(|| {
            let reader = Reader::open(dir.path()).expect("a reader");
            run.until_over(|number| {
                let found = reader.messages_json("t", &format!("key-{number}"), (0, i64::MAX), 10);
                assert_eq!(found.expect("searched").len(), 1, "beside it, key-{number}");
                let bounds = reader.queues("t").expect("a topic")[0].1;
                assert!(bounds.max > number as i64);
            });
        });
        scope.spawn(|| {
            run.until_over(|number| {
                assert_eq!(body_at(number), Some(format!("body {number}")));
                let bounds = store.bounds("t", 0).expect("a queue");
                assert!(bounds.max > number as i64);
            });
        });
        scope.spawn(|| {
            run.until_over(|number| {
                store.checkpoint().expect("taken");
                store.expire(store.now_ms(), false).expect("nothing is old");
                let offsets = vec![("t".into(), 0, number as i64)];
                store.commit_offsets("g", offsets).expect("committed");
                assert!(store.group_offsets("g").len() <= 1);
                assert!(!store.stats().is_empty() && store.poisoned().is_none());
                store.watch("t", 0);
                store.take_notified_queues();
            });
        });
        run.send(count);
    });
    assert_eq!(run.published.into_inner(), count);
}
