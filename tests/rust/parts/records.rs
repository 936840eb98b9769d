//! Records as the store writes them, and a disk that counts what is asked of it.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lakemq_store::environment::{Disk, RealDisk};
use lakemq_store::message::properties;
use lakemq_store::message::record::{Place, Plan, crc31};

/// What a record is to say; the rest is the same in all.
#[derive(Debug, Clone)]
pub struct Sketch<'a> {
    pub topic: &'a str,
    pub body: &'a [u8],
    pub queue_id: i32,
    pub queue_offset: i64,
    pub sys_flag: i32,
    pub store_timestamp: i64,
    pub properties: &'a [(&'a str, &'a str)],
}

impl Default for Sketch<'_> {
    fn default() -> Self {
        Self {
            topic: "t",
            body: b"body",
            queue_id: 0,
            queue_offset: 0,
            sys_flag: 0,
            store_timestamp: 1000,
            properties: &[],
        }
    }
}

/// The record's bytes, at a place of the log.
pub fn record(sketch: &Sketch<'_>, physical_offset: i64) -> Vec<u8> {
    let host: SocketAddr = "127.0.0.1:8090".parse().expect("an address");
    let mut encoded = Vec::new();
    for (name, value) in sketch.properties {
        properties::push(&mut encoded, name, value);
    }
    let plan = Plan {
        topic: sketch.topic,
        body: sketch.body,
        body_crc: crc31(sketch.body),
        properties: 0..encoded.len(),
        queue_id: sketch.queue_id,
        flag: 0,
        sys_flag: sketch.sys_flag,
        born_timestamp: 900,
        born_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
    };
    let mut out = vec![0; plan.size(host)];
    let place = Place {
        queue_offset: sketch.queue_offset,
        physical_offset,
        store_timestamp: sketch.store_timestamp,
        store_host: host,
    };
    plan.encode(&mut out, &encoded, &place);
    out
}

/// The real disk, which counts, and fails when it is told to.
#[derive(Default)]
pub struct CountingDisk {
    pub syncs: AtomicU64,
    pub fail_sync: AtomicBool,
    pub directories: AtomicU64,
    /// (offset, length) of each write.
    pub writes: Mutex<Vec<(u64, usize)>>,
}

impl CountingDisk {
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    pub fn take_writes(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.writes.lock().expect("no panic"))
    }
}

impl Disk for CountingDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        RealDisk.allocate(file, offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writes
            .lock()
            .expect("no panic")
            .push((offset, bytes.len()));
        RealDisk.write(file, offset, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::other("injected"));
        }
        self.syncs.fetch_add(1, Ordering::SeqCst);
        RealDisk.sync(file)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.directories.fetch_add(1, Ordering::SeqCst);
        RealDisk.sync_directory(directory)
    }
}
