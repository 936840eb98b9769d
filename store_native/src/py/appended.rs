//! `Appended`: the result of an append, and its answer.

use std::net::SocketAddr;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::append::Placed;
use crate::message::message_id;
use crate::store::Appended;
use crate::wire::answer::AppendAnswer;

/// The result of an append, with what its answer says beside it.
#[pyclass(name = "Appended", module = "store_native._store", frozen)]
pub struct PyAppended {
    pub appended: Appended,
    pub topic: String,
    pub broker_name: Arc<str>,
    pub store_host: SocketAddr,
    pub many: bool,
    pub full_results: bool,
}

#[pymethods]
impl PyAppended {
    #[getter]
    fn end_offset(&self) -> i64 {
        self.appended.end_offset
    }
    #[getter]
    fn count(&self) -> usize {
        self.appended.placed.len()
    }
    #[getter]
    fn waits(&self) -> bool {
        self.appended.waits
    }
    #[getter]
    fn duplicate(&self) -> bool {
        self.appended.duplicate
    }
    /// Where the messages are, in the request's order.
    #[getter]
    fn places(&self) -> Vec<(String, String, u32, i64, bool)> {
        let place = |placed: &Placed| {
            let offset_id = message_id::offset_id(self.store_host, placed.physical_offset);
            (placed.message_id.clone(), offset_id, placed.queue_id, placed.queue_offset, placed.scheduled)
        };
        self.appended.placed.iter().map(place).collect()
    }
    fn answer<'py>(&self, py: Python<'py>, status: &str) -> Bound<'py, PyBytes> {
        let answer = AppendAnswer {
            topic: &self.topic,
            broker_name: &self.broker_name,
            store_host: self.store_host,
            many: self.many,
            full_results: self.full_results,
            duplicate: self.appended.duplicate,
            placed: &self.appended.placed,
        };
        PyBytes::new(py, &answer.render(status))
    }
}
