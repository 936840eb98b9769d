//! LakeMQ's message store: Apache RocketMQ's on-disk format, written, recovered and read into Arrow.
//!
//! The way of a message: `wire` parses a request, `append` lays it behind the end of the `commitlog`, `flush` brings
//! it to the disk, `confirmation` says that nobody takes it back, `dispatch` makes queue entries (`consumequeue`),
//! `index` entries and state (`state`) of it, `read` gives it out, `wire` renders it. `store` puts the parts together;
//! `py` is the only part that knows Python.
//! Invariants: `unsafe` stands in `mapped_file` and `sys` only; nothing indexes or unwraps but where the reason
//! stands beside it, and nothing prints.
//! Threads: the four of a store (`store`), and those of callers.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::string_slice,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::dbg_macro,
        clippy::exit,
        clippy::print_stderr,
        clippy::print_stdout,
        clippy::disallowed_methods
    )
)]

pub mod ages;
pub mod append;
pub mod bootstrap;
pub mod calendar;
pub mod checkpoint;
pub mod commitlog;
pub mod confirmation;
pub mod consumequeue;
pub mod delay_times;
pub mod directory;
pub mod disk;
pub mod dispatch;
pub mod environment;
pub mod error;
pub mod events;
pub mod faults;
pub mod filter;
pub mod flush;
pub mod idempotence;
pub mod identity;
pub mod index;
pub mod inspect;
pub mod leases;
pub mod lifecycle;
pub mod lock;
pub mod maintenance;
pub mod mapped_file;
mod mapping;
pub mod message;
pub mod notify;
pub mod options;
pub mod page;
pub mod paths;
#[cfg(feature = "python")]
mod py;
pub mod read;
pub mod reader;
pub mod recovery;
pub mod schedule;
pub mod snapshot;
pub mod state;
pub mod store;
pub mod sync;
mod sys;
pub mod topic_view;
pub mod watermarks;
pub mod wire;
