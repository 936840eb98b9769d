//! Faults that tests inject: named points of the store's work at which the process dies, a thread panics or waits.
//!
//! Invariants: where none is set, passing a point changes nothing.
//! Threads: any passes; what is left of a count is atomic.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;

use crate::error::{Result, StoreError};

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
pub struct FaultPoints {
    left: HashMap<Point, (AtomicU64, Kind)>,
    hook: Option<Hook>,
}

impl std::fmt::Debug for FaultPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultPoints").field("left", &self.left).finish_non_exhaustive()
    }
}

impl FaultPoints {
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
                Kind::Kill => crate::sys::kill_self(),
                #[allow(clippy::panic, reason = "asked for by a test")]
                Kind::Panic => panic!("injected at {point:?}"),
            }
        }
    }
}
