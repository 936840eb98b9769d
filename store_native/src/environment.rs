//! What the store takes from outside: disk, clock, whom it tells, and (in tests) faults.
//!
//! They come in through [`Environment`], so that a test injects a failing fsync, a full disk or a crash
//! at a named point instead of patching code.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Result, StoreError};
use crate::events::Events;

/// The calls whose failure decides about durability.
pub trait Disk: Send + Sync {
    /// Reserves blocks for `length` bytes from `offset`, inside the file's length.
    ///
    /// # Errors
    /// ENOSPC where the disk is full; nothing was reserved then that a later call could not use.
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. In the log the blocks were reserved before.
    ///
    /// # Errors
    /// Any I/O error; a part may stand in the file then.
    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the file's data is on the disk.
    ///
    /// # Errors
    /// Any error is final for the caller: the pages it was about may be gone.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Has `length` bytes from `offset`, written before, begin their way to the disk, and does not wait for
    /// them: a [`Disk::sync`] that follows finds less to do. Promises nothing; where the system has no such
    /// call, nothing happens.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn begin_writeback(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        crate::mapped_file::begin_writeback(file, offset, length)
    }

    /// Used share of the file system that holds `path`, 0 to 1.
    ///
    /// # Errors
    /// When the file system does not say.
    fn used_ratio(&self, path: &Path) -> io::Result<f64> {
        crate::mapped_file::disk_used_ratio(path)
    }

    /// Returns when the names in `directory` are on the disk.
    ///
    /// # Errors
    /// Any I/O error; a name made since the last call may be gone after a power loss.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        crate::paths::sync_directory(directory)
    }

    /// Returns when everything written to the file system that holds `any` is on the disk: one call for
    /// ten thousand files.
    ///
    /// # Errors
    /// As [`Disk::sync`].
    fn sync_file_system(&self, any: &File) -> io::Result<()> {
        crate::mapped_file::sync_file_system(any)
    }
}

/// The machine's disk.
#[derive(Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn allocate(&self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        crate::mapped_file::allocate(file.as_raw_fd(), offset, length)
    }

    fn write(&self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

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

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }

    fn monotonic_ms(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as i64
    }
}

/// Named points at which a test may have the process killed, or a thread held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    AppendMid,
    AppendAfter,
    /// The maintenance thread is about to make the next log file.
    NextDecided,
    /// The next log file is made and has no name in the log yet.
    NextMade,
    /// The appender is about to roll.
    RollBefore,
    /// The old file is closed, the new one has no name in the log yet.
    Roll,
    /// The new file has its name and is not in use yet.
    RollNamed,
    FlushBefore,
    FlushAfter,
    DispatchMid,
    /// Files of queues are about to be made, without the dispatch lock.
    QueuesMake,
    CheckpointMid,
    SnapshotMid,
    /// A delayed message is due and about to be delivered.
    DeliverBefore,
    /// The oldest log file is to be deleted and still stands.
    ExpireDecided,
}

impl Point {
    const NAMES: [(&'static str, Self); 15] = [
        ("append.mid", Self::AppendMid),
        ("append.after", Self::AppendAfter),
        ("next.decided", Self::NextDecided),
        ("next.made", Self::NextMade),
        ("roll.before", Self::RollBefore),
        ("roll", Self::Roll),
        ("roll.named", Self::RollNamed),
        ("flush.before", Self::FlushBefore),
        ("flush.after", Self::FlushAfter),
        ("dispatch.mid", Self::DispatchMid),
        ("queues.make", Self::QueuesMake),
        ("checkpoint.mid", Self::CheckpointMid),
        ("snapshot.mid", Self::SnapshotMid),
        ("deliver.before", Self::DeliverBefore),
        ("expire.decided", Self::ExpireDecided),
    ];
}

/// What a test does at a point instead of dying there: wait, panic, count.
type Hook = Box<dyn Fn(Point) + Send + Sync>;

/// What happens at the last passing of a point.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Kill,
    Panic,
}

/// Kills the process with SIGKILL, or lets the thread panic, at the n-th passing of a point, or calls a test's
/// hook at each. Empty (the default) costs one branch.
#[derive(Default)]
pub struct Faults {
    left: HashMap<Point, (AtomicU64, Kind)>,
    hook: Option<Hook>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Faults {
    /// Reads `point:n[:panic][,point:n[:panic]]`.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` for an unknown point or a count that is no positive number.
    pub fn parse(text: &str) -> Result<Self> {
        let mut left = HashMap::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, count) = part.split_once(':').unwrap_or((part, "1"));
            let point = Point::NAMES.iter().find(|(n, _)| *n == name).map(|(_, p)| *p);
            let (count, kind) = match count.strip_suffix(":panic") {
                Some(count) => (count, Kind::Panic),
                None => (count, Kind::Kill),
            };
            match (point, count.parse::<u64>()) {
                (Some(point), Ok(count)) if count > 0 => left.insert(point, (AtomicU64::new(count), kind)),
                _ => {
                    let names: Vec<_> = Point::NAMES.iter().map(|(n, _)| *n).collect();
                    return Err(StoreError::invalid(
                        "ARGUMENT_ILLEGAL",
                        format!(
                            "fault [{part}] is not of the form point:count or point:count:panic, points: {}",
                            names.join(" ")
                        ),
                    ));
                }
            };
        }
        Ok(Self { left, hook: None })
    }

    /// Calls `hook` at each passing of a point, on the thread that passes it.
    pub fn hooked(hook: impl Fn(Point) + Send + Sync + 'static) -> Self {
        Self { left: HashMap::new(), hook: Some(Box::new(hook)) }
    }

    /// Whether a point is set at which the process dies.
    #[inline]
    pub fn is_set(&self) -> bool {
        !self.left.is_empty()
    }

    /// Counts a passing; does not return when it was the fatal one.
    ///
    /// # Panics
    /// Where the point is set to.
    #[inline]
    pub fn pass(&self, point: Point) {
        if self.left.is_empty() && self.hook.is_none() {
            return;
        }
        if let Some(hook) = &self.hook {
            hook(point);
        }
        if let Some((left, kind)) = self.left.get(&point)
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            match kind {
                Kind::Kill => crate::mapped_file::kill_self(),
                Kind::Panic => panic!("injected at {point:?}"),
            }
        }
    }
}

/// Everything from outside, in one value.
#[derive(Clone)]
pub struct Environment {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub faults: Arc<Faults>,
    /// What the operator should know.
    pub events: Arc<Events>,
    /// Random bytes, new at each opening: the prefix of message ids.
    pub random: [u8; 16],
}

impl Environment {
    /// The real machine.
    ///
    /// # Errors
    /// When the system has no randomness to give, or `faults` is not readable.
    pub fn real(faults: &str) -> Result<Self> {
        let mut random = [0u8; 16];
        let source = File::open("/dev/urandom");
        source
            .and_then(|mut f| io::Read::read_exact(&mut f, &mut random))
            .map_err(|e| StoreError::io("reading random bytes", e))?;
        Ok(Self {
            disk: Arc::new(RealDisk),
            clock: Arc::new(SystemClock),
            faults: Arc::new(Faults::parse(faults)?),
            events: Arc::default(),
            random,
        })
    }
}
