//! Queues and index of a store, held against what a rebuild makes of the same log.
//!
//! Contract: they are the same, byte for byte. Where log files expired, a queue's first file keeps entries, and an
//! index file keys, of messages that no log has any more: there each queue is compared from its minimum on, and the
//! index by what it finds of these messages. A power cut may bring a log file back that had expired: a rebuild finds
//! what is in it by its keys, which no queue shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lakemq_store::store::Store;

use crate::support::{FindJson, copy, environment, image};
use crate::workload::small;

const ENTRY: usize = 20;

/// Topic, queue, minimum and maximum, as a snapshot has them.
type Bounds = (String, u32, usize, usize);

/// `expired` says whether log files may be gone, `keys` what to look for in the index then, with its topic.
pub fn check_derived(
    label: &str,
    (store, directory): (&Store, &Path),
    scratch: &Path,
    expired: bool,
    keys: &[(&str, String)],
) {
    store.checkpoint().expect("taken");
    let rebuilt = scratch.join("rebuilt");
    copy(directory, &rebuilt);
    Store::rebuild(&rebuilt, small(), environment()).expect("rebuilt");
    let bounds = bounds(directory);
    assert_eq!(bounds, self::bounds(&rebuilt), "{label}: the queues");
    if expired {
        check_queues(label, directory, &rebuilt, &bounds);
        let rebuilt = Store::open_at_rest(&rebuilt, small(), environment()).expect("a store");
        check_searches(label, (store, &rebuilt), &bounds, keys);
    } else {
        check_files(label, directory, &rebuilt);
    }
}

fn check_files(label: &str, directory: &Path, rebuilt: &Path) {
    for part in ["consumequeue", "index"] {
        let (is, should) = (image(&directory.join(part)), image(&rebuilt.join(part)));
        let names =
            |of: &[(PathBuf, Vec<u8>)]| of.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(names(&is), names(&should), "{label}: the files of {part}");
        for ((path, is), (_, should)) in is.iter().zip(&should) {
            let differs = (0..is.len()).find(|at| is.get(*at) != should.get(*at));
            assert_eq!(
                differs,
                None,
                "{label}: {part}/{} is not as a rebuild has it",
                path.display()
            );
        }
    }
}

/// Entries from each queue's minimum on, and that nothing stands behind the last.
fn check_queues(label: &str, directory: &Path, rebuilt: &Path, bounds: &[Bounds]) {
    for (topic, queue, min, max) in bounds {
        let path = Path::new("consumequeue")
            .join(topic)
            .join(queue.to_string());
        let (is, should) = (
            entries(&directory.join(&path), *min, *max),
            entries(&rebuilt.join(&path), *min, *max),
        );
        let differs = is.iter().zip(&should).position(|(is, should)| is != should);
        assert_eq!(
            (differs.map(|at| min + at), is.len()),
            (None, should.len()),
            "{label}: entries of {topic} {queue}, [{min}, {max})"
        );
    }
}

/// Entries of a queue from `min` on; behind `max` those that are none are left out.
fn entries(directory: &Path, min: usize, max: usize) -> Vec<[u8; ENTRY]> {
    let mut found = BTreeMap::new();
    for (path, bytes) in image(directory) {
        let base: usize = path
            .to_str()
            .and_then(|name| name.parse().ok())
            .expect("an offset");
        for (at, entry) in bytes.chunks_exact(ENTRY).enumerate() {
            found.insert(base / ENTRY + at, entry.try_into().expect("an entry"));
        }
    }
    let last = found.keys().next_back().map_or(0, |last| last + 1);
    let mut out: Vec<[u8; ENTRY]> = (min..last.max(max))
        .map(|at| found.get(&at).copied().unwrap_or_default())
        .collect();
    while out.len() > max - min && out.last() == Some(&[0; ENTRY]) {
        out.pop();
    }
    out
}

fn check_searches(
    label: &str,
    (store, rebuilt): (&Store, &Store),
    bounds: &[Bounds],
    keys: &[(&str, String)],
) {
    let is_shown = |topic: &str, json: &[u8]| {
        let message: serde_json::Value = serde_json::from_slice(json).expect("JSON");
        let place = |name: &str| message[name].as_u64().expect("a place");
        let (queue_id, offset) = (place("queue_id"), place("queue_offset"));
        bounds.iter().any(|(of, queue, min, _)| {
            (of.as_str(), u64::from(*queue)) == (topic, queue_id) && offset >= *min as u64
        })
    };
    for (topic, key) in keys {
        let found = |store: &Store| {
            let mut found = store.messages_json(topic, key, (0, i64::MAX), 10).ok()?;
            found.retain(|json| is_shown(topic, json));
            Some(found)
        };
        let (is, should) = (found(store), found(rebuilt));
        assert!(
            is == should,
            "{label}: {key:.20} of {topic} is not found as in a rebuild: {is:.300?}, not {should:.300?}"
        );
    }
}

/// The queues of a store that took a checkpoint.
fn bounds(root: &Path) -> Vec<Bounds> {
    let bytes = std::fs::read(root.join("lakemq/snapshot.json")).expect("a snapshot");
    let snapshot: serde_json::Value = serde_json::from_slice(&bytes[9..]).expect("JSON");
    let mut out: Vec<Bounds> =
        serde_json::from_value(snapshot["queues"].clone()).expect("bounds of queues");
    out.sort();
    out
}
