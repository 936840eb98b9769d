//! A store in a scratch directory, its clock and disk in the test's hands, and short ways to fill and read it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use lakemq_store::environment::{Clock, Disk, Environment, RealDisk};
use lakemq_store::error::Result;
use lakemq_store::filter::Filter;
use lakemq_store::message::NewMessage;
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Appended, Options, Store};
use lakemq_store::wire::answer::{FoundJson, write_message};

/// Of a disk, so much is used.
pub const ROOMY: f64 = 0.1;
pub const SOON: Duration = Duration::from_secs(10);

pub fn options() -> Options {
    Options {
        commitlog_file_size: 64 * 1024,
        consumequeue_file_entries: 50,
        index_slots: 101,
        index_entries: 200,
        checkpoint_interval_ms: 3_600_000,
        ..Options::default()
    }
}

pub struct TestClock(pub AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A disk whose next calls can be made to fail.
#[derive(Default)]
pub struct FlakyDisk {
    pub fail_sync: AtomicBool,
    /// A write fails when half of its bytes stand in the file.
    pub fail_write: AtomicBool,
    pub full: AtomicBool,
    pub fail_remove: AtomicBool,
}

impl Disk for FlakyDisk {
    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.fail_remove.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        RealDisk.remove(path)
    }

    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(28));
        }
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.fail_write.load(Ordering::SeqCst) {
            RealDisk.write(file, offset, &bytes[..bytes.len() / 2])?;
            return Err(io::Error::other("injected"));
        }
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        RealDisk.sync(file)
    }

    fn used_ratio(&self, _path: &Path) -> io::Result<f64> {
        Ok(ROOMY)
    }
}

/// The machine's disk, but with room: what a test keeps does not go because others have filled it.
pub fn environment() -> Environment {
    Environment {
        disk: Arc::new(FlakyDisk::default()),
        ..Environment::real("").expect("randomness")
    }
}

pub fn open(path: &Path) -> Store {
    Store::open(path, options(), environment()).expect("a store")
}

/// A store whose disk fails when the test says so.
pub fn open_on_flaky_disk(path: &Path) -> (Store, Arc<FlakyDisk>) {
    let disk = Arc::new(FlakyDisk::default());
    let environment = Environment {
        disk: disk.clone(),
        ..environment()
    };
    (
        Store::open(path, options(), environment).expect("a store"),
        disk,
    )
}

pub fn request(topic: &str) -> AppendRequest<'_> {
    AppendRequest {
        topic,
        born_host: None,
        idempotency_key: None,
    }
}

pub fn message(body: &str) -> NewMessage<'_> {
    NewMessage {
        body: Cow::Borrowed(body.as_bytes()),
        keys: Some(Cow::Owned(format!("key-{body}"))),
        tags: Some(Cow::Borrowed("even")),
        queue_id: Some(0),
        wait_store_ok: true,
        ..NewMessage::default()
    }
}

/// Looks until something holds of which the store wakes nobody; says whether it came.
pub fn comes_true(store: &Store, mut condition: impl FnMut() -> bool) -> bool {
    let tick = Duration::from_millis(10);
    (0..1_000).any(|_| store.progress_wait(tick, &mut condition))
}

pub fn send(store: &Store, topic: &str, bodies: &[&str]) -> Appended {
    let messages: Vec<_> = bodies.iter().map(|b| message(b)).collect();
    let done = store.append(&request(topic), &messages).expect("stored");
    assert!(store.wait_dispatched(done.end_offset, SOON));
    done
}

pub fn bodies(store: &Store, topic: &str) -> Vec<String> {
    let everything = SliceRequest {
        offset: store.bounds(topic, 0).expect("a queue").min,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        filter: Filter::of_tags("*").expect("a filter"),
    };
    let mut out = Vec::new();
    let meta = store
        .read(topic, 0, &everything, |record, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        })
        .expect("readable");
    assert!(meta.damaged.is_empty(), "{:?}", meta.damaged);
    out
}

/// All messages from an offset on.
pub fn everything(offset: i64) -> SliceRequest {
    SliceRequest {
        offset,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        filter: Filter::All,
    }
}

/// Bodies of a topic's first queue from `offset` on, as a reader beside the owner sees them.
pub fn read_beside(reader: &Reader, topic: &str, offset: i64) -> Vec<String> {
    let slice = SliceRequest {
        offset,
        end_offset: None,
        max_messages: 100_000,
        max_bytes: usize::MAX,
        filter: Filter::All,
    };
    let mut out = Vec::new();
    let meta = reader
        .read(topic, 0, &slice, |record, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        })
        .expect("readable");
    assert!(meta.damaged.is_empty(), "{:?}", meta.damaged);
    out
}

/// Copies a directory, of a running store too: a file that is renamed meanwhile is left out.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            match fs::copy(entry.path(), target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => drop(outcome.expect("a copy")),
            }
        }
    }
}

/// Every file of a directory with its content, sorted.
pub fn image(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let content = fs::read(&path).expect("a file");
                out.push((path.strip_prefix(root).expect("below").to_owned(), content));
            }
        }
    }
    out.sort();
    out
}

pub fn bulk(store: &Store, topic: &str, count: usize) -> Vec<String> {
    let bodies: Vec<String> = (0..count)
        .map(|at| format!("{at}-{}", "x".repeat(500)))
        .collect();
    for chunk in bodies.chunks(10) {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        send(store, topic, &chunk);
    }
    bodies
}

/// Changes a store's newest snapshot.
pub fn patch_snapshot(root: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let path = root.join("lakemq/snapshot.json");
    let bytes = fs::read(&path).expect("a snapshot");
    let mut value = serde_json::from_slice(&bytes[9..]).expect("JSON");
    change(&mut value);
    let body = serde_json::to_vec(&value).expect("JSON");
    let crc = lakemq_store::message::record::crc31(&body);
    let mut out = format!("{crc:08x}\n").into_bytes();
    out.extend_from_slice(&body);
    fs::write(&path, out).expect("written");
}

/// What is found, as a broker answers it.
pub trait FindJson {
    fn messages_json(
        &self,
        topic: &str,
        key: &str,
        range: (i64, i64),
        limit: usize,
    ) -> Result<Vec<Vec<u8>>>;
}

impl FindJson for Store {
    fn messages_json(
        &self,
        topic: &str,
        key: &str,
        range: (i64, i64),
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut found = FoundJson::new("broker-a", usize::MAX);
        self.find(topic, key, range, limit, |record| found.take(record))?;
        Ok(found.oldest_first())
    }
}

impl FindJson for Reader {
    fn messages_json(
        &self,
        topic: &str,
        key: &str,
        range: (i64, i64),
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut found = FoundJson::new("broker-a", usize::MAX);
        self.find(topic, key, range, limit, |record| found.take(record))?;
        Ok(found.oldest_first())
    }
}

/// The message of an id, as a broker answers it.
pub fn message_json(store: &Store, id: &str, topic: Option<&str>) -> Option<Vec<u8>> {
    let mut json = Vec::new();
    let found = store.find_by_id(id, topic, |record| {
        write_message(&mut json, record, "broker-a")
    });
    found.expect("searched").then_some(json)
}
