//! `verify`, `dump` and `recover`: a store's files looked at and put in order without a broker.
//!
//! Invariants: what a recovery has to say to the operator goes to Python's logging, also where it fails.
//! Threads: those of Python's callers; the interpreter lock is not held over the work.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use crate::environment::{Environment, RealDisk};
use crate::error::{Result, StoreError};
use crate::events::Event;
use crate::inspect::Dump;
use crate::lock::lock;
use crate::message::RecordView;
use crate::paths::StorePaths;
use crate::store::{Options, Store};
use crate::wire::answer::write_message;

/// Reads everything and reports, as JSON.
#[pyfunction]
pub fn verify(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    let found = py.detach(|| crate::inspect::verify(&path)).map_err(|e| raise(py, e))?;
    to_python(py, &found)
}

/// Opens the store as its owner, builds queues and index again from the log, and closes it. What the store has to
/// say meanwhile goes to Python's logging: there is no broker to ask for it.
#[pyfunction]
pub fn recover(py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
    let environment = py.detach(|| Environment::real("")).map_err(|e| raise(py, e))?;
    let events = Arc::clone(&environment.events);
    let outcome = py.detach(|| {
        StorePaths::new(&path).require_store(&RealDisk)?;
        Store::rebuild(&path, Options::default(), environment)
    });
    log_events(py, events.take())?;
    to_python(py, &outcome.map_err(|e| raise(py, e))?)
}

fn log_events(py: Python<'_>, events: Vec<Event>) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("lakemq.store",))?;
    for event in events {
        logger.call_method1(event.severity.name(), ("%s", event.text))?;
    }
    Ok(())
}

/// Iterates over the records of a log as JSON bytes.
#[pyfunction]
#[pyo3(signature = (path, *, from_offset=0, limit=None))]
pub fn dump(py: Python<'_>, path: PathBuf, from_offset: i64, limit: Option<u64>) -> PyResult<PyDump> {
    let dump = py.detach(|| Dump::open(&path, from_offset, limit)).map_err(|e| raise(py, e))?;
    Ok(PyDump(Mutex::new(dump)))
}

/// An iterator over records.
#[pyclass(name = "Dump", module = "store_native._store", frozen)]
pub struct PyDump(Mutex<Dump>);

#[pymethods]
impl PyDump {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let next = py.detach(|| lock(&self.0).next_record(rendered)).map_err(|e| raise(py, e))?;
        Ok(next.map(|json| PyBytes::new(py, &json)))
    }
}

fn rendered(record: &RecordView<'_>, broker_name: &str) -> Result<Vec<u8>> {
    let mut json = Vec::new();
    write_message(&mut json, record, broker_name)?;
    Ok(json)
}

/// A report as Python's dict, by way of JSON.
pub fn to_python<T: serde::Serialize>(py: Python<'_>, value: &T) -> PyResult<Py<PyAny>> {
    let text =
        serde_json::to_string(value).map_err(|e| raise(py, StoreError::corrupt(format!("a report: {e}"))))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
}
