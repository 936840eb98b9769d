//! What is on the disk when the store says so, held against a disk that keeps to the letter of fsync.
//!
//! Contract: a name counts only when its directory was synced, bytes only when a sync of their file returned;
//! after a failed sync the kernel may hold the pages for clean, and no later sync writes them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use lakemq_store::environment::{Disk, Environment, RealDisk};
use lakemq_store::store::{Options, Store};

use crate::support::{SOON, bodies, copy, environment, message, options, request, send};

#[derive(Default)]
struct Platter {
    /// By inode: bytes written and not synced, and those on the platter.
    dirty: HashMap<u64, Vec<(u64, Vec<u8>)>>,
    synced: HashMap<u64, Vec<u8>>,
    names: HashSet<PathBuf>,
}

/// Remembers what a power loss would leave of what was written through it.
#[derive(Default)]
struct LetterOfFsync {
    platter: Mutex<Platter>,
    fail_sync: AtomicBool,
    /// Syncs of files whose path holds this fail.
    fail_below: Mutex<Option<&'static str>>,
    /// That many more syncs of a directory find no free descriptor.
    exhausted: AtomicU32,
}

impl Disk for LetterOfFsync {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.platter.lock().expect("no panic");
        let inode = file.metadata()?.ino();
        platter
            .dirty
            .entry(inode)
            .or_default()
            .push((offset, bytes.to_vec()));
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut platter = self.platter.lock().expect("no panic");
        let inode = file.metadata()?.ino();
        let dirty = platter.dirty.remove(&inode).unwrap_or_default();
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let below = *self.fail_below.lock().expect("no panic");
        if self.fail_sync.load(Ordering::SeqCst) || below.is_some_and(|part| is_below(&path, part))
        {
            return Err(io::Error::other("injected"));
        }
        let synced = platter.synced.entry(inode).or_default();
        for (offset, bytes) in dirty {
            let end = offset as usize + bytes.len();
            if synced.len() < end {
                synced.resize(end, 0);
            }
            synced[offset as usize..end].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let left = self.exhausted.load(Ordering::SeqCst);
        if left > 0 {
            self.exhausted.store(left - 1, Ordering::SeqCst);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mut platter = self.platter.lock().expect("no panic");
        for entry in fs::read_dir(directory)? {
            platter.names.insert(entry?.path());
        }
        RealDisk.sync_directory(directory)
    }
}

fn is_below(path: &Path, part: &str) -> bool {
    path.components().any(|name| name.as_os_str() == part)
}

impl LetterOfFsync {
    /// The file, as it is for all who read it, stands on the platter.
    fn check_file(&self, path: &Path) {
        let bytes = fs::read(path).expect("a file");
        let inode = fs::metadata(path).expect("a file").ino();
        let platter = self.platter.lock().expect("no panic");
        let mut synced = platter.synced.get(&inode).cloned().unwrap_or_default();
        synced.resize(bytes.len(), 0);
        let differs = (0..bytes.len()).find(|at| bytes[*at] != synced[*at]);
        assert_eq!(
            differs,
            None,
            "the first byte of {} that is not on the disk",
            path.display()
        );
    }

    /// All directories from `top` down to `root` have names on the platter.
    fn check_names_above(&self, root: &Path, top: &Path) {
        let platter = self.platter.lock().expect("no panic");
        for path in root.ancestors().take_while(|path| *path != top) {
            assert!(platter.names.contains(path), "the name {}", path.display());
        }
    }

    fn open(self: &Arc<Self>, root: &Path) -> Store {
        let environment = Environment {
            disk: self.clone(),
            ..environment()
        };
        Store::open(root, options(), environment).expect("a store")
    }

    /// The log up to `end` stands on the platter, with the names that lead to it.
    fn check(&self, root: &Path, end: i64) {
        let platter = self.platter.lock().expect("no panic");
        assert!(platter.names.contains(root), "the store's own name");
        assert!(
            platter.names.contains(&root.join("commitlog")),
            "the log's name"
        );
        let size = options().commitlog_file_size;
        for base in (0..end as u64).step_by(size as usize) {
            let path = root.join("commitlog").join(format!("{base:020}"));
            assert!(
                platter.names.contains(&path),
                "the name of {}",
                path.display()
            );
            let bytes = fs::read(&path).expect("a log file");
            let length = size.min(end as u64 - base) as usize;
            let inode = fs::metadata(&path).expect("a file").ino();
            let mut synced = platter.synced.get(&inode).cloned().unwrap_or_default();
            synced.resize(size as usize, 0);
            let differs = (0..length).find(|at| bytes[*at] != synced[*at]);
            assert_eq!(
                differs, None,
                "the first byte of {base} that is not on the disk, of {length}"
            );
        }
    }
}

#[test]
fn test_what_is_acknowledged_is_on_the_disk_with_all_the_names_that_lead_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("new").join("deep").join("store");
    let disk = Arc::new(LetterOfFsync::default());
    let store = disk.open(&root);
    let body = "b".repeat(9_000);
    for _ in 0..20 {
        let end = send(&store, "t", &[&body]).end_offset;
        disk.check(&root, end);
    }
    disk.check_names_above(&root, dir.path());
}

#[test]
fn test_a_start_that_finds_directories_which_a_killed_one_made_syncs_their_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("new").join("store");
    fs::create_dir_all(&root).expect("made, and killed before any sync");
    let disk = Arc::new(LetterOfFsync::default());
    send(&disk.open(&root), "t", &["stored"]);
    disk.check_names_above(&root, dir.path());
}

#[test]
fn test_after_a_failed_flush_the_next_start_writes_again_what_it_then_counts_as_stored() {
    for large in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("store");
        let disk = Arc::new(LetterOfFsync::default());
        let store = disk.open(&root);
        send(&store, "t", &["before"]);
        disk.fail_sync.store(true, Ordering::SeqCst);
        let body = "l".repeat(if large { 20_000 } else { 10 });
        let lost = store
            .append(&request("t"), &[message(&body)])
            .expect("appended");
        assert!(!store.wait_flushed(lost.end_offset, SOON));
        drop(store);
        disk.fail_sync.store(false, Ordering::SeqCst);
        let store = disk.open(&root);
        assert_eq!(bodies(&store, "t"), ["before", body.as_str()]);
        disk.check(&root, store.watermarks().1);
        let end = send(&store, "t", &["after"]).end_offset;
        disk.check(&root, end);
    }
}

#[test]
fn test_a_flush_that_finds_no_free_descriptor_waits_for_one_and_is_no_failed_flush() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let disk = Arc::new(LetterOfFsync::default());
    let store = disk.open(&root);
    let body = "b".repeat(9_000);
    for _ in 0..20 {
        disk.exhausted.store(3, Ordering::SeqCst);
        let end = send(&store, "t", &[&body]).end_offset;
        disk.check(&root, end);
    }
    assert_eq!(store.poisoned(), None);
}

fn snapshot(root: &Path) -> serde_json::Value {
    let bytes = fs::read(root.join("lakemq/snapshot.json")).expect("a snapshot");
    serde_json::from_slice(&bytes[9..]).expect("JSON")
}

#[test]
fn test_a_queue_whose_sync_failed_is_written_and_synced_again_though_nothing_new_comes() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let disk = Arc::new(LetterOfFsync::default());
    let store = disk.open(&root);
    send(&store, "t", &["before"]);
    store.checkpoint().expect("taken");
    let first = store.watermarks().2;
    send(&store, "t", &["one", "two"]);
    *disk.fail_below.lock().expect("no panic") = Some("consumequeue");
    store
        .checkpoint()
        .expect("a snapshot hangs on no queue file");
    let durable = &snapshot(&root)["queues_durable_offset"];
    assert!(
        durable.as_i64().expect("an offset") <= first,
        "{durable}: what failed does not count"
    );
    *disk.fail_below.lock().expect("no panic") = None;
    store.checkpoint().expect("taken");
    disk.check_file(&root.join("consumequeue/t/0/00000000000000000000"));
    assert_eq!(
        snapshot(&root)["queues_durable_offset"],
        store.watermarks().2
    );
}

#[test]
fn test_an_index_file_whose_sync_failed_is_written_and_synced_again_before_a_snapshot_counts_on_it()
{
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("store");
    let disk = Arc::new(LetterOfFsync::default());
    let store = disk.open(&root);
    send(&store, "t", &["before"]);
    store.checkpoint().expect("taken");
    let first = store.watermarks().2;
    send(&store, "t", &["one", "two"]);
    *disk.fail_below.lock().expect("no panic") = Some("index");
    for _ in 0..2 {
        store.checkpoint().expect_err("injected");
        assert_eq!(snapshot(&root)["applied_offset"], first);
    }
    *disk.fail_below.lock().expect("no panic") = None;
    store.checkpoint().expect("taken");
    assert_eq!(snapshot(&root)["applied_offset"], store.watermarks().2);
    for entry in fs::read_dir(root.join("index")).expect("a directory") {
        disk.check_file(&entry.expect("a file").path());
    }
}

/// Notes where zeros are written, and fails syncs while told to.
#[derive(Default)]
struct ErasingDisk {
    fail_sync: AtomicBool,
    zeroed: Mutex<Vec<(u64, u64)>>,
}

impl Disk for ErasingDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.iter().all(|b| *b == 0) {
            self.zeroed
                .lock()
                .expect("no panic")
                .push((offset, offset + bytes.len() as u64));
        }
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        RealDisk.sync(file)
    }
}

#[test]
fn test_a_tail_whose_erasing_failed_is_erased_again_however_long_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let crashed = tempfile::tempdir().expect("a directory");
    let options = || Options {
        commitlog_file_size: 8 << 20,
        ..options()
    };
    let store = Store::open(dir.path(), options(), environment()).expect("a store");
    let end = send(&store, "t", &["kept"]).end_offset;
    copy(dir.path(), crashed.path());
    drop(store);
    // Half a request behind the end, which no mark tells of.
    let tail = (end as u64 + 1, 6 << 20);
    let log = crashed.path().join("commitlog").join("0".repeat(20));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .expect("the log");
    file.write_all_at(&vec![7; (tail.1 - tail.0) as usize], tail.0)
        .expect("written");
    drop(file);
    let disk = Arc::new(ErasingDisk::default());
    let open = || {
        let environment = Environment {
            disk: disk.clone(),
            ..environment()
        };
        Store::open(crashed.path(), options(), environment)
    };
    disk.fail_sync.store(true, Ordering::SeqCst);
    assert!(open().is_err(), "the zeros are in memory only");
    disk.fail_sync.store(false, Ordering::SeqCst);
    disk.zeroed.lock().expect("no panic").clear();
    drop(open().expect("a store"));
    let mut zeroed = std::mem::take(&mut *disk.zeroed.lock().expect("no panic"));
    zeroed.sort_unstable();
    let mut reached = tail.0;
    for (from, to) in zeroed {
        if from <= reached {
            reached = reached.max(to);
        }
    }
    assert!(
        reached >= tail.1,
        "written again up to {reached} of {}",
        tail.1
    );
    assert!(
        !crashed.path().join("lakemq/erasing").exists(),
        "it is done"
    );
}

/// A disk on which the names in one directory cannot be synced, as on some file systems.
struct NoSyncOf(PathBuf);

impl Disk for NoSyncOf {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        if directory == self.0 {
            return Err(io::Error::from_raw_os_error(22)); // EINVAL;
        }
        RealDisk.sync_directory(directory)
    }
}

#[test]
fn test_a_new_store_is_made_below_a_directory_whose_names_cannot_be_synced() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().join("home");
    fs::create_dir_all(&home).expect("made");
    let environment = Environment {
        disk: Arc::new(NoSyncOf(dir.path().to_owned())),
        ..environment()
    };
    let store = Store::open(&home.join("store"), options(), environment).expect("a store");
    send(&store, "t", &["stored"]);
}
