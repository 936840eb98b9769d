//! What the store has to say to its operator: failures it goes on behind, losses, jumps of the clock. Kept until
//! somebody takes them, also after the store is closed.
//!
//! Invariants: noting waits for no reader and grows up to a bound only: lines beyond [`MOST_KEPT`] are counted
//! instead of kept. Each line is taken once. The store writes none of them itself.
//! Threads: any of the store's notes, any thread takes.

use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::PoisonError;

/// Lines kept until they are taken.
pub const MOST_KEPT: usize = 256;

/// How much an event asks of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing; nothing fails.
    Warning,
    /// Something failed and is tried again, or was lost.
    Error,
}

impl Severity {
    /// As Python's logging names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub severity: Severity,
    pub text: String,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    left_out: u64,
}

/// The lines that nobody took yet.
#[derive(Debug, Default)]
pub struct Events(Mutex<Kept>);

impl Events {
    /// Notes something that nothing failed by.
    pub fn warn(&self, text: impl Into<String>) {
        self.note(Severity::Warning, text.into());
    }

    /// Notes a failure or a loss.
    pub fn error(&self, text: impl Into<String>) {
        self.note(Severity::Error, text.into());
    }

    fn note(&self, severity: Severity, text: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.events.len() < MOST_KEPT {
            kept.events.push_back(Event { severity, text });
        } else {
            kept.left_out += 1;
        }
    }

    /// Takes all, in the order they were noted.
    pub fn take(&self) -> Vec<Event> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out: Vec<Event> = kept.events.drain(..).collect();
        if kept.left_out > 0 {
            let text = format!("{} further events were left out", kept.left_out);
            out.push(Event { severity: Severity::Warning, text });
            kept.left_out = 0;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_events_are_taken_once_in_order_and_what_is_too_much_is_counted() {
        let events = Events::default();
        events.warn("first");
        events.error("second");
        let taken = events.take();
        assert_eq!(taken[0], Event { severity: Severity::Warning, text: "first".into() });
        assert_eq!(taken[1].severity, Severity::Error);
        assert!(events.take().is_empty());
        for at in 0..MOST_KEPT + 3 {
            events.warn(at.to_string());
        }
        let taken = events.take();
        assert_eq!(taken.len(), MOST_KEPT + 1);
        assert_eq!(taken[MOST_KEPT - 1].text, (MOST_KEPT - 1).to_string());
        assert_eq!(taken[MOST_KEPT].text, "3 further events were left out");
    }
}
