//! Answers: what an append did, stored messages as JSON, and as Arrow columns.

mod append_answer;
mod columns;
mod found;
pub mod layout;
mod message_json;
mod property_columns;

pub use append_answer::AppendAnswer;
pub use columns::{Capacity, SliceBuilder, to_ipc};
pub use found::FoundJson;
pub use layout::ColumnSet;
pub use message_json::{write_message, write_string};
