//! Files with rubbish in them: one file of a store is changed by chance while nobody owns it.
//!
//! Contract: the store opens or names the file that is at fault in an error, and never panics; what it shows was sent, to
//! its own callers and to a reader; a key repeats its first result; what it takes afterwards can be read. Files that
//! are made of others, changed in length or gone, cost no message.
//! `LAKEMQ_RUBBISH_SEEDS` sets the number of seeds, `LAKEMQ_RUBBISH_SEED` runs one alone.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use lakemq_store::reader::Reader;
use lakemq_store::store::Store;

use crate::dice::Dice;
use crate::support::{
    FindJson, bulk, copy, environment, everything, image, message, options, request, send,
};
use crate::workload::{kill, scratch, seeds};

const TOPICS: [&str; 2] = ["t", "u"];
const KEYED: usize = 5;

/// What a change of a file leaves of the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Its content is not what was written.
    Content,
    /// It is shorter or gone, what is left of it is right.
    Length,
}

/// Fills a store with all it can hold and leaves it as a clean stop or kill -9 does.
fn fill(root: &Path, scratch: &Path, clean: bool) {
    let store = Store::open(root, options(), environment()).expect("a store");
    bulk(&store, "t", 150);
    send(&store, "u", &["u-1", "u-2"]);
    for number in 0..KEYED {
        assert!(!send_keyed(&store, number).expect("stored"));
    }
    store
        .commit_offsets("g", vec![("t".into(), 0, 3)])
        .expect("committed");
    send(&store, "gone", &["gone"]);
    store.delete_topic("gone").expect("deleted");
    store.checkpoint().expect("taken");
    send(&store, "u", &["behind the checkpoint"]);
    if clean {
        store.close().expect("closed");
    } else {
        kill(store, root, scratch);
    }
}

/// Sends under a key; whether it was sent before.
fn send_keyed(store: &Store, number: usize) -> lakemq_store::error::Result<bool> {
    let key = format!("request-{number}");
    let keyed = lakemq_store::store::AppendRequest {
        idempotency_key: Some(&key),
        ..request("u")
    };
    let body = format!("keyed-{number}");
    let stored = store.append(&keyed, &[message(&body)])?;
    Ok(stored.duplicate)
}

/// Changes a file, and says how.
fn spoil(path: &Path, dice: &mut Dice) -> (Harm, String) {
    let mut bytes = fs::read(path).expect("a file");
    let length = bytes.len();
    let harm = match dice.below(6) {
        0 => {
            fs::remove_file(path).expect("removed");
            return (Harm::Length, "gone".into());
        }
        1 => {
            bytes.truncate(dice.below(length + 1));
            Harm::Length
        }
        2 => {
            let more = 1 + dice.below(100);
            bytes.extend((0..more).map(|_| dice.roll() as u8));
            Harm::Content
        }
        3 if length > 0 => {
            let at = dice.below(length);
            bytes[at] ^= 1 << dice.below(8);
            Harm::Content
        }
        _ if length > 0 => {
            // Near the beginning, where most files say what they are, as often as anywhere.
            let near = if dice.in_a_hundred(50) {
                length.min(256)
            } else {
                length
            };
            let at = dice.below(near);
            for byte in bytes.iter_mut().skip(at).take(1 + dice.below(64)) {
                *byte = dice.roll() as u8;
            }
            Harm::Content
        }
        _ => Harm::Length,
    };
    fs::write(path, &bytes).expect("written");
    (harm, format!("{length} bytes, now {}", bytes.len()))
}

fn shown(
    read: impl Fn(&str, i64, &mut Vec<String>) -> lakemq_store::error::Result<()>,
    sent: &BTreeSet<String>,
) -> usize {
    let mut count = 0;
    for topic in TOPICS {
        let mut bodies = Vec::new();
        if read(topic, 0, &mut bodies).is_ok() {
            for body in &bodies {
                assert!(sent.contains(body), "{topic} shows what nobody sent");
            }
            let different: BTreeSet<&String> = bodies.iter().collect();
            assert_eq!(different.len(), bodies.len(), "{topic} shows one twice");
        }
        count += bodies.len();
    }
    count
}

fn look(root: &Path, sent: &BTreeSet<String>, file: &Path, harm: Harm) {
    let is_derived = is_derived(file);
    if let Ok(reader) = Reader::open(root) {
        let read = |topic: &str, offset, out: &mut Vec<String>| {
            let meta = reader.read(topic, 0, &everything(offset), |record, _| {
                out.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            });
            meta.map(drop)
        };
        shown(read, sent);
    }
    let store = match Store::open(root, options(), environment()) {
        Ok(store) => store,
        Err(error) => {
            let known = ["DATA_CORRUPT", "ARGUMENT_ILLEGAL"];
            assert!(known.contains(&error.code()), "{error:?}");
            assert!(
                !is_derived || harm == Harm::Content,
                "what can be made again stops the store: {error}"
            );
            let name = file.file_name().expect("a name").to_string_lossy();
            assert!(
                error.to_string().contains(&*name),
                "it does not name the file: {error}"
            );
            return;
        }
    };
    let read = |topic: &str, offset, out: &mut Vec<String>| {
        let meta = store.read(topic, 0, &everything(offset), |record, _| {
            out.push(String::from_utf8_lossy(record.body).into_owned());
            Ok(())
        });
        meta.map(drop)
    };
    let count = shown(read, sent);
    if is_derived && harm == Harm::Length {
        assert_eq!(count, sent.len(), "messages are missing");
    }
    for body in sent {
        let _ = store.messages_json("t", &format!("key-{body}"), (0, i64::MAX), 10);
    }
    let _ = store.group_offsets("g");
    if !file.starts_with("commitlog") {
        for number in 0..KEYED {
            assert!(send_keyed(&store, number).expect("known"), "key {number}");
        }
    }
    store.checkpoint().expect("taken");
    let placed = send(&store, "new", &["after"]).placed;
    let mut after = Vec::new();
    let offset = placed.first().expect("a place").queue_offset;
    read("new", offset, &mut after).expect("readable");
    assert_eq!(after, ["after"]);
    store.close().expect("closed");
}

/// Whether the log has all that is in the file.
fn is_derived(relative: &Path) -> bool {
    let own = relative.strip_prefix("lakemq").ok();
    relative.starts_with("consumequeue")
        || relative.starts_with("index")
        || relative.starts_with("config")
        || relative == Path::new("checkpoint")
        || own.is_some_and(|own| {
            own.starts_with("snapshot.json") || own.starts_with("snapshot.json.bak")
        })
}

#[test]
fn test_a_file_with_rubbish_in_it_is_an_error_or_repaired_and_never_a_message() {
    let home = scratch();
    let kinds = [true, false].map(|clean| {
        let root = home.path().join(format!("clean-{clean}"));
        fs::create_dir_all(&root).expect("a directory");
        fill(&root, home.path(), clean);
        root
    });
    let mut sent: BTreeSet<String> = (0..150)
        .map(|at| format!("{at}-{}", "x".repeat(500)))
        .collect();
    sent.extend((0..KEYED).map(|number| format!("keyed-{number}")));
    sent.extend(["u-1", "u-2", "behind the checkpoint"].map(str::to_owned));
    for seed in seeds("LAKEMQ_RUBBISH_SEEDS", "LAKEMQ_RUBBISH_SEED", 300) {
        let mut dice = Dice(seed);
        let root = home.path().join("spoiled");
        copy(&kinds[dice.below(2)], &root);
        let files: Vec<PathBuf> = image(&root).into_iter().map(|(path, _)| path).collect();
        let file = &files[dice.below(files.len())];
        let (harm, how) = spoil(&root.join(file), &mut dice);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            look(&root, &sent, file, harm);
        }));
        assert!(outcome.is_ok(), "seed {seed}: {}: {how}", file.display());
        fs::remove_dir_all(&root).expect("removed");
    }
}

#[test]
fn test_a_file_of_rocketmqs_that_is_not_readable_is_put_aside_and_written_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), options(), environment()).expect("a store");
    send(&store, "t", &["stored"]);
    store
        .commit_offsets("g", vec![("t".into(), 0, 1)])
        .expect("committed");
    store.close().expect("closed");
    drop(store);
    let offsets = dir.path().join("config/consumerOffset.json");
    // Each time it is another one: none replaces the one before, of nine.
    for number in 1..=10 {
        let broken = format!("{{ {number}");
        fs::write(&offsets, &broken).expect("cut");
        let store = Store::open(dir.path(), options(), environment()).expect("opened");
        assert_eq!(store.group_offsets("g"), [("t".to_owned(), 0, 1)]);
        let events = store.take_events();
        assert!(
            events
                .iter()
                .any(|event| event.text.contains("consumerOffset.json is not readable")),
            "{events:?}"
        );
    }
    for number in 1..=9 {
        let name = match number {
            1 => "consumerOffset.json.unreadable".to_owned(),
            number => format!("consumerOffset.json.unreadable.{number}"),
        };
        let aside = fs::read_to_string(dir.path().join("config").join(name)).expect("put aside");
        let newest = if number == 9 { 10 } else { number };
        assert_eq!(aside, format!("{{ {newest}"));
    }
    serde_json::from_slice::<serde_json::Value>(&fs::read(&offsets).expect("written anew"))
        .expect("JSON");
}

#[test]
fn test_a_file_that_rocketmq_wrote_and_is_not_readable_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Store::open(dir.path(), options(), environment()).expect("a store"));
    let delays = dir.path().join("config/delayOffset.json");
    fs::copy(&delays, dir.path().join("config/delayOffset.json.bak")).expect("as RocketMQ does");
    fs::write(&delays, b"{").expect("cut");
    let refused =
        Store::open(dir.path(), options(), environment()).expect_err("what it said is lost");
    assert_eq!(refused.code(), "DATA_CORRUPT");
    assert!(
        refused.to_string().contains("delayOffset.json"),
        "{refused}"
    );
}
