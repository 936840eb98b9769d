//! The columns a read can give: names, Arrow types and the default set.
//!
//! Invariants: a column has one name and one type, whatever was asked for beside it.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Result, StoreError};

/// A column of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Topic,
    BrokerName,
    QueueId,
    QueueOffset,
    MessageId,
    Keys,
    Tags,
    Body,
    BornTimestamp,
    StoreTimestamp,
    ReconsumeTimes,
    // Only when asked for.
    Properties,
    ShardingKey,
    Flag,
    BornHost,
    StoreHost,
    PhysicalOffset,
    // Spark's Kafka columns, where they differ.
    Key,
    Value,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
}

use Column as C;

const ALL: [(Column, &str); 24] = [
    (C::Topic, "topic"),
    (C::BrokerName, "broker_name"),
    (C::QueueId, "queue_id"),
    (C::QueueOffset, "queue_offset"),
    (C::MessageId, "message_id"),
    (C::Keys, "keys"),
    (C::Tags, "tags"),
    (C::Body, "body"),
    (C::BornTimestamp, "born_timestamp"),
    (C::StoreTimestamp, "store_timestamp"),
    (C::ReconsumeTimes, "reconsume_times"),
    (C::Properties, "properties"),
    (C::ShardingKey, "sharding_key"),
    (C::Flag, "flag"),
    (C::BornHost, "born_host"),
    (C::StoreHost, "store_host"),
    (C::PhysicalOffset, "physical_offset"),
    (C::Key, "key"),
    (C::Value, "value"),
    (C::Partition, "partition"),
    (C::Offset, "offset"),
    (C::Timestamp, "timestamp"),
    (C::TimestampType, "timestampType"),
    (C::Headers, "headers"),
];

/// How many of `ALL`, from its start, are the default set.
const DEFAULTS: usize = 11;

/// Time zone of all times.
pub const UTC: &str = "UTC";

impl Column {
    /// The name users give.
    #[allow(clippy::indexing_slicing, reason = "as many names as variants")]
    pub fn name(self) -> &'static str {
        // `ALL` stands in the order of the variants; a test sees to it.
        ALL[self as usize].1
    }

    fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| *known == name).map(|(column, _)| *column)
    }

    fn data_type(self) -> DataType {
        match self {
            C::Topic
            | C::BrokerName
            | C::MessageId
            | C::Tags
            | C::ShardingKey
            | C::BornHost
            | C::StoreHost => DataType::Utf8,
            C::QueueId | C::ReconsumeTimes | C::Flag | C::Partition | C::TimestampType => DataType::Int32,
            C::QueueOffset | C::PhysicalOffset | C::Offset => DataType::Int64,
            C::Body | C::Key | C::Value => DataType::Binary,
            C::BornTimestamp | C::StoreTimestamp | C::Timestamp => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
            }
            C::Keys => DataType::List(item_field()),
            C::Properties => DataType::Map(entries_field(), false),
            C::Headers => DataType::List(header_field()),
        }
    }

    /// The column as its schema names it.
    fn field(self) -> Field {
        let nullable = matches!(self, C::Tags | C::ShardingKey | C::Key | C::Headers);
        Field::new(self.name(), self.data_type(), nullable)
    }
}

/// An item of `keys`.
pub(super) fn item_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Utf8, false))
}

/// What an entry of `properties` consists of.
pub(super) fn entry_fields() -> Fields {
    Fields::from_iter([Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, false)])
}

/// The entries of `properties`.
pub(super) fn entries_field() -> Arc<Field> {
    Arc::new(Field::new("entries", DataType::Struct(entry_fields()), false))
}

/// What a header consists of.
pub(super) fn header_fields() -> Fields {
    Fields::from_iter([
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Binary, false),
    ])
}

/// An item of `headers`.
pub(super) fn header_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(header_fields()), false))
}

/// The columns of one read, in the order asked for.
#[derive(Debug, Clone)]
pub struct ColumnSet {
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl ColumnSet {
    /// The columns of these names; `None` = the default set. No name at all is a set too: its batches
    /// have rows and nothing in them, which is what a count asks for.
    ///
    /// # Errors
    /// `ARGUMENT_ILLEGAL` for an unknown or repeated name.
    pub fn parse(names: Option<&[String]>) -> Result<Self> {
        let columns = match names {
            None => ALL[..DEFAULTS].iter().map(|(column, _)| *column).collect(),
            Some(names) => {
                let mut columns = Vec::with_capacity(names.len());
                for name in names {
                    let column = Column::named(name).ok_or_else(|| unknown(name))?;
                    if columns.contains(&column) {
                        return Err(refuse(format!("column {name:?} is asked for twice")));
                    }
                    columns.push(column);
                }
                columns
            }
        };
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        Ok(Self { columns, schema: Arc::new(Schema::new(fields)) })
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Their schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn has(&self, any: &[Column]) -> bool {
        self.columns.iter().any(|column| any.contains(column))
    }
}

fn unknown(name: &str) -> StoreError {
    let known: Vec<&str> = ALL.iter().map(|(_, name)| *name).collect();
    refuse(format!("no column {name:.80?}; there are {}", known.join(", ")))
}

fn refuse(detail: String) -> StoreError {
    StoreError::invalid("ARGUMENT_ILLEGAL", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_and_columns_belong_together() {
        for (at, (column, name)) in ALL.into_iter().enumerate() {
            assert_eq!(column as usize, at);
            assert_eq!((column.name(), Column::named(name)), (name, Some(column)));
        }
    }

    #[test]
    fn test_a_set_keeps_the_order_asked_for() {
        let names = ["value", "topic", "body"].map(str::to_owned);
        let set = ColumnSet::parse(Some(&names)).expect("legal");
        assert_eq!(set.columns(), [C::Value, C::Topic, C::Body]);
        let fields = set.schema().fields();
        assert_eq!(fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["value", "topic", "body"]);
    }

    #[test]
    fn test_the_default_set_ends_with_reconsume_times_and_unknown_names_are_refused() {
        let set = ColumnSet::parse(None).expect("legal");
        assert_eq!((set.columns().len(), set.columns().last()), (11, Some(&C::ReconsumeTimes)));
        for names in [vec!["bodi".to_owned()], vec!["body".to_owned(), "body".to_owned()]] {
            assert_eq!(ColumnSet::parse(Some(&names)).expect_err("illegal").code(), "ARGUMENT_ILLEGAL");
        }
    }
}
