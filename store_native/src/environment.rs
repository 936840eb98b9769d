//! What the store takes from outside: disk, clock, random bytes, the operator's events, and (in tests) faults.
//!
//! Invariants: they come in through [`Environment`], so that a test injects a failing fsync, a full disk or a crash
//! at a named point instead of patching code. No other module asks the machine for the time.
//! Threads: all of them share one; what it holds is `Sync`.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use crate::disk::{Disk, RealDisk};
use crate::error::{Result, StoreError};
use crate::events::Events;
use crate::faults::FaultPoints;

/// The time of day, and the time that passes.
pub trait Clock: Send + Sync {
    /// Epoch milliseconds, as the machine believes them now: it may jump either way.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment, at the pace of time: waiting goes by it. A clock whose time of day
    /// never jumps need not tell the two apart.
    fn monotonic_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "this is where the machine is asked")]
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }

    fn monotonic_ms(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as i64
    }
}

/// Measures how long something takes, for figures and for threads that wait: never for what a turn of work does or
/// stores, which goes by [`Environment::timer`], so that it is done alike when it is done again.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins to measure.
    #[allow(clippy::disallowed_methods, reason = "this is where the machine is asked")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What has passed since.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Measures the time that passes by the environment's clock.
#[derive(Clone, Copy)]
pub struct Timer<'e> {
    clock: &'e dyn Clock,
    since: i64,
}

impl Timer<'_> {
    /// What has passed since it was started.
    pub fn elapsed(&self) -> Duration {
        Duration::from_millis((self.clock.monotonic_ms() - self.since).max(0) as u64)
    }
}

/// Everything from outside, in one value.
#[derive(Clone)]
pub struct Environment {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub faults: Arc<FaultPoints>,
    /// What the operator should know.
    pub events: Arc<Events>,
    /// Random bytes, new at each opening: the prefix of message ids.
    pub random: [u8; 16],
}

impl Environment {
    /// Begins to measure.
    pub fn timer(&self) -> Timer<'_> {
        Timer { clock: &*self.clock, since: self.clock.monotonic_ms() }
    }

    /// The real machine.
    ///
    /// # Errors
    /// When the system has no randomness to give, or `faults` is not readable.
    pub fn real(faults: &str) -> Result<Self> {
        let mut random = [0u8; 16];
        #[allow(clippy::disallowed_methods, reason = "no file of a disk")]
        let source = File::open("/dev/urandom");
        source
            .and_then(|mut f| io::Read::read_exact(&mut f, &mut random))
            .map_err(|e| StoreError::io("reading random bytes", e))?;
        Ok(Self {
            disk: Arc::new(RealDisk),
            clock: Arc::new(SystemClock),
            faults: Arc::new(FaultPoints::parse(faults)?),
            events: Arc::default(),
            random,
        })
    }
}
