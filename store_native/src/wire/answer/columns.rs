//! Records of one queue, built into an Arrow batch.
//!
//! Invariants: a record is either in all columns or, if `push` fails, in none. Only the columns asked for are
//! built: what no column needs is not looked at, properties are read once per record, constant columns cost nothing
//! until the end.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow_ipc::writer::StreamWriter;

use super::layout::{Column as C, ColumnSet, UTC};
use super::property_columns::PropertyColumns;
use crate::error::{Result, StoreError};
use crate::message::{RecordView, compress};

/// Kafka's word for a time that the broker set.
const LOG_APPEND_TIME: i32 = 1;

/// Offsets into Arrow's texts and bytes are 31 bits: no column of a slice may outgrow this.
const MAX_COLUMN_BYTES: usize = i32::MAX as usize;

/// More than a record costs any text column besides its body, properties and the constants.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// How much a slice will hold, as far as one knows. Room is reserved, not spent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capacity {
    pub records: usize,
    pub body_bytes: usize,
}

/// Collects the records of one slice.
#[derive(Debug)]
pub struct SliceBuilder {
    columns: ColumnSet,
    topic: String,
    broker_name: String,
    queue_id: i32,
    records: usize,
    /// At least as long as each column of texts or bytes would be.
    bytes: usize,
    body: Option<BinaryBuilder>,
    queue_offset: Option<Int64Builder>,
    physical_offset: Option<Int64Builder>,
    born_timestamp: Option<TimestampMicrosecondBuilder>,
    store_timestamp: Option<TimestampMicrosecondBuilder>,
    reconsume_times: Option<Int32Builder>,
    flag: Option<Int32Builder>,
    born_host: Option<StringBuilder>,
    store_host: Option<StringBuilder>,
    from_properties: PropertyColumns,
}

impl SliceBuilder {
    /// A builder for records of one queue.
    pub fn new(columns: &ColumnSet, topic: &str, queue_id: i32, broker_name: &str, room: Capacity) -> Self {
        let n = room.records;
        let wants = |any: &[C]| columns.has(any);
        let longs = |any: &[C]| wants(any).then(|| Int64Builder::with_capacity(n));
        let ints = |any: &[C]| wants(any).then(|| Int32Builder::with_capacity(n));
        let times =
            |any: &[C]| wants(any).then(|| TimestampMicrosecondBuilder::with_capacity(n).with_timezone(UTC));
        let hosts = |any: &[C]| wants(any).then(|| StringBuilder::with_capacity(n, n * 20));
        Self {
            topic: topic.to_owned(),
            broker_name: broker_name.to_owned(),
            queue_id,
            records: 0,
            bytes: 0,
            body: wants(&[C::Body, C::Value]).then(|| BinaryBuilder::with_capacity(n, room.body_bytes)),
            queue_offset: longs(&[C::QueueOffset, C::Offset]),
            physical_offset: longs(&[C::PhysicalOffset]),
            born_timestamp: times(&[C::BornTimestamp]),
            store_timestamp: times(&[C::StoreTimestamp, C::Timestamp]),
            reconsume_times: ints(&[C::ReconsumeTimes]),
            flag: ints(&[C::Flag]),
            born_host: hosts(&[C::BornHost]),
            store_host: hosts(&[C::StoreHost]),
            from_properties: PropertyColumns::new(columns, n),
            columns: columns.clone(),
        }
    }

    /// Records so far.
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Adds a record, which stands at `queue_offset` of the queue.
    ///
    /// # Errors
    /// `Corrupt` where a compressed body cannot be read; `ARGUMENT_ILLEGAL` where the slice grows beyond
    /// 2 GiB. The builder is as it was before.
    #[inline]
    pub fn push(&mut self, record: &RecordView<'_>, queue_offset: i64) -> Result<()> {
        let body = match &self.body {
            Some(_) => compress::body_of(record)?,
            None => record.body.into(),
        };
        let constants = self.topic.len() + self.broker_name.len();
        let bytes = self.bytes + body.len() + record.properties.len() + constants + RECORD_OVERHEAD_BYTES;
        if bytes > MAX_COLUMN_BYTES {
            let detail =
                format!("a slice takes at most 2 GiB, {} messages fill it; ask for fewer", self.records);
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        self.bytes = bytes;
        self.records += 1;
        if let Some(column) = &mut self.body {
            column.append_value(&body);
        }
        if let Some(column) = &mut self.queue_offset {
            column.append_value(queue_offset);
        }
        if let Some(column) = &mut self.physical_offset {
            column.append_value(record.physical_offset);
        }
        if let Some(column) = &mut self.born_timestamp {
            column.append_value(record.born_timestamp.saturating_mul(1000));
        }
        if let Some(column) = &mut self.store_timestamp {
            column.append_value(record.store_timestamp.saturating_mul(1000));
        }
        if let Some(column) = &mut self.reconsume_times {
            column.append_value(record.reconsume_times);
        }
        if let Some(column) = &mut self.flag {
            column.append_value(record.flag);
        }
        if let Some(column) = &mut self.born_host {
            column.append_value(record.born_host.to_string());
        }
        if let Some(column) = &mut self.store_host {
            column.append_value(record.store_host.to_string());
        }
        self.from_properties.push(record);
        Ok(())
    }

    /// The batch, with the columns in the order asked for.
    ///
    /// # Errors
    /// None that a caller can bring about: the columns are as long as each other and typed as the schema.
    #[allow(clippy::indexing_slicing, reason = "as many arrays as columns before this one")]
    pub fn finish(mut self) -> Result<RecordBatch> {
        let n = self.records;
        let columns = self.columns.columns().to_vec();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            // Two names of one column: built once.
            let twin = columns[..at].iter().position(|earlier| source(*earlier) == source(*column));
            let array = match twin {
                Some(twin) => Some(arrays[twin].clone()),
                None => self.array(*column, n),
            };
            arrays.push(array.ok_or_else(|| internal(format!("column {} was not built", column.name())))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(n));
        RecordBatch::try_new_with_options(self.columns.schema().clone(), arrays, &options)
            .map_err(|e| internal(e.to_string()))
    }

    fn array(&mut self, column: C, n: usize) -> Option<ArrayRef> {
        fn done(builder: &mut Option<impl ArrayBuilder>) -> Option<ArrayRef> {
            builder.as_mut().map(ArrayBuilder::finish)
        }
        match column {
            C::Topic => Some(Arc::new(StringArray::new_repeated(&self.topic, n))),
            C::BrokerName => Some(Arc::new(StringArray::new_repeated(&self.broker_name, n))),
            C::QueueId | C::Partition => Some(Arc::new(Int32Array::from_value(self.queue_id, n))),
            C::TimestampType => Some(Arc::new(Int32Array::from_value(LOG_APPEND_TIME, n))),
            C::QueueOffset | C::Offset => done(&mut self.queue_offset),
            C::PhysicalOffset => done(&mut self.physical_offset),
            C::Body | C::Value => done(&mut self.body),
            C::BornTimestamp => done(&mut self.born_timestamp),
            C::StoreTimestamp | C::Timestamp => done(&mut self.store_timestamp),
            C::ReconsumeTimes => done(&mut self.reconsume_times),
            C::Flag => done(&mut self.flag),
            C::BornHost => done(&mut self.born_host),
            C::StoreHost => done(&mut self.store_host),
            C::MessageId | C::Keys | C::Tags | C::Properties | C::ShardingKey | C::Key | C::Headers => {
                self.from_properties.finish(column)
            }
        }
    }
}

/// The column that holds the same values under LakeMQ's own name.
fn source(column: C) -> C {
    match column {
        C::Value => C::Body,
        C::Partition => C::QueueId,
        C::Offset => C::QueueOffset,
        C::Timestamp => C::StoreTimestamp,
        own => own,
    }
}

/// A batch as a whole Arrow IPC stream: schema, batch, end.
///
/// # Errors
/// None that a caller can bring about: it is written to memory.
pub fn to_ipc(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(batch.get_array_memory_size() + 4096);
    let mut writer =
        StreamWriter::try_new(&mut out, batch.schema_ref()).map_err(|e| internal(e.to_string()))?;
    writer.write(batch).and_then(|()| writer.finish()).map_err(|e| internal(e.to_string()))?;
    drop(writer);
    Ok(out)
}

fn internal(detail: impl Into<String>) -> StoreError {
    StoreError::invalid("SYSTEM_ERROR", detail)
}
