//! Which messages a reader asked for.

mod tags;

pub use tags::TagFilter;
