//! One message whose parts come one by one: a raw body with headers, or a call from Python.
//!
//! Invariants: the same rules as for the other forms (`validate.rs`).

use std::borrow::Cow;

use super::Limits;
use super::parse_error::{Parse, ParseError};
use super::validate;
use crate::error::Result;
use crate::message::NewMessage;

/// The parts as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleMessage<'a> {
    pub body: &'a [u8],
    pub tags: Option<&'a str>,
    pub keys: &'a [String],
    pub properties: &'a [(String, String)],
    pub sharding_key: Option<&'a str>,
    pub queue_id: Option<u32>,
    pub flag: i32,
    pub delay_level: u32,
    pub message_id: Option<&'a str>,
    pub born_timestamp: Option<i64>,
}

impl<'a> SingleMessage<'a> {
    /// Checks the parts and makes a message of them.
    ///
    /// # Errors
    /// `MESSAGE_ILLEGAL` or `MESSAGE_TOO_LARGE` with a pointer to the part.
    pub fn check(&self, limits: &Limits) -> Result<NewMessage<'a>> {
        self.message(limits).map_err(|error| error.into_error(b"", None, Some(0)))
    }

    fn message(&self, limits: &Limits) -> Parse<NewMessage<'a>> {
        let mut message = NewMessage {
            body: Cow::Borrowed(self.body),
            queue_id: self.queue_id,
            flag: self.flag,
            delay_level: self.delay_level,
            born_timestamp: self.born_timestamp,
            wait_store_ok: true,
            ..NewMessage::default()
        };
        let text = |value: Option<&'a str>, field: &str| match value {
            Some(value) => validate::text(Cow::Borrowed(value)).map_err(|error| error.within(field)),
            None => Ok(None),
        };
        message.tags = text(self.tags, "tags")?;
        message.sharding_key = text(self.sharding_key, "sharding_key")?;
        if let Some(id) = self.message_id {
            let id = validate::message_id(Cow::Borrowed(id));
            message.message_id = id.map_err(|error| error.within("message_id"))?;
        }
        for key in self.keys {
            validate::push_key(&mut message.keys, Cow::Borrowed(key))
                .map_err(|error| error.within("keys"))?;
        }
        for (name, value) in self.properties {
            let pushed =
                validate::push_property(&mut message, Cow::Borrowed(name), Cow::Borrowed(value), limits);
            pushed.map_err(|error| error.within(name).within("properties"))?;
        }
        if let Some(name) = validate::repeated(self.properties, |(name, _)| name) {
            let twice: Box<ParseError> = validate::twice();
            return Err(twice.within(name).within("properties"));
        }
        validate::finish(&message, "body", limits)?;
        Ok(message)
    }
}
