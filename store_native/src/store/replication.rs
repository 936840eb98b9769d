//! What a replicator asks of the store; no network is known here.
//!
//! Invariants: bytes are given out as far as they are flushed, and none that a cut took meanwhile. A cut holds the
//! flushed and the confirmed mark. A broker that becomes a slave confirms nothing more until its master says so.
//! Threads: those of the replicator.

use super::{Role, Store};
use crate::commitlog::LogRange;
use crate::commitlog::epochs::EpochStart;
use crate::error::{Result, StoreError};
use crate::snapshot::Snapshot;

impl Store {
    /// From now on nothing is confirmed behind `replicated` before [`Store::replicated`] says that the replicas hold
    /// it; with `None` what is flushed is confirmed.
    pub fn ask_replicas(&self, replicated: Option<i64>) {
        self.lifecycle.flush_at_once(replicated.is_some());
        let moved = match replicated {
            Some(replicated) => {
                self.confirmation.follow_replicas(replicated);
                false
            }
            None => self.confirmation.follow_flush(),
        };
        self.wake_if(moved);
    }

    /// The replicas that are asked hold the log up to `offset`, the end of a request. On a slave, its master says so;
    /// it counts as far as the slave's log is known to be the master's.
    pub fn replicated(&self, offset: i64) {
        if self.confirmation.replicated(offset.min(self.appender.agreed())) {
            // The event loop is woken when it is dispatched: nobody there waits for less.
            self.dispatch.wake();
            self.lifecycle.progress.moved_quietly();
        }
    }

    fn wake_if(&self, moved: bool) {
        if moved {
            self.dispatch.wake();
            self.lifecycle.progress.moved();
        }
    }

    /// What it is now, and the highest epoch it heard of.
    pub fn role(&self) -> (Role, i64) {
        self.appender.role()
    }

    /// The epochs of its log, oldest first.
    pub fn epochs(&self) -> Vec<EpochStart> {
        self.appender.epochs()
    }

    /// The epoch of its log's newest bytes: what it heard of may be a higher one.
    pub fn log_epoch(&self) -> i64 {
        self.appender.log_epoch()
    }

    /// Up to which offset its log is the same as one with these epochs that ends at `others_end`; `None` when they have
    /// no epoch in common.
    pub fn common_end(&self, others: &[EpochStart], others_end: i64) -> Option<i64> {
        self.appender.common_end(others, others_end)
    }

    /// Becomes the master of `epoch`. All of its log is confirmed by that, unless it `asks_replicas`: then what was not
    /// confirmed before is when they have it, and the epoch. Returns the offset at which the epoch begins.
    ///
    /// # Errors
    /// As [`Appender::become_master`](crate::append::Appender::become_master).
    pub fn become_master(&self, epoch: i64, asks_replicas: bool) -> Result<i64> {
        let offset = self.appender.become_master(epoch, asks_replicas)?;
        self.ask_replicas(asks_replicas.then(|| self.marks.confirmed()));
        self.wake_if(self.confirmation.advance());
        Ok(offset)
    }

    /// Becomes a slave of the master of `epoch`, which says from now on what is confirmed ([`Store::replicated`]).
    ///
    /// # Errors
    /// As [`Appender::become_slave`](crate::append::Appender::become_slave).
    pub fn become_slave(&self, epoch: i64) -> Result<()> {
        // First: what a flush would confirm now may be what the new master lacks.
        let before = self.confirmation.freeze();
        self.appender.become_slave(epoch).inspect_err(|_| {
            self.confirmation.follow_replicas(before);
            self.wake_if(self.confirmation.advance());
        })
    }

    /// Raw bytes of the log from `from` on: whole requests of one epoch and one file, about `max_bytes` but at least
    /// one; as far as the log is flushed. Empty at its end.
    ///
    /// # Errors
    /// `OFFSET_ILLEGAL` when the log does not hold that offset; `DATA_CORRUPT` when no record stands there.
    pub fn read_log(&self, from: i64, max_bytes: usize) -> Result<LogRange> {
        loop {
            let generation = self.marks.generation();
            let range = self.copy_range(from, max_bytes);
            // What was cut while it was copied may be copied half.
            if self.marks.generation() == generation {
                return range;
            }
        }
    }

    fn copy_range(&self, from: i64, max_bytes: usize) -> Result<LogRange> {
        let (flushed, log_min) = (self.marks.flushed(), self.log.min_offset());
        if from < log_min || from > flushed {
            let detail = format!("the log holds [{log_min}, {flushed}), not offset {from}");
            return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
        }
        let (epoch, epoch_end) = self.appender.epoch_at(from);
        if from == flushed {
            return Ok(LogRange { offset: from, epoch, bytes: Vec::new(), next_offset: from });
        }
        let range = self.log.copy_range(from, flushed.min(epoch_end), max_bytes);
        let range = range.filter(|range| range.next_offset > from);
        range
            .map(|range| LogRange { epoch, ..range })
            .ok_or_else(|| StoreError::corrupt(format!("no request begins at offset {from}")))
    }

    /// Brings `[from, to)` of the log into memory as far as it is flushed: a slave gets it next, and who sends it shall not
    /// wait for the disk.
    pub fn fetch_log(&self, from: i64, to: i64) {
        self.log.fetch(from, to.min(self.marks.flushed()));
    }

    /// Has the system's memory let go of `[from, to)` of the log, which was sent to a slave and nobody reads soon again.
    pub fn let_go_of_log(&self, from: i64, to: i64) {
        self.log.let_go(from, to);
    }

    /// The physical offset of the log's first byte.
    pub fn log_min_offset(&self) -> i64 {
        self.log.min_offset()
    }

    /// CRC-32 of the flushed bytes `[from, to)` of the log as they stand in its files: two logs that say the same hold the
    /// same there.
    ///
    /// # Errors
    /// `OFFSET_ILLEGAL` when the log does not hold that range.
    pub fn log_digest(&self, from: i64, to: i64) -> Result<u32> {
        let (flushed, log_min) = (self.marks.flushed(), self.log.min_offset());
        if from < log_min || to > flushed || from > to {
            let detail = format!("the log holds [{log_min}, {flushed}), not [{from}, {to})");
            return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
        }
        Ok(self.log.digest(from, to))
    }

    /// The flushed bytes from `from` on as they stand in one file, at most `max_bytes`: cut anywhere, what lies behind an
    /// end marker included. Empty at the log's end.
    ///
    /// # Errors
    /// `OFFSET_ILLEGAL` when the log does not hold that offset.
    pub fn read_raw(&self, from: i64, max_bytes: usize) -> Result<Vec<u8>> {
        loop {
            let generation = self.marks.generation();
            let (flushed, log_min) = (self.marks.flushed(), self.log.min_offset());
            if from < log_min || from > flushed {
                let detail = format!("the log holds [{log_min}, {flushed}), not offset {from}");
                return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
            }
            let bytes = self.log.copy_raw(from, flushed, max_bytes);
            if self.marks.generation() == generation {
                return Ok(bytes);
            }
        }
    }

    /// What a slave needs beside the log from its first byte on: the state as of an offset, which nobody takes back, and
    /// that offset; its queues and its index it makes itself.
    ///
    /// # Errors
    /// `SERVICE_NOT_AVAILABLE` when the newest snapshot is of what expired, or cannot be read.
    pub fn bootstrap_snapshot(&self) -> Result<(i64, Vec<u8>)> {
        let log_min = self.log.min_offset();
        let Some(snapshot) =
            Snapshot::read(&self.paths, &*self.environment.disk)?.filter(|s| s.applied_offset >= log_min)
        else {
            let detail = "no snapshot fits the log; the next checkpoint writes one".to_owned();
            return Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail });
        };
        let own = Snapshot {
            // Nothing of these is on the slave's disk.
            queues_durable_offset: log_min,
            index: Vec::new(),
            index_from: Some(log_min),
            keys_in_log: true,
            ..snapshot
        };
        Ok((own.applied_offset, own.encode()?))
    }

    /// Appends what [`Store::read_log`] of the master of `master_epoch` gave. Returns the log's end; all or nothing.
    ///
    /// # Errors
    /// As [`Appender::append_replicated`](crate::append::Appender::append_replicated).
    pub fn append_replicated(&self, master_epoch: i64, range: &LogRange) -> Result<i64> {
        self.appender.append_replicated(master_epoch, range)
    }

    /// Notes on a slave that `epoch` goes on at `offset`, the log's end.
    ///
    /// # Errors
    /// As [`Appender::begin_epoch`](crate::append::Appender::begin_epoch).
    pub fn begin_epoch(&self, epoch: i64, offset: i64) -> Result<()> {
        self.appender.begin_epoch(epoch, offset)
    }

    /// Cuts the log of a slave at `offset`, where it parts from its master's; nothing confirmed goes.
    ///
    /// # Errors
    /// As [`Appender::truncate_to`](crate::append::Appender::truncate_to).
    pub fn truncate_to(&self, offset: i64) -> Result<()> {
        let _flushed = self.flusher.hold();
        let _confirmed = self.confirmation.hold();
        self.appender.truncate_to(offset, &mut self.dispatch.applied())
    }
}
