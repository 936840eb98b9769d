//! Many messages, one JSON object a line. Blank lines are passed over.

use super::Limits;
use super::json::{capacity, message, utf8};
use super::parse_error::{Parse, ParseError};
use super::scanner::Scanner;
use super::validate::Tally;
use crate::error::Result;
use crate::message::NewMessage;

/// Reads an NDJSON request.
///
/// # Errors
/// As `parse_json`, with the line's number (from 1) beside the message's (from 0); pointers begin at the
/// message.
pub fn parse_ndjson<'a>(data: &'a [u8], limits: &Limits) -> Result<Vec<NewMessage<'a>>> {
    let mut rest = utf8(data).map_err(|error| error.into_error(data, None, None))?;
    let mut messages = Vec::with_capacity(capacity(data.len(), limits));
    let mut tally = Tally::new(limits);
    let mut line = 0;
    while !rest.is_empty() {
        line += 1;
        let end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or(rest);
        rest = rest.get(end + 1..).unwrap_or_default();
        let index = messages.len();
        match one(text, limits, &mut tally) {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => {}
            Err(error) => return Err(error.into_error(text.as_bytes(), Some(line), Some(index))),
        }
    }
    if messages.is_empty() {
        return Err(ParseError::malformed(0, "the request is empty").into_error(data, None, None));
    }
    Ok(messages)
}

/// The message of a line; `None` when the line is blank.
#[inline]
fn one<'a>(line: &'a str, limits: &Limits, tally: &mut Tally<'_>) -> Parse<Option<NewMessage<'a>>> {
    let mut scanner = Scanner::new(line);
    if scanner.peek().is_none() {
        return Ok(None);
    }
    let (message, bytes) = message(&mut scanner, limits)?;
    scanner.end()?;
    tally.add(bytes)?;
    Ok(Some(message))
}
