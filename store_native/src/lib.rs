//! LakeMQ's message store: Apache RocketMQ's on-disk format, written, recovered and read into Arrow.
//!
//! The way of a message: `ingest` parses a request, `store` appends it to the `commitlog`, the flusher
//! brings it to the disk, `dispatch` makes queue entries (`consumequeue`), `index` entries and state
//! (`meta`) of it, `read` gives it out. `py` is the only part that knows Python.

pub mod arrivals;
pub mod calendar;
pub mod checkpoint;
pub mod commitlog;
pub mod consumequeue;
pub mod dispatch;
pub mod environment;
pub mod error;
pub mod events;
pub mod filter;
pub mod idempotence;
pub mod identity;
pub mod index;
pub mod ingest;
pub mod inspect;
pub mod mapped_file;
pub mod message;
pub mod meta;
pub mod paths;
#[cfg(feature = "python")]
mod py;
pub mod read;
pub mod reader;
pub mod snapshot;
pub mod store;
pub mod topic_table;
pub mod watermarks;
