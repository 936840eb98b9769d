//! Who holds a group: leases with a fencing epoch.
//!
//! `Leases` owns the table of holds; the epoch of each is a record in the log.
//! Invariants: an epoch is given to one owner only, also over a power cut: nobody hears of a hold before its record
//! is confirmed and dispatched. Holds end by the time that passes, not by the time of day.
//! Threads: those of callers.

use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::append::Appender;
use crate::dispatch::Dispatch;
use crate::environment::Clock;
use crate::error::{Result, StoreError};
use crate::lifecycle::Lifecycle;
use crate::lock::lock;
use crate::state::{Lease, MetaState, Op, names};
use crate::watermarks::Watermarks;

/// How long the owner of a lease taken before a restart may take to renew it.
const LEASE_GRACE_MS: i64 = 10_000;
/// How long a lease waits for its record.
const LEASE_CONFIRMED_IN: Duration = Duration::from_secs(5);

/// Who holds a group now.
#[derive(Debug, Clone)]
pub struct LeaseHold {
    pub owner: String,
    pub epoch: i64,
    /// Epoch milliseconds, for people; what counts is `deadline`.
    pub expires_at: i64,
    /// When it ends, by the monotonic clock.
    deadline: i64,
    /// The end of the record that grants it: nobody hears of it before that is confirmed.
    end_offset: i64,
}

impl LeaseHold {
    fn give_up(&mut self) {
        self.owner.clear();
        self.expires_at = 0;
        self.deadline = i64::MIN;
    }
}

/// Holds by group, as granted in one epoch; of no epoch while what the log says is not known to its end.
struct Holds {
    epoch: Option<i64>,
    of: HashMap<String, LeaseHold>,
}

/// The holds; see the module.
pub struct Leases {
    holds: Mutex<Holds>,
    clock: Arc<dyn Clock>,
    appender: Arc<Appender>,
    dispatch: Arc<Dispatch>,
    marks: Arc<Watermarks>,
    lifecycle: Arc<Lifecycle>,
}

impl Leases {
    /// The leases that the log holds, as after a start: their owners have a moment to renew them.
    pub fn new(
        clock: Arc<dyn Clock>,
        appender: Arc<Appender>,
        dispatch: Arc<Dispatch>,
        marks: Arc<Watermarks>,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        let known = |(epoch, from)| (marks.dispatched() >= from).then_some(epoch);
        let epoch = appender.mastership().and_then(known);
        let holds = Holds { epoch, of: holds_of(dispatch.applied().state(), &*clock) };
        Self { holds: Mutex::new(holds), clock, appender, dispatch, marks, lifecycle }
    }

    /// The holds of the epoch in which this broker is the master. In a new one, and after a start, they begin with what
    /// the log says, when all of it from before is dispatched: another master, or this one, may have granted since.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a slave, and until then.
    fn current(&self) -> Result<MutexGuard<'_, Holds>> {
        let unavailable = |detail: &str| StoreError::Unavailable {
            code: "SERVICE_NOT_AVAILABLE",
            detail: detail.to_owned(),
        };
        let mut holds = lock(&self.holds);
        let Some((epoch, from)) = self.appender.mastership() else {
            return Err(unavailable("this broker is a slave: its master grants leases"));
        };
        if holds.epoch != Some(epoch) {
            if self.marks.dispatched() < from {
                let detail = "this broker became the master a moment ago, or waits for its slaves; ask again";
                return Err(unavailable(detail));
            }
            *holds =
                Holds { epoch: Some(epoch), of: holds_of(self.dispatch.applied().state(), &*self.clock) };
        }
        Ok(holds)
    }

    /// Takes or renews a group's lease. Taking it from somebody else raises the epoch; this returns when the
    /// record that says so is on the disk and dispatched, so that no power cut can give an epoch twice.
    ///
    /// # Errors
    /// `LEASE_CONFLICT` while another owner holds it; `SERVICE_NOT_AVAILABLE` when the record was not
    /// confirmed in time: the same owner may ask again, and gets the same epoch.
    pub fn acquire(&self, group: &str, owner: &str, ttl_ms: i64) -> Result<(i64, i64)> {
        names::validate_group(group)?;
        if owner.is_empty() || owner.len() > 255 || !(1..=3_600_000).contains(&ttl_ms) {
            let detail = "a lease has an owner of 1 to 255 bytes and lives 1 ms to 1 h";
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        let hold = self.take(group, owner, ttl_ms)?;
        let applied = || self.marks.dispatched() >= hold.end_offset;
        if !self.lifecycle.wait(LEASE_CONFIRMED_IN, applied) {
            self.lifecycle.check_writable()?;
            let detail = format!("the lease on group[{group}] is not confirmed yet; ask again");
            return Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail });
        }
        Ok((hold.epoch, hold.expires_at))
    }

    /// Grants the lease; nobody may be told before its record is confirmed.
    fn take(&self, group: &str, owner: &str, ttl_ms: i64) -> Result<LeaseHold> {
        let passed = self.clock.monotonic_ms();
        let mut holds = self.current()?;
        let held = holds.of.get(group).cloned();
        if let Some(held) = &held
            && held.owner != owner
            && held.deadline > passed
        {
            let expires_at = self.clock.now_ms() + held.deadline - passed;
            return Err(StoreError::LeaseConflict { owner: held.owner.clone(), expires_at });
        }
        let (epoch, end_offset) = match held {
            Some(held) if held.owner == owner => (held.epoch, held.end_offset),
            held => {
                let logged = self.dispatch.applied().state().leases.get(group).map_or(0, |l| l.epoch);
                let epoch = held.map_or(0, |h| h.epoch).max(logged) + 1;
                let op = Op::Lease { group: group.into(), owner: owner.into(), epoch };
                (epoch, self.appender.append_op(&op)?)
            }
        };
        let hold = LeaseHold {
            owner: owner.into(),
            epoch,
            expires_at: self.clock.now_ms() + ttl_ms,
            deadline: passed + ttl_ms,
            end_offset,
        };
        holds.of.insert(group.into(), hold.clone());
        Ok(hold)
    }

    /// Gives a lease back. False when `owner` does not hold it. The next owner gets a higher epoch.
    pub fn release(&self, group: &str, owner: &str) -> bool {
        let Ok(mut holds) = self.current() else { return false };
        match holds.of.get_mut(group) {
            Some(held) if held.owner == owner => {
                held.give_up();
                true
            }
            _ => false,
        }
    }

    /// Who holds a group now. Nobody does whose record is not confirmed: a power cut may take the grant back.
    pub fn hold(&self, group: &str) -> Option<LeaseHold> {
        self.hold_up_to(group, self.marks.dispatched())
    }

    /// Who holds a group now or is about to: whose record is in the log, confirmed or not. Who moves a group
    /// without a lease is refused from then on. While the log is not known to its end, who held it last does.
    pub fn hold_or_claim(&self, group: &str) -> Option<LeaseHold> {
        match self.current() {
            Ok(holds) => self.running(holds.of.get(group), i64::MAX),
            Err(_) if self.appender.mastership().is_some() => {
                let held = holds_of(self.dispatch.applied().state(), &*self.clock).remove(group);
                self.running(held.as_ref(), i64::MAX)
            }
            Err(_) => None,
        }
    }

    fn hold_up_to(&self, group: &str, confirmed: i64) -> Option<LeaseHold> {
        self.running(self.current().ok()?.of.get(group), confirmed)
    }

    fn running(&self, held: Option<&LeaseHold>, confirmed: i64) -> Option<LeaseHold> {
        let passed = self.clock.monotonic_ms();
        let mut held = held.filter(|l| l.deadline > passed && l.end_offset <= confirmed).cloned()?;
        held.expires_at = self.clock.now_ms() + held.deadline - passed;
        Some(held)
    }

    /// Ends the hold of a group that is deleted. Its epoch stays, here and in the state: the owner before the
    /// deletion must not meet it again.
    pub fn end(&self, group: &str) {
        if let Some(held) = lock(&self.holds).of.get_mut(group) {
            held.give_up();
        }
    }
}

fn holds_of(state: &MetaState, clock: &dyn Clock) -> HashMap<String, LeaseHold> {
    let hold = |lease: &Lease| {
        let grace = if lease.owner.is_empty() { 0 } else { LEASE_GRACE_MS };
        LeaseHold {
            owner: lease.owner.clone(),
            epoch: lease.epoch,
            expires_at: clock.now_ms() + grace,
            deadline: clock.monotonic_ms() + grace,
            end_offset: 0,
        }
    };
    state.leases.iter().map(|(group, lease)| (group.clone(), hold(lease))).collect()
}
