//! A clock that a test lets jump.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use lakemq_store::environment::{Clock, Environment};
use lakemq_store::store::Store;

use crate::support::{environment, options};

/// A clock whose time of day a test may set while time goes on.
#[derive(Default)]
pub struct JumpingClock {
    time_of_day: AtomicI64,
    passed: AtomicI64,
}

impl JumpingClock {
    pub fn at(time_of_day: i64) -> Arc<Self> {
        Arc::new(Self {
            time_of_day: AtomicI64::new(time_of_day),
            passed: AtomicI64::new(5),
        })
    }

    pub fn pass(&self, ms: i64) {
        self.time_of_day.fetch_add(ms, Ordering::SeqCst);
        self.passed.fetch_add(ms, Ordering::SeqCst);
    }

    pub fn jump(&self, ms: i64) {
        self.time_of_day.fetch_add(ms, Ordering::SeqCst);
    }

    /// The machine starts: time that passes is counted from here.
    pub fn boot(&self) {
        self.passed.store(5, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now_ms(&self) -> i64 {
        self.time_of_day.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> i64 {
        self.passed.load(Ordering::SeqCst)
    }
}

pub const HOUR: i64 = 3_600_000;

pub fn open_at(path: &Path, clock: &Arc<JumpingClock>) -> Store {
    let environment = Environment {
        clock: clock.clone(),
        ..environment()
    };
    Store::open(path, options(), environment).expect("a store")
}
