//! Reading: slices of a queue, single messages by id, key or time, as Arrow or JSON.

pub mod columns;
mod json;
pub mod layout;
mod property_columns;
mod queue_reader;
mod slice;

pub use columns::{Capacity, SliceBuilder, to_ipc};
pub use json::{write_message, write_string};
pub use layout::ColumnSet;
pub use queue_reader::{Bounds, QueueReader};
pub use slice::{SliceMeta, SliceRequest, Status};
