//! `Store`: the owner of a store directory, as Python calls it.
//!
//! Invariants: no rule of the store is made here: arguments become values, errors become exceptions.
//! Threads: those of Python's callers; what may wait or read files lets go of the interpreter lock.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::append::Append;
use super::appended::PyAppended;
use super::convert::{HostPair, QueueRow, json_array, queue_rows};
use super::errors::raise;
use super::inspect::to_python;
use super::listing;
use super::options::{flush_name, options_of};
use super::replicated_log::PyReplicatedLog;
use super::slice::{Form, PySlice, ReadArguments, read};
use crate::environment::Environment;
use crate::error::Result;
use crate::store::{GroupChange, Store, TopicChange};
use crate::wire::answer::{FoundJson, write_message};
use crate::wire::request::SingleMessage;

#[pyclass(name = "Store", module = "store_native._store", frozen)]
pub struct PyStore {
    store: Arc<Store>,
    broker_name: Arc<str>,
}

impl PyStore {
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Store) -> Result<T> + Send) -> PyResult<T> {
        py.detach(|| work(&self.store)).map_err(|e| raise(py, e))
    }

    fn append<'a>(
        &'a self,
        topic: &'a str,
        born_host: Option<HostPair>,
        idempotency_key: Option<&'a str>,
        full_results: bool,
        flush_later: bool,
    ) -> Append<'a> {
        let Self { store, broker_name } = self;
        Append { store, broker_name, topic, born_host, idempotency_key, full_results, flush_later }
    }
}

#[pymethods]
impl PyStore {
    #[new]
    #[pyo3(signature = (path, *, faults="", **options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        faults: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = options_of(py, options)?;
        let faults = faults.to_owned();
        let store = py
            .detach(|| Store::open(&path, options, Environment::real(&faults)?))
            .map_err(|e| raise(py, e))?;
        let broker_name = store.identity().broker_name.as_str().into();
        Ok(Self { store: Arc::new(store), broker_name })
    }

    fn replicated_log(&self) -> PyReplicatedLog {
        PyReplicatedLog { store: Arc::clone(&self.store) }
    }

    #[getter]
    fn recovery(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        to_python(py, self.store.report())
    }
    #[getter]
    fn broker_name(&self) -> &str {
        &self.store.identity().broker_name
    }
    #[getter]
    fn cluster(&self) -> &str {
        &self.store.identity().cluster
    }
    #[getter]
    fn store_id(&self) -> &str {
        &self.store.identity().store_id
    }
    #[getter]
    fn epoch(&self, py: Python<'_>) -> i64 {
        // The append lock says it, which a large request holds for long.
        py.detach(|| self.store.role().1)
    }
    #[getter]
    fn log_epoch(&self) -> i64 {
        self.store.log_epoch()
    }
    #[getter]
    fn store_host(&self) -> HostPair {
        let host = self.store.options().store_host;
        (host.ip().to_string(), host.port())
    }
    #[getter]
    fn path(&self) -> PathBuf {
        self.store.root().to_owned()
    }
    #[getter]
    fn flush_mode(&self) -> &'static str {
        flush_name(self.store.options().flush)
    }
    #[getter]
    fn poisoned(&self) -> Option<&str> {
        self.store.poisoned()
    }
    #[getter]
    fn dispatch_failure(&self) -> Option<String> {
        self.store.dispatch_failure()
    }

    #[pyo3(signature = (topic, body, *, tags=None, keys=None, properties=None, sharding_key=None,
        queue_id=None, flag=0, delay_level=0, message_id=None, born_timestamp=None, born_host=None,
        idempotency_key=None, flush_later=false))]
    #[allow(clippy::too_many_arguments)]
    fn append_message(
        &self,
        py: Python<'_>,
        topic: &str,
        body: &[u8],
        tags: Option<&str>,
        keys: Option<Vec<String>>,
        properties: Option<Vec<(String, String)>>,
        sharding_key: Option<&str>,
        queue_id: Option<u32>,
        flag: i32,
        delay_level: u32,
        message_id: Option<&str>,
        born_timestamp: Option<i64>,
        born_host: Option<HostPair>,
        idempotency_key: Option<&str>,
        flush_later: bool,
    ) -> PyResult<PyAppended> {
        let (keys, properties) = (keys.unwrap_or_default(), properties.unwrap_or_default());
        let message = SingleMessage {
            body,
            tags,
            keys: &keys,
            properties: &properties,
            sharding_key,
            queue_id,
            flag,
            delay_level,
            message_id,
            born_timestamp,
        };
        self.append(topic, born_host, idempotency_key, false, flush_later).message(py, &message)
    }

    #[pyo3(signature = (topic, data, *, born_host=None, idempotency_key=None, full_results=false,
        flush_later=false))]
    #[allow(clippy::too_many_arguments)]
    fn append_json(
        &self,
        py: Python<'_>,
        topic: &str,
        data: &[u8],
        born_host: Option<HostPair>,
        idempotency_key: Option<&str>,
        full_results: bool,
        flush_later: bool,
    ) -> PyResult<PyAppended> {
        self.append(topic, born_host, idempotency_key, full_results, flush_later).json(py, data)
    }

    #[pyo3(signature = (topic, data, *, born_host=None, idempotency_key=None, full_results=false,
        flush_later=false))]
    #[allow(clippy::too_many_arguments)]
    fn append_ndjson(
        &self,
        py: Python<'_>,
        topic: &str,
        data: &[u8],
        born_host: Option<HostPair>,
        idempotency_key: Option<&str>,
        full_results: bool,
        flush_later: bool,
    ) -> PyResult<PyAppended> {
        self.append(topic, born_host, idempotency_key, full_results, flush_later).ndjson(py, data)
    }

    #[pyo3(signature = (topic, data, *, born_host=None, idempotency_key=None, full_results=false,
        flush_later=false))]
    #[allow(clippy::too_many_arguments)]
    fn append_arrow(
        &self,
        py: Python<'_>,
        topic: &str,
        data: &[u8],
        born_host: Option<HostPair>,
        idempotency_key: Option<&str>,
        full_results: bool,
        flush_later: bool,
    ) -> PyResult<PyAppended> {
        self.append(topic, born_host, idempotency_key, full_results, flush_later).arrow(py, data)
    }

    fn watermarks(&self) -> (i64, i64, i64, i64) {
        self.store.watermarks()
    }

    fn flush_soon(&self) {
        self.store.flush_soon();
    }

    fn progress_fd(&self) -> i32 {
        self.store.progress_fd()
    }

    fn alarm_fd(&self) -> i32 {
        self.store.alarm_fd()
    }

    fn wait_flushed(&self, py: Python<'_>, end_offset: i64, timeout_ms: u64) -> bool {
        py.detach(|| self.store.wait_flushed(end_offset, Duration::from_millis(timeout_ms)))
    }

    fn wait_dispatched(&self, py: Python<'_>, end_offset: i64, timeout_ms: u64) -> bool {
        py.detach(|| self.store.wait_dispatched(end_offset, Duration::from_millis(timeout_ms)))
    }

    fn queues(&self, py: Python<'_>, topic: &str) -> PyResult<Vec<(u32, i64, i64, i64)>> {
        self.run(py, |s| Ok(s.queues(topic)?.into_iter().map(|(id, b)| (id, b.min, b.max, b.max)).collect()))
    }

    fn queue_epochs(&self, py: Python<'_>, topic: &str) -> PyResult<(bool, Vec<QueueRow>)> {
        self.run(py, |s| s.queue_epochs(topic).map(|(settled, rows)| (settled, queue_rows(rows))))
    }

    fn queue_bounds(&self, py: Python<'_>, topic: &str, queue_id: u32) -> PyResult<(i64, i64)> {
        self.run(py, |s| s.bounds(topic, queue_id).map(|b| (b.min, b.max)))
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
        read(py, &*self.store, &arguments, Form::Json)
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
        read(py, &*self.store, &arguments, Form::Arrow(columns))
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
        read(py, &*self.store, &arguments, Form::Ipc(columns))
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
        let found = self.run(py, |s| {
            let mut found = FoundJson::new(&s.identity().broker_name, max_bytes);
            s.find(topic, key, (begin, end), max_messages, |record| found.take(record))?;
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
        let found = self.run(py, |s| {
            let mut json = Vec::new();
            let found = s.find_by_id(message_id, topic, |record| {
                write_message(&mut json, record, &s.identity().broker_name)
            })?;
            Ok(found.then_some(json))
        })?;
        Ok(found.map(|json| PyBytes::new(py, &json)))
    }

    fn offset_by_time(&self, py: Python<'_>, topic: &str, queue_id: u32, timestamp: i64) -> PyResult<i64> {
        self.run(py, |s| s.offset_by_time(topic, queue_id, timestamp))
    }

    #[getter]
    fn topic_changes(&self) -> i64 {
        self.store.topic_changes()
    }

    #[pyo3(signature = (after="", limit=usize::MAX))]
    fn topics_json<'py>(&self, py: Python<'py>, after: &str, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        listing::topics(py, &self.store, after, limit)
    }

    fn topic_json<'py>(&self, py: Python<'py>, topic: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        listing::topic(py, &self.store, topic)
    }

    #[pyo3(signature = (topic, *, read_queue_nums=None, write_queue_nums=None, perm=None, attributes=None, force=false))]
    #[allow(clippy::too_many_arguments)]
    fn put_topic(
        &self,
        py: Python<'_>,
        topic: &str,
        read_queue_nums: Option<u32>,
        write_queue_nums: Option<u32>,
        perm: Option<u32>,
        attributes: Option<BTreeMap<String, String>>,
        force: bool,
    ) -> PyResult<i64> {
        let change = TopicChange { read_queue_nums, write_queue_nums, perm, attributes, force };
        self.run(py, |s| s.put_topic(topic, &change))
    }

    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<i64> {
        self.run(py, |s| s.delete_topic(topic))
    }

    #[pyo3(signature = (after="", limit=usize::MAX))]
    fn groups_json<'py>(&self, py: Python<'py>, after: &str, limit: usize) -> PyResult<Bound<'py, PyBytes>> {
        listing::groups(py, &self.store, after, limit)
    }

    fn group_json<'py>(&self, py: Python<'py>, group: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        listing::group(py, &self.store, group)
    }

    #[pyo3(signature = (group, *, retry_max_times=None, consume_enable=None, consume_broadcast_enable=None,
        attributes=None))]
    fn put_group(
        &self,
        py: Python<'_>,
        group: &str,
        retry_max_times: Option<i32>,
        consume_enable: Option<bool>,
        consume_broadcast_enable: Option<bool>,
        attributes: Option<std::collections::BTreeMap<String, String>>,
    ) -> PyResult<i64> {
        let change = GroupChange { retry_max_times, consume_enable, consume_broadcast_enable, attributes };
        self.run(py, |s| s.put_group(group, &change))
    }

    fn delete_group(&self, py: Python<'_>, group: &str) -> PyResult<i64> {
        self.run(py, |s| s.delete_group(group))
    }

    fn commit_offsets(&self, py: Python<'_>, group: &str, offsets: Vec<(String, u32, i64)>) -> PyResult<i64> {
        self.run(py, |s| s.commit_offsets(group, offsets))
    }

    fn group_offsets(&self, py: Python<'_>, group: &str) -> Vec<(String, u32, i64)> {
        py.detach(|| self.store.group_offsets(group))
    }

    fn acquire_lease(&self, py: Python<'_>, group: &str, owner: &str, ttl_ms: i64) -> PyResult<(i64, i64)> {
        self.run(py, |s| s.acquire_lease(group, owner, ttl_ms))
    }

    fn release_lease(&self, py: Python<'_>, group: &str, owner: &str) -> bool {
        py.detach(|| self.store.release_lease(group, owner))
    }

    fn lease(&self, py: Python<'_>, group: &str) -> Option<(String, i64, i64)> {
        py.detach(|| self.store.lease(group)).map(|l| (l.owner, l.epoch, l.expires_at))
    }

    fn lease_or_claim(&self, py: Python<'_>, group: &str) -> Option<(String, i64, i64)> {
        py.detach(|| self.store.lease_or_claim(group)).map(|l| (l.owner, l.epoch, l.expires_at))
    }

    fn watch(&self, py: Python<'_>, topic: &str, queue_id: u32) {
        py.detach(|| self.store.watch(topic, queue_id));
    }

    fn take_notified_queues(&self, py: Python<'_>) -> Vec<(String, u32)> {
        py.detach(|| self.store.take_notified_queues())
    }

    fn take_events(&self) -> Vec<(&'static str, String)> {
        self.store.take_events().into_iter().map(|event| (event.severity.name(), event.text)).collect()
    }

    fn delay_levels(&self) -> Vec<i64> {
        self.store.options().delay_levels_ms.clone()
    }

    fn delay_progress(&self, py: Python<'_>) -> Vec<(u32, i64, i64)> {
        py.detach(|| self.store.delay_progress())
    }

    fn stats(&self, py: Python<'_>) -> HashMap<&'static str, f64> {
        py.detach(|| self.store.stats()).into_iter().collect()
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |s| s.checkpoint())
    }

    #[pyo3(signature = (now_ms=None))]
    fn expire(&self, py: Python<'_>, now_ms: Option<i64>) -> PyResult<usize> {
        self.run(py, |s| s.expire(now_ms.unwrap_or_else(|| s.now_for_ages()), true))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Store::close)
    }
}
