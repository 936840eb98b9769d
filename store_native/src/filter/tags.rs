//! Filter by tags: `*`, or tags separated by `||`.
//!
//! Invariants: the hash that the consume queue keeps settles most entries without touching the log; what passes is
//! compared as text, so a hash collision never delivers a wrong message. Parsed once; matching never fails.

use crate::error::{Result, StoreError};
use crate::message::java_hash;

const CODE: &str = "FILTER_ILLEGAL";
const MAX_EXPRESSION_BYTES: usize = 64 << 10;

/// The tags of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// Sorted, without repeats, like `tags`.
    codes: Vec<i64>,
    tags: Vec<Box<str>>,
}

impl TagFilter {
    /// Reads `*` (or nothing at all) as every message (`None`), and `A || B` as the messages tagged A or B.
    ///
    /// # Errors
    /// `FILTER_ILLEGAL` where the expression names no tag, puts `*` beside others, or holds a single `|`, `&&` or a
    /// control character; each would silently match nothing.
    pub fn parse(expression: &str) -> Result<Option<Self>> {
        let text = expression.trim();
        if text.is_empty() || text == "*" {
            return Ok(None);
        }
        if text.len() > MAX_EXPRESSION_BYTES {
            return Err(StoreError::invalid(
                CODE,
                format!("a tag expression has at most {MAX_EXPRESSION_BYTES} bytes, this one {}", text.len()),
            ));
        }
        let mut tags = Vec::new();
        for piece in text.split("||") {
            let tag = piece.trim();
            if tag == "*" {
                return Err(StoreError::invalid(
                    CODE,
                    format!("'*' stands alone, not as one tag of {text:?}"),
                ));
            }
            if tag.contains('|') {
                return Err(StoreError::invalid(
                    CODE,
                    format!("tags are separated by '||', not '|', in {text:?}"),
                ));
            }
            if tag.contains("&&") {
                return Err(StoreError::invalid(
                    CODE,
                    format!("a message has one tag, '&&' lets none pass; '||' separates tags, in {text:?}"),
                ));
            }
            if tag.bytes().any(|b| b < 0x20 || b == 0x7f) {
                return Err(StoreError::invalid(CODE, format!("a tag holds a control character: {tag:?}")));
            }
            if !tag.is_empty() {
                tags.push(Box::from(tag));
            }
        }
        if tags.is_empty() {
            return Err(StoreError::invalid(CODE, format!("no tag in {text:?}")));
        }
        tags.sort_unstable();
        tags.dedup();
        let mut codes: Vec<i64> = tags.iter().map(|tag| i64::from(java_hash(tag))).collect();
        codes.sort_unstable();
        codes.dedup();
        Ok(Some(Self { codes, tags }))
    }

    /// First step: whether a message with this tags code may pass.
    #[inline]
    pub fn matches_code(&self, tags_code: i64) -> bool {
        self.codes.binary_search(&tags_code).is_ok()
    }

    /// Second step: whether a message with these tags passes.
    #[inline]
    pub fn matches(&self, tags: Option<&str>) -> bool {
        tags.is_some_and(|tags| self.tags.binary_search_by(|tag| tag.as_ref().cmp(tags)).is_ok())
    }
}

/// Whether an expression can ask for messages with this tag.
pub fn can_be_asked_for(tag: &str) -> bool {
    !tag.contains('|') && !tag.contains("&&") && tag != "*" && tag.trim() == tag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::hash::tags_code;

    #[test]
    fn test_a_star_or_nothing_lets_everything_pass() {
        for text in ["*", " * ", "", "  "] {
            assert_eq!(TagFilter::parse(text).expect("legal"), None);
        }
    }

    #[test]
    fn test_each_tag_of_a_list_passes_and_no_other() {
        let filter = TagFilter::parse(" paid||shipped  || Grüße || paid || ").expect("legal").expect("tags");
        for tag in ["paid", "shipped", "Grüße"] {
            assert!(filter.matches_code(tags_code(Some(tag))) && filter.matches(Some(tag)), "{tag}");
        }
        for tag in ["pai", "Paid", "", "paid||shipped"] {
            assert!(!filter.matches(Some(tag)), "{tag}");
        }
        assert!(!filter.matches_code(0) && !filter.matches(None));
    }

    #[test]
    fn test_a_tag_can_be_asked_for_where_it_is_an_expression_that_it_passes() {
        for tag in [
            "a",
            "a b",
            "a&b",
            "&",
            "**",
            "a*",
            "Grüße",
            "||",
            "a||b",
            "a|",
            "&&",
            "a&&b",
            "*",
            " a",
            "a\u{3000}",
        ] {
            let passes = TagFilter::parse(tag).ok().flatten().is_some_and(|filter| filter.matches(Some(tag)));
            assert_eq!(can_be_asked_for(tag), passes, "{tag:?}");
        }
    }

    #[test]
    fn test_a_hash_collision_passes_the_first_step_only() {
        let filter = TagFilter::parse("Aa").expect("legal").expect("tags");
        assert!(filter.matches_code(tags_code(Some("BB"))));
        assert!(!filter.matches(Some("BB")));
    }

    #[test]
    fn test_expressions_that_would_match_nothing_are_refused() {
        for text in
            ["||", "A|B", "A ||| B", "* || A", "A || *", "A && B", "A&&B", "A\u{1}", &"x".repeat(70_000)]
        {
            let error = TagFilter::parse(text).expect_err("illegal");
            assert_eq!(error.code(), "FILTER_ILLEGAL", "{text:?}");
        }
    }
}
