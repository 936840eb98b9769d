//! The end of the log: what fits a file to the byte, where the next one begins, and what is written when.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lakemq_store::commitlog::CommitLog;
use lakemq_store::commitlog::next_file::NextFile;
use lakemq_store::commitlog::writer::LogWriter;
use lakemq_store::environment::{Disk, Environment};
use lakemq_store::message::record::end_of_file;

use crate::records::CountingDisk;
use crate::refusing_disk::RefusingDisk;

const FILE_BYTES: u64 = 1 << 20;
const END: usize = 8;
const BLOCK: usize = 256 << 10;

struct Bench {
    log: Arc<CommitLog>,
    next: Arc<NextFile>,
    disk: Arc<CountingDisk>,
    environment: Environment,
}

impl Bench {
    fn new(root: &Path) -> Self {
        let disk = Arc::new(CountingDisk::default());
        let environment = Environment {
            disk: Arc::clone(&disk) as Arc<dyn Disk>,
            ..Environment::real("").expect("randomness")
        };
        let log = CommitLog::open_owned(&root.join("log"), FILE_BYTES, |_| Ok(true), &*disk);
        fs::create_dir_all(root.join("ahead")).expect("a directory");
        let next = NextFile::open(&root.join("ahead"), FILE_BYTES, &*disk).expect("nothing there");
        Self {
            log: Arc::new(log.expect("a log")),
            next: Arc::new(next),
            disk,
            environment,
        }
    }

    fn writer(&self, end: i64) -> LogWriter {
        let (log, next) = (Arc::clone(&self.log), Arc::clone(&self.next));
        LogWriter::new(log, next, self.environment.clone(), end, false).expect("disk space")
    }
}

/// Writes a request of one record; gives where it lies.
fn write(writer: &mut LogWriter, size: usize) -> i64 {
    let at = writer.reserve(size).expect("disk space");
    writer.put(size, |out| out.fill(7)).expect("written");
    writer.finish().expect("written");
    assert_eq!(writer.end(), at + size as i64);
    at
}

#[test]
fn test_a_file_holds_a_request_that_leaves_room_for_the_end_marker_and_none_larger() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let mut writer = bench.writer(0);
    let largest = FILE_BYTES as usize - END;
    assert_eq!(writer.largest(), largest);
    let refused = writer.reserve(largest + 1).expect_err("too large");
    assert_eq!(refused.code(), "REQUEST_TOO_LARGE");
    assert_eq!(bench.log.files().len(), 0, "nothing was made for it");
    assert_eq!(write(&mut writer, largest), 0);
    assert_eq!(writer.left(), END);
    assert_eq!(write(&mut writer, 1), FILE_BYTES as i64, "it rolls");
    let closed = fs::read(bench.log.files()[0].file.path()).expect("a file");
    assert_eq!(closed[largest..], end_of_file(END));
}

#[test]
fn test_a_request_rolls_where_it_would_leave_no_room_for_the_end_marker() {
    for (left, rolls) in [(100 + END, false), (100 + END - 1, true)] {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = Bench::new(dir.path());
        let mut writer = bench.writer(0);
        let first = FILE_BYTES as usize - left;
        write(&mut writer, first);
        let at = write(&mut writer, 100);
        assert_eq!(at == FILE_BYTES as i64, rolls, "{left} bytes left");
        if rolls {
            let closed = fs::read(bench.log.files()[0].file.path()).expect("a file");
            assert_eq!(closed[first..first + END], end_of_file(left));
        }
    }
}

#[test]
fn test_the_next_file_begins_behind_the_log_and_behind_the_end_whichever_is_further() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let base = FILE_BYTES as i64;
    let mut writer = bench.writer(3 * base + 5);
    assert_eq!(
        write(&mut writer, 10),
        4 * base,
        "no file holds the end: behind it"
    );
    let mut writer = bench.writer(4 * base + 10);
    let at = write(&mut writer, FILE_BYTES as usize - END);
    assert_eq!(at, 5 * base);
    // As a cut leaves it: the end lies in a file before the last.
    let mut writer = bench.writer(4 * base + 10);
    writer.close_file().expect("disk space");
    assert_eq!(writer.end(), 6 * base, "behind the last file");
    let bases: Vec<i64> = bench.log.files().iter().map(|file| file.base).collect();
    assert_eq!(bases, [4 * base, 5 * base, 6 * base]);
}

#[test]
fn test_a_file_made_ahead_for_another_place_is_not_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    bench
        .next
        .make(7 * FILE_BYTES as i64, &bench.environment)
        .expect("disk space");
    let mut writer = bench.writer(0);
    assert_eq!(write(&mut writer, 10), 0);
    let names: Vec<String> = fs::read_dir(dir.path().join("log"))
        .expect("files")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(names, [format!("{:020}", 0)]);
    assert_eq!(
        fs::read_dir(dir.path().join("ahead"))
            .expect("files")
            .count(),
        0
    );
}

#[test]
fn test_the_next_file_is_asked_for_once_a_file_when_three_quarters_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let mut writer = bench.writer(0);
    assert!(writer.wants_next(), "there is no file yet");
    let three_quarters = FILE_BYTES as usize / 4 * 3;
    write(&mut writer, three_quarters);
    assert!(!writer.is_nearly_full() && !writer.wants_next());
    write(&mut writer, 1);
    assert!(writer.is_nearly_full());
    assert!(writer.wants_next());
    assert!(!writer.wants_next(), "it was told");
    write(&mut writer, three_quarters);
    assert_eq!(bench.log.files().len(), 2);
    assert!(
        !writer.is_nearly_full() && !writer.wants_next(),
        "of the new file"
    );
    write(&mut writer, 1);
    assert!(writer.wants_next(), "of the new file");
}

#[test]
fn test_what_is_gathered_is_written_by_blocks_and_a_larger_record_by_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let mut writer = bench.writer(0);
    for (sizes, written) in [
        (vec![BLOCK / 2, BLOCK / 2], vec![BLOCK]),
        (
            vec![BLOCK / 2, BLOCK / 2 + 1],
            vec![BLOCK / 2, BLOCK / 2 + 1],
        ),
        (vec![BLOCK, 1], vec![BLOCK, 1]),
        (vec![5, BLOCK + 100, 5], vec![5, BLOCK + 100, 5]),
    ] {
        let total: usize = sizes.iter().sum();
        let at = writer.reserve(total).expect("disk space");
        bench.disk.take_writes();
        for (number, size) in sizes.iter().enumerate() {
            writer
                .put(*size, |out| out.fill(number as u8 + 1))
                .expect("written");
        }
        assert_eq!(writer.end(), at, "not before it is finished");
        writer.finish().expect("written");
        let writes = bench.disk.take_writes();
        assert_eq!(
            writes.iter().map(|(_, length)| *length).collect::<Vec<_>>(),
            written
        );
        let file = bench.log.file_at(at).expect("a file");
        let bytes = file.file.bytes((at - file.base) as usize, total);
        let wanted: Vec<u8> = (1..)
            .zip(&sizes)
            .flat_map(|(byte, size)| vec![byte; *size])
            .collect();
        assert!(bytes == wanted);
    }
}

#[test]
fn test_a_request_that_was_not_finished_is_overwritten_by_the_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let mut writer = bench.writer(0);
    write(&mut writer, 10);
    writer.reserve(20).expect("disk space");
    writer.put(20, |out| out.fill(9)).expect("gathered");
    assert_eq!(write(&mut writer, 10), 10);
    writer.cut(10);
    assert_eq!(
        (writer.end(), writer.left()),
        (10, FILE_BYTES as usize - 10)
    );
    assert_eq!(write(&mut writer, 5), 10);
}

/// Contract: of two names that are not on the disk a power cut may leave the later one alone, a log with a hole.
#[test]
fn test_no_file_gets_its_name_before_that_of_the_one_before_it_is_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::new(dir.path());
    let directories = || bench.disk.directories.load(Ordering::SeqCst);
    let mut writer = bench.writer(0);
    write(&mut writer, 10);
    let before = directories();
    writer.close_file().expect("disk space");
    assert_eq!(directories(), before + 1, "the first one's");
    bench.log.sync_names(&*bench.disk).expect("synced");
    let before = directories();
    writer.close_file().expect("disk space");
    assert_eq!(directories(), before, "a flush has brought it there");
}

#[test]
fn test_blocks_begin_their_way_to_the_disk_as_they_are_written_where_a_flush_follows_and_nowhere_else()
 {
    for flush_follows in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(RefusingDisk::default());
        let bench = Bench::new(dir.path());
        let environment = Environment {
            disk: Arc::clone(&disk) as Arc<dyn Disk>,
            ..bench.environment.clone()
        };
        let (log, next) = (Arc::clone(&bench.log), Arc::clone(&bench.next));
        let mut writer =
            LogWriter::new(log, next, environment, 0, flush_follows).expect("disk space");
        writer.reserve(1).expect("disk space");
        writer.close_file().expect("disk space");
        // In the second file, a place of the log is none of the file.
        let base = writer.end();
        for sizes in [vec![100], vec![BLOCK - 50, 60, BLOCK, 5]] {
            writer.reserve(sizes.iter().sum()).expect("disk space");
            for size in &sizes {
                writer.put(*size, |out| out.fill(1)).expect("written");
            }
            writer.finish().expect("written");
        }
        let (block, at) = (BLOCK as u64, writer.end() - base);
        assert_eq!(at as usize, 100 + BLOCK - 50 + 60 + BLOCK + 5);
        let blocks = vec![
            (100, block - 50),
            (100 + block - 50, 60),
            (100 + block + 10, block),
        ];
        let wanted = if flush_follows { blocks } else { vec![] };
        let begun = std::mem::take(&mut *disk.begun.lock().expect("no panic"));
        assert_eq!(begun, wanted, "the last of each waits for its flush");
        // A record that is larger than a block and the first of its request has nothing before it.
        writer.reserve(BLOCK + 1).expect("disk space");
        writer.put(BLOCK + 1, |out| out.fill(1)).expect("written");
        writer.finish().expect("written");
        assert!(disk.begun.lock().expect("no panic").is_empty());
    }
}
