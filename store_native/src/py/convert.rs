//! Small conversions between Python's values and the store's.

use std::net::SocketAddr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::read::QueueEpochs;

/// A host as Python has it.
pub type HostPair = (String, u16);

/// Queue id, minimum, maximum, confirmed offset, and (epoch, first queue offset, whether it is only a
/// bound) of each epoch, as Python has them.
pub type QueueRow = (u32, i64, i64, i64, Vec<(i64, i64, bool)>);

/// Queues as Python has them.
pub fn queue_rows(queues: Vec<QueueEpochs>) -> Vec<QueueRow> {
    let row = |queue: QueueEpochs| {
        let epochs = queue.epochs.iter().map(|at| (at.epoch, at.first_offset, at.at_or_before)).collect();
        (queue.queue_id, queue.bounds.min, queue.bounds.max, queue.bounds.max, epochs)
    };
    queues.into_iter().map(row).collect()
}

/// (address, port) as a socket address.
pub fn host(pair: &HostPair) -> PyResult<SocketAddr> {
    pair.0
        .parse()
        .map(|ip| SocketAddr::new(ip, pair.1))
        .map_err(|_| PyValueError::new_err(format!("{:?} is no IP address", pair.0)))
}

/// As [`host`]; an address that is none (a Unix socket's, a test client's) counts as unknown.
pub fn host_or_none(pair: Option<&HostPair>) -> Option<SocketAddr> {
    pair.and_then(|p| host(p).ok())
}

/// Wraps JSON objects as one JSON array.
pub fn json_array(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(objects.iter().map(|o| o.len() + 1).sum::<usize>() + 2);
    out.push(b'[');
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(object);
    }
    out.push(b']');
    out
}
