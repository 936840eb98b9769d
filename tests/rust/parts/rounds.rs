//! Rounds of the dispatcher by themselves: how long one is, what it waits for, what it says, and what becomes of one
//! that fails.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lakemq_store::environment::{Clock, Environment};
use lakemq_store::faults::{FaultPoints, Point};
use lakemq_store::message::NewMessage;
use lakemq_store::store::{Appended, Options, Store, TopicChange, Work};

use crate::support::{
    FlakyDisk, SOON, bodies, comes_true, environment, message, open, open_on_flaky_disk, options,
    request, send,
};

/// A clock on which so many milliseconds pass whenever it is looked at.
#[derive(Default)]
struct LookedAt {
    step: AtomicI64,
    passed: AtomicI64,
    looks: AtomicUsize,
    /// Those of each of the store's threads, by its name.
    looks_of: Mutex<HashMap<String, usize>>,
}

impl LookedAt {
    fn looks_of(&self, thread: &str) -> usize {
        let looks = self.looks_of.lock().expect("a lock");
        looks.get(thread).copied().unwrap_or(0)
    }
}

impl Clock for LookedAt {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic_ms(&self) -> i64 {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if let Some(name) = std::thread::current().name() {
            let mut looks = self.looks_of.lock().expect("a lock");
            *looks.entry(name.to_owned()).or_default() += 1;
        }
        let step = self.step.load(Ordering::SeqCst);
        self.passed.fetch_add(step, Ordering::SeqCst) + step
    }
}

struct Bench {
    clock: Arc<LookedAt>,
    store: Store,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// A store at rest with a topic of `queues` queues.
    fn new(queues: u32, faults: FaultPoints) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(LookedAt::default());
        let environment = Environment {
            clock: clock.clone(),
            faults: Arc::new(faults),
            ..environment()
        };
        let options = Options {
            commitlog_file_size: 1 << 20,
            ..options()
        };
        let store = Store::open_at_rest(dir.path(), options, environment).expect("a store");
        let nums = TopicChange {
            read_queue_nums: Some(queues),
            write_queue_nums: Some(queues),
            ..TopicChange::default()
        };
        store.put_topic("t", &nums).expect("made");
        store.work(Work::Flush).expect("flushed");
        Self {
            clock,
            store,
            _dir: dir,
        }
    }

    /// Stores messages in turn in each queue, flushed and not dispatched.
    fn append(&self, count: usize, queues: u32) -> Appended {
        let texts: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let messages: Vec<_> = texts
            .iter()
            .zip((0..queues).cycle())
            .map(|(text, queue)| NewMessage {
                queue_id: Some(queue),
                ..message(text)
            })
            .collect();
        let done = self.store.append(&request("t"), &messages).expect("stored");
        self.store.work(Work::FlushAlone).expect("flushed");
        done
    }

    fn dispatched(&self) -> i64 {
        self.store.watermarks().2
    }

    /// Dispatches a round, `step` milliseconds a look; how often the clock was looked at.
    fn round(&self, step: i64) -> usize {
        self.clock.step.store(step, Ordering::SeqCst);
        let before = self.clock.looks.load(Ordering::SeqCst);
        self.store.work(Work::Dispatch).expect("dispatched");
        self.clock.step.store(0, Ordering::SeqCst);
        self.clock.looks.load(Ordering::SeqCst) - before
    }

    fn gauge(&self, name: &str) -> f64 {
        let stats = self.store.stats();
        stats.iter().find(|(of, _)| *of == name).expect("a gauge").1
    }
}

/// Whether the event loop was woken since the last look.
fn is_woken(store: &Store) -> bool {
    let mut count = [0u8; 8];
    // SAFETY: reads into eight bytes of ours from a descriptor that the store holds open and that never blocks.
    let read = unsafe { libc::read(store.progress_fd(), count.as_mut_ptr().cast(), 8) };
    read == 8
}

#[test]
fn test_a_round_looks_at_the_time_every_eight_records_and_ends_behind_five_milliseconds() {
    for (step, expected) in [(0, 40), (2, 23), (5, 15), (6, 7)] {
        let bench = Bench::new(1, FaultPoints::default());
        let done = bench.append(40, 1);
        let behind = |records: usize| match done.placed.get(records) {
            Some(next) => next.physical_offset,
            None => done.end_offset,
        };
        let before = bench.gauge("dispatch_total");
        bench.round(step);
        assert_eq!(bench.dispatched(), behind(expected), "{step} ms a look");
        assert_eq!(bench.gauge("dispatch_total") - before, expected as f64);
        while bench.dispatched() < done.end_offset {
            bench.round(step);
        }
        assert_eq!(bodies(&bench.store, "t").len(), 40);
        assert_eq!(bench.gauge("dispatch_total") - before, 40.0);
    }
    // Three at the round's own pace, and one in eight records: not one each.
    let bench = Bench::new(1, FaultPoints::default());
    let none = bench.round(0);
    bench.append(7, 1);
    let seven = bench.round(0);
    bench.append(40, 1);
    assert_eq!(bench.round(0), seven + 5);
    assert!(
        seven <= none + 2,
        "{none} without records, {seven} with seven"
    );
}

#[test]
fn test_what_is_staged_is_stored_in_pieces_and_announced_when_all_of_it_is() {
    let stored = Arc::new(AtomicUsize::new(0));
    let counted = {
        let stored = Arc::clone(&stored);
        move |point| {
            stored.fetch_add(usize::from(point == Point::DispatchMid), Ordering::SeqCst);
        }
    };
    let bench = Bench::new(6, FaultPoints::hooked(counted));
    let done = bench.append(6, 6);
    stored.store(0, Ordering::SeqCst);
    let looks = bench.round(5);
    assert_eq!(stored.load(Ordering::SeqCst), 6);
    assert_eq!(bench.dispatched(), done.end_offset);
    // Two queues a piece, since only what lies behind the limit ends one: each piece looks once when it begins, and
    // once behind each queue.
    bench.append(6, 6);
    assert!(bench.round(0) < looks);
    bench.append(6, 6);
    let fast = bench.round(0);
    bench.append(6, 6);
    assert_eq!(bench.round(5), fast + 2, "two more pieces");
    bench.append(6, 6);
    assert_eq!(bench.round(6), fast + 5, "a piece for each queue");
}

#[test]
fn test_files_are_made_ahead_where_a_queue_needs_one_and_only_there() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = {
        let made = Arc::clone(&made);
        move |point| {
            made.fetch_add(usize::from(point == Point::QueuesMake), Ordering::SeqCst);
        }
    };
    let bench = Bench::new(2, FaultPoints::hooked(counted));
    let mut rounds = Vec::new();
    // A file holds 50 entries.
    for (count, queues) in [(1, 1), (1, 1), (40, 1), (20, 1), (2, 2), (0, 1)] {
        if count > 0 {
            bench.append(count, queues);
        }
        made.store(0, Ordering::SeqCst);
        bench.round(0);
        rounds.push(made.load(Ordering::SeqCst));
    }
    assert_eq!(rounds, [1, 0, 0, 1, 1, 0]);
}

/// One without a key.
fn plain(body: &str) -> NewMessage<'_> {
    NewMessage {
        keys: None,
        ..message(body)
    }
}

#[test]
fn test_a_small_flush_dispatches_and_a_large_one_leaves_it_to_the_thread() {
    let bench = Bench::new(1, FaultPoints::default());
    let body = "x".repeat(60_000);
    let mut end = 0;
    for _ in 0..9 {
        let done = bench.store.append(&request("t"), &[plain(&body)]);
        end = done.expect("stored").end_offset;
        bench.store.work(Work::Flush).expect("flushed");
        assert_eq!(bench.dispatched(), end, "a small flush");
    }
    assert!(end > 512 << 10, "far behind the log's start too");
    for _ in 0..5 {
        let done = bench.store.append(&request("t"), &[plain(&body)]);
        done.expect("stored");
    }
    bench.store.work(Work::Flush).expect("flushed");
    assert_eq!(bench.dispatched(), end, "a large one");
    bench.store.work(Work::Dispatch).expect("dispatched");
    assert!(bench.dispatched() > end);
}

#[test]
fn test_the_event_loop_is_woken_when_all_is_dispatched_or_a_watched_queue_got_a_message() {
    let bench = Bench::new(1, FaultPoints::default());
    bench.append(40, 1);
    is_woken(&bench.store);
    bench.round(6);
    assert!(!is_woken(&bench.store), "nobody waits, and more is to come");
    bench.store.watch("t", 0);
    bench.round(6);
    assert!(is_woken(&bench.store), "a watched queue got messages");
    assert_eq!(bench.store.take_notified_queues(), [("t".to_owned(), 0)]);
    bench.round(0);
    assert!(is_woken(&bench.store), "all is dispatched");
    assert!(bench.store.take_notified_queues().is_empty());
}

#[test]
fn test_an_offset_inside_a_record_confirms_nothing_of_it() {
    let bench = Bench::new(1, FaultPoints::default());
    let first = bench.append(1, 1);
    bench.round(0);
    bench.store.ask_replicas(Some(first.end_offset));
    let second = bench.append(1, 1);
    for inside in [first.end_offset + 1, second.end_offset - 1] {
        bench.store.replicated(inside);
        bench.round(0);
        assert_eq!(bench.store.watermarks().3, inside);
        assert_eq!(bench.dispatched(), first.end_offset);
    }
    bench.store.replicated(second.end_offset);
    bench.round(0);
    assert_eq!(bench.dispatched(), second.end_offset);
}

#[test]
fn test_a_thread_that_can_dispatch_no_further_waits_for_the_mark() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(LookedAt::default());
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    let first = send(&store, "t", &["one"]);
    store.ask_replicas(Some(first.end_offset));
    let second = store
        .append(&request("t"), &[message("two")])
        .expect("stored");
    assert!(store.wait_flushed(second.end_offset, SOON));
    store.replicated(second.end_offset - 1);
    let before = clock.looks_of("lakemq-dispatcher");
    // As long as a thread without work sleeps at most.
    store.progress_wait(Duration::from_millis(600), || false);
    let looks = clock.looks_of("lakemq-dispatcher") - before;
    assert!(looks < 100, "{looks} looks at the clock");
    store.replicated(second.end_offset);
    assert!(store.wait_dispatched(second.end_offset, SOON));
}

#[test]
fn test_a_scheduler_whose_messages_are_not_due_sleeps() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(LookedAt::default());
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    let store = Store::open(dir.path(), options(), environment).expect("a store");
    let late = NewMessage {
        delay_level: 18,
        ..message("one")
    };
    let done = store.append(&request("t"), &[late]).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    let looks = || clock.looks_of("lakemq-scheduler");
    let looked = comes_true(&store, || looks() > 0);
    assert!(looked, "at the message, which is not due for two hours");
    let before = looks();
    store.progress_wait(Duration::from_millis(600), || false);
    let later = looks() - before;
    assert!(later < 10, "{later} looks at the clock");
}

#[test]
fn test_a_round_that_fails_says_why_until_one_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    let store = Store::open_at_rest(dir.path(), options(), environment).expect("a store");
    let done = store
        .append(&request("t"), &[message("one")])
        .expect("stored");
    store.work(Work::FlushAlone).expect("flushed");
    assert_eq!(store.dispatch_failure(), None);
    disk.fail_write.store(true, Ordering::SeqCst);
    store.work(Work::Dispatch).expect_err("no write");
    let failure = store.dispatch_failure().expect("a reason");
    assert!(failure.contains("injected"), "{failure}");
    assert!(store.watermarks().2 < done.end_offset);
    disk.fail_write.store(false, Ordering::SeqCst);
    store.work(Work::Dispatch).expect("dispatched");
    assert_eq!(store.dispatch_failure(), None);
    assert_eq!(bodies(&store, "t"), ["one"]);
}

#[test]
fn test_a_failing_dispatcher_is_counted_reported_and_ends_with_a_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = open_on_flaky_disk(dir.path());
    // Held back, so that only the dispatcher writes while the disk fails.
    store.ask_replicas(Some(0));
    let done = store
        .append(&request("t"), &[message("one")])
        .expect("stored");
    assert!(store.wait_flushed(done.end_offset, SOON));
    disk.fail_write.store(true, Ordering::SeqCst);
    store.replicated(done.end_offset);
    let errors = || {
        let stats = store.stats();
        let found = stats
            .iter()
            .find(|(name, _)| *name == "dispatch_errors_total");
        found.expect("a counter").1
    };
    assert!(comes_true(&store, || errors() >= 1.0));
    let events = store.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.text.contains("dispatching failed, trying again"))
    );
    disk.fail_write.store(false, Ordering::SeqCst);
    assert!(
        store.wait_dispatched(done.end_offset, SOON),
        "it is tried again"
    );
    assert_eq!(bodies(&store, "t"), ["one"]);
}

/// What a thread waits for wakes it: none sleeps out its half second, which 30 times would take longer than this allows.
#[test]
fn test_threads_wait_for_no_time_where_they_are_woken() {
    let started = Instant::now();
    let dir = tempfile::tempdir().expect("a directory");
    let large = Options {
        commitlog_file_size: 1 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), large, environment()).expect("a store");
    let body = "x".repeat(90_000);
    for _ in 0..30 {
        // More than the flusher dispatches by itself.
        let messages = [plain(&body), plain(&body), plain(&body)];
        let done = store.append(&request("t"), &messages).expect("stored");
        assert!(store.wait_dispatched(done.end_offset, SOON));
    }
    drop(store);
    let stops = tempfile::tempdir().expect("a directory");
    for _ in 0..30 {
        let store = open(stops.path());
        let done = store.append(&request("t"), &[message("one")]);
        done.expect("stored");
        store.close().expect("closed");
    }
    assert!(started.elapsed() < Duration::from_secs(14));
}
