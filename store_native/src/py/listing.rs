//! Topics and groups as JSON: pages of them, and single ones.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use crate::error::StoreError;
use crate::state::{GroupConfig, TopicConfig, names};
use crate::store::Store;

type Json<'py> = Bound<'py, PyBytes>;

#[derive(serde::Serialize)]
struct TopicJson<'a> {
    topic: &'a str,
    #[serde(flatten)]
    config: &'a TopicConfig,
    system: bool,
}

impl<'a> TopicJson<'a> {
    fn new(topic: &'a str, config: &'a TopicConfig) -> Self {
        Self { topic, config, system: names::is_system(topic) }
    }
}

#[derive(serde::Serialize)]
struct GroupJson<'a> {
    group: &'a str,
    #[serde(flatten)]
    config: &'a GroupConfig,
}

/// The first `limit` topics by name behind `after`.
pub fn topics<'py>(py: Python<'py>, store: &Store, after: &str, limit: usize) -> PyResult<Json<'py>> {
    let topics = py.detach(|| store.topics_after(after, limit));
    to_json(py, &topics.iter().map(|(topic, config)| TopicJson::new(topic, config)).collect::<Vec<_>>())
}

pub fn topic<'py>(py: Python<'py>, store: &Store, topic: &str) -> PyResult<Option<Json<'py>>> {
    let config = py.detach(|| store.topic(topic));
    config.map(|config| to_json(py, &TopicJson::new(topic, &config))).transpose()
}

/// The first `limit` groups by name behind `after`.
pub fn groups<'py>(py: Python<'py>, store: &Store, after: &str, limit: usize) -> PyResult<Json<'py>> {
    let groups = py.detach(|| store.groups_after(after, limit));
    to_json(py, &groups.iter().map(|(group, config)| GroupJson { group, config }).collect::<Vec<_>>())
}

pub fn group<'py>(py: Python<'py>, store: &Store, group: &str) -> PyResult<Option<Json<'py>>> {
    let config = py.detach(|| store.group(group));
    config.map(|config| to_json(py, &GroupJson { group, config: &config })).transpose()
}

fn to_json<'py, T: serde::Serialize>(py: Python<'py>, value: &T) -> PyResult<Json<'py>> {
    let json =
        serde_json::to_vec(value).map_err(|e| raise(py, StoreError::corrupt(format!("an answer: {e}"))))?;
    Ok(PyBytes::new(py, &json))
}
