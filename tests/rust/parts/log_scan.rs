//! Walking the log: where a file ends, which requests are whole, and where it goes on behind damage.

use std::fs;
use std::path::Path;

use lakemq_store::commitlog::CommitLog;
use lakemq_store::commitlog::scan::{
    Scanned, next_record_after_damage, request_is_whole, request_size, scan_at,
};
use lakemq_store::message::record::end_of_file;

use crate::records::{Sketch, record};

const FILE_BYTES: usize = 4096;

/// A log of files with these bytes at these offsets, zeros elsewhere.
fn log(directory: &Path, files: i64, parts: &[(i64, &[u8])]) -> CommitLog {
    for number in 0..files {
        let base = number * FILE_BYTES as i64;
        let mut bytes = vec![0; FILE_BYTES];
        for (offset, part) in parts {
            if (base..base + FILE_BYTES as i64).contains(offset) {
                let at = (offset - base) as usize;
                bytes[at..at + part.len()].copy_from_slice(part);
            }
        }
        fs::write(directory.join(format!("{base:020}")), bytes).expect("written");
    }
    CommitLog::open_for_reading(directory).expect("a log")
}

fn at(offset: i64) -> Vec<u8> {
    record(&Sketch::default(), offset)
}

#[test]
fn test_a_file_ends_where_no_end_marker_has_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = log(dir.path(), 1, &[(100, &end_of_file(FILE_BYTES - 100))]);
    let file = log.file_at(0).expect("a file");
    let end = FILE_BYTES as i64;
    for (offset, rolls) in [(100, true), (end - 7, true), (end - 8, false), (0, false)] {
        match scan_at(&file, offset) {
            Scanned::Roll(next) => assert!(rolls && next == end, "{offset}"),
            Scanned::Nothing { reason } => {
                assert!(!rolls && reason == "empty", "{offset}: {reason}")
            }
            Scanned::Record(_) => panic!("no record at {offset}"),
        }
    }
}

#[test]
fn test_a_record_counts_only_where_it_says_it_lies_and_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (good, moved) = (at(0), at(5));
    let mut torn = at(2000);
    torn[95] ^= 1;
    let log = log(dir.path(), 1, &[(0, &good), (1000, &moved), (2000, &torn)]);
    let file = log.file_at(0).expect("a file");
    assert!(
        matches!(scan_at(&file, 0), Scanned::Record(found) if found.end_offset() == good.len() as i64)
    );
    for offset in [1000, 2000] {
        let reason = match scan_at(&file, offset) {
            Scanned::Nothing { reason } => reason,
            other => panic!("{other:?}"),
        };
        assert_ne!(reason, "empty", "{offset}");
    }
}

#[test]
fn test_the_next_record_behind_damage_is_a_whole_one_before_the_limit_in_any_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut torn = at(300);
    torn[95] ^= 1;
    let long = "x".repeat(200);
    let second = record(
        &Sketch {
            topic: &long,
            ..Sketch::default()
        },
        600,
    );
    let third = at(FILE_BYTES as i64 + 50);
    let fourth = at(2 * FILE_BYTES as i64 + 9);
    let parts: [(i64, &[u8]); 5] = [
        (100, &at(100)),
        (300, &torn),
        (600, &second),
        (FILE_BYTES as i64 + 50, &third),
        (2 * FILE_BYTES as i64 + 9, &fourth),
    ];
    let log = log(dir.path(), 3, &parts);
    let next = |from, limit| next_record_after_damage(&log, from, limit);
    let end = 3 * FILE_BYTES as i64;
    assert_eq!(next(0, end), Some(100));
    assert_eq!(next(100, end), Some(100));
    assert_eq!(
        next(101, end),
        Some(600),
        "the torn one is none; one of the second format is"
    );
    assert_eq!(next(101, 600), None, "the limit");
    assert_eq!(next(101, 608), Some(600));
    assert_eq!(
        next(601, end),
        Some(FILE_BYTES as i64 + 50),
        "in the next file"
    );
    assert_eq!(next(601, FILE_BYTES as i64), None);
    assert_eq!(
        next(FILE_BYTES as i64 + 51, end),
        Some(2 * FILE_BYTES as i64 + 9)
    );
    assert_eq!(next(2 * FILE_BYTES as i64 + 10, end), None);
    assert_eq!(next(end, end + 100), None, "no file");
}

#[test]
fn test_a_request_of_several_is_whole_when_all_its_records_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = record(
        &Sketch {
            properties: &[("__LMQ_BATCH", "3")],
            ..Sketch::default()
        },
        0,
    );
    let size = first.len() as i64;
    let second = at(size);
    let third = at(size + second.len() as i64);
    let all = [first.clone(), second.clone(), third.clone()].concat();
    for (count, bytes) in [
        (1, &all[..first.len()]),
        (2, &all[..first.len() + second.len()]),
        (3, &all[..]),
    ] {
        let log = log(dir.path(), 1, &[(0, bytes)]);
        let file = log.file_at(0).expect("a file");
        let Scanned::Record(found) = scan_at(&file, 0) else {
            panic!("a record")
        };
        assert_eq!(request_is_whole(&file, &found), count == 3, "{count} of 3");
        assert_eq!(request_size(&file, 0), (count == 3).then_some(all.len()));
        if count > 1 {
            let Scanned::Record(alone) = scan_at(&file, size) else {
                panic!("a record")
            };
            assert!(request_is_whole(&file, &alone));
            assert_eq!(request_size(&file, size), Some(second.len()));
        }
    }
    let mut torn = all.clone();
    torn[all.len() - 30] ^= 1;
    let log = log(dir.path(), 1, &[(0, &torn)]);
    let file = log.file_at(0).expect("a file");
    let Scanned::Record(found) = scan_at(&file, 0) else {
        panic!("a record")
    };
    assert!(!request_is_whole(&file, &found), "the last of it is torn");
}

#[test]
fn test_the_size_of_a_request_is_found_in_any_file_of_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = 2 * FILE_BYTES as i64 + 50;
    let bytes = at(place);
    let log = log(dir.path(), 3, &[(place, &bytes)]);
    let file = log.file_at(place).expect("a file");
    assert_eq!(request_size(&file, place), Some(bytes.len()));
    assert_eq!(request_size(&file, place + 1), None);
}
