//! The store's errors as Python's (`store_native/errors.py`).
//!
//! Invariants: the one place that makes exceptions of them; the class follows from the code.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::StoreError;

/// Builds the exception of an error.
pub fn raise(py: Python<'_>, error: StoreError) -> PyErr {
    build(py, &error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &StoreError) -> PyResult<PyErr> {
    let context = PyDict::new(py);
    match error {
        StoreError::Invalid { index, line, pointer, .. } => {
            if let Some(index) = index {
                context.set_item("index", index)?;
            }
            if let Some(line) = line {
                context.set_item("line", line)?;
            }
            if let Some(pointer) = pointer {
                context.set_item("pointer", pointer)?;
            }
        }
        StoreError::LeaseConflict { owner, expires_at } => {
            context.set_item("owner", owner)?;
            context.set_item("expires_at", expires_at)?;
        }
        StoreError::KeyReused(first) => {
            context.set_item("first_topic", &first.topic)?;
            context.set_item("first_queue_id", first.queue_id)?;
            context.set_item("first_queue_offset", first.queue_offset)?;
            context.set_item("first_message_id", &first.message_id)?;
            context.set_item("first_offset_message_id", &first.offset_message_id)?;
            context.set_item("first_count", first.count)?;
        }
        _ => {}
    }
    let from_code = py.import("store_native.errors")?.getattr("from_code")?;
    let exception = from_code.call((error.code(), error.detail()), Some(&context))?;
    Ok(PyErr::from_value(exception))
}
