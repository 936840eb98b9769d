//! `ReplicatedLog`: what a replicator asks of a store, as Python calls it.
//!
//! Invariants: no rule of replication is made here. It keeps its store alive, not open.
//! Threads: those of Python's callers; every call lets go of the interpreter lock, since the append lock may be held
//! for long.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use crate::commitlog::LogRange;
use crate::commitlog::epochs::EpochStart;
use crate::error::Result;
use crate::options::Role;
use crate::store::Store;

/// A range as Python has it: (epoch, next offset, bytes).
type Range<'py> = (i64, i64, Bound<'py, PyBytes>);

/// The log of a store, for its replicator.
#[pyclass(name = "ReplicatedLog", module = "store_native._store", frozen)]
pub struct PyReplicatedLog {
    pub store: Arc<Store>,
}

impl PyReplicatedLog {
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Store) -> Result<T> + Send) -> PyResult<T> {
        py.detach(|| work(&self.store)).map_err(|e| raise(py, e))
    }
}

pub fn starts(epochs: Vec<(i64, i64)>) -> Vec<EpochStart> {
    epochs.into_iter().map(|(epoch, start_offset)| EpochStart { epoch, start_offset }).collect()
}

#[pymethods]
impl PyReplicatedLog {
    fn marks(&self) -> (i64, i64, i64, i64) {
        let (appended, flushed, _, confirmed) = self.store.watermarks();
        (self.store.log_min_offset(), appended, flushed, confirmed)
    }

    fn role(&self, py: Python<'_>) -> (&'static str, i64) {
        let (role, epoch) = py.detach(|| self.store.role());
        (if role == Role::Master { "master" } else { "slave" }, epoch)
    }

    fn epochs(&self, py: Python<'_>) -> Vec<(i64, i64)> {
        let epochs = py.detach(|| self.store.epochs());
        epochs.into_iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    fn common_end(&self, py: Python<'_>, epochs: Vec<(i64, i64)>, end: i64) -> Option<i64> {
        py.detach(|| self.store.common_end(&starts(epochs), end))
    }

    fn digest(&self, py: Python<'_>, from: i64, to: i64) -> PyResult<u32> {
        self.run(py, |s| s.log_digest(from, to))
    }

    fn read<'py>(&self, py: Python<'py>, from: i64, max_bytes: usize) -> PyResult<Range<'py>> {
        let range = self.run(py, |s| s.read_log(from, max_bytes))?;
        Ok((range.epoch, range.next_offset, PyBytes::new(py, &range.bytes)))
    }

    fn fetch(&self, py: Python<'_>, from: i64, to: i64) {
        py.detach(|| self.store.fetch_log(from, to));
    }

    fn let_go(&self, py: Python<'_>, from: i64, to: i64) {
        py.detach(|| self.store.let_go_of_log(from, to));
    }

    fn read_raw<'py>(&self, py: Python<'py>, from: i64, max_bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |s| s.read_raw(from, max_bytes))?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn bootstrap_snapshot<'py>(&self, py: Python<'py>) -> PyResult<(i64, Bound<'py, PyBytes>)> {
        let (offset, bytes) = self.run(py, Store::bootstrap_snapshot)?;
        Ok((offset, PyBytes::new(py, &bytes)))
    }

    fn file_size(&self) -> u64 {
        self.store.options().commitlog_file_size
    }

    fn append(
        &self,
        py: Python<'_>,
        master_epoch: i64,
        offset: i64,
        epoch: i64,
        next_offset: i64,
        data: &[u8],
    ) -> PyResult<i64> {
        let range = LogRange { offset, epoch, bytes: data.to_vec(), next_offset };
        self.run(py, |s| s.append_replicated(master_epoch, &range))
    }

    fn begin_epoch(&self, py: Python<'_>, epoch: i64, offset: i64) -> PyResult<()> {
        self.run(py, |s| s.begin_epoch(epoch, offset))
    }

    fn truncate_to(&self, py: Python<'_>, offset: i64) -> PyResult<()> {
        self.run(py, |s| s.truncate_to(offset))
    }

    fn become_master(&self, py: Python<'_>, epoch: i64, asks_replicas: bool) -> PyResult<i64> {
        self.run(py, |s| s.become_master(epoch, asks_replicas))
    }

    fn become_slave(&self, py: Python<'_>, epoch: i64) -> PyResult<()> {
        self.run(py, |s| s.become_slave(epoch))
    }

    fn ask_replicas(&self, py: Python<'_>, replicated: Option<i64>) {
        py.detach(|| self.store.ask_replicas(replicated));
    }

    fn replicated(&self, py: Python<'_>, offset: i64) {
        py.detach(|| self.store.replicated(offset));
    }
}
