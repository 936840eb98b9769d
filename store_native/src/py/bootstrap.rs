//! `Bootstrap`: a slave's store made from its master's, as Python calls it.
//!
//! Threads: those of Python's callers, one at a time; every call lets go of the interpreter lock.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;

use super::errors::raise;
use super::replicated_log::starts;
use crate::bootstrap::Bootstrap;
use crate::environment::Environment;
use crate::error::{Result, StoreError};
use crate::lock::lock;

/// A store being made; closed by `finish`, or by being let go.
#[pyclass(name = "Bootstrap", module = "store_native._store", frozen)]
pub struct PyBootstrap(Mutex<Option<Bootstrap>>);

fn closed() -> StoreError {
    StoreError::closed()
}

impl PyBootstrap {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<Bootstrap>) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut lock(&self.0))).map_err(|e| raise(py, e))
    }
}

#[pymethods]
impl PyBootstrap {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, file_size: u64, first: i64) -> PyResult<Self> {
        let begun =
            py.detach(|| Environment::real("").and_then(|e| Bootstrap::begin(&path, file_size, first, e)));
        Ok(Self(Mutex::new(Some(begun.map_err(|e| raise(py, e))?))))
    }

    #[staticmethod]
    fn is_wanted(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        py.detach(|| Bootstrap::is_wanted(&path)).map_err(|e| raise(py, e))
    }

    fn append(&self, py: Python<'_>, offset: i64, data: &[u8], next_offset: i64) -> PyResult<()> {
        let data = data.to_vec();
        self.run(py, |b| b.as_mut().ok_or_else(closed)?.append(offset, &data, next_offset))
    }

    fn end(&self, py: Python<'_>) -> PyResult<i64> {
        self.run(py, |b| Ok(b.as_ref().ok_or_else(closed)?.end()))
    }

    fn finish(&self, py: Python<'_>, snapshot: &[u8], epochs: Vec<(i64, i64)>) -> PyResult<()> {
        let snapshot = snapshot.to_vec();
        self.run(py, |b| b.take().ok_or_else(closed)?.finish(&snapshot, starts(epochs)))
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |b| b.take().ok_or_else(closed)?.abandon())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |b| {
            *b = None;
            Ok(())
        })
    }
}
