//! A reader that lives on while the owner stops and starts again.
//!
//! Contract: whatever files the stop or the start replaced, the reader goes on with those the owner uses: it
//! sees every message once, none as damaged, and finds new ones by key.

use std::fs;
use std::path::Path;

use lakemq_store::reader::Reader;

use crate::support::{FindJson, bulk, copy, everything, open, read_beside, send};

/// Puts a copy in the place of every file below `directory`, as a restored backup or a lost and remade file is.
fn replace_files(directory: &Path) {
    let copied = directory.with_extension("copy");
    copy(directory, &copied);
    fs::remove_dir_all(directory).expect("removed");
    fs::rename(copied, directory).expect("renamed");
}

#[test]
fn test_a_reader_goes_on_with_the_files_the_owner_uses_after_a_restart() {
    for (clean, replaced) in [
        (true, vec![]),
        (false, vec![]),
        (true, vec!["commitlog"]),
        (false, vec!["commitlog"]),
        (false, vec!["commitlog", "consumequeue", "index"]),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        // More than three quarters of a file of 64 KiB, so that the next one is made ahead.
        let mut expected = bulk(&store, "t", 48);
        let reader = Reader::open(dir.path()).expect("a reader");
        assert_eq!(read_beside(&reader, "t", 0), expected);
        store.close().expect("closed");
        drop(store);
        if !clean {
            fs::write(dir.path().join("abort"), b"1").expect("written");
        }
        for name in &replaced {
            replace_files(&dir.path().join(name));
        }
        let store = open(dir.path());
        for number in 0..60 {
            let body = format!("new-{number}-{}", "y".repeat(500));
            send(&store, "t", &[&body]);
            expected.push(body);
        }
        assert_eq!(
            read_beside(&reader, "t", 0),
            expected,
            "clean {clean}, replaced {replaced:?}"
        );
        let key = format!("key-{}", expected[100]);
        let found = reader
            .messages_json("t", &key, (0, i64::MAX), 10)
            .expect("an answer");
        assert_eq!(found.len(), 1, "clean {clean}, replaced {replaced:?}");
    }
}

#[test]
fn test_what_a_reader_read_while_a_start_changed_the_queues_is_refused() {
    for recovers in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = Some(open(dir.path()));
        bulk(store.as_ref().expect("open"), "t", 48);
        let reader = Reader::open(dir.path()).expect("a reader");
        let read = reader.read("t", 0, &everything(0), |_, _| {
            if let Some(before) = store.take().filter(|_| recovers) {
                before.close().expect("closed");
                drop(before);
                fs::write(dir.path().join("abort"), b"1").expect("written");
                fs::remove_dir_all(dir.path().join("consumequeue")).expect("lost");
                open(dir.path()).close().expect("closed");
            }
            Ok(())
        });
        match read {
            Err(error) => assert!(
                recovers && error.code() == "SERVICE_NOT_AVAILABLE",
                "{error:?}"
            ),
            Ok(_) => assert!(!recovers, "it may have read what the start was changing"),
        }
        assert_eq!(read_beside(&reader, "t", 0).len(), 48);
    }
}
