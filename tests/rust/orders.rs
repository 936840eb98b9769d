//! What threads of the store share, in every order of their steps that the memory model allows (loom).
//!
//! Contract: no wake-up is lost; who sees a mark, a maximum or a notification sees what lies before it; the marks
//! never overtake each other; a roll leaves the files that the log has and no other.
//! Compiled to nothing without `--cfg loom`: `make chaos ONLY=ORDERS` runs them. What is checked is the shipped code,
//! whose locks and atomics come from `lakemq_store::sync`.
#![cfg(loom)]

#[path = "orders/marks.rs"]
mod marks;
#[path = "orders/queues.rs"]
mod queues;
#[path = "orders/roll.rs"]
mod roll;
#[path = "orders/waiting.rs"]
mod waiting;
