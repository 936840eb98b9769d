//! A message: what a producer hands in, the record it becomes, and how both are read.
//!
//! Invariants: nothing here knows files, queues or locks.

pub mod compress;
pub mod hash;
pub mod message_id;
pub mod new_message;
pub mod properties;
pub mod record;
pub mod reserved;
pub mod sys_flag;
mod view;

pub use hash::java_hash;
pub use message_id::offset_id;
pub use new_message::NewMessage;
pub use view::{MAX_FOREIGN_QUEUE_ID, RecordView, ViewError};
