//! The store's options as Python gives them: keyword arguments by the names of [`Options`], which has the defaults.
//!
//! Invariants: a name that is no option is an error.

use std::collections::HashMap;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::convert::{HostPair, host};
use super::errors::raise;
use crate::error::{Result, StoreError};
use crate::store::{Flush, Options, Role, parse_levels};

/// Does something with every option whose value is the same thing in both languages.
macro_rules! with_plain_options {
    ($then:ident) => {
        $then!(
            broker_name,
            cluster,
            asks_replicas,
            flush_interval_ms,
            commitlog_file_size,
            consumequeue_file_entries,
            index_slots,
            index_entries,
            auto_create_topics,
            default_queue_nums,
            retention_hours,
            delete_when_hour,
            max_message_bytes,
            checkpoint_interval_ms,
            idempotence_max_keys,
            idempotence_hours
        )
    };
}

const FLUSHES: [(&str, Flush); 2] = [("sync", Flush::Sync), ("async", Flush::Async)];
const ROLES: [(&str, Role); 2] = [("master", Role::Master), ("slave", Role::Slave)];

/// (smallest, largest) value of each option that is a number.
#[pyfunction]
pub fn option_bounds() -> HashMap<&'static str, (i64, i64)> {
    let numbers = Options::default().numbers();
    numbers.into_iter().map(|(name, least, most, _)| (name, (least, most))).collect()
}

/// The options in force when these are given.
pub fn options_of(py: Python<'_>, given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in given.into_iter().flat_map(|given| given.iter()) {
        let name: String = name.extract()?;
        take(py, &mut options, &name, &value).map_err(|error| {
            if error.is_instance_of::<PyOverflowError>(py) {
                let detail = format!("{name} is out of range: {}", error.value(py));
                raise(py, StoreError::invalid("ARGUMENT_ILLEGAL", detail))
            } else if error.is_instance_of::<PyTypeError>(py) {
                PyTypeError::new_err(format!("{name}: {}", error.value(py)))
            } else {
                error
            }
        })?;
    }
    Ok(options)
}

fn take(py: Python<'_>, options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    macro_rules! take_plain {
        ($($option:ident),*) => {
            match name {
                $(stringify!($option) => options.$option = value.extract()?,)*
                "store_host" => options.store_host = host(&value.extract::<HostPair>()?)?,
                "flush" => options.flush = choice(name, value, &FLUSHES).map_err(|e| raise(py, e))?,
                "role" => options.role = choice(name, value, &ROLES).map_err(|e| raise(py, e))?,
                "delay_levels" => {
                    let text: String = value.extract()?;
                    options.delay_levels_ms = parse_levels(&text).map_err(|e| raise(py, e))?;
                }
                _ => return Err(PyTypeError::new_err("the store has no such option")),
            }
        };
    }
    with_plain_options!(take_plain);
    Ok(())
}

fn choice<T: Copy>(name: &str, value: &Bound<'_, PyAny>, choices: &[(&str, T)]) -> Result<T> {
    let given: String = value.extract().unwrap_or_default();
    choices.iter().find(|(word, _)| *word == given).map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        let detail = format!("{name} is {given:?}, it is {}", words.join(" or "));
        StoreError::invalid("ARGUMENT_ILLEGAL", detail)
    })
}

fn word<T: PartialEq + Copy>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, choice)| *choice == value).map_or("", |(word, _)| *word)
}

/// When an append counts as flushed, as the option says it.
pub fn flush_name(flush: Flush) -> &'static str {
    word(flush, &FLUSHES)
}

/// The options of a store that is opened with none.
#[pyfunction]
pub fn default_options(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let options = Options::default();
    let out = PyDict::new(py);
    macro_rules! give_plain {
        ($($option:ident),*) => {
            $(out.set_item(stringify!($option), options.$option)?;)*
        };
    }
    out.set_item("store_host", (options.store_host.ip().to_string(), options.store_host.port()))?;
    out.set_item("flush", word(options.flush, &FLUSHES))?;
    out.set_item("role", word(options.role, &ROLES))?;
    out.set_item("delay_levels", crate::options::DELAY_LEVELS)?;
    with_plain_options!(give_plain);
    Ok(out)
}
