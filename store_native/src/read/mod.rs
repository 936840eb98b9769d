//! Reading: slices of a queue, and single messages by id, key or time. What becomes of a record that was read is
//! the caller's.
//!
//! Invariants: nothing is written, and every record given out passed its checksum.
//! Threads: any.

mod epoch_memory;
mod epoch_offsets;
mod queue_reader;
mod slice;

pub use epoch_memory::EpochMemory;
pub use epoch_offsets::{EpochOffset, QueueEpochs, ShownEpochs};
pub use queue_reader::{Bounds, QueueReader};
pub use slice::{SliceMeta, SliceRequest, Status};
