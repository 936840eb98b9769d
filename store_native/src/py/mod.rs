//! The Python module `store_native._store`.
//!
//! Invariants: nothing outside `py` knows Python. A call that reads or writes files lets go of the interpreter
//! lock.
//! Threads: those of Python's callers.

mod append;
mod appended;
mod arrow;
mod bootstrap;
mod convert;
mod errors;
mod inspect;
mod listing;
mod options;
mod reader;
mod replicated_log;
mod slice;
mod store;

use pyo3::prelude::*;

use crate::filter::Filter;
use crate::state::names;

/// Java's `String.hashCode()`.
#[pyfunction]
fn java_hash(text: &str) -> i32 {
    crate::message::java_hash(text)
}

/// Raises `TOPIC_ILLEGAL` for a name no topic may have.
#[pyfunction]
fn validate_topic(py: Python<'_>, topic: &str) -> PyResult<()> {
    names::validate_topic(topic).map_err(|e| errors::raise(py, e))
}

/// Raises `GROUP_ILLEGAL` for a name no group may have.
#[pyfunction]
fn validate_group(py: Python<'_>, group: &str) -> PyResult<()> {
    names::validate_group(group).map_err(|e| errors::raise(py, e))
}

/// Raises `FILTER_ILLEGAL` for a tag expression that no reader may have.
#[pyfunction]
fn validate_tags(py: Python<'_>, expression: &str) -> PyResult<()> {
    Filter::of_tags(expression).map(|_| ()).map_err(|e| errors::raise(py, e))
}

#[pymodule]
fn _store(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<store::PyStore>()?;
    module.add_class::<appended::PyAppended>()?;
    module.add_class::<reader::PyReader>()?;
    module.add_class::<replicated_log::PyReplicatedLog>()?;
    module.add_class::<bootstrap::PyBootstrap>()?;
    module.add_class::<slice::PySlice>()?;
    module.add_class::<arrow::PyBatch>()?;
    module.add_class::<inspect::PyDump>()?;
    module.add_function(wrap_pyfunction!(inspect::verify, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::recover, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::dump, module)?)?;
    module.add_function(wrap_pyfunction!(options::default_options, module)?)?;
    module.add_function(wrap_pyfunction!(options::option_bounds, module)?)?;
    module.add_function(wrap_pyfunction!(java_hash, module)?)?;
    module.add_function(wrap_pyfunction!(validate_topic, module)?)?;
    module.add_function(wrap_pyfunction!(validate_group, module)?)?;
    module.add_function(wrap_pyfunction!(validate_tags, module)?)?;
    module.add("SYSTEM_TOPICS", names::SYSTEM_TOPICS.to_vec())?;
    Ok(())
}
