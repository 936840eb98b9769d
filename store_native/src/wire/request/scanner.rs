//! A cursor over JSON text: white space, punctuation, numbers and whole values; strings are in `scanner/strings.rs`.
//!
//! Invariants: strict RFC 8259: it accepts nothing that is no JSON, and recurses no deeper than `MAX_DEPTH`. Its
//! text was checked to be UTF-8 once, as a whole.

mod strings;

use std::borrow::Cow;

use super::parse_error::{Parse, ParseError};
use super::validate::{repeated, twice};

/// How deep a value may be nested.
const MAX_DEPTH: usize = 128;

pub(crate) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// What kind of value begins here, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Number,
    Object,
    Array,
    Bool,
    Null,
    /// The end, or a byte that begins no value.
    Nothing,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes back to a place that [`Scanner::at`] gave.
    pub fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    /// Passes over white space and looks at the next byte.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    #[inline]
    pub fn kind(&mut self) -> Kind {
        match self.peek() {
            Some(b'"') => Kind::String,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            _ => Kind::Nothing,
        }
    }

    /// Takes `wanted` if it is the next byte.
    #[inline]
    pub fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    #[inline]
    pub fn expect(&mut self, wanted: u8) -> Parse<()> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", char::from(wanted)))) }
    }

    /// The error "this is not what should stand here".
    #[cold]
    pub fn unexpected(&self, wanted: &str) -> Box<ParseError> {
        let found = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        match found {
            Some(found) => ParseError::malformed(self.at, format!("expected {wanted}, found {found:?}")),
            None => ParseError::malformed(self.at, format!("expected {wanted}, the text ends here")),
        }
    }

    /// Checks that nothing but white space is left.
    pub fn end(&mut self) -> Parse<()> {
        if self.peek().is_some() { Err(self.unexpected("the end")) } else { Ok(()) }
    }

    /// After a member or item: whether another follows; `close` ends the list.
    #[inline]
    pub fn another(&mut self, close: u8) -> Parse<bool> {
        if self.take(b',') {
            return Ok(true);
        }
        if self.take(close) {
            return Ok(false);
        }
        Err(self.unexpected(&format!("',' or '{}'", char::from(close))))
    }

    /// A member's name and its colon.
    #[inline]
    pub fn name(&mut self) -> Parse<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a member name"));
        }
        let name = self.string()?;
        self.expect(b':')?;
        Ok(name)
    }

    /// The bytes from a place on; none behind the end.
    #[inline]
    fn rest_from(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// The text from a place up to where the scanner stands, both at ASCII bytes.
    #[inline]
    fn text_from(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// A number's text.
    pub fn number(&mut self) -> Parse<&'a str> {
        let start = self.at;
        self.at += usize::from(self.bytes.get(start) == Some(&b'-'));
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(self.text_from(start))
    }

    fn digits(&mut self) -> Parse<()> {
        let count = self.rest_from(self.at).iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.unexpected("a digit"));
        }
        self.at += count;
        Ok(())
    }

    /// `true`, `false` or `null`.
    pub fn word(&mut self, word: &str) -> Parse<()> {
        if !self.rest_from(self.at).starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    pub fn boolean(&mut self) -> Parse<bool> {
        let value = self.bytes.get(self.at) == Some(&b't');
        self.word(if value { "true" } else { "false" })?;
        Ok(value)
    }

    /// Any value, checked to its end; gives its text.
    pub fn value(&mut self) -> Parse<&'a str> {
        self.peek();
        let start = self.at;
        self.skip(MAX_DEPTH)?;
        Ok(self.text_from(start))
    }

    fn skip(&mut self, depth: usize) -> Parse<()> {
        match self.kind() {
            Kind::String => self.string().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::Bool => self.boolean().map(drop),
            Kind::Null => self.word("null"),
            Kind::Nothing => Err(self.unexpected("a value")),
            Kind::Object | Kind::Array if depth == 0 => {
                Err(ParseError::illegal(format!("a value is nested deeper than {MAX_DEPTH} levels")))
            }
            Kind::Array => {
                self.at += 1;
                if self.take(b']') {
                    return Ok(());
                }
                for index in 0usize.. {
                    self.skip(depth - 1).map_err(|error| error.within(&index.to_string()))?;
                    if !self.another(b']')? {
                        break;
                    }
                }
                Ok(())
            }
            Kind::Object => self.skip_object(depth),
        }
    }

    fn skip_object(&mut self, depth: usize) -> Parse<()> {
        self.at += 1;
        if self.take(b'}') {
            return Ok(());
        }
        let mut names = Vec::new();
        loop {
            let name = self.name()?;
            self.skip(depth - 1).map_err(|error| error.within(&name))?;
            names.push(name);
            if !self.another(b'}')? {
                break;
            }
        }
        match repeated(&names, |name| name) {
            Some(name) => Err(twice().within(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn test_what_is_no_json_is_refused_where_it_goes_wrong() {
        for (text, at) in [
            ("\"abc", 4),
            ("\"a\nb\"", 2),
            ("\"\\x\"", 1),
            ("\"\\u12g4\"", 1),
            ("\"\\ud800\"", 1),
            ("\"\\ud800\\u0041\"", 1),
            ("\"\\udc00\"", 1),
            ("-", 1),
            ("1.", 2),
            ("1e+", 3),
            ("tru", 0),
            ("[1,]", 3),
            ("{\"a\" 1}", 5),
            ("{\"a\":1,}", 7),
            ("{a:1}", 1),
            ("", 0),
        ] {
            assert_eq!(Scanner::new(text).value().map_err(|f| f.detail.is_empty()), Err(false), "{text}");
            let error = Scanner::new(text).value().expect_err("no JSON");
            assert_eq!(*error, *ParseError::malformed(at, error.detail.clone()), "{text}");
        }
        for text in ["01", "1 2", "\"a\"b", "1.5x"] {
            let mut scanner = Scanner::new(text);
            assert!(scanner.value().and_then(|_| scanner.end()).is_err(), "{text}");
        }
    }

    #[test]
    fn test_nesting_is_bounded_and_repeated_names_are_refused() {
        let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(Scanner::new(&nested(MAX_DEPTH)).value().is_ok());
        let error = Scanner::new(&nested(1_000_000)).value().expect_err("too deep");
        assert_eq!(error.code, "MESSAGE_ILLEGAL");
        let many: String = (0..20).map(|i| format!("\"{i}\":1,")).collect();
        for text in
            ["{\"a\":1,\"a\":2}".into(), "[{\"a\":1,\"\\u0061\":2}]".into(), format!("{{{many}\"7\":2}}")]
        {
            let error = Scanner::new(&text).value().expect_err("a repeated name");
            assert_eq!(error.code, "MESSAGE_ILLEGAL", "{text}");
        }
    }

    proptest! {
        #[test]
        fn test_any_text_is_json_here_where_serde_says_so(text in r#"[\[\]{}":,0-9a-c\\untrefalsE.+\- ]{0,30}"#) {
            let mut scanner = Scanner::new(&text);
            let ours = scanner.value().and_then(|_| scanner.end());
            let serde = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            match ours {
                Ok(()) => prop_assert!(serde.is_ok()),
                Err(error) => prop_assert!(serde.is_err() || error.code == "MESSAGE_ILLEGAL"),
            }
        }
    }
}
