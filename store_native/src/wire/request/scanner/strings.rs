//! JSON strings: their ends and their escapes.
//!
//! Invariants: a string without escapes is a slice of the text; one with escapes is copied once, each escape as the
//! character it names, and no half of a surrogate pair passes.

use std::borrow::Cow;

use super::Scanner;
use crate::wire::request::escape_scan::{plain_len, special_bytes};
use crate::wire::request::parse_error::{Parse, ParseError};

impl<'a> Scanner<'a> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_strings_without_escapes_are_borrowed() {
        assert!(matches!(Scanner::new(r#""grüße""#).string(), Ok(Cow::Borrowed("grüße"))));
        let escaped = r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z""#;
        let wanted = "a\"\\/\u{8}\u{c}\n\r\té😀z".to_owned();
        assert_eq!(Scanner::new(escaped).string(), Ok(Cow::Owned(wanted)));
    }
}
