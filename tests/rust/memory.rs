//! Memory that threads share through a mapped file: one writes and publishes, others read what was published.
//!
//! Contract: who sees a published word sees what was written before it, and no access lies outside the file.
//! Miri runs the same tests (`make chaos ONLY=MIRI`) and looks at each access: at its bounds, its alignment, what it may
//! alias, and whether another thread comes to the bytes without an order between them. It knows no mapping, so there the
//! file's bytes lie in the process (`mapping.rs`).

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use lakemq_store::environment::Disk;
use lakemq_store::index::{IndexFile, Shape};
use lakemq_store::mapped_file::MappedFile;
use lakemq_store::watermarks::Watermarks;

const LENGTH: u64 = 4096;
const ROUNDS: usize = if cfg!(miri) { 6 } else { 2_000 };

/// Only what Miri knows too: nothing here needs its blocks.
struct Plain;

impl Disk for Plain {
    fn allocate(&self, _: &File, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _: &File, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}

fn mapped(directory: &tempfile::TempDir) -> MappedFile {
    let path = directory.path().join("mapped");
    MappedFile::create_owned(&path, LENGTH, LENGTH, &Plain).expect("a file")
}

/// Waits until it holds; nobody waits for long.
fn until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

#[test]
fn test_who_sees_a_published_word_sees_the_bytes_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = mapped(&dir);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let at = 64 + round % 200 * 16;
                until(|| file.atomic_u64(8).load(Ordering::Acquire) == round as u64);
                file.write(at, 11, |out| out.fill(round as u8));
                file.publish_i32(16, round as i32);
                file.atomic_u64(0)
                    .store(round as u64 + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let at = 64 + round % 200 * 16;
                until(|| file.atomic_u64(0).load(Ordering::Acquire) > round as u64);
                assert_eq!(file.bytes(at, 11), [round as u8; 11]);
                assert_eq!(file.published_i32(16), round as i32);
                file.atomic_u64(8)
                    .store(round as u64 + 1, Ordering::Release);
            }
        });
    });
}

#[test]
fn test_no_access_lies_outside_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = mapped(&dir);
    let end = LENGTH as usize;
    assert_eq!(file.bytes(end - 3, 100).len(), 3);
    assert!(file.bytes(end, 1).is_empty() && file.bytes(usize::MAX, usize::MAX).is_empty());
    assert_eq!(file.tail(end - 1).len(), 1);
    assert!(file.tail(end + 1).is_empty());
    assert_eq!(file.tail(0).len(), end);
    file.write(end - 1, 1, |out| out[0] = 9);
    assert_eq!(file.tail(end - 1), [9]);
    file.write(end, 0, |out| assert!(out.is_empty()));
    file.publish_i32(end - 4, -2);
    assert_eq!(file.published_i32(end - 4), -2);
    assert_eq!(file.bytes(end - 4, 4), (-2i32).to_be_bytes());
    let outside: [&dyn Fn(); 9] = [
        &|| file.write(end - 3, 4, |_| ()),
        &|| file.write(usize::MAX, 4, |_| ()),
        &|| file.atomic_u64(end - 4).store(1, Ordering::Relaxed),
        &|| file.atomic_u64(4).store(1, Ordering::Relaxed),
        &|| file.atomic_u64(usize::MAX - 7).store(1, Ordering::Relaxed),
        &|| file.publish_i32(end - 2, 0),
        &|| file.publish_i32(6, 0),
        &|| file.publish_i32(usize::MAX - 3, 0),
        &|| assert_eq!(file.published_i32(end), 0),
    ];
    for (number, access) in outside.iter().enumerate() {
        assert!(
            catch_unwind(AssertUnwindSafe(access)).is_err(),
            "access {number}"
        );
    }
    let reading = MappedFile::open_for_reading(file.path()).expect("a file");
    let write = AssertUnwindSafe(|| reading.write(0, 1, |_| ()));
    assert!(catch_unwind(write).is_err(), "opened for reading");
    let publish = AssertUnwindSafe(|| reading.publish_i32(0, 1));
    assert!(catch_unwind(publish).is_err(), "opened for reading");
}

#[test]
fn test_a_search_of_the_index_beside_its_writer_finds_what_was_put() {
    const SHAPE: Shape = Shape {
        slots: 3,
        entries: ROUNDS as u32 + 2,
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = IndexFile::open_owned(&dir.path().join("1"), SHAPE, &Plain).expect("a file");
    let marks = Watermarks::open_owned(&dir.path().join("marks"), &Plain).expect("a page");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                file.put(round as i32, round as i64, 1_000, &Plain)
                    .expect("disk space");
                marks.set_dispatched(round as i64);
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < ROUNDS as i64 {
                let dispatched = marks.dispatched();
                // The newest of them, and the oldest, which all others of its slot lie before.
                for key in [1, dispatched].iter().filter(|key| **key <= dispatched) {
                    let mut found = Vec::new();
                    file.find(*key as i32, 0, i64::MAX, 9, &mut found);
                    assert!(
                        dispatched == 0 || found == [*key],
                        "{key} of {dispatched}: {found:?}"
                    );
                }
                assert!(file.header().count > dispatched as i32);
                last = dispatched;
                std::thread::yield_now();
            }
        });
    });
}

#[test]
fn test_marks_are_seen_in_their_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let marks = Watermarks::open_owned(&dir.path().join("marks"), &Plain).expect("a page");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for to in 1..=ROUNDS as i64 {
                marks.set_appended(to);
                marks.set_flushed(to);
                assert!(marks.raise_confirmed(to) && !marks.raise_confirmed(to));
                marks.set_dispatched(to);
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < ROUNDS as i64 {
                last = marks.dispatched();
                assert!(last <= marks.confirmed());
                assert!(last <= marks.flushed() && last <= marks.appended());
                std::thread::yield_now();
            }
        });
    });
}
