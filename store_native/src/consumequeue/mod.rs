//! Consume queues: for each message queue, where its messages lie in the commit log.
//!
//! Invariants: a queue is derived from the log and can be built again from it.

pub mod entry;
pub mod files;
mod front;
mod handles;
pub mod queue;
pub mod store;
pub mod table;
mod tail;

pub use entry::{ENTRY_BYTES, Entry};
pub use files::QueueFiles;
pub use queue::{Queue, Staged};
pub use store::{QueueKey, QueueStore};
pub use table::QueueTable;
pub use tail::TailState;
