//! Any bytes given to the record decoder give a record or an error; a record's parts can all be read.
//!
//! Run with `cargo +nightly fuzz run record` (cargo-fuzz).

#![no_main]

use lakemq_store::message::compress::body_of;
use lakemq_store::message::{RecordView, properties};
use lakemq_store::read::write_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(record) = RecordView::parse(bytes) else { return };
    let _ = RecordView::parse_checked(bytes, record.physical_offset);
    let _ = properties::iter(record.properties).count();
    let _ = body_of(&record);
    let mut json = Vec::new();
    let _ = write_message(&mut json, &record, "broker-a");
    assert!(record.total_size as usize <= bytes.len());
});
