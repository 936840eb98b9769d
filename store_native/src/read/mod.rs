//! Reading: slices of a queue, and single messages by id, key or time. What becomes of a record that was read is
//! the caller's: see `wire`.

mod queue_reader;
mod slice;

pub use queue_reader::{Bounds, QueueReader};
pub use slice::{SliceMeta, SliceRequest, Status};
