//! What clients send and see: requests parsed, answers rendered, as JSON, NDJSON and Arrow.
//!
//! Invariants: nothing here knows queues, files or threads, and nothing that stores messages knows this: another
//! protocol can stand beside it.

pub mod answer;
pub mod request;
