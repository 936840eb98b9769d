//! The fuzzer's corpus, and changes of it by chance: what the fuzzer looks for in minutes, for a second in every run.
//!
//! Contract: see `any_bytes`. Beside it, no input takes more than `MOST_MEMORY` at a time.
//! `LAKEMQ_CHANGES` sets how often each target's corpus is changed, `LAKEMQ_CHANGE` runs one seed alone.
//! `cargo test --test corpus -- --ignored` writes the corpus anew, from a store made for it.

mod any_bytes;
mod dice;
mod numbers;
mod peak_memory;
mod seed_files;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use any_bytes::TARGETS;
use dice::Dice;
use numbers::{count_in, number_in};

/// A body that a RocketMQ client compressed may expand to 64 MiB, in a buffer that doubles as it grows.
const MOST_MEMORY: usize = 200 << 20;
/// Of bytes that expand nowhere.
const MOST_MEMORY_OF_FILES: usize = 16 << 20;
const MOST_CORPUS_BYTES: u64 = 200 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// Names and contents of a target's files.
fn entries(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<(String, Vec<u8>)> = fs::read_dir(corpus().join(target))
        .expect("a corpus")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), fs::read(&path).expect("a file"))
        })
        .collect();
    out.sort();
    out
}

/// Runs a target over bytes; the bytes are in the message when something does not hold.
fn check(target: &str, holds: any_bytes::Holds, bytes: &[u8], name: &str) {
    let most = if target == "record" {
        MOST_MEMORY
    } else {
        MOST_MEMORY_OF_FILES
    };
    let before = peak_memory::start();
    let outcome = catch_unwind(AssertUnwindSafe(|| holds(bytes)));
    let taken = peak_memory::since(before);
    if outcome.is_err() || taken > most {
        let left = std::env::temp_dir().join(format!("lakemq-{target}-{name}"));
        fs::write(&left, bytes).expect("written");
        panic!(
            "{target}: {name} ({} bytes, {taken} of memory): {}",
            bytes.len(),
            left.display()
        );
    }
}

#[test]
#[ignore = "it changes the tree"]
fn write_the_corpus() {
    seed_files::write(&corpus());
}

#[test]
fn test_the_corpus_holds() {
    let mut size = 0;
    for (target, holds) in TARGETS {
        let entries = entries(target);
        assert!(!entries.is_empty(), "{target} has no corpus");
        for (name, bytes) in entries {
            size += bytes.len() as u64;
            check(target, holds, &bytes, &name);
        }
    }
    assert!(size < MOST_CORPUS_BYTES, "the corpus has {size} bytes");
}

#[test]
fn test_changes_of_the_corpus_hold() {
    let seeds = match number_in("LAKEMQ_CHANGE") {
        Some(seed) => seed..seed + 1,
        None => 0..count_in("LAKEMQ_CHANGES").unwrap_or(1000),
    };
    for (target, holds) in TARGETS {
        let entries: Vec<Vec<u8>> = entries(target)
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect();
        for seed in seeds.clone() {
            let mut dice = Dice(seed);
            let bytes = changed(&entries, &mut dice);
            check(target, holds, &bytes, &format!("seed-{seed}"));
        }
    }
}

/// Numbers at which things begin, end or overflow.
const EDGES: [i64; 12] = [
    0,
    1,
    -1,
    127,
    128,
    255,
    65_535,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
];

/// One of the entries with one to four changes.
fn changed(entries: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = entries[dice.below(entries.len())].clone();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let length = dice.below(bytes.len() - at + 1).min(1 + dice.below(64));
        match dice.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            1 if at < bytes.len() => bytes[at] = dice.roll() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + length)),
            4 => {
                let again = bytes[at..at + length].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let other = &entries[dice.below(entries.len())];
                let from = dice.below(other.len() + 1);
                let length = dice.below(other.len() - from + 1);
                bytes.splice(at.., other[from..from + length].iter().copied());
            }
            6 => {
                // A number as it stands in a file, either way round.
                let edge = EDGES[dice.below(EDGES.len())];
                let width = [2, 4, 8][dice.below(3)];
                let number = match dice.below(2) {
                    0 => edge.to_be_bytes()[8 - width..].to_vec(),
                    _ => edge.to_le_bytes()[..width].to_vec(),
                };
                for (place, byte) in bytes.iter_mut().skip(at).zip(number) {
                    *place = byte;
                }
            }
            7 => {
                // A number as it stands in a text.
                let digits = bytes
                    .iter()
                    .skip(at)
                    .position(u8::is_ascii_digit)
                    .map(|n| at + n);
                if let Some(from) = digits {
                    let count = bytes[from..]
                        .iter()
                        .take_while(|b| b.is_ascii_digit())
                        .count();
                    let edge = EDGES[dice.below(EDGES.len())].to_string();
                    bytes.splice(from..from + count, edge.into_bytes());
                }
            }
            _ => {
                for byte in bytes.iter_mut().skip(at).take(length) {
                    *byte = dice.roll() as u8;
                }
            }
        }
    }
    bytes
}
