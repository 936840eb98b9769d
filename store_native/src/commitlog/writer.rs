//! The end of the log: where the next record goes, and rolling to the next file.
//!
//! Invariants: a request is contiguous in one file, because its bytes are reserved before its records are put. What
//! was put and not finished is no part of the log: the end is where it was. A failed write is final.
//! Threads: one at a time, under the append lock.

use std::io;
use std::sync::Arc;

use super::next_file::NextFile;
use super::{CommitLog, LogFile};
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::faults::Point;
use crate::message::record::{END_OF_FILE_BYTES, end_of_file};

/// Share of a file at which the next one is made.
pub const NEARLY_FULL: f64 = 0.75;
/// Bytes gathered before they are written; a larger record is a block by itself.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes at the end of the log.
pub struct LogWriter {
    log: Arc<CommitLog>,
    environment: Environment,
    current: Option<LogFile>,
    /// Physical offset behind the last finished request.
    end: i64,
    /// The block being filled, its first `filled` bytes in use.
    block: Vec<u8>,
    filled: usize,
    /// Physical offset of the block's first byte.
    block_at: i64,
    /// The next file, made ahead by the maintenance thread.
    next: Arc<NextFile>,
    /// Somebody was announced that the current file is nearly full.
    announced: bool,
    /// Answers wait for the flush.
    flush_follows: bool,
}

impl LogWriter {
    /// A writer that goes on at `end`. Where a flush follows each request (`flush_follows`), a large one is on
    /// its way to the disk while the rest of it is written, so that the flush, and who waits for it behind the
    /// large request, waits for the last block only.
    ///
    /// # Errors
    /// `DISK_FULL` or any I/O error while making sure of the current file's blocks.
    pub fn new(
        log: Arc<CommitLog>,
        next: Arc<NextFile>,
        environment: Environment,
        end: i64,
        flush_follows: bool,
    ) -> Result<Self> {
        let current = log.file_at(end);
        if let Some(current) = &current {
            let size = current.file.len() as u64;
            current.file.ensure_allocated(size, size, &*environment.disk)?;
        }
        let block = vec![0; BLOCK_BYTES];
        Ok(Self {
            log,
            environment,
            current,
            end,
            block,
            filled: 0,
            block_at: end,
            next,
            announced: false,
            flush_follows,
        })
    }

    /// Physical offset behind the last finished request.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Whether three quarters of the current file are written: time to make the next one.
    pub fn is_nearly_full(&self) -> bool {
        self.current.as_ref().is_none_or(|f| (self.end - f.base) as f64 > f.file.len() as f64 * NEARLY_FULL)
    }

    /// True once for each file: when the next one is to be made, and nobody was announced yet.
    pub fn wants_next(&mut self) -> bool {
        !self.announced && {
            self.announced = self.is_nearly_full();
            self.announced
        }
    }

    /// Bytes of the largest request that a file holds.
    pub fn largest(&self) -> usize {
        self.log.file_size() as usize - END_OF_FILE_BYTES
    }

    /// Refuses a request that no file could hold.
    ///
    /// # Errors
    /// `REQUEST_TOO_LARGE`.
    pub fn check_size(&self, size: usize) -> Result<()> {
        let limit = self.largest();
        if size > limit {
            return Err(StoreError::invalid(
                "REQUEST_TOO_LARGE",
                format!("the request takes {size} bytes of the log, a file holds {limit}"),
            ));
        }
        Ok(())
    }

    /// Begins a request: makes room for `size` contiguous bytes, rolling when they do not fit the current
    /// file. Returns the physical offset of the first.
    ///
    /// # Errors
    /// `REQUEST_TOO_LARGE` when no file could hold them, `DISK_FULL` when the next file cannot be had, or
    /// any I/O error of closing the current one. The log is as it was then.
    pub fn reserve(&mut self, size: usize) -> Result<i64> {
        self.check_size(size)?;
        let left = self.left();
        if size + END_OF_FILE_BYTES > left {
            self.roll()?;
        }
        (self.filled, self.block_at) = (0, self.end);
        Ok(self.end)
    }

    fn roll(&mut self) -> Result<()> {
        self.environment.faults.pass(Point::RollBefore);
        let base = self.log.capacity_end().max(self.next_base());
        self.next.make(base, &self.environment)?;
        if let Some(current) = &self.current {
            if !self.log.is_named_for_good(current.base) {
                // Of two names that are not on the disk a power cut may leave the later one alone.
                self.log
                    .sync_names(&*self.environment.disk)
                    .map_err(|e| StoreError::io("syncing the log's directory", e))?;
            }
            let at = (self.end - current.base) as usize;
            let left = current.file.len() - at;
            if left >= END_OF_FILE_BYTES {
                current
                    .file
                    .write_through(at, &end_of_file(left), &*self.environment.disk)
                    .map_err(|e| StoreError::io("closing a log file", e))?;
            }
        }
        let next = self.next.enter(base, &self.log, &self.environment)?;
        (self.end, self.announced) = (base, false);
        self.current = Some(next);
        Ok(())
    }

    /// Offset at which the file behind the current end starts.
    fn next_base(&self) -> i64 {
        let size = self.log.file_size() as i64;
        (self.end + size - 1) / size * size
    }

    /// Closes the current file with its end marker and goes on in the next one, as the writer of these bytes did.
    ///
    /// # Errors
    /// As [`LogWriter::reserve`].
    pub fn close_file(&mut self) -> Result<()> {
        self.roll()
    }

    /// Bytes left in the current file.
    pub fn left(&self) -> usize {
        self.current.as_ref().map_or(0, |f| (f.end() - self.end) as usize)
    }

    /// Goes on at `end`, behind which the log was erased.
    pub fn cut(&mut self, end: i64) {
        (self.current, self.end, self.announced) = (self.log.file_at(end), end, false);
        (self.filled, self.block_at) = (0, end);
    }

    /// Adds a record of `size` bytes to the request; `encode` fills them all.
    ///
    /// # Errors
    /// Any I/O error, which is final: what the log has behind its end is unknown then.
    #[allow(clippy::indexing_slicing, reason = "the block was made long enough")]
    pub fn put(&mut self, size: usize, encode: impl FnOnce(&mut [u8])) -> io::Result<()> {
        if self.filled + size > BLOCK_BYTES {
            let (from, length) = (self.block_at, self.filled);
            self.write_block()?;
            self.begin_writeback(from, length)?;
        }
        let record = self.filled..self.filled + size;
        if self.block.len() < record.end {
            self.block.resize(record.end, 0);
        }
        encode(&mut self.block[record.clone()]);
        if self.environment.faults.is_set() {
            // A torn record: half its bytes stand there when the process is killed.
            self.write_through(record.start + size / 2)?;
            self.environment.faults.pass(Point::AppendMid);
        }
        self.filled = record.end;
        Ok(())
    }

    /// Ends the request: all its records stand in the log, and the end is behind them.
    ///
    /// # Errors
    /// As [`LogWriter::put`].
    pub fn finish(&mut self) -> io::Result<()> {
        self.write_block()?;
        self.end = self.block_at;
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.write_through(self.filled)?;
        self.block_at += self.filled as i64;
        self.filled = 0;
        if self.block.len() > BLOCK_BYTES {
            self.block = vec![0; BLOCK_BYTES];
        }
        Ok(())
    }

    fn begin_writeback(&self, from: i64, length: usize) -> io::Result<()> {
        match &self.current {
            Some(current) if self.flush_follows && length > 0 => {
                let from = (from - current.base) as usize;
                current.file.begin_writeback(from, length, &*self.environment.disk)
            }
            _ => Ok(()),
        }
    }

    /// Writes the block's first `length` bytes to their place.
    #[allow(clippy::indexing_slicing, reason = "no longer than the block")]
    fn write_through(&self, length: usize) -> io::Result<()> {
        let Some(current) = self.current.as_ref().filter(|_| length > 0) else { return Ok(()) };
        let at = (self.block_at - current.base) as usize;
        current.file.write_through(at, &self.block[..length], &*self.environment.disk)
    }
}
