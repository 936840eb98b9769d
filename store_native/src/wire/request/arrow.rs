//! Many messages as an Arrow IPC stream, one row each. Owns the names of the columns.
//!
//! Invariants: bodies and texts are borrowed from the batches, which borrow from the request's buffer. A column
//! that is not known is refused.

use std::borrow::Cow;

use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch};
use arrow_buffer::Buffer;

use super::Limits;
use super::arrow_columns::{Bodies, Item, Lists, Maps, Texts, booleans, integers, times};
use super::arrow_stream::decode;
use super::parse_error::{Parse, ParseError};
use super::validate::{self, TIMER_FIELDS, Tally, repeated, twice};
use crate::error::Result;
use crate::message::NewMessage;

/// The record batches of a request, which its messages borrow from.
#[derive(Debug)]
pub struct ArrowMessages {
    batches: Vec<RecordBatch>,
}

impl ArrowMessages {
    /// Decodes a whole Arrow IPC stream. The batches keep `stream` alive and copy nothing that is aligned
    /// in it to 8 bytes.
    ///
    /// # Errors
    /// `MALFORMED_BODY` where the bytes are no stream or break off, `MESSAGE_ILLEGAL` for dictionaries and
    /// compressed buffers.
    pub fn read(stream: Buffer) -> Result<Self> {
        if stream.is_empty() {
            let error = ParseError::malformed(0, "the request is empty");
            return Err(error.into_error(b"", None, None));
        }
        let batches = decode(stream).map_err(|error| error.into_error(b"", None, None))?;
        Ok(Self { batches })
    }

    /// The messages, one for each row.
    ///
    /// # Errors
    /// `MESSAGE_ILLEGAL`, `MESSAGE_TOO_LARGE`, `REQUEST_TOO_LARGE` or `NOT_IMPLEMENTED`, with the row's
    /// number over all batches and a pointer that begins with the column.
    pub fn messages(&self, limits: &Limits) -> Result<Vec<NewMessage<'_>>> {
        let rows: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        let mut messages = Vec::with_capacity(rows.min(limits.max_messages));
        let mut tally = Tally::new(limits);
        for batch in &self.batches {
            let columns = Columns::of(batch).map_err(|error| error.into_error(b"", None, None))?;
            for row in 0..batch.num_rows() {
                let message = columns.message(row, limits).and_then(|(message, bytes)| {
                    tally.add(bytes)?;
                    Ok(message)
                });
                messages.push(message.map_err(|error| error.into_error(b"", None, Some(messages.len())))?);
            }
        }
        if messages.is_empty() {
            return Err(ParseError::illegal("the stream holds no row").into_error(b"", None, None));
        }
        Ok(messages)
    }
}

/// The columns of one batch.
struct Columns<'a> {
    body: Bodies<'a>,
    tags: Texts<'a>,
    keys: Lists<'a>,
    properties: Option<Maps<'a>>,
    sharding_key: Texts<'a>,
    message_id: Texts<'a>,
    integers: Vec<(&'a str, Int64Array)>,
    wait_store_ok: Option<&'a BooleanArray>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch) -> Parse<Self> {
        let schema = batch.schema_ref();
        if let Some(name) = repeated(schema.fields(), |field| field.name()) {
            return Err(twice().within(name));
        }
        let Some(body) = batch.column_by_name("body") else {
            return Err(ParseError::illegal("the stream has no column \"body\"").within("body"));
        };
        let body = Bodies::of(body).map_err(|error| error.within("body"))?;
        let mut columns = Self {
            body,
            tags: Texts::Absent,
            keys: Lists::Texts(Texts::Absent),
            properties: None,
            sharding_key: Texts::Absent,
            message_id: Texts::Absent,
            integers: Vec::new(),
            wait_store_ok: None,
        };
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            columns.set(field.name(), column).map_err(|error| error.within(field.name()))?;
        }
        Ok(columns)
    }

    fn set(&mut self, name: &'a str, column: &'a arrow_array::ArrayRef) -> Parse<()> {
        match name {
            "body" => {}
            "tags" => self.tags = Texts::of(column)?,
            "keys" => self.keys = Lists::of(column)?,
            "properties" => self.properties = Maps::of(column)?,
            "sharding_key" => self.sharding_key = Texts::of(column)?,
            "message_id" => self.message_id = Texts::of(column)?,
            "wait_store_ok" => self.wait_store_ok = booleans(column)?,
            "born_timestamp" | "due_at" => self.integers.extend(times(column)?.map(|values| (name, values))),
            "queue_id" | "flag" | "delay_level" | "reconsume_times" => {
                self.integers.extend(integers(column)?.map(|values| (name, values)));
            }
            // A sink may send its whole schema: only values ask for timers.
            timer if TIMER_FIELDS.contains(&timer) && column.logical_null_count() == column.len() => {}
            timer if TIMER_FIELDS.contains(&timer) => return Err(validate::timers_follow()),
            _ => return Err(ParseError::illegal("no such column")),
        }
        Ok(())
    }

    /// Reads a row; gives the bytes it will take, too.
    #[inline]
    fn message(&self, row: usize, limits: &Limits) -> Parse<(NewMessage<'a>, usize)> {
        let text = |texts: Texts<'a>, name: &str| match texts.get(row) {
            None => Ok(None),
            Some(value) => validate::text(Cow::Borrowed(value)).map_err(|error| error.within(name)),
        };
        let mut message = NewMessage {
            body: Cow::Borrowed(self.body.get(row).unwrap_or_default()),
            tags: text(self.tags, "tags")?,
            keys: self.keys(row).map_err(|error| error.within("keys"))?,
            sharding_key: text(self.sharding_key, "sharding_key")?,
            wait_store_ok: self.wait_store_ok.is_none_or(|column| column.is_null(row) || column.value(row)),
            ..NewMessage::default()
        };
        if let Some(id) = self.message_id.get(row) {
            message.message_id =
                validate::message_id(Cow::Borrowed(id)).map_err(|error| error.within("message_id"))?;
        }
        for (name, values) in &self.integers {
            if values.is_valid(row) {
                validate::set_integer(&mut message, name, values.value(row))
                    .map_err(|error| error.within(name))?;
            }
        }
        if let Some(maps) = self.properties {
            properties(&mut message, maps, row, limits).map_err(|error| error.within("properties"))?;
        }
        let bytes = validate::finish(&message, "body", limits)?;
        Ok((message, bytes))
    }

    fn keys(&self, row: usize) -> Parse<Option<Cow<'a, str>>> {
        let (texts, range) = match self.keys.get(row) {
            None => return Ok(None),
            Some(Item::Text(text)) => return validate::keys(Cow::Borrowed(text)),
            Some(Item::List(texts, range)) => (texts, range),
        };
        let mut keys = None;
        for (index, at) in range.enumerate() {
            let key = texts.get(at).ok_or_else(|| ParseError::illegal("a key is null"));
            key.and_then(|key| validate::push_key(&mut keys, Cow::Borrowed(key)))
                .map_err(|error| error.within(&index.to_string()))?;
        }
        Ok(keys)
    }
}

fn properties<'a>(message: &mut NewMessage<'a>, maps: Maps<'a>, row: usize, limits: &Limits) -> Parse<()> {
    for (name, value) in maps.get(row) {
        let name = name.ok_or_else(|| ParseError::illegal("a property's name is null"))?;
        let value = value.ok_or_else(|| ParseError::illegal("the value is null").within(name))?;
        validate::push_property(message, Cow::Borrowed(name), Cow::Borrowed(value), limits)
            .map_err(|error| error.within(name))?;
    }
    match repeated(&message.properties, |(name, _)| name) {
        Some(name) => Err(twice().within(name)),
        None => Ok(()),
    }
}
