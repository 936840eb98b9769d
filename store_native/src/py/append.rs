//! An append as Python asks for it: messages in one of four forms, parsed and stored.
//!
//! Invariants: the interpreter lock is not held while a request is parsed and stored.
//! Threads: those of Python's callers.

use std::net::SocketAddr;
use std::sync::Arc;

use pyo3::prelude::*;

use super::appended::PyAppended;
use super::convert::{HostPair, host_or_none};
use super::errors::raise;
use crate::error::Result;
use crate::message::NewMessage;
use crate::state::names::is_group_topic;
use crate::store::{AppendRequest, Appended, Store};
use crate::wire::request::{ArrowMessages, Limits, SingleMessage, parse_json, parse_ndjson};

/// What an append says beside its messages.
pub(super) struct Append<'a> {
    pub store: &'a Store,
    pub broker_name: &'a Arc<str>,
    pub topic: &'a str,
    pub born_host: Option<HostPair>,
    pub idempotency_key: Option<&'a str>,
    pub full_results: bool,
    /// Whether the caller asks for the flush, with `Store.flush_soon`.
    pub flush_later: bool,
}

impl Append<'_> {
    pub fn message(&self, py: Python<'_>, message: &SingleMessage<'_>) -> PyResult<PyAppended> {
        self.run(py, |store, request| {
            let message = message.check(&limits(store, request.topic, message.body.len()))?;
            Ok((self.append(store, request, std::slice::from_ref(&message))?, false))
        })
    }

    /// A request of one object is answered as one message, a list by queue.
    pub fn json(&self, py: Python<'_>, data: &[u8]) -> PyResult<PyAppended> {
        self.run(py, |store, request| {
            let parsed = parse_json(data, &limits(store, request.topic, data.len()))?;
            Ok((self.append(store, request, &parsed.messages)?, parsed.many))
        })
    }

    pub fn ndjson(&self, py: Python<'_>, data: &[u8]) -> PyResult<PyAppended> {
        self.run(py, |store, request| {
            let limits = limits(store, request.topic, data.len());
            Ok((self.append(store, request, &parse_ndjson(data, &limits)?)?, true))
        })
    }

    pub fn arrow(&self, py: Python<'_>, data: &[u8]) -> PyResult<PyAppended> {
        self.run(py, |store, request| {
            let stream = ArrowMessages::read(arrow_buffer::Buffer::from(data))?;
            let limits = limits(store, request.topic, data.len());
            Ok((self.append(store, request, &stream.messages(&limits)?)?, true))
        })
    }

    fn append(
        &self,
        store: &Store,
        request: &AppendRequest<'_>,
        messages: &[NewMessage<'_>],
    ) -> Result<Appended> {
        match self.flush_later {
            true => store.append_unflushed(request, messages),
            false => store.append(request, messages),
        }
    }

    /// `work` says, beside the result, whether the request is answered by queue.
    fn run(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Store, &AppendRequest<'_>) -> Result<(Appended, bool)> + Send,
    ) -> PyResult<PyAppended> {
        let Self { store, broker_name, topic, idempotency_key, full_results, .. } = *self;
        let born_host: Option<SocketAddr> = host_or_none(self.born_host.as_ref());
        let request = AppendRequest { topic, born_host, idempotency_key };
        let (appended, many) = py.detach(|| work(store, &request)).map_err(|e| raise(py, e))?;
        Ok(PyAppended {
            appended,
            topic: topic.to_owned(),
            broker_name: Arc::clone(broker_name),
            store_host: store.options().store_host,
            many,
            full_results,
        })
    }
}

/// What one request may hold.
///
/// What a group sends back was taken once, maybe under a larger limit than today's: the log's files bound it. All
/// of its messages together are bounded by the request as it came, for views of one text may be many messages.
fn limits(store: &Store, topic: &str, request_bytes: usize) -> Limits {
    let options = store.options();
    let file_bytes = usize::try_from(options.commitlog_file_size).unwrap_or(usize::MAX);
    let taken = Limits { max_message_bytes: options.max_message_bytes, ..Limits::default() };
    if !is_group_topic(topic) {
        return taken;
    }
    let max_request_bytes = taken.max_request_bytes.max(request_bytes.min(file_bytes));
    Limits { max_message_bytes: file_bytes, max_request_bytes, any_tags: true, ..taken }
}
