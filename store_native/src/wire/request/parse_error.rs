//! Why a request is refused, and where in it.
//!
//! Invariants: an error starts at the value that is wrong and collects its JSON pointer on the way out, so the path
//! that succeeds keeps none.

use crate::error::StoreError;

pub(crate) const MESSAGE_ILLEGAL: &str = "MESSAGE_ILLEGAL";
pub(crate) const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
pub(crate) const REQUEST_TOO_LARGE: &str = "REQUEST_TOO_LARGE";
pub(crate) const MALFORMED_BODY: &str = "MALFORMED_BODY";
pub(crate) const NOT_IMPLEMENTED: &str = "NOT_IMPLEMENTED";

/// Boxed, as it is rare: results stay small.
pub(crate) type Parse<T> = Result<T, Box<ParseError>>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    pub code: &'static str,
    pub detail: String,
    place: Place,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The text is no JSON from this byte on.
    Byte(usize),
    /// The JSON says something that is not allowed here.
    Pointer(String),
    /// The request as a whole.
    Nowhere,
}

impl ParseError {
    /// The request is not in its own format, from `byte` on.
    #[cold]
    pub fn malformed(byte: usize, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self { code: MALFORMED_BODY, detail: detail.into(), place: Place::Byte(byte) })
    }

    /// The request as a whole is refused.
    #[cold]
    pub fn whole(code: &'static str, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, detail: detail.into(), place: Place::Nowhere })
    }

    /// A value that is not allowed; callers add where it stands with [`ParseError::within`].
    #[cold]
    pub fn new(code: &'static str, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, detail: detail.into(), place: Place::Pointer(String::new()) })
    }

    /// A value that is not allowed: `MESSAGE_ILLEGAL`.
    #[cold]
    pub fn illegal(detail: impl Into<String>) -> Box<Self> {
        Self::new(MESSAGE_ILLEGAL, detail)
    }

    /// Says that the value stands in the member or item `segment`.
    #[cold]
    pub fn within(mut self: Box<Self>, segment: &str) -> Box<Self> {
        if let Place::Pointer(inner) = &mut self.place {
            let outer = segment.replace('~', "~0").replace('/', "~1");
            *inner = format!("/{outer}{inner}");
        }
        self
    }

    /// The error callers see.
    ///
    /// `text` is what was read: the request, or its line number `line` where lines are read one by one
    /// (NDJSON). `index` is the message's number.
    #[cold]
    pub fn into_error(self, text: &[u8], line: Option<usize>, index: Option<usize>) -> StoreError {
        let (detail, found_line, pointer) = match self.place {
            Place::Byte(at) => {
                let (newlines, column) = position(text, at);
                let line = line.unwrap_or(1) + newlines;
                (format!("line {line} column {column}: {}", self.detail), Some(line), None)
            }
            Place::Pointer(pointer) => (self.detail, line, Some(pointer)),
            Place::Nowhere => (self.detail, line, None),
        };
        StoreError::Invalid { code: self.code, detail, index, line: found_line, pointer }
    }
}

/// Line (from 0) and column (from 1, in characters) of a byte of `text`.
fn position(text: &[u8], at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.iter().filter(|b| **b == b'\n').count();
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
    // Every byte but UTF-8's continuation bytes begins a character.
    let column = before.iter().skip(start).filter(|b| **b & 0xc0 != 0x80).count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_pointer_grows_outwards_and_is_escaped() {
        let error =
            ParseError::illegal("no").within("a/b~c").within("properties").within("3").within("messages");
        let StoreError::Invalid { pointer, index, .. } = error.into_error(b"", None, Some(3)) else {
            panic!("another kind of error");
        };
        assert_eq!(pointer.as_deref(), Some("/messages/3/properties/a~1b~0c"));
        assert_eq!(index, Some(3));
    }

    #[test]
    fn test_a_position_counts_lines_and_characters() {
        let text = "ab\nü€x".as_bytes();
        assert_eq!(position(text, 0), (0, 1));
        assert_eq!(position(text, 3), (1, 1));
        assert_eq!(position(text, text.len() - 1), (1, 3));
        assert_eq!(position(text, 99), (1, 4));
    }
}
