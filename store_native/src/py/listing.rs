//! Topics and groups as JSON.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use crate::error::StoreError;
use crate::state::{GroupConfig, TopicConfig, names};

#[derive(serde::Serialize)]
pub struct TopicJson<'a> {
    topic: &'a str,
    #[serde(flatten)]
    config: &'a TopicConfig,
    system: bool,
}

pub fn topic_json<'a>(topic: &'a str, config: &'a TopicConfig) -> TopicJson<'a> {
    TopicJson { topic, config, system: names::is_system(topic) }
}

#[derive(serde::Serialize)]
pub struct GroupJson<'a> {
    pub group: &'a str,
    #[serde(flatten)]
    pub config: &'a GroupConfig,
}

pub fn to_json<'py, T: serde::Serialize>(py: Python<'py>, value: &T) -> PyResult<Bound<'py, PyBytes>> {
    let json =
        serde_json::to_vec(value).map_err(|e| raise(py, StoreError::corrupt(format!("an answer: {e}"))))?;
    Ok(PyBytes::new(py, &json))
}
