//! What a slave far behind is sent leaves the system's memory again, and nothing else does.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use lakemq_store::store::{Options, Store};

use crate::support::*;

const FILE: usize = 4 << 20;

/// How many bytes of a file are in the system's memory.
fn resident(path: &Path) -> usize {
    const PAGE: usize = 4096;
    let file = File::open(path).expect("a file");
    let length = file.metadata().expect("its length").len() as usize;
    let mut pages = vec![0u8; length.div_ceil(PAGE)];
    // SAFETY: a mapping of this file for reading, looked at and given back; `pages` has a byte for each page.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, length, pages.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(at, length), 0);
    }
    pages.iter().filter(|page| **page & 1 == 1).count() * PAGE
}

/// Whether the directory's file system has files in other memory than its own.
fn can_let_go(directory: &Path) -> bool {
    let path = directory.join("probe");
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a file");
    file.write_all(&vec![1; 1 << 20]).expect("written");
    file.sync_all().expect("synced");
    // SAFETY: a plain system call on an open descriptor.
    let outcome = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    outcome == 0 && resident(&path) == 0
}

#[test]
fn test_what_a_far_slave_was_sent_leaves_memory_and_the_rest_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    if !can_let_go(dir.path()) {
        return; // files in memory alone, as a tmpfs has them
    }
    let options = Options {
        commitlog_file_size: FILE as u64,
        ..options()
    };
    let store = Store::open(dir.path(), options, environment()).expect("a store");
    let body = "x".repeat(20_000);
    let mut end = 0;
    while end < 3 * FILE as i64 {
        end = send(&store, "t", &[&*body; 10]).end_offset;
    }
    assert!(store.wait_dispatched(end, SOON));
    let files: Vec<_> = (0..3)
        .map(|at| {
            dir.path()
                .join("commitlog")
                .join(format!("{:020}", at * FILE))
        })
        .collect();
    let before: Vec<String> = bodies(&store, "t");
    let mut at = 0;
    while at < end {
        at = store.read_log(at, 128 << 10).expect("bytes").next_offset;
    }
    assert!(files.iter().all(|file| resident(file) > FILE / 2));
    // To the middle of the second file.
    store.let_go_of_log(0, (FILE + FILE / 2) as i64);
    let kept: Vec<usize> = files.iter().map(|file| resident(file)).collect();
    assert!(kept[0] < FILE / 10, "{kept:?}");
    assert!((FILE / 3..FILE * 2 / 3).contains(&kept[1]), "{kept:?}");
    assert!(kept[2] > FILE / 2, "{kept:?}");
    store.fetch_log(0, FILE as i64);
    assert!(
        resident(&files[0]) > FILE / 2,
        "it is back before it is read"
    );
    assert_eq!(
        bodies(&store, "t"),
        before,
        "it is read from the disk again"
    );
}
