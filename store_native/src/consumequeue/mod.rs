//! Consume queues: for each message queue, where its messages lie in the commit log.

pub mod entry;
pub mod queue;
pub mod table;

pub use entry::{ENTRY_BYTES, Entry};
pub use queue::Queue;
pub use table::QueueTable;
