//! `Reader`: a store directory read beside its owner.
//!
//! Invariants: a reader that is closed answers `STORE_CLOSED`; a read that runs meanwhile goes on to its end.
//! Threads: those of Python's callers; the interpreter lock is not held over a read.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::convert::{QueueRow, json_array, queue_rows};
use super::errors::raise;
use super::slice::{Form, PySlice, ReadArguments, read};
use crate::error::{Result, StoreError};
use crate::reader::Reader;
use crate::store::Options;
use crate::wire::answer::{FoundJson, write_message};

#[pyclass(name = "Reader", module = "store_native._store", frozen)]
pub struct PyReader(RwLock<Option<Arc<Reader>>>);

impl PyReader {
    fn reader(&self, py: Python<'_>) -> PyResult<Arc<Reader>> {
        let reader = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        reader.ok_or_else(|| raise(py, StoreError::closed()))
    }

    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Reader) -> Result<T> + Send) -> PyResult<T> {
        let reader = self.reader(py)?;
        py.detach(|| work(&reader)).map_err(|e| raise(py, e))
    }
}

#[pymethods]
impl PyReader {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let reader = py.detach(|| Reader::open(&path)).map_err(|e| raise(py, e))?;
        Ok(Self(RwLock::new(Some(Arc::new(reader)))))
    }

    #[getter]
    fn broker_name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.reader(py)?.broker_name().to_owned())
    }

    #[getter]
    fn store_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.reader(py)?.identity().map(|i| i.store_id.clone()).unwrap_or_default())
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<i64> {
        self.run(py, Reader::epoch)
    }

    fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let reader = self.reader(py)?;
        Ok(py.detach(|| reader.is_current()))
    }

    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, |r| Ok(r.topics()?.into_keys().collect()))
    }

    fn topic_id(&self, py: Python<'_>, topic: &str) -> PyResult<String> {
        self.run(py, |r| {
            let config = r.topics()?.remove(topic).ok_or_else(|| StoreError::no_topic(topic))?;
            Ok(config.topic_id)
        })
    }

    fn queues(&self, py: Python<'_>, topic: &str) -> PyResult<Vec<(u32, i64, i64, i64)>> {
        self.run(py, |r| Ok(r.queues(topic)?.into_iter().map(|(id, b)| (id, b.min, b.max, b.max)).collect()))
    }

    fn queue_epochs(&self, py: Python<'_>, topic: &str) -> PyResult<(bool, Vec<QueueRow>)> {
        self.run(py, |r| r.queue_epochs(topic).map(|(settled, rows)| (settled, queue_rows(rows))))
    }

    fn queue_bounds(&self, py: Python<'_>, topic: &str, queue_id: u32) -> PyResult<(i64, i64)> {
        self.run(py, |r| r.bounds(topic, queue_id).map(|b| (b.min, b.max)))
    }

    #[pyo3(signature = (topic, queue_id, offset, *, max_messages=32, max_bytes=262_144, tags="*"))]
    #[allow(clippy::too_many_arguments)]
    fn read_json(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: u32,
        offset: i64,
        max_messages: usize,
        max_bytes: usize,
        tags: &str,
    ) -> PyResult<PySlice> {
        let arguments =
            ReadArguments { topic, queue_id, offset, end_offset: None, max_messages, max_bytes, tags };
        read(py, &*self.reader(py)?, &arguments, Form::Json)
    }

    #[pyo3(signature = (topic, queue_id, offset, *, end_offset=None, max_messages=10_000, max_bytes=16_777_216, tags="*", columns=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_arrow(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: u32,
        offset: i64,
        end_offset: Option<i64>,
        max_messages: usize,
        max_bytes: usize,
        tags: &str,
        columns: Option<Vec<String>>,
    ) -> PyResult<PySlice> {
        let arguments = ReadArguments { topic, queue_id, offset, end_offset, max_messages, max_bytes, tags };
        read(py, &*self.reader(py)?, &arguments, Form::Arrow(columns))
    }

    #[pyo3(signature = (topic, queue_id, offset, *, end_offset=None, max_messages=10_000, max_bytes=16_777_216, tags="*", columns=None))]
    #[allow(clippy::too_many_arguments)]
    fn read_ipc(
        &self,
        py: Python<'_>,
        topic: &str,
        queue_id: u32,
        offset: i64,
        end_offset: Option<i64>,
        max_messages: usize,
        max_bytes: usize,
        tags: &str,
        columns: Option<Vec<String>>,
    ) -> PyResult<PySlice> {
        let arguments = ReadArguments { topic, queue_id, offset, end_offset, max_messages, max_bytes, tags };
        read(py, &*self.reader(py)?, &arguments, Form::Ipc(columns))
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (topic, key, *, begin=0, end=i64::MAX, max_messages=32, max_bytes=usize::MAX))]
    fn query_json<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        key: &str,
        begin: i64,
        end: i64,
        max_messages: usize,
        max_bytes: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.run(py, |r| {
            let mut found = FoundJson::new(r.broker_name(), max_bytes);
            r.find(topic, key, (begin, end), max_messages, |record| found.take(record))?;
            Ok(found.oldest_first())
        })?;
        Ok(PyBytes::new(py, &json_array(&found)))
    }

    #[pyo3(signature = (message_id, topic=None))]
    fn find_message_json<'py>(
        &self,
        py: Python<'py>,
        message_id: &str,
        topic: Option<&str>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.run(py, |r| {
            let mut json = Vec::new();
            let found =
                r.find_by_id(message_id, topic, |record| write_message(&mut json, record, r.broker_name()))?;
            Ok(found.then_some(json))
        })?;
        Ok(found.map(|json| PyBytes::new(py, &json)))
    }

    fn offset_by_time(&self, py: Python<'_>, topic: &str, queue_id: u32, timestamp: i64) -> PyResult<i64> {
        self.run(py, |r| r.offset_by_time(topic, queue_id, timestamp))
    }

    fn delay_levels(&self) -> Vec<i64> {
        Options::default().delay_levels_ms
    }

    fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
