//! A cursor over JSON text.
//!
//! Strict RFC 8259: it never accepts what is no JSON, never recurses deeper than its bound, and hands out
//! strings without escapes as slices of the text. Its text was checked to be UTF-8 once, as a whole.
//! Used by `json`, which knows what the values mean.

use std::borrow::Cow;

use super::escape_scan::{plain_len, special_bytes};
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

    /// A string; the next byte must be its quotation mark.
    #[inline]
    pub fn string(&mut self) -> Parse<Cow<'a, str>> {
        let start = self.at + 1;
        let end = start + plain_len(self.rest_from(start));
        if self.bytes.get(end) == Some(&b'"')
            && let Some(text) = self.text.get(start..end)
        {
            self.at = end + 1;
            return Ok(Cow::Borrowed(text));
        }
        self.string_with_escapes(start, end).map(Cow::Owned)
    }

    fn string_with_escapes(&mut self, start: usize, plain_end: usize) -> Parse<String> {
        let mut out = Vec::with_capacity((plain_end - start) * 2 + 64);
        out.extend_from_slice(self.bytes.get(start..plain_end).unwrap_or_default());
        self.at = plain_end;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    // Pieces of UTF-8 cut at ASCII bytes, and whole characters between them.
                    return String::from_utf8(out).map_err(|_| ParseError::malformed(start, "not UTF-8"));
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(_) => {
                    return Err(ParseError::malformed(
                        self.at,
                        "a control character in a string must be escaped",
                    ));
                }
                None => return Err(ParseError::malformed(self.at, "the text ends inside a string")),
            }
            self.copy_plain(&mut out);
        }
    }

    /// Copies what stands before the next special byte. Pieces between escapes are short (think of JSON
    /// in JSON): a whole word is copied and cut back, which is cheaper than a copy of any length.
    #[inline]
    fn copy_plain(&mut self, out: &mut Vec<u8>) {
        let rest = self.rest_from(self.at);
        if let Some(word) = rest.first_chunk::<8>() {
            let hits = special_bytes(u64::from_le_bytes(*word));
            if hits != 0 {
                let plain = (hits.trailing_zeros() / 8) as usize;
                let end = out.len() + plain;
                out.extend_from_slice(word);
                out.truncate(end);
                self.at += plain;
                return;
            }
        }
        let plain = plain_len(rest);
        out.extend_from_slice(rest.get(..plain).unwrap_or_default());
        self.at += plain;
    }

    /// An escape; the next byte is its backslash.
    #[inline]
    fn escape(&mut self, out: &mut Vec<u8>) -> Parse<()> {
        let byte = match self.bytes.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'u') => {
                let character = self.unicode_escape()?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(ParseError::malformed(self.at, "no such escape")),
        };
        out.push(byte);
        self.at += 2;
        Ok(())
    }

    /// `\uXXXX`, or two of them for a character beyond 16 bits.
    fn unicode_escape(&mut self) -> Parse<char> {
        let start = self.at;
        let half = || ParseError::malformed(start, "half a surrogate pair");
        self.at += 2;
        let unit = self.hex4(start)?;
        let mut code = unit;
        if (0xd800..=0xdbff).contains(&unit) && self.rest_from(self.at).starts_with(b"\\u") {
            self.at += 2;
            let low = self.hex4(start)?;
            if !(0xdc00..=0xdfff).contains(&low) {
                return Err(half());
            }
            code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        }
        char::from_u32(code).ok_or_else(half)
    }

    fn hex4(&mut self, escape: usize) -> Parse<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ParseError::malformed(escape, "\\u needs four hex digits"));
        }
        self.at += 4;
        Ok(digits.iter().fold(0, |n, d| n << 4 | char::from(*d).to_digit(16).unwrap_or_default()))
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
    fn test_strings_without_escapes_are_borrowed() {
        assert!(matches!(Scanner::new(r#""grüße""#).string(), Ok(Cow::Borrowed("grüße"))));
        let escaped = r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z""#;
        let wanted = "a\"\\/\u{8}\u{c}\n\r\té😀z".to_owned();
        assert_eq!(Scanner::new(escaped).string(), Ok(Cow::Owned(wanted)));
    }

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
