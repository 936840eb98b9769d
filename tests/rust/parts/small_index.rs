//! An index of few entries a file, with records put into it and found.

use std::path::Path;

use lakemq_store::index::{Index, Shape};
use lakemq_store::message::RecordView;

use crate::records::{CountingDisk, Sketch, record};

pub const SHAPE: Shape = Shape {
    slots: 7,
    entries: 6,
};

pub fn index(directory: &Path, disk: &CountingDisk) -> Index {
    Index::open(directory, SHAPE, true, disk).expect("an index")
}

/// Puts a record with these properties into the index.
pub fn put(
    index: &Index,
    disk: &CountingDisk,
    properties: &[(&str, &str)],
    (offset, time): (i64, i64),
) {
    let bytes = record(
        &Sketch {
            store_timestamp: time,
            properties,
            ..Sketch::default()
        },
        offset,
    );
    let record = RecordView::parse(&bytes).expect("a record");
    index.put(&record, disk).expect("disk space");
}

pub fn found(index: &Index, key: &str) -> Vec<i64> {
    index.find("t", key, 0, i64::MAX, 100)
}
