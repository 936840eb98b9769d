//! Open queue files: a bounded number, whatever the number of queues.
//!
//! Invariants: the limit holds before a file is opened. A file in use stays open until its user lets go. Which one
//! is closed is decided as a clock does: each use marks a place, the hand passes marked places once.
//! Threads: any, under a lock that is not held while a file is opened.

use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError};

/// Files held open at most, and at most a quarter of what the process may have.
const MAX_OPEN_FILES: usize = 512;
const LEAST_OPEN_FILES: usize = 16;

/// A queue's serial and the byte offset its file starts at.
pub type FileKey = (u64, i64);

#[derive(Debug)]
struct Place {
    key: FileKey,
    file: Arc<File>,
    used: bool,
}

#[derive(Debug, Default)]
struct Clock {
    at: HashMap<FileKey, usize>,
    places: Vec<Place>,
    hand: usize,
}

/// The files held open.
#[derive(Debug)]
pub struct Handles {
    limit: usize,
    clock: Mutex<Clock>,
}

impl Handles {
    /// None yet; the limit follows from what the process may open.
    pub fn new() -> Self {
        let quarter = crate::sys::descriptor_limit() / 4;
        Self::with_limit(quarter.clamp(LEAST_OPEN_FILES, MAX_OPEN_FILES))
    }

    pub fn with_limit(limit: usize) -> Self {
        Self { limit: limit.max(1), clock: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, opened by `open` when it is not held. `None` when `open` finds none.
    ///
    /// # Errors
    /// The error of `open`. Where the process has no descriptor left, all held here are closed first and it
    /// is tried once more.
    pub fn get(
        &self,
        key: FileKey,
        open: impl Fn() -> io::Result<Option<File>>,
    ) -> io::Result<Option<Arc<File>>> {
        {
            let mut clock = self.lock();
            if let Some(place) = clock.at.get(&key).copied()
                && let Some(place) = clock.places.get_mut(place)
            {
                place.used = true;
                return Ok(Some(Arc::clone(&place.file)));
            }
            while clock.places.len() >= self.limit {
                clock.close_one();
            }
        }
        let opened = match open() {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                self.clear();
                open()?
            }
            other => other?,
        };
        let Some(file) = opened else { return Ok(None) };
        let file = Arc::new(file);
        let mut clock = self.lock();
        if !clock.at.contains_key(&key) && clock.places.len() < self.limit {
            let place = clock.places.len();
            clock.at.insert(key, place);
            clock.places.push(Place { key, file: Arc::clone(&file), used: false });
        }
        Ok(Some(file))
    }

    /// Closes one file, where it is held.
    pub fn close(&self, key: FileKey) {
        let mut clock = self.lock();
        if let Some(place) = clock.at.get(&key).copied() {
            clock.remove(place);
        }
    }

    /// Closes all.
    pub fn clear(&self) {
        *self.lock() = Clock::default();
    }

    /// How many are held open.
    pub fn len(&self) -> usize {
        self.lock().places.len()
    }
}

impl Clock {
    fn close_one(&mut self) {
        while let Some(place) = self.places.get_mut(self.hand) {
            if !std::mem::take(&mut place.used) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
        self.hand = 0;
    }

    fn remove(&mut self, place: usize) {
        let gone = self.places.swap_remove(place);
        self.at.remove(&gone.key);
        if let Some(moved) = self.places.get(place) {
            self.at.insert(moved.key, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_no_more_files_are_held_than_the_limit_and_the_used_stay() {
        let handles = Handles::with_limit(3);
        let null = || File::open("/dev/null").map(Some);
        for number in 0..100 {
            handles.get((number, 0), null).expect("opened");
            assert!(handles.len() <= 3);
            if number > 0 {
                let held = handles.get((0, 0), || Ok(None)).expect("no error");
                assert!(held.is_some(), "file 0 is used all the time, it stays open at {number}");
            }
        }
        handles.clear();
        assert!(handles.get((0, 0), || Ok(None)).expect("no error").is_none());
    }

    #[test]
    fn test_a_file_that_is_closed_is_opened_again() {
        let handles = Handles::with_limit(3);
        let null = || File::open("/dev/null").map(Some);
        for number in 0..3 {
            handles.get((number, 0), null).expect("opened");
        }
        handles.close((0, 0));
        handles.close((9, 9));
        let held = |number| handles.get((number, 0), || Ok(None)).expect("no error").is_some();
        assert_eq!([held(0), held(1), held(2)], [false, true, true]);
    }

    #[test]
    fn test_of_those_who_open_at_the_same_time_one_is_held_and_none_beyond_the_limit() {
        let handles = Handles::with_limit(2);
        let null = || File::open("/dev/null").map(Some);
        let meanwhile = |other: FileKey| {
            let null = &null;
            let handles = &handles;
            move || {
                handles.get(other, null)?;
                null()
            }
        };
        handles.get((1, 0), meanwhile((1, 0))).expect("opened");
        assert_eq!(handles.len(), 1, "one file, opened twice");
        handles.get((2, 0), meanwhile((3, 0))).expect("opened");
        assert_eq!(handles.len(), 2);
    }

    #[test]
    fn test_without_descriptors_those_held_are_given_up() {
        let handles = Handles::with_limit(3);
        handles.get((1, 0), || File::open("/dev/null").map(Some)).expect("opened");
        let exhausted = || {
            if handles.len() > 0 { Err(io::Error::from_raw_os_error(libc::EMFILE)) } else { Ok(None) }
        };
        assert!(handles.get((2, 0), exhausted).expect("tried again").is_none());
    }
}
