//! What a message may hold, whichever format it came in.
//!
//! Invariants: values go in one by one, so that an error knows its field; `finish` checks what only the whole
//! message shows. No control character gets into a property: two of them separate properties in a record.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Limits;
use super::parse_error::{MESSAGE_TOO_LARGE, NOT_IMPLEMENTED, Parse, ParseError, REQUEST_TOO_LARGE};
use crate::filter::can_be_asked_for;
use crate::message::NewMessage;
use crate::message::properties;
use crate::message::reserved::is_reserved;

/// Fields that are known, but come with the timers.
pub(crate) const TIMER_FIELDS: [&str; 2] = ["delay_ms", "deliver_at"];

pub(crate) fn timers_follow() -> Box<ParseError> {
    ParseError::new(NOT_IMPLEMENTED, "timers follow later; delay_level is there")
}

/// A text that goes into the properties. An empty one is as good as none.
#[inline]
pub(crate) fn text(value: Cow<'_, str>) -> Parse<Option<Cow<'_, str>>> {
    no_control(&value)?;
    Ok((!value.is_empty()).then_some(value))
}

/// The client's id of a message.
pub(crate) fn message_id(value: Cow<'_, str>) -> Parse<Option<Cow<'_, str>>> {
    match text(value)? {
        Some(id) => Ok(Some(id)),
        None => Err(ParseError::illegal("a message id is not empty; leave it out and the broker makes one")),
    }
}

/// Adds one key of a list.
pub(crate) fn push_key<'a>(keys: &mut Option<Cow<'a, str>>, key: Cow<'a, str>) -> Parse<()> {
    no_control(&key)?;
    if key.is_empty() || key.chars().any(char::is_whitespace) {
        return Err(ParseError::illegal("a key is not empty and holds no white space"));
    }
    match keys {
        None => *keys = Some(key),
        Some(keys) => {
            let keys = keys.to_mut();
            keys.push(' ');
            keys.push_str(&key);
        }
    }
    Ok(())
}

/// Keys given as one text, separated by spaces.
pub(crate) fn keys(value: Cow<'_, str>) -> Parse<Option<Cow<'_, str>>> {
    let tidy = |text: &str| {
        let mut pieces = text.split(' ');
        pieces.all(|key| !key.is_empty() && !key.chars().any(char::is_whitespace))
    };
    if tidy(&value) {
        return text(value);
    }
    let mut keys = None;
    for key in value.split(' ').filter(|key| !key.is_empty()) {
        push_key(&mut keys, Cow::Owned(key.to_owned()))?;
    }
    Ok(keys)
}

/// A name and a value of one byte and what ends each.
const MIN_PROPERTY_BYTES: usize = 4;

/// Adds one of the user's properties. The caller sees to repeated names.
pub(crate) fn push_property<'a>(
    message: &mut NewMessage<'a>,
    name: Cow<'a, str>,
    value: Cow<'a, str>,
    limits: &Limits,
) -> Parse<()> {
    no_control(&name)?;
    no_control(&value)?;
    if name.is_empty() || value.is_empty() {
        return Err(ParseError::illegal("a property has a name and a value, neither is empty"));
    }
    if is_reserved(&name) {
        return Err(ParseError::illegal("the name belongs to the store"));
    }
    if message.properties.len() >= limits.max_properties_bytes / MIN_PROPERTY_BYTES {
        return Err(ParseError::new(MESSAGE_TOO_LARGE, "more properties than a record holds"));
    }
    message.properties.push((name, value));
    Ok(())
}

/// An integer between `low` and `high`, both of which `T` can hold.
#[inline]
pub(crate) fn ranged<T: TryFrom<i64>>(value: i64, low: i64, high: i64) -> Parse<T> {
    let fitting = if (low..=high).contains(&value) { T::try_from(value).ok() } else { None };
    fitting.ok_or_else(|| ParseError::illegal(format!("an integer between {low} and {high}, not {value}")))
}

const MAX_I32: i64 = i32::MAX as i64;

/// Sets one of the fields that are integers; `false` when `name` is none of them.
pub(crate) fn set_integer(message: &mut NewMessage<'_>, name: &str, value: i64) -> Parse<bool> {
    match name {
        "queue_id" => message.queue_id = Some(ranged(value, 0, MAX_I32)?),
        "flag" => message.flag = ranged(value, i64::from(i32::MIN), MAX_I32)?,
        "delay_level" => message.delay_level = ranged(value, 0, MAX_I32)?,
        "reconsume_times" => message.reconsume_times = ranged(value, 0, MAX_I32)?,
        "due_at" => message.due_at = Some(ranged(value, 0, i64::MAX)?),
        "born_timestamp" => message.born_timestamp = Some(ranged(value, 0, i64::MAX)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Checks a whole message; gives the bytes that its body and properties take.
pub(crate) fn finish(message: &NewMessage<'_>, body_field: &'static str, limits: &Limits) -> Parse<usize> {
    let body = message.body.len();
    if body == 0 {
        return Err(ParseError::illegal("a message has a body, and it is not empty").within(body_field));
    }
    if body > limits.max_message_bytes {
        return Err(body_too_large(body, limits).within(body_field));
    }
    if !limits.any_tags && message.tags.as_deref().is_some_and(|tags| !can_be_asked_for(tags)) {
        return Err(tags_beyond_reach().within("tags"));
    }
    let encoded = encoded_bytes(message);
    if encoded > limits.max_properties_bytes {
        let detail = format!(
            "tags, keys, properties, sharding key and message id take at most {} bytes, these {encoded}",
            limits.max_properties_bytes
        );
        let error = ParseError::new(MESSAGE_TOO_LARGE, detail);
        return Err(if message.properties.is_empty() { error } else { error.within("properties") });
    }
    Ok(body + encoded)
}

#[cold]
fn tags_beyond_reach() -> Box<ParseError> {
    ParseError::illegal(
        "no reader could ask for it: a message has one tag, without '|' and '&&', without white space around \
         it, and not '*'",
    )
}

#[cold]
pub(crate) fn body_too_large(bytes: usize, limits: &Limits) -> Box<ParseError> {
    let detail = format!("a body has at most {} bytes, this one {bytes}", limits.max_message_bytes);
    ParseError::new(MESSAGE_TOO_LARGE, detail)
}

/// Bytes of the properties as a record holds them.
fn encoded_bytes(message: &NewMessage<'_>) -> usize {
    let fixed = [
        (properties::TAGS, &message.tags),
        (properties::KEYS, &message.keys),
        (properties::SHARDING_KEY, &message.sharding_key),
        (properties::UNIQ_KEY, &message.message_id),
    ];
    let fixed = fixed.iter().filter_map(|(name, value)| Some(name.len() + value.as_ref()?.len() + 2));
    let own = message.properties.iter().map(|(name, value)| name.len() + value.len() + 2);
    fixed.chain(own).sum()
}

/// The error of a name that an object holds twice: readers differ in which value they take.
#[cold]
pub(crate) fn twice() -> Box<ParseError> {
    ParseError::illegal("the name stands twice in its object")
}

/// The first name that was there before.
pub(crate) fn repeated<T>(items: &[T], name: impl Fn(&T) -> &str) -> Option<&str> {
    if items.len() <= 8 {
        let mut earlier = items.iter().enumerate();
        return earlier
            .find(|(at, item)| items.iter().take(*at).any(|other| name(other) == name(item)))
            .map(|(_, item)| name(item));
    }
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().map(name).find(|text| !seen.insert(*text))
}

/// Refuses ASCII control characters: two of them separate the properties of a record.
#[inline]
fn no_control(value: &str) -> Parse<()> {
    if value.bytes().fold(false, |hit, b| hit | (b < 0x20) | (b == 0x7f)) {
        return Err(ParseError::illegal("control characters are not allowed here"));
    }
    Ok(())
}

/// Counts the messages and bytes of a request against its limits.
pub(crate) struct Tally<'l> {
    limits: &'l Limits,
    messages: usize,
    bytes: usize,
}

impl<'l> Tally<'l> {
    pub fn new(limits: &'l Limits) -> Self {
        Self { limits, messages: 0, bytes: 0 }
    }

    /// Counts one message of so many bytes.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> Parse<()> {
        self.messages += 1;
        self.bytes += bytes;
        if self.messages > self.limits.max_messages {
            let detail = format!("a request has at most {} messages", self.limits.max_messages);
            return Err(ParseError::whole(REQUEST_TOO_LARGE, detail));
        }
        if self.bytes > self.limits.max_request_bytes {
            let detail =
                format!("the messages of a request take at most {} bytes", self.limits.max_request_bytes);
            return Err(ParseError::whole(REQUEST_TOO_LARGE, detail));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_keys_given_as_text_are_borrowed_or_tidied() {
        assert!(matches!(keys("a b".into()), Ok(Some(Cow::Borrowed("a b")))));
        assert_eq!(keys(" a   b ".into()), Ok(Some("a b".into())));
        assert_eq!(keys("  ".into()), Ok(None));
        assert_eq!(keys("".into()), Ok(None));
        for text in ["a\tb", "a\u{a0}b", "a\u{3000} b", "a\u{7f}"] {
            assert!(keys(text.into()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn test_encoded_bytes_are_those_a_record_holds() {
        let mut message =
            NewMessage { tags: Some("t".into()), message_id: Some("id".into()), ..NewMessage::default() };
        message.properties.push(("name".into(), "value".into()));
        let mut wanted = Vec::new();
        for (name, value) in [(properties::TAGS, "t"), (properties::UNIQ_KEY, "id"), ("name", "value")] {
            properties::push(&mut wanted, name, value);
        }
        assert_eq!(encoded_bytes(&message), wanted.len());
    }
}
