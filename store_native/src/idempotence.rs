//! Idempotence keys: which requests are in the log already, and where.
//!
//! A key stands in the first record of its request. The table maps a 128-bit hash of the key to that
//! record's offset; a hit is checked against the record. At each checkpoint the keys that came since are
//! appended to one small file, so that a start need not read the whole log for them.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

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
        Self { places: HashMap::new(), order: VecDeque::new(), max_keys, max_age_ms }
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

    /// Remembers a key; the first place stays.
    pub fn insert(&mut self, key: &str, place: KeyPlace) {
        let hash = hash(key);
        if self.places.contains_key(&hash) {
            return;
        }
        self.places.insert(hash, place);
        self.order.push_back((hash, place));
        let oldest = place.store_timestamp - self.max_age_ms;
        while let Some((hash, first)) = self.order.front().copied() {
            if self.order.len() <= self.max_keys && first.store_timestamp >= oldest {
                break;
            }
            self.order.pop_front();
            self.places.remove(&hash);
        }
    }
}

/// The file of keys: `crc physical_offset store_timestamp key` a line, in log order.
#[derive(Debug)]
pub struct KeyFile {
    paths: StorePaths,
    pending: Vec<u8>,
}

impl KeyFile {
    pub fn new(paths: &StorePaths) -> Self {
        Self { paths: paths.clone(), pending: Vec::new() }
    }

    /// Notes a key for the next checkpoint.
    pub fn note(&mut self, key: &str, place: KeyPlace) {
        let line = format!("{} {} {key}", place.physical_offset, place.store_timestamp);
        self.pending.extend_from_slice(format!("{:08x} {line}\n", crc31(line.as_bytes())).as_bytes());
    }

    /// The lines noted and not yet written, to be appended by [`KeyFile::append`].
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The first `bytes` of them are on the disk.
    pub fn written(&mut self, bytes: usize) {
        self.pending.drain(..bytes);
    }

    /// Appends lines durably.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn append(paths: &StorePaths, lines: &[u8]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let context = |e| StoreError::io("writing the idempotence keys", e);
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(paths.idempotence_keys())
            .map_err(context)?;
        file.write_all(lines).map_err(context)?;
        file.sync_data().map_err(context)
    }

    /// Reads the keys of records in `[from, to)` into the table, and rewrites the file when most of its
    /// lines are of no more use.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn load(&mut self, from: i64, to: i64, table: &mut IdempotenceTable) -> Result<()> {
        let context = |e| StoreError::io("reading the idempotence keys", e);
        let text = match std::fs::read(self.paths.idempotence_keys()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(context(error)),
        };
        let mut kept = Vec::new();
        let mut total = 0usize;
        for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            total += 1;
            if let Some((key, place)) = parse_line(line)
                && place.physical_offset >= from
                && place.physical_offset < to
            {
                table.insert(key, place);
                kept.push(line);
            }
        }
        if kept.len() < total {
            let mut out = kept.join(&b'\n');
            if !out.is_empty() {
                out.push(b'\n');
            }
            paths::replace_file(&self.paths.idempotence_keys(), &out).map_err(context)?;
        }
        Ok(())
    }
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

    #[test]
    fn test_the_oldest_keys_go_first() {
        let mut table = IdempotenceTable::new(2, 1000);
        let place = |at: i64| KeyPlace { physical_offset: at, store_timestamp: at };
        for at in 1..=3 {
            table.insert(&format!("k{at}"), place(at));
        }
        assert_eq!((table.get("k1"), table.get("k2")), (None, Some(place(2))));
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
        let mut lines = file.pending().to_vec();
        lines.truncate(lines.len() - 3);
        KeyFile::append(&paths, &lines).expect("room");
        let mut table = IdempotenceTable::new(10, 1000);
        file.load(1, 10, &mut table).expect("readable");
        assert_eq!(table.len(), 2, "key 0 is before the range, key 3 is torn");
        assert_eq!(table.get("key 1").map(|p| p.physical_offset), Some(1));
    }
}
