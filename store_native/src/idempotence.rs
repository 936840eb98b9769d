//! Idempotence keys: which requests are in the log already, and where.
//!
//! A key stands in the first record of its request. The table maps a 128-bit hash of the key to that record's
//! offset; a hit is checked against the record. At each checkpoint the keys that came since are appended to one
//! small file, so that a start need not read the whole log for them.
//! Invariants: the first place of a key stays. Table, lines that wait and file are bounded. A torn line of the file
//! is passed over.
//! Threads: the table is under the append lock, the lines that wait under the dispatch lock; the thread that takes
//! a checkpoint writes the file.

use crate::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::message::record::crc31;
use crate::paths::{self, StorePaths};

/// A key's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPlace {
    pub physical_offset: i64,
    pub store_timestamp: i64,
}

/// The keys, bounded in number and age.
#[derive(Debug)]
pub struct IdempotenceTable {
    places: HashMap<u128, KeyPlace>,
    /// In log order, for dropping the oldest.
    order: VecDeque<(u128, KeyPlace)>,
    max_keys: usize,
    max_age_ms: i64,
    /// The time at which ages are taken.
    now_ms: i64,
}

fn hash(key: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        key.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

impl IdempotenceTable {
    pub fn new(max_keys: usize, max_age_ms: i64) -> Self {
        Self { places: HashMap::new(), order: VecDeque::new(), max_keys, max_age_ms, now_ms: i64::MIN }
    }

    /// Where the request with this key was stored.
    pub fn get(&self, key: &str) -> Option<KeyPlace> {
        self.places.get(&hash(key)).copied()
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Sets the time at which ages are taken. A record's stamp is none: it may come from a clock that was ahead.
    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Remembers a key; the first place stays.
    pub fn insert(&mut self, key: &str, place: KeyPlace) {
        let hash = hash(key);
        if self.places.contains_key(&hash) {
            return;
        }
        self.places.insert(hash, place);
        self.order.push_back((hash, place));
        let oldest = self.now_ms.saturating_sub(self.max_age_ms);
        let max_keys = self.max_keys;
        self.drop_while(|kept, first| kept > max_keys || first.store_timestamp < oldest);
    }

    /// Forgets requests that stand before `log_min`: the answer to a repeat cannot be read any more.
    pub fn forget_before(&mut self, log_min: i64) {
        self.drop_while(|_, first| first.physical_offset < log_min);
    }

    /// Where the oldest request that is remembered stands; `i64::MAX` without one.
    pub fn oldest_offset(&self) -> i64 {
        self.order.front().map_or(i64::MAX, |(_, place)| place.physical_offset)
    }

    /// Forgets keys of requests at or behind `end`, where the log is cut.
    pub fn forget_from(&mut self, end: i64) {
        while let Some((hash, place)) = self.order.back().copied().filter(|(_, p)| p.physical_offset >= end) {
            self.order.pop_back();
            if self.places.get(&hash) == Some(&place) {
                self.places.remove(&hash);
            }
        }
    }

    fn drop_while(&mut self, gone: impl Fn(usize, KeyPlace) -> bool) {
        while let Some((hash, first)) = self.order.front().copied() {
            if !gone(self.order.len(), first) {
                break;
            }
            self.order.pop_front();
            self.places.remove(&hash);
        }
    }
}

/// One key on its way to the file.
#[derive(Debug, Clone)]
struct Line {
    physical_offset: i64,
    text: Box<str>,
}

/// Lines beyond twice the keys that are remembered and this many are taken out of the file.
const SLACK_LINES: usize = 4096;
/// Lines kept for the next checkpoint at most; a start finds what is dropped in the log.
const MAX_PENDING: usize = 1_000_000;

/// The file of keys: `crc physical_offset store_timestamp key` a line, in log order. It holds at most twice the
/// keys that are remembered, and some.
#[derive(Debug)]
pub struct KeyFile {
    paths: StorePaths,
    pending: VecDeque<Line>,
    /// Lines in the file.
    lines: Arc<AtomicUsize>,
}

/// Keys taken from a [`KeyFile`] to be written without holding it.
#[derive(Debug)]
pub struct KeyLines {
    paths: StorePaths,
    text: Vec<u8>,
    count: usize,
    end: i64,
    lines: Arc<AtomicUsize>,
}

impl KeyFile {
    pub fn new(paths: &StorePaths) -> Self {
        Self { paths: paths.clone(), pending: VecDeque::new(), lines: Arc::default() }
    }

    /// Notes a key for the next checkpoint.
    pub fn note(&mut self, key: &str, place: KeyPlace) {
        let line = format!("{} {} {key}", place.physical_offset, place.store_timestamp);
        let text = format!("{:08x} {line}\n", crc31(line.as_bytes())).into();
        self.pending.push_back(Line { physical_offset: place.physical_offset, text });
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
        }
    }

    /// The lines noted and not yet written.
    pub fn pending(&self) -> KeyLines {
        KeyLines {
            paths: self.paths.clone(),
            // A write that failed half-way may have left half a line: what follows begins a new one.
            text: std::iter::once(b'\n').chain(self.pending.iter().flat_map(|l| l.text.bytes())).collect(),
            count: self.pending.len(),
            end: self.pending.back().map_or(-1, |l| l.physical_offset),
            lines: Arc::clone(&self.lines),
        }
    }

    /// These are on the disk.
    pub fn written(&mut self, lines: &KeyLines) {
        while self.pending.front().is_some_and(|l| l.physical_offset <= lines.end) {
            self.pending.pop_front();
        }
    }

    /// Reads the keys of records in `[from, to)` into the table, and takes out lines of no more use. Returns how many
    /// lines were readable.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn load(
        &mut self,
        from: i64,
        to: i64,
        table: &mut IdempotenceTable,
        disk: &dyn Disk,
    ) -> Result<usize> {
        let mut readable = 0;
        let kept = rewrite(&self.paths, disk, |key, place| {
            readable += 1;
            let keep = (from..to).contains(&place.physical_offset);
            if keep {
                table.insert(key, place);
            }
            keep
        })?;
        self.lines.store(kept, Ordering::Relaxed);
        Ok(readable)
    }

    /// Begins the file anew: every key is to be noted again.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn clear(&mut self, disk: &dyn Disk) -> Result<()> {
        self.lines.store(0, Ordering::Relaxed);
        match disk.remove(&self.paths.idempotence_keys()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("removing the idempotence keys", error))
            }
            _ => Ok(()),
        }
    }
}

impl KeyLines {
    /// Lines in the file.
    pub fn in_file(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }

    /// Appends the lines durably, and takes out those of keys that are forgotten when they are too many:
    /// `remembered` keys are left, the oldest stands at `oldest`.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn append(&self, remembered: usize, oldest: i64, disk: &dyn Disk) -> Result<()> {
        if self.count > 0 {
            let context = |e| StoreError::io("writing the idempotence keys", e);
            let mut options = std::fs::OpenOptions::new();
            let path = self.paths.idempotence_keys();
            let file = disk.open(options.create(true).write(true).truncate(false), &path).map_err(context)?;
            let end = file.metadata().map_err(context)?.len();
            disk.write(&file, end, &self.text).map_err(context)?;
            disk.sync(&file).map_err(context)?;
            self.lines.fetch_add(self.count, Ordering::Relaxed);
        }
        if self.lines.load(Ordering::Relaxed) > remembered.saturating_mul(2).saturating_add(SLACK_LINES) {
            let kept = rewrite(&self.paths, disk, |_, place| place.physical_offset >= oldest)?;
            self.lines.store(kept, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Replaces the file by the lines that `keep` wants, if it does not want them all. Returns how many are left.
fn rewrite(
    paths: &StorePaths,
    disk: &dyn Disk,
    mut keep: impl FnMut(&str, KeyPlace) -> bool,
) -> Result<usize> {
    let context = |e| StoreError::io("reading the idempotence keys", e);
    let text = match disk.read(&paths.idempotence_keys()) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(context(error)),
    };
    let (mut kept, mut total) = (0, 0usize);
    let mut out = Vec::new();
    for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        total += 1;
        if parse_line(line).is_some_and(|(key, place)| keep(key, place)) {
            out.extend_from_slice(line);
            out.push(b'\n');
            kept += 1;
        }
    }
    if kept < total {
        paths::replace_file(&paths.idempotence_keys(), &out, disk).map_err(context)?;
    }
    Ok(kept)
}

fn parse_line(line: &[u8]) -> Option<(&str, KeyPlace)> {
    let line = std::str::from_utf8(line).ok()?;
    let (crc, rest) = line.split_once(' ')?;
    if u32::from_str_radix(crc, 16).ok()? != crc31(rest.as_bytes()) {
        return None;
    }
    let mut parts = rest.splitn(3, ' ');
    let physical_offset = parts.next()?.parse().ok()?;
    let store_timestamp = parts.next()?.parse().ok()?;
    Some((parts.next()?, KeyPlace { physical_offset, store_timestamp }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RealDisk;

    #[test]
    fn test_the_oldest_keys_go_first() {
        let mut table = IdempotenceTable::new(2, 1000);
        let place = |at: i64| KeyPlace { physical_offset: at, store_timestamp: at };
        for at in 1..=3 {
            table.insert(&format!("k{at}"), place(at));
        }
        assert_eq!((table.get("k1"), table.get("k2")), (None, Some(place(2))));
        table.set_now(5000);
        table.insert("late", place(5000));
        assert_eq!((table.len(), table.get("k3")), (1, None));
    }

    #[test]
    fn test_keys_survive_in_the_file_and_a_torn_line_is_passed_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        std::fs::create_dir_all(paths.lakemq()).expect("a directory");
        let mut file = KeyFile::new(&paths);
        for at in 0..4 {
            file.note(&format!("key {at}"), KeyPlace { physical_offset: at, store_timestamp: 9 });
        }
        let lines = file.pending();
        lines.append(4, 0, &RealDisk).expect("disk space");
        file.written(&lines);
        assert_eq!(file.pending().count, 0);
        let whole = std::fs::read(paths.idempotence_keys()).expect("a file");
        std::fs::write(paths.idempotence_keys(), &whole[..whole.len() - 3]).expect("torn");
        let mut table = IdempotenceTable::new(10, 1000);
        file.load(1, 10, &mut table, &RealDisk).expect("readable");
        assert_eq!(table.len(), 2, "key 0 is before the range, key 3 is torn");
        assert_eq!(table.get("key 1").map(|p| p.physical_offset), Some(1));
    }

    #[test]
    fn test_a_write_that_failed_half_way_takes_no_key_with_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        std::fs::create_dir_all(paths.lakemq()).expect("a directory");
        let mut file = KeyFile::new(&paths);
        for at in 0..3 {
            file.note(&format!("key {at}"), KeyPlace { physical_offset: at, store_timestamp: 9 });
        }
        // What a disk that filled up left of the first try.
        let text = file.pending().text;
        std::fs::write(paths.idempotence_keys(), &text[..text.len() - 8]).expect("half");
        file.pending().append(3, 0, &RealDisk).expect("disk space");
        let mut table = IdempotenceTable::new(10, 1000);
        file.load(0, 10, &mut table, &RealDisk).expect("readable");
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn test_the_file_stays_within_twice_the_keys_that_are_remembered() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        std::fs::create_dir_all(paths.lakemq()).expect("a directory");
        let mut table = IdempotenceTable::new(100, i64::MAX);
        let mut file = KeyFile::new(&paths);
        let mut most = 0;
        for at in 0..50_000 {
            let place = KeyPlace { physical_offset: at, store_timestamp: 9 };
            table.insert(&format!("key {at}"), place);
            file.note(&format!("key {at}"), place);
            if at % 500 == 499 {
                let lines = file.pending();
                lines.append(table.len(), table.oldest_offset(), &RealDisk).expect("disk space");
                file.written(&lines);
                let text = std::fs::read_to_string(paths.idempotence_keys()).expect("a file");
                most = most.max(text.lines().count());
            }
        }
        assert!(most <= 2 * 100 + SLACK_LINES + 500, "{most}");
        let mut again = IdempotenceTable::new(100, i64::MAX);
        KeyFile::new(&paths).load(0, i64::MAX, &mut again, &RealDisk).expect("readable");
        assert_eq!(again.len(), 100);
        assert_eq!(again.oldest_offset(), table.oldest_offset());
    }

    #[test]
    fn test_keys_do_not_grow_old_by_a_record_stamped_ahead() {
        let mut table = IdempotenceTable::new(10, 1000);
        table.set_now(500);
        let place = |at: i64, stamp: i64| KeyPlace { physical_offset: at, store_timestamp: stamp };
        table.insert("before", place(1, 400));
        table.insert("ahead", place(2, 9_000_000));
        assert!(table.get("before").is_some());
        table.forget_before(2);
        assert_eq!((table.get("before"), table.len()), (None, 1));
    }
}
