//! Whether the store runs, and who is woken for what: shared by all its threads, owned by none.
//!
//! Invariants: a store that is poisoned stays so until it is opened again, its operator is told at once and once, and
//! one that stops never runs again. A thread of the store that panics prints nothing: what it said is in the event.
//! Threads: every one of the store's, and those that wait for a watermark.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use crate::error::{Result, StoreError};
use crate::events::Events;
use crate::notify::{Progress, Signal};
use crate::sys::EventFd;

thread_local! {
    /// Where this thread panicked; `None` in a thread that is not the store's.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// See the module.
#[derive(Debug)]
pub struct Lifecycle {
    stopping: AtomicBool,
    poisoned: OnceLock<String>,
    /// Readable when the store was poisoned.
    alarm: EventFd,
    events: Arc<Events>,
    /// Cuts of the log: who waits for an offset of before waits for nothing.
    cuts: AtomicU64,
    /// A watermark moved.
    pub progress: Progress,
    /// Each append is waited for; see [`Lifecycle::flush_at_once`].
    flush_at_once: AtomicBool,
    /// Something was appended that somebody waits for.
    pub flush_wanted: Signal,
    /// Something is confirmed that nobody has dispatched.
    pub dispatch_wanted: Signal,
    /// Delayed messages were stored or expired.
    pub schedule_changed: Signal,
    /// The next log file is wanted, topics changed, or dispatching failed.
    pub maintenance_wanted: Signal,
}

impl Lifecycle {
    /// A store that runs.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(events: Arc<Events>) -> Result<Self> {
        Ok(Self {
            stopping: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            alarm: EventFd::new().map_err(|e| StoreError::io("creating an eventfd", e))?,
            events,
            cuts: AtomicU64::new(0),
            progress: Progress::new()?,
            flush_at_once: AtomicBool::new(false),
            flush_wanted: Signal::default(),
            dispatch_wanted: Signal::default(),
            schedule_changed: Signal::default(),
            maintenance_wanted: Signal::default(),
        })
    }

    /// Whether the threads shall end.
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets all threads end when they have done what is appended.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.schedule_changed.set();
        self.maintenance_wanted.set();
        self.flush_wanted.set();
        self.dispatch_wanted.set();
        self.progress.moved();
    }

    /// Whether each append is flushed at once, whatever the interval of flushes is: replicas take only what is flushed,
    /// and a sender waits for them.
    pub fn flush_at_once(&self, wanted: bool) {
        self.flush_at_once.store(wanted, Ordering::Release);
        self.flush_wanted.set();
    }

    /// See [`Lifecycle::flush_at_once`].
    pub fn flushes_at_once(&self) -> bool {
        self.flush_at_once.load(Ordering::Acquire)
    }

    /// Makes the store read-only for good: pages that a failed fsync was about may be gone, and what a failed
    /// write left is unknown. The first reason stays.
    pub fn poison(&self, reason: String) {
        let text = format!("read-only until reopened: {reason}");
        if self.poisoned.set(reason).is_ok() {
            self.events.error(text);
            self.alarm.signal();
        }
        self.dispatch_wanted.set();
        self.progress.moved();
    }

    /// As [`Lifecycle::poison`], for a file of the log that another hand removed, moved, replaced or shortened.
    pub fn poison_astray(&self, path: &Path) {
        let path = path.display();
        self.poison(format!(
            "{path} was removed, moved, replaced or shortened: what is written to it is lost with the process"
        ));
    }

    /// Readable when the store was poisoned, for an event loop: whoever writes its log is told at once, also when
    /// nobody waits for a watermark.
    pub fn alarm_fd(&self) -> RawFd {
        self.alarm.raw()
    }

    /// Why the store is read-only for good, if it is.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.get().map(String::as_str)
    }

    /// # Errors
    /// `STORE_POISONED`.
    pub fn check_writable(&self) -> Result<()> {
        self.poisoned().map_or(Ok(()), |reason| Err(StoreError::poisoned(reason)))
    }

    /// The log is cut: ends every wait for an offset.
    pub fn note_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        self.progress.moved();
    }

    /// Waits until `done` holds or the time is over or the store is poisoned or its log is cut; whether it holds and
    /// nothing was cut meanwhile.
    pub fn wait(&self, timeout: Duration, done: impl Fn() -> bool) -> bool {
        let cuts = self.cuts.load(Ordering::SeqCst);
        let uncut = || self.cuts.load(Ordering::SeqCst) == cuts;
        self.progress.wait_until(timeout, || done() || self.poisoned().is_some() || !uncut())
            && done()
            && uncut()
    }

    /// Runs a thread of the store. A panic in it is not survived quietly: without one of them the store would
    /// acknowledge what nobody flushes, dispatches or delivers.
    pub fn run(&self, name: &str, job: impl FnOnce()) {
        take_panics_of_the_store();
        PANICKED_AT.set(Some(String::new()));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        let place = PANICKED_AT.take().unwrap_or_default();
        if let Err(panic) = outcome {
            let said = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            let said = said.unwrap_or("it said nothing");
            self.poison(format!("{name} ended in a panic: {said} ({place})"));
        }
    }
}

/// Has a panic in a thread of the store note its place instead of printing lines into a log that is not plain text.
/// Any other thread's is printed as before.
fn take_panics_of_the_store() {
    static TAKEN: Once = Once::new();
    TAKEN.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let ours = PANICKED_AT.with_borrow_mut(|place| match place {
                Some(place) => {
                    *place = panic.location().map(ToString::to_string).unwrap_or_default();
                    true
                }
                None => false,
            });
            if !ours {
                before(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::events::Severity;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn test_who_waits_for_what_is_cut_is_not_told_that_it_came() {
        let lifecycle = Lifecycle::new(Arc::default()).expect("a descriptor");
        let looks = Cell::new(0);
        // The offset is cut, and reached by other records, while it is waited for.
        let came = lifecycle.wait(SOON, || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                lifecycle.cuts.fetch_add(1, Ordering::SeqCst);
            }
            looks.get() > 1
        });
        assert!(!came);
        assert!(lifecycle.wait(SOON, || true), "who waits from then on waits for those");
    }

    #[test]
    fn test_a_poisoned_store_ends_a_wait() {
        let events = Arc::new(Events::default());
        let lifecycle = Lifecycle::new(Arc::clone(&events)).expect("a descriptor");
        lifecycle.poison("injected".into());
        lifecycle.poison("a later reason".into());
        assert!(!lifecycle.wait(SOON, || false));
        assert_eq!(lifecycle.poisoned(), Some("injected"));
        let said: Vec<_> = events.take().into_iter().map(|event| (event.severity, event.text)).collect();
        assert_eq!(said, [(Severity::Error, "read-only until reopened: injected".to_owned())]);
    }

    #[test]
    fn test_a_panic_of_the_stores_thread_is_an_event_that_says_where() {
        let events = Arc::new(Events::default());
        let lifecycle = Lifecycle::new(Arc::clone(&events)).expect("a descriptor");
        lifecycle.run("lakemq-flusher", || panic!("injected {}", 3));
        let said = events.take();
        assert_eq!(said.len(), 1);
        let text = &said[0].text;
        assert!(text.contains("lakemq-flusher ended in a panic: injected 3 ("), "{text}");
        assert!(text.contains("lifecycle.rs:"), "{text}");
        assert!(PANICKED_AT.with_borrow(Option::is_none), "the thread's later panics are printed");
    }
}
