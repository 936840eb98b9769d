//! What a broker is in its log: the master of an epoch, or a slave of one.
//!
//! Invariants: only a master takes messages, only a slave takes bytes; a master whose epoch is over is refused.

use super::{Appender, LogEnd};
use crate::commitlog::epochs::{EpochStart, fenced};
use crate::error::{Result, StoreError};
use crate::lock::lock;
use crate::options::Role;

impl LogEnd {
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a slave.
    pub(super) fn check_master(&self) -> Result<()> {
        match self.role {
            Role::Master => Ok(()),
            Role::Slave => {
                let detail = format!(
                    "this broker is a slave in epoch {}: its master takes messages",
                    self.epochs.seen()
                );
                Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail })
            }
        }
    }

    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` on a master, and for a master whose epoch is over.
    pub(super) fn check_slave(&self, epoch: i64) -> Result<()> {
        if epoch < self.epochs.seen() {
            return Err(fenced(epoch, self.epochs.seen()));
        }
        match self.role {
            Role::Slave => Ok(()),
            Role::Master => {
                let detail = format!(
                    "this broker is the master of epoch {}, it takes no bytes of another",
                    self.epochs.last()
                );
                Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail })
            }
        }
    }
}

impl Appender {
    /// What it is now, and the highest epoch it heard of.
    pub fn role(&self) -> (Role, i64) {
        let end = lock(&self.end);
        (end.role, end.epochs.seen())
    }

    /// The epochs of its log, oldest first.
    pub fn epochs(&self) -> Vec<EpochStart> {
        self.epochs.all().to_vec()
    }

    /// The epoch of the log's newest bytes.
    pub fn log_epoch(&self) -> i64 {
        self.epochs.last()
    }

    /// The epoch that wrote the byte at `offset`, and where its bytes end at the latest.
    pub fn epoch_at(&self, offset: i64) -> (i64, i64) {
        lock(&self.end).epochs.at(offset)
    }

    /// The epoch that this broker is the master of, and the log offset from which on it writes in this run; what lies
    /// before may not be dispatched yet, if replicas are asked. `None` on a slave.
    pub fn mastership(&self) -> Option<(i64, i64)> {
        *lock(&self.mastership)
    }

    /// Up to which offset the log is known to be the master's; `i64::MAX` on a master.
    pub fn agreed(&self) -> i64 {
        lock(&self.end).agreed
    }

    /// Whether nothing lies behind the log's end.
    pub fn tail_is_erased(&self) -> bool {
        lock(&self.end).tail_erased
    }

    /// Up to which offset this log is the same as another one with these epochs; see
    /// [`EpochFile::common_end`](crate::commitlog::epochs::EpochFile::common_end).
    pub fn common_end(&self, others: &[EpochStart], others_end: i64) -> Option<i64> {
        let end = lock(&self.end);
        end.epochs.common_end(end.writer.end(), others, others_end)
    }

    /// Becomes the master of `epoch`: takes messages from here on. Returns the offset at which the epoch begins.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` unless the epoch is higher than all that were heard of; any I/O error. The role is as it
    /// was then.
    pub fn become_master(&self, epoch: i64, asks_replicas: bool) -> Result<i64> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        self.clear_tail(&mut end)?;
        let offset = end.writer.end();
        // First: no master of this epoch confirms by itself what it must not.
        end.epochs.note_asks_replicas(asks_replicas)?;
        end.epochs.rule(epoch, offset)?;
        (end.role, end.agreed) = (Role::Master, i64::MAX);
        *lock(&self.mastership) = Some((epoch, offset));
        // A cut that did not get to its end may have left it behind.
        self.marks.set_appended(offset);
        self.lifecycle.schedule_changed.set();
        Ok(offset)
    }

    /// Becomes a slave: takes no message from here on, and no bytes of a master before `epoch`.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` when a higher epoch was heard of; any I/O error.
    pub fn become_slave(&self, epoch: i64) -> Result<()> {
        let mut end = lock(&self.end);
        self.check_open(&end)?;
        end.epochs.hear_of(epoch)?;
        // Behind what is confirmed the log may part from that of the new master.
        end.agreed = self.marks.confirmed();
        end.role = Role::Slave;
        *lock(&self.mastership) = None;
        self.lifecycle.schedule_changed.set();
        Ok(())
    }
}
