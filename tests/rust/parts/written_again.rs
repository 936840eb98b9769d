//! What a start writes to the log: it writes again what was appended and is not known to be on the disk, and nothing
//! else of it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::store::{Store, Work};

use crate::support::{bodies, copy, environment, message, options, request};

/// Notes what is written to files of the log: the file, from where, up to where.
#[derive(Default)]
struct Noting(Mutex<Vec<(PathBuf, u64, u64)>>);

impl Disk for Noting {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if path
            .parent()
            .is_some_and(|parent| parent.ends_with("commitlog"))
        {
            let end = offset + bytes.len() as u64;
            self.0.lock().expect("no panic").push((path, offset, end));
        }
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }
}

#[test]
fn test_a_start_writes_again_what_was_appended_and_not_flushed() {
    // In the log's first file, in its second one, and over the border of both.
    for (flushed, behind) in [(10, 5), (75, 5), (60, 30)] {
        let dir = tempfile::tempdir().expect("a directory");
        let copied = tempfile::tempdir().expect("a directory");
        let store = Store::open_at_rest(dir.path(), options(), environment()).expect("a store");
        let body = "x".repeat(800);
        for number in 0..flushed + behind {
            store
                .append(&request("t"), &[message(&body)])
                .expect("stored");
            if number < flushed {
                store.work(Work::Flush).expect("flushed");
            }
        }
        let (end, from, ..) = store.watermarks();
        assert!(from < end);
        copy(dir.path(), copied.path());
        let disk = Arc::new(Noting::default());
        let noted = Environment {
            disk: disk.clone(),
            ..environment()
        };
        let again = Store::open_at_rest(copied.path(), options(), noted).expect("a store");
        assert_eq!(again.watermarks(), (end, end, end, end));
        assert_eq!(bodies(&again, "t").len(), flushed + behind);
        let mut written: Vec<(i64, i64)> = Vec::new();
        for (path, start, stop) in disk.0.lock().expect("no panic").iter() {
            let name = path.file_name().and_then(|name| name.to_str());
            let base: i64 = name.and_then(|name| name.parse().ok()).expect("an offset");
            let (start, stop) = (base + *start as i64, base + *stop as i64);
            match written.last_mut() {
                Some(last) if last.1 == start => last.1 = stop,
                _ => written.push((start, stop)),
            }
        }
        assert_eq!(written, [(from, end)], "{flushed} and {behind}");
    }
}
