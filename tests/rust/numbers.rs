//! Numbers that the environment gives a run: how many seeds, which one, how much of a hundred.
#![allow(dead_code, reason = "each test file uses its part")]

/// The number that a variable of the environment gives, where it is set: anything else is refused, so that a slip of the
/// hand is no green run of something else.
pub fn number_in(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// The same of what is counted: there is one at least.
pub fn count_in(variable: &str) -> Option<u64> {
    let count = number_in(variable)?;
    assert!(count > 0, "{variable}=0 tries nothing");
    Some(count)
}
