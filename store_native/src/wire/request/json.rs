//! One message as a JSON object, or many as `{"messages": [...]}`. Owns the names of a message's fields in JSON.
//!
//! Invariants: one pass, no tree in between. A field that is not known or stands twice is refused.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Limits;
use super::parse_error::{Parse, ParseError};
use super::scanner::{Kind, Scanner};
use super::validate::{self, Tally, repeated, twice};
use crate::error::Result;
use crate::message::NewMessage;

/// Padding may be there or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A guess that saves growing: fewer bytes than this a message are rare in requests of many.
const TYPICAL_BYTES: usize = 256;

/// The messages of a JSON request.
#[derive(Debug, Clone)]
pub struct Parsed<'a> {
    pub messages: Vec<NewMessage<'a>>,
    /// Whether the request was a list, which is answered with a summary.
    pub many: bool,
}

/// Reads a JSON request: one message object, or `{"messages": [...]}`.
///
/// # Errors
/// `MALFORMED_BODY` with line and column where it is no JSON; `MESSAGE_ILLEGAL`, `MESSAGE_TOO_LARGE`,
/// `REQUEST_TOO_LARGE` or `NOT_IMPLEMENTED` with the message's number and a JSON pointer.
pub fn parse_json<'a>(data: &'a [u8], limits: &Limits) -> Result<Parsed<'a>> {
    let mut index = None;
    request(data, limits, &mut index).map_err(|error| error.into_error(data, None, index))
}

/// The request as text.
pub(super) fn utf8(data: &[u8]) -> Parse<&str> {
    simdutf8::compat::from_utf8(data).map_err(|e| ParseError::malformed(e.valid_up_to(), "not UTF-8"))
}

/// Room for the messages that so many bytes may hold.
pub(super) fn capacity(bytes: usize, limits: &Limits) -> usize {
    (bytes / TYPICAL_BYTES + 1).min(limits.max_messages)
}

/// `index` follows the message that is being read, for the error.
fn request<'a>(data: &'a [u8], limits: &Limits, index: &mut Option<usize>) -> Parse<Parsed<'a>> {
    let mut scanner = Scanner::new(utf8(data)?);
    let s = &mut scanner;
    if s.peek().is_none() {
        return Err(ParseError::malformed(0, "the request is empty"));
    }
    of_kind(s, Kind::Object, "an object: a message, or {\"messages\": [...]}")?;
    let many = is_list(s);
    let messages = if many {
        list(s, data.len(), limits, index)?
    } else {
        *index = Some(0);
        vec![message(s, limits)?.0]
    };
    *index = None;
    s.end()?;
    Ok(Parsed { messages, many })
}

/// Whether the object that begins here has "messages" as its first member.
fn is_list(s: &mut Scanner<'_>) -> bool {
    let start = s.at();
    let found = s.take(b'{') && s.peek() == Some(b'"') && s.string().is_ok_and(|name| name == "messages");
    s.rewind(start);
    found
}

fn list<'a>(
    s: &mut Scanner<'a>,
    bytes: usize,
    limits: &Limits,
    index: &mut Option<usize>,
) -> Parse<Vec<NewMessage<'a>>> {
    s.expect(b'{')?;
    s.name()?;
    of_kind(s, Kind::Array, "a list of messages").map_err(|error| error.within("messages"))?;
    s.expect(b'[')?;
    if s.take(b']') {
        return Err(ParseError::illegal("the list holds no message").within("messages"));
    }
    let mut messages = Vec::with_capacity(capacity(bytes, limits));
    let mut tally = Tally::new(limits);
    loop {
        *index = Some(messages.len());
        let at_item = |error: Box<ParseError>| error.within(&messages.len().to_string()).within("messages");
        let (message, bytes) = message(s, limits).map_err(at_item)?;
        tally.add(bytes)?;
        messages.push(message);
        if !s.another(b']')? {
            break;
        }
    }
    *index = None;
    if s.another(b'}')? {
        let name = s.name()?;
        let error = if name == "messages" {
            twice()
        } else {
            ParseError::illegal("no such field beside \"messages\"")
        };
        return Err(error.within(&name));
    }
    Ok(messages)
}

/// Reads a message object; gives the bytes it will take, too.
pub(super) fn message<'a>(s: &mut Scanner<'a>, limits: &Limits) -> Parse<(NewMessage<'a>, usize)> {
    of_kind(s, Kind::Object, "an object: a message")?;
    s.expect(b'{')?;
    let mut draft = Draft::new();
    if !s.take(b'}') {
        loop {
            let name = s.name()?;
            draft.member(s, &name, limits).map_err(|error| error.within(&name))?;
            if !s.another(b'}')? {
                break;
            }
        }
    }
    let bytes = validate::finish(&draft.message, draft.body_field.unwrap_or("body"), limits)?;
    Ok((draft.message, bytes))
}

/// The fields of a message, in the order of their bits in `Draft::seen`.
const FIELDS: [&str; 16] = [
    "body",
    "tags",
    "keys",
    "properties",
    "sharding_key",
    "queue_id",
    "message_id",
    "flag",
    "delay_level",
    "born_timestamp",
    "body_json",
    "body_base64",
    "reconsume_times",
    "wait_store_ok",
    validate::TIMER_FIELDS[0],
    validate::TIMER_FIELDS[1],
];

/// A message while its members come in.
struct Draft<'a> {
    message: NewMessage<'a>,
    body_field: Option<&'static str>,
    seen: u32,
}

impl<'a> Draft<'a> {
    fn new() -> Self {
        let message = NewMessage { wait_store_ok: true, ..NewMessage::default() };
        Self { message, body_field: None, seen: 0 }
    }

    fn member(&mut self, s: &mut Scanner<'a>, name: &str, limits: &Limits) -> Parse<()> {
        let Some((field, name)) = FIELDS.iter().enumerate().find(|(_, field)| **field == name) else {
            return Err(ParseError::illegal("no such field"));
        };
        if self.seen & 1 << field != 0 {
            return Err(twice());
        }
        self.seen |= 1 << field;
        let name = *name;
        // null is as good as leaving the field out, but for a body that is the JSON value null.
        if name != "body_json" && s.kind() == Kind::Null {
            return s.word("null");
        }
        match name {
            "body" | "body_base64" | "body_json" => self.body(s, name, limits)?,
            "tags" => self.message.tags = validate::text(string(s)?)?,
            "keys" => self.message.keys = keys(s)?,
            "properties" => self.properties(s, limits)?,
            "sharding_key" => self.message.sharding_key = validate::text(string(s)?)?,
            "message_id" => self.message.message_id = validate::message_id(string(s)?)?,
            "wait_store_ok" => {
                of_kind(s, Kind::Bool, "true or false")?;
                self.message.wait_store_ok = s.boolean()?;
            }
            "delay_ms" | "deliver_at" => return Err(validate::timers_follow()),
            _ => {
                validate::set_integer(&mut self.message, name, integer(s)?)?;
            }
        }
        Ok(())
    }

    fn body(&mut self, s: &mut Scanner<'a>, name: &'static str, limits: &Limits) -> Parse<()> {
        if let Some(other) = self.body_field.replace(name) {
            return Err(ParseError::illegal(format!("{other} and {name} exclude each other")));
        }
        self.message.body = match name {
            "body_json" => Cow::Borrowed(s.value()?.as_bytes()),
            "body_base64" => Cow::Owned(base64(&string(s)?, limits)?),
            _ => match string(s)? {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        };
        Ok(())
    }

    fn properties(&mut self, s: &mut Scanner<'a>, limits: &Limits) -> Parse<()> {
        of_kind(s, Kind::Object, "an object of strings")?;
        s.expect(b'{')?;
        if s.take(b'}') {
            return Ok(());
        }
        loop {
            let name = s.name()?;
            let at_name = |error: Box<ParseError>| error.within(&name);
            let value = string(s).map_err(at_name)?;
            validate::push_property(&mut self.message, name.clone(), value, limits).map_err(at_name)?;
            if !s.another(b'}')? {
                break;
            }
        }
        match repeated(&self.message.properties, |(name, _)| name) {
            Some(name) => Err(twice().within(name)),
            None => Ok(()),
        }
    }
}

fn keys<'a>(s: &mut Scanner<'a>) -> Parse<Option<Cow<'a, str>>> {
    if s.kind() == Kind::String {
        return validate::keys(s.string()?);
    }
    of_kind(s, Kind::Array, "a list of strings")?;
    s.expect(b'[')?;
    let mut keys = None;
    if s.take(b']') {
        return Ok(keys);
    }
    for index in 0usize.. {
        let key = string(s).and_then(|key| validate::push_key(&mut keys, key));
        key.map_err(|error| error.within(&index.to_string()))?;
        if !s.another(b']')? {
            break;
        }
    }
    Ok(keys)
}

fn base64(text: &str, limits: &Limits) -> Parse<Vec<u8>> {
    let bytes = text.len() / 4 * 3;
    if bytes > limits.max_message_bytes.saturating_add(3) {
        return Err(validate::body_too_large(bytes, limits));
    }
    BASE64.decode(text).map_err(|e| ParseError::illegal(format!("not base64: {e}")))
}

fn string<'a>(s: &mut Scanner<'a>) -> Parse<Cow<'a, str>> {
    of_kind(s, Kind::String, "a string")?;
    s.string()
}

/// An integer, as a number or, above 2^53 for the sake of JavaScript, as a string.
fn integer(s: &mut Scanner<'_>) -> Parse<i64> {
    let text = if s.kind() == Kind::String {
        s.string()?
    } else {
        of_kind(s, Kind::Number, "an integer")?;
        Cow::Borrowed(s.number()?)
    };
    let parsed = if text.starts_with('+') { None } else { text.parse().ok() };
    parsed.ok_or_else(|| ParseError::illegal(format!("expected an integer of 64 bits, found {text:.40}")))
}

/// Checks that a value of this kind begins here. A value of another kind is read to its end first, as it
/// may be no JSON at all.
#[inline]
fn of_kind(s: &mut Scanner<'_>, wanted: Kind, name: &str) -> Parse<()> {
    let found = s.kind();
    if found == wanted {
        return Ok(());
    }
    wrong_kind(s, found, name)
}

#[cold]
fn wrong_kind(s: &mut Scanner<'_>, found: Kind, name: &str) -> Parse<()> {
    s.value()?;
    let found = format!("{found:?}").to_lowercase();
    Err(ParseError::illegal(format!("expected {name}, found a value of the kind {found}")))
}
