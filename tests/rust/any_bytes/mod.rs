//! What holds for any bytes that come from outside: files that a disk gave back, bodies that a client sent.
//!
//! Contract: no bytes make a function panic or take memory out of proportion to them; what is accepted reads back the
//! same when it is written again; what is not is refused by an error that names it.
//! One function a target, used by the fuzzer (`store_native/fuzz`) and by `tests/rust/corpus.rs`, which runs the corpus
//! and changes of it in `make test`. Where a checksum would keep the fuzzer out, the bytes are looked at twice: as they
//! are, and with the checksum made right.

mod index;
mod queue;
mod record;
mod requests;
mod small_files;
mod watermarks;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lakemq_store::environment::{Disk, RealDisk};
use lakemq_store::error::StoreError;
use lakemq_store::paths::StorePaths;

pub use index::index;
pub use queue::queue;
pub use record::{change, properties, record, tags};
pub use requests::{arrow, json, ndjson};
pub use small_files::{config, epochs, identity, keys, snapshot};
pub use watermarks::watermarks;

/// What holds, of some bytes.
pub type Holds = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: [(&str, Holds); 15] = [
    ("arrow", arrow),
    ("change", change),
    ("config", config),
    ("epochs", epochs),
    ("identity", identity),
    ("index", index),
    ("json", json),
    ("keys", keys),
    ("ndjson", ndjson),
    ("properties", properties),
    ("queue", queue),
    ("record", record),
    ("snapshot", snapshot),
    ("tags", tags),
    ("watermarks", watermarks),
];

/// The real disk, but for waiting: nothing is told of it here.
struct Unsynced;

impl Disk for Unsynced {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    static SCRATCH: tempfile::TempDir = directory();
}

/// In memory where there is such a place: files are made by the thousand.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a directory")
}

/// An empty directory of this thread's own.
fn scratch(name: &str) -> PathBuf {
    let path = SCRATCH.with(|dir| dir.path().join(name));
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        outcome => outcome.expect("removed"),
    }
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// A store's directories with nothing in them.
fn empty_store() -> StorePaths {
    let paths = StorePaths::new(scratch("store"));
    fs::create_dir_all(paths.lakemq()).expect("a directory");
    fs::create_dir_all(paths.config()).expect("a directory");
    paths
}

/// The bytes are damage, and the error says of which file.
fn is_damage_of(error: &StoreError, path: &Path) {
    assert_eq!(error.code(), "DATA_CORRUPT", "{error}");
    let name = path.file_name().expect("a name").to_string_lossy();
    assert!(error.detail().contains(&*name), "{name}: {error}");
}
