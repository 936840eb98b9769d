//! Files of a queue on a disk that refuses a call, and files that are not as they should be.
//!
//! Contract: what the disk does not show counts as missing only where it says that it is.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemq_store::consumequeue::{ENTRY_BYTES, Entry, QueueFiles, QueueKey, QueueStore};
use lakemq_store::environment::Disk;

use crate::refusing_disk::{Call, RefusingDisk};

/// Entries of a file: more than a cut looks at by itself, which are 4,096 bytes.
const FILE: i64 = 1000;
const BYTES: u64 = FILE as u64 * ENTRY_BYTES as u64;

struct Bench {
    dir: tempfile::TempDir,
    disk: Arc<RefusingDisk>,
    files: QueueFiles,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(RefusingDisk::default());
        let files = opened(dir.path(), &disk);
        Self { dir, disk, files }
    }

    /// The owner as another start finds it, with no file open.
    fn again(&self) -> QueueFiles {
        opened(self.dir.path(), &self.disk)
    }

    fn file(&self, base: i64) -> PathBuf {
        let name = format!("{:020}", base * ENTRY_BYTES as i64);
        self.dir.path().join("consumequeue/t/0").join(name)
    }

    fn put(&self, offsets: std::ops::Range<i64>) {
        let from = offsets.start;
        let entries: Vec<u8> = offsets.flat_map(|at| entry(at).encode()).collect();
        self.files.write(&key(), from, &entries).expect("stored");
    }
}

fn opened(root: &Path, disk: &Arc<RefusingDisk>) -> QueueFiles {
    let (directory, trash) = (root.join("consumequeue"), root.join("trash"));
    QueueFiles::owned(&directory, BYTES, &trash, Arc::clone(disk) as Arc<dyn Disk>)
}

fn key() -> QueueKey {
    QueueKey {
        topic: "t".into(),
        queue_id: 0,
        serial: 1,
    }
}

fn entry(offset: i64) -> Entry {
    Entry {
        physical_offset: offset * 100,
        size: 100,
        tags_code: 7,
    }
}

fn read(files: &QueueFiles, offset: i64) -> Option<Entry> {
    let mut bytes = [0; ENTRY_BYTES];
    let count = files.read(&key(), offset, &mut bytes).expect("readable");
    (count > 0).then(|| Entry::decode(&bytes)).flatten()
}

#[test]
fn test_a_queue_file_that_cannot_be_looked_at_is_no_missing_one() {
    let bench = Bench::new();
    bench.put(0..10);
    let mut out = [0; ENTRY_BYTES];
    for call in [Call::Open, Call::ReadAt] {
        bench.disk.refuse(call, ErrorKind::PermissionDenied, 1);
        let files = bench.again();
        files
            .read(&key(), 0, &mut out)
            .expect_err("it cannot be read");
    }
    bench
        .disk
        .refuse(Call::Metadata, ErrorKind::PermissionDenied, 1);
    bench
        .files
        .extent(&key())
        .expect_err("its length is unknown");
    bench
        .disk
        .refuse(Call::Metadata, ErrorKind::PermissionDenied, 1);
    bench
        .files
        .intact_until(&key(), 0, 10)
        .expect_err("its length is unknown");
    bench.disk.heal();
    assert_eq!(read(&bench.again(), 9), Some(entry(9)));
}

#[test]
fn test_a_read_that_is_interrupted_or_short_goes_on_to_its_end() {
    let bench = Bench::new();
    bench.put(0..10);
    bench.disk.refuse(Call::ReadAt, ErrorKind::Interrupted, 3);
    bench.disk.at_once.store(33, Ordering::SeqCst);
    let mut out = [0; 5 * ENTRY_BYTES];
    assert_eq!(bench.files.read(&key(), 3, &mut out).expect("readable"), 5);
    let found = out.chunks_exact(ENTRY_BYTES).map(Entry::decode);
    assert!(found.eq((3..8).map(|at| Some(entry(at)))));
}

#[test]
fn test_a_file_that_cannot_be_removed_stays_to_be_removed_and_one_that_is_gone_is_gone() {
    let bench = Bench::new();
    bench.put(0..2 * FILE + 1);
    bench
        .disk
        .refuse(Call::Remove, ErrorKind::PermissionDenied, 1);
    bench.files.expire(&key(), FILE).expect_err("refused");
    bench.disk.refuse(Call::Remove, ErrorKind::NotFound, 1);
    assert_eq!(bench.files.expire(&key(), FILE).expect("it is gone"), 1);
    bench
        .disk
        .refuse(Call::Remove, ErrorKind::PermissionDenied, 1);
    bench.files.truncate(&key(), 2 * FILE).expect_err("refused");
    bench.disk.heal();
    bench.files.truncate(&key(), 2 * FILE).expect("cut");
    assert!(!bench.file(2 * FILE).exists());
}

/// Contract: a making that failed half-way leaves a file without its length; what stands there is kept, and the places
/// between it and the first entry are blank.
#[test]
fn test_a_file_that_was_not_made_to_its_end_is_none_until_it_is_and_keeps_what_stands_there() {
    let bench = Bench::new();
    let path = bench.file(0);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let stands: Vec<u8> = (0..3).flat_map(|at| entry(at).encode()).collect();
    fs::write(&path, &stands).expect("written");
    assert_eq!(read(&bench.files, 1), None, "to the owner");
    let directory = bench.dir.path().join("consumequeue");
    let reader = QueueFiles::for_reading(&directory, BYTES);
    assert_eq!(
        read(&reader, 1),
        Some(entry(1)),
        "a reader sees what is there"
    );
    bench.put(7..9);
    let bytes = fs::read(&path).expect("a file");
    assert_eq!(bytes.len() as u64, BYTES);
    let found = bytes.chunks_exact(ENTRY_BYTES).map(Entry::decode);
    let blanks = std::iter::repeat_n(Some(Entry::BLANK), 4);
    let wanted = (0..3).map(|at| Some(entry(at))).chain(blanks);
    let wanted = wanted.chain((7..9).map(|at| Some(entry(at))));
    assert!(found.take(10).eq(wanted.chain([None])));
}

#[test]
fn test_a_file_that_is_too_long_holds_no_entry_behind_its_length() {
    let bench = Bench::new();
    bench.put(0..FILE);
    let mut bytes = fs::read(bench.file(0)).expect("a file");
    bytes.extend_from_slice(&entry(5).encode());
    fs::write(bench.file(0), &bytes).expect("written");
    let reader = QueueFiles::for_reading(&bench.dir.path().join("consumequeue"), BYTES);
    let mut out = [0; 3 * ENTRY_BYTES];
    let count = reader.read(&key(), FILE - 2, &mut out);
    assert_eq!(count.expect("readable"), 2);
    let extent = reader.extent(&key()).expect("readable");
    assert_eq!(extent, Some((0, FILE)));
}

#[test]
fn test_a_cut_clears_what_lies_far_behind_it_and_leaves_a_file_alone_that_is_clear() {
    let bench = Bench::new();
    bench.put(0..10);
    let modified = || {
        let metadata = fs::metadata(bench.file(0)).expect("a file");
        metadata.modified().expect("a time")
    };
    let before = modified();
    bench.files.truncate(&key(), 10).expect("cut");
    assert_eq!(modified(), before, "it was clear to its end");
    bench.put(900..901);
    bench.files.truncate(&key(), 10).expect("cut");
    assert_eq!(read(&bench.again(), 900), None);
    assert_eq!(read(&bench.again(), 9), Some(entry(9)));
    let length = fs::metadata(bench.file(0)).expect("a file").len();
    assert_eq!(length, BYTES);
}

#[test]
fn test_storage_is_made_as_far_as_it_is_wanted_and_no_file_more() {
    let bench = Bench::new();
    assert!(!bench.files.begins_storage(FILE, FILE), "nothing is wanted");
    bench.files.reserve(&key(), 5, FILE).expect("disk space");
    assert!(bench.file(0).exists() && !bench.file(FILE).exists());
}

#[test]
fn test_a_topic_whose_queues_cannot_be_taken_away_is_not_said_to_be_gone() {
    let bench = Bench::new();
    bench.put(0..1);
    let refuse = |call, error| bench.disk.refuse(call, error, 1);
    refuse(Call::Rename, ErrorKind::PermissionDenied);
    bench.files.remove_topic("t").expect_err("refused");
    refuse(Call::SyncDirectory, ErrorKind::PermissionDenied);
    bench.files.remove_topic("t").expect_err("not for good yet");
    refuse(Call::SyncDirectory, ErrorKind::PermissionDenied);
    bench
        .files
        .remove_topic("t")
        .expect_err("still not for good");
    bench.disk.heal();
    bench.files.remove_topic("t").expect("it is gone for good");
    // What was removed before has the first number.
    bench.put(0..1);
    refuse(Call::Rename, ErrorKind::DirectoryNotEmpty);
    bench.files.remove_topic("t").expect("under another number");
    assert!(!bench.dir.path().join("consumequeue/t").exists());
    fs::remove_dir(bench.dir.path().join("consumequeue")).expect("empty");
    bench.files.remove_topic("t").expect("there is nothing");
}

#[test]
fn test_all_queues_are_synced_or_the_error_is_told_and_without_any_there_is_nothing_to_do() {
    let bench = Bench::new();
    bench
        .disk
        .refuse(Call::SyncFileSystem, ErrorKind::PermissionDenied, 2);
    bench.files.sync_all().expect("there is none");
    bench.put(0..1);
    bench.files.sync_all().expect_err("refused");
    bench
        .disk
        .refuse(Call::Open, ErrorKind::PermissionDenied, 1);
    bench.files.sync_all().expect_err("refused");
    bench.disk.heal();
    bench.files.sync_all().expect("synced");
}

#[test]
fn test_a_reader_changes_nothing() {
    let bench = Bench::new();
    bench.put(0..1);
    let reader = QueueFiles::for_reading(&bench.dir.path().join("consumequeue"), BYTES);
    reader
        .write(&key(), 1, &entry(1).encode())
        .expect_err("a write");
    reader.expire(&key(), 5 * FILE).expect_err("expiry");
    reader.truncate(&key(), 0).expect_err("a cut");
    reader.remove_topic("t").expect_err("a removal");
    assert_eq!(read(&bench.again(), 0), Some(entry(0)));
}

#[test]
fn test_files_are_held_open_until_they_are_let_go_and_found_again_as_they_are_then() {
    let bench = Bench::new();
    bench.put(0..FILE + 1);
    let reader = QueueFiles::for_reading(&bench.dir.path().join("consumequeue"), BYTES);
    assert_eq!(reader.open_files(), 0);
    assert_eq!(read(&reader, 0), Some(entry(0)));
    assert_eq!(read(&reader, 1), Some(entry(1)));
    assert_eq!(read(&reader, FILE), Some(entry(FILE)));
    assert_eq!(reader.open_files(), 2);
    let other = bench.dir.path().join("other");
    fs::write(&other, entry(77).encode()).expect("written");
    fs::rename(&other, bench.file(0)).expect("replaced");
    reader.let_go();
    assert_eq!(reader.open_files(), 0);
    assert_eq!(
        read(&reader, 0),
        Some(entry(77)),
        "the file that is there now"
    );
}
