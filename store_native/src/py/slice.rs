//! What a read gives to Python, and the three forms of it.
//!
//! Invariants: bounds, filter and limits are the same in all three, whoever reads: the owner or a reader.
//! Threads: those of Python's callers; the interpreter lock is not held over a read.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::arrow::PyBatch;
use crate::error::Result;
use crate::filter::Filter;
use crate::message::RecordView;
use crate::read::{SliceMeta, SliceRequest};
use crate::reader::Reader;
use crate::store::Store;
use crate::wire::answer::{Capacity, ColumnSet, SliceBuilder, to_ipc, write_message};

/// A slice of a queue.
#[pyclass(name = "Slice", module = "store_native._store", frozen)]
pub struct PySlice {
    meta: SliceMeta,
    messages: Py<PyBytes>,
    batch: Option<Py<PyBatch>>,
}

#[pymethods]
impl PySlice {
    #[getter]
    fn status(&self) -> &'static str {
        self.meta.status.name()
    }
    #[getter]
    fn next_offset(&self) -> i64 {
        self.meta.next_offset
    }
    #[getter]
    fn min_offset(&self) -> i64 {
        self.meta.min_offset
    }
    #[getter]
    fn max_offset(&self) -> i64 {
        self.meta.max_offset
    }
    #[getter]
    fn count(&self) -> usize {
        self.meta.count
    }
    #[getter]
    fn damaged(&self) -> Vec<(i64, i64)> {
        self.meta.damaged.clone()
    }
    #[getter]
    fn physical_offset(&self) -> Option<i64> {
        self.meta.physical_offset
    }
    #[getter]
    fn messages(&self, py: Python<'_>) -> Py<PyBytes> {
        self.messages.clone_ref(py)
    }
    #[getter]
    fn batch(&self, py: Python<'_>) -> Option<Py<PyBatch>> {
        self.batch.as_ref().map(|b| b.clone_ref(py))
    }
}

/// What a read is made of, whoever reads.
pub struct ReadArguments<'a> {
    pub topic: &'a str,
    pub queue_id: u32,
    pub offset: i64,
    pub end_offset: Option<i64>,
    pub max_messages: usize,
    pub max_bytes: usize,
    pub tags: &'a str,
}

/// The form of the messages.
pub enum Form {
    Json,
    Arrow(Option<Vec<String>>),
    Ipc(Option<Vec<String>>),
}

/// Who reads: the owner or a reader.
pub trait Reads: Sync {
    fn broker_name(&self) -> &str;
    fn read_slice(
        &self,
        arguments: &ReadArguments<'_>,
        request: &SliceRequest,
        each: &mut dyn FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta>;
}

impl Reads for Store {
    fn broker_name(&self) -> &str {
        &self.identity().broker_name
    }

    fn read_slice(
        &self,
        arguments: &ReadArguments<'_>,
        request: &SliceRequest,
        each: &mut dyn FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta> {
        self.read(arguments.topic, arguments.queue_id, request, each)
    }
}

impl Reads for Reader {
    fn broker_name(&self) -> &str {
        Reader::broker_name(self)
    }

    fn read_slice(
        &self,
        arguments: &ReadArguments<'_>,
        request: &SliceRequest,
        each: &mut dyn FnMut(&RecordView<'_>, i64) -> Result<()>,
    ) -> Result<SliceMeta> {
        self.read(arguments.topic, arguments.queue_id, request, each)
    }
}

enum Content {
    Bytes(Vec<u8>),
    Batch(arrow_array::RecordBatch),
}

/// Room reserved for a slice at most before it is known how much there is.
const MAX_CAPACITY_BYTES: usize = 16 << 20;

fn read_content(
    reads: &dyn Reads,
    arguments: &ReadArguments<'_>,
    form: Form,
) -> Result<(SliceMeta, Content)> {
    let request = SliceRequest {
        offset: arguments.offset,
        end_offset: arguments.end_offset,
        max_messages: arguments.max_messages,
        max_bytes: arguments.max_bytes,
        filter: Filter::of_tags(arguments.tags)?,
    };
    let (columns, ipc) = match form {
        Form::Json => {
            let mut out = Vec::with_capacity(4096);
            out.push(b'[');
            let broker_name = reads.broker_name();
            let meta = reads.read_slice(arguments, &request, &mut |record, _| {
                if out.len() > 1 {
                    out.push(b',');
                }
                write_message(&mut out, record, broker_name)
            })?;
            out.push(b']');
            return Ok((meta, Content::Bytes(out)));
        }
        Form::Arrow(columns) => (columns, false),
        Form::Ipc(columns) => (columns, true),
    };
    let columns = ColumnSet::parse(columns.as_deref())?;
    let wanted = arguments.end_offset.map_or(arguments.max_messages, |end| {
        arguments.max_messages.min(usize::try_from(end - arguments.offset).unwrap_or(0))
    });
    let records = wanted.min(65_536);
    let capacity =
        Capacity { records, body_bytes: arguments.max_bytes.min(MAX_CAPACITY_BYTES).min(records * 1024) };
    let mut builder = SliceBuilder::new(
        &columns,
        arguments.topic,
        arguments.queue_id as i32,
        reads.broker_name(),
        capacity,
    );
    let meta = reads.read_slice(arguments, &request, &mut |record, offset| builder.push(record, offset))?;
    let batch = builder.finish()?;
    let content = if ipc { Content::Bytes(to_ipc(&batch)?) } else { Content::Batch(batch) };
    Ok((meta, content))
}

/// Reads without the interpreter lock.
pub fn read(
    py: Python<'_>,
    reads: &dyn Reads,
    arguments: &ReadArguments<'_>,
    form: Form,
) -> PyResult<PySlice> {
    let (meta, content) =
        py.detach(|| read_content(reads, arguments, form)).map_err(|e| super::errors::raise(py, e))?;
    Ok(match content {
        Content::Bytes(bytes) => PySlice { meta, messages: PyBytes::new(py, &bytes).unbind(), batch: None },
        Content::Batch(batch) => PySlice {
            meta,
            messages: PyBytes::new(py, b"").unbind(),
            batch: Some(Py::new(py, PyBatch(batch))?),
        },
    })
}
