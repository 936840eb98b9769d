//! Leases: when one is granted, and to whom its epoch belongs.
//!
//! Contract: an epoch is given once, also over a power cut, a deletion and a jump of the clock.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::store::{GroupChange, Options, Store};

use crate::jumping_clock::{HOUR, JumpingClock, open_at};
use crate::support::{SOON, comes_true, copy, environment, open, options, send};

/// A disk whose syncs wait until the gate is open.
#[derive(Default)]
struct GatedDisk {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl GatedDisk {
    fn set_closed(&self, closed: bool) {
        *self.closed.lock().expect("a lock") = closed;
        self.changed.notify_all();
    }
}

impl Disk for GatedDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let closed = self.closed.lock().expect("a lock");
        drop(
            self.changed
                .wait_while(closed, |closed| *closed)
                .expect("a lock"),
        );
        RealDisk.sync(file)
    }
}

pub fn open_on(path: &Path, disk: Arc<dyn Disk>, options: Options) -> Store {
    let environment = Environment {
        disk,
        ..environment()
    };
    Store::open(path, options, environment).expect("a store")
}

fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Whether the call that a thread makes has ended; until it has, or sleeps, it is under way.
fn is_answered<T>(thread: &ScopedJoinHandle<'_, T>, id: libc::pid_t) -> bool {
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"));
        // The state stands behind the name, which is in brackets.
        stat.is_ok_and(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    };
    let began = Instant::now();
    while !thread.is_finished() && !sleeps() && began.elapsed() < SOON {
        std::thread::yield_now();
    }
    thread.is_finished()
}

#[test]
fn test_a_lease_is_granted_when_its_record_is_on_the_disk_and_not_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let power_cut = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(GatedDisk::default());
    let store = open_on(dir.path(), disk.clone(), options());
    send(&store, "t", &["a"]);
    let durable = store.watermarks().1;
    copy(dir.path(), power_cut.path());
    disk.set_closed(true);
    let (asking, asked) = channel();
    let acquire = || {
        asking.send(thread_id()).expect("the test listens");
        store.acquire_lease("g", "one", 60_000)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(acquire);
        let first_id = asked.recv_timeout(SOON).expect("a thread");
        assert!(comes_true(&store, || store.watermarks().0 > durable));
        let renewed = scope.spawn(acquire);
        let renewed_id = asked.recv_timeout(SOON).expect("a thread");
        let was_answered = is_answered(&first, first_id) || is_answered(&renewed, renewed_id);
        let shown = store.lease("g").is_some();
        let claimed = store.lease_or_claim("g").map(|hold| hold.owner);
        // Before anything is asserted: a test that fails must not leave the store waiting for its disk.
        disk.set_closed(false);
        assert!(!was_answered, "answered before it is durable");
        assert!(!shown, "shown before it is durable");
        assert_eq!(
            claimed.as_deref(),
            Some("one"),
            "nobody else moves the group from its record on"
        );
        let epoch = first.join().expect("no panic").expect("granted").0;
        assert_eq!(epoch, 1);
        assert_eq!(renewed.join().expect("no panic").expect("renewed").0, epoch);
    });
    assert_eq!(store.lease("g").expect("confirmed").epoch, 1);
    assert!(store.watermarks().1 > durable);
    // Where the power went while it waited, nobody had the epoch, and the next owner gets it.
    let after = open(power_cut.path());
    assert_eq!(after.acquire_lease("g", "two", 1000).expect("free").0, 1);
}

#[test]
fn test_a_lease_whose_record_cannot_be_flushed_is_not_granted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (store, disk) = crate::support::open_on_flaky_disk(dir.path());
    disk.fail_sync.store(true, Ordering::SeqCst);
    let refused = store
        .acquire_lease("g", "one", 60_000)
        .expect_err("not durable");
    assert_eq!(refused.code(), "STORE_POISONED");
}

#[test]
fn test_the_epoch_of_a_group_goes_on_over_its_deletion_and_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    store.put_group("g", &GroupChange::default()).expect("made");
    let (first, _) = store.acquire_lease("g", "one", 60_000).expect("free");
    let end = store.delete_group("g").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    assert!(store.lease("g").is_none());
    let (second, _) = store.acquire_lease("g", "two", 60_000).expect("free again");
    assert!(second > first);
    store
        .put_group("g", &GroupChange::default())
        .expect("made again");
    assert!(store.release_lease("g", "two"));
    let end = {
        let made = store.watermarks().0;
        assert!(store.wait_dispatched(made, SOON));
        store.delete_group("g").expect("deleted again")
    };
    assert!(store.wait_dispatched(end, SOON));
    drop(store);
    let store = open(dir.path());
    let (third, _) = store.acquire_lease("g", "three", 60_000).expect("free");
    assert!(third > second);
}

#[test]
fn test_a_lease_lives_by_the_time_that_passes_wherever_the_clock_jumps() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = JumpingClock::at(1_000 * HOUR);
    let store = open_at(dir.path(), &clock);
    store.acquire_lease("g", "one", 60_000).expect("free");
    clock.jump(24 * HOUR);
    store
        .acquire_lease("g", "two", 60_000)
        .expect_err("no minute has passed");
    clock.jump(-48 * HOUR);
    clock.pass(60_000);
    store
        .acquire_lease("g", "two", 60_000)
        .expect("a minute has passed");
}
