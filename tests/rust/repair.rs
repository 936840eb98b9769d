//! Queues and index files that are lost, damaged or behind: built again from the log, and only those.
//!
//! Contract: an offset is never given twice for one topic id; a start reads the tail, and more only for what it repairs.

use std::fs;
use std::path::Path;

use lakemq_store::reader::Reader;
use lakemq_store::store::{Options, Store};

use super::{HOURS_100, crash};
use crate::support::{
    FindJson, SOON, bodies, bulk, copy, environment, everything, image, open, options,
    patch_snapshot, send,
};

#[test]
fn test_a_new_store_has_nothing_to_rebuild() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = open(dir.path()).report().clone();
    assert!(report.clean && !report.rebuilt, "{report:?}");
}

#[test]
fn test_an_offset_is_never_given_twice_when_a_quiet_queue_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "quiet", &["a", "b", "c"]);
    bulk(&store, "busy", 400);
    store
        .expire(store.now_ms() + HOURS_100, true)
        .expect("expired");
    assert_eq!(store.bounds("quiet", 0).expect("bounds").min, 3);
    store.close().expect("closed");
    drop(store);
    for lost in ["consumequeue", "consumequeue/quiet"] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        fs::remove_dir_all(copied.path().join(lost)).expect("removed");
        for rebuild in [false, true] {
            if rebuild {
                Store::rebuild(copied.path(), options(), environment()).expect("rebuilt");
            }
            let store = open(copied.path());
            let bounds = store.bounds("quiet", 0).expect("bounds");
            assert_eq!(
                (bounds.min, bounds.max),
                (3, 3),
                "{lost} lost, rebuild {rebuild}"
            );
            if rebuild {
                let reader = Reader::open(copied.path()).expect("a reader");
                assert_eq!(
                    reader.bounds("quiet", 0).expect("bounds"),
                    bounds,
                    "beside it, {lost} lost"
                );
            }
        }
        let store = open(copied.path());
        send(&store, "quiet", &["d"]);
        assert_eq!(bodies(&store, "quiet"), ["d"]);
        let bounds = store.bounds("quiet", 0).expect("bounds");
        assert_eq!((bounds.min, bounds.max), (3, 4));
    }
    // Without its snapshot too: what the files say counts.
    for name in ["snapshot.json", "snapshot.json.bak"] {
        let _ = fs::remove_file(dir.path().join("lakemq").join(name));
    }
    let store = open(dir.path());
    assert!(store.report().rebuilt);
    assert_eq!(store.bounds("quiet", 0).expect("bounds").max, 3);
}

#[test]
fn test_a_crash_after_a_topic_was_deleted_reads_only_the_tail() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    // Whoever repairs its queue reads all of the log.
    send(&store, "small", &["a"]);
    let busy = bulk(&store, "busy", 400);
    store.checkpoint().expect("checkpoint");
    let end = store.delete_topic("small").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    let crashed = crash(dir.path());
    send(&store, "small", &["b", "c"]);
    let again = crash(dir.path());
    let store = open(crashed.path());
    assert!(!store.report().clean && !store.report().rebuilt);
    assert!(store.report().records < 10, "{:?}", store.report());
    assert!(store.topic("small").is_none());
    assert_eq!(bodies(&store, "busy"), busy);
    let store = open(again.path());
    assert!(store.report().records < 10, "{:?}", store.report());
    assert_eq!(bodies(&store, "small"), ["b", "c"]);
}

#[test]
fn test_a_crash_inside_an_expiry_reads_only_the_tail() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "t", 400);
    store.checkpoint().expect("checkpoint");
    let before = crash(dir.path());
    store
        .expire(store.now_ms() + HOURS_100, true)
        .expect("expired");
    let bounds = store.bounds("t", 0).expect("bounds");
    assert!(bounds.min > 100);
    let left = bodies(&store, "t");
    // The log's files are gone, the snapshot is the one from before, queue files all stand.
    let crashed = crash(before.path());
    for file in fs::read_dir(before.path().join("commitlog")).expect("files") {
        let name = file.expect("a file").file_name();
        if !dir.path().join("commitlog").join(&name).exists() {
            fs::remove_file(crashed.path().join("commitlog").join(&name)).expect("removed");
        }
    }
    // And the other end of it: the snapshot is the new one, none of the queue files is deleted yet.
    let late = crash(before.path());
    for part in ["commitlog", "lakemq"] {
        fs::remove_dir_all(late.path().join(part)).expect("removed");
        copy(&dir.path().join(part), &late.path().join(part));
    }
    for place in [crashed, late] {
        let store = open(place.path());
        assert!(
            !store.report().rebuilt && store.report().repaired_queues == 0,
            "{:?}",
            store.report()
        );
        assert_eq!(store.report().records, 0);
        let after = store.bounds("t", 0).expect("bounds");
        assert_eq!((after.min, after.max), (bounds.min, bounds.max));
        assert_eq!(bodies(&store, "t"), left);
    }
}

#[test]
fn test_only_the_queue_that_is_missing_is_built_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let first = bulk(&store, "first", 130);
    let second = bulk(&store, "second", 130);
    store.close().expect("closed");
    drop(store);
    let expected = image(&dir.path().join("consumequeue"));
    let last = dir
        .path()
        .join("consumequeue/second/0")
        .join(format!("{:020}", 100 * 20));
    fs::remove_file(&last).expect("removed");
    let store = open(dir.path());
    assert_eq!(
        (store.report().rebuilt, store.report().repaired_queues),
        (false, 1)
    );
    assert!(
        store.report().records <= 60,
        "from the last entry that stands: {:?}",
        store.report()
    );
    assert_eq!(bodies(&store, "first"), first);
    assert_eq!(bodies(&store, "second"), second);
    store.close().expect("closed");
    assert!(
        image(&dir.path().join("consumequeue")) == expected,
        "byte for byte"
    );
}

#[test]
fn test_a_derived_file_of_a_wrong_length_is_built_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 80);
    store.close().expect("closed");
    drop(store);
    let queues = image(&dir.path().join("consumequeue"));
    let index: Vec<_> = fs::read_dir(dir.path().join("index"))
        .expect("files")
        .collect();
    let index = index
        .into_iter()
        .next()
        .expect("one")
        .expect("a file")
        .path();
    let of_queue = |base: usize| {
        dir.path()
            .join("consumequeue/t/0")
            .join(format!("{base:020}"))
    };
    for (path, length) in [
        (of_queue(0), 300),
        (of_queue(1000), 0),
        (of_queue(1000), 7),
        (of_queue(0), 5000),
        (index, 17),
    ] {
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("file")
            .set_len(length)
            .expect("cut");
        let store = open(dir.path());
        assert_eq!(
            bodies(&store, "t"),
            expected,
            "{} of {length} bytes",
            path.display()
        );
        let found = store
            .messages_json("t", "key-3-", (0, i64::MAX), 10)
            .expect("readable");
        assert_eq!(found.len(), 0);
        store.close().expect("closed");
        drop(store);
        assert!(
            image(&dir.path().join("consumequeue")) == queues,
            "byte for byte"
        );
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("file")
            .set_len(length)
            .expect("cut");
        Store::rebuild(dir.path(), options(), environment()).expect("rebuilt");
        assert!(
            image(&dir.path().join("consumequeue")) == queues,
            "byte for byte"
        );
    }
}

#[test]
fn test_power_loss_takes_pages_of_queues_and_only_those_are_built_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let durable = bulk(&store, "durable", 120);
    let mut torn = bulk(&store, "torn", 40);
    store.close().expect("closed");
    drop(store);
    let store = open(dir.path());
    let disk_had = crash(dir.path());
    torn.extend(bulk(&store, "torn", 60));
    let fresh = bulk(&store, "fresh", 20);
    store.checkpoint().expect("checkpoint");
    let crashed = crash(dir.path());
    // The snapshot is on the disk, and so is the log. What was written to the queues since the last sync,
    // is not: an entry in the middle, the end, a whole file, a whole topic.
    let entry = |root: &Path, at: usize, with: &[u8]| {
        let path = root
            .join("consumequeue/torn/0")
            .join(format!("{:020}", at / 50 * 1000));
        let mut bytes = fs::read(&path).expect("a file");
        bytes[at % 50 * 20..at % 50 * 20 + 20].copy_from_slice(with);
        fs::write(&path, bytes).expect("written");
    };
    let losses: [&dyn Fn(&Path); 5] = [
        &|root| entry(root, 45, &[0; 20]),
        &|root| entry(root, 99, &[0; 20]),
        &|root| {
            fs::remove_file(
                root.join("consumequeue/torn/0")
                    .join(format!("{:020}", 1000)),
            )
            .expect("removed")
        },
        &|root| fs::remove_dir_all(root.join("consumequeue/fresh")).expect("removed"),
        &|root| {
            fs::remove_dir_all(root.join("consumequeue")).expect("removed");
            copy(
                &disk_had.path().join("consumequeue"),
                &root.join("consumequeue"),
            );
        },
    ];
    for (at, lose) in losses.iter().enumerate() {
        let place = crash(crashed.path());
        // As if no queue had been synced by the checkpoint.
        let snapshot = fs::read(disk_had.path().join("lakemq/snapshot.json")).expect("a snapshot");
        let text = String::from_utf8_lossy(&snapshot).into_owned();
        let before: i64 = text
            .split("\"queues_durable_offset\":")
            .nth(1)
            .and_then(|t| t.split(',').next()?.parse().ok())
            .expect("an offset");
        crate::support::patch_snapshot(place.path(), |s| {
            s["queues_durable_offset"] = before.into()
        });
        lose(place.path());
        let store = open(place.path());
        let report = store.report();
        assert!(
            !report.rebuilt && report.repaired_queues > 0,
            "loss {at}: {report:?}"
        );
        assert!(
            report.records <= 130,
            "loss {at}: what was durable is not read again: {report:?}"
        );
        assert_eq!(bodies(&store, "durable"), durable, "loss {at}");
        assert_eq!(bodies(&store, "torn"), torn, "loss {at}");
        assert_eq!(bodies(&store, "fresh"), fresh, "loss {at}");
    }
}

#[test]
fn test_a_crash_in_the_middle_of_a_repair_does_not_take_half_of_it_for_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let expected = bulk(&store, "t", 100);
    store.close().expect("closed");
    drop(store);
    fs::remove_dir_all(dir.path().join("consumequeue")).expect("removed");
    let store = open(dir.path());
    assert_eq!(bodies(&store, "t"), expected);
    // The power goes before anything of the repair is synced: a file in the middle is lost.
    let place = crash(dir.path());
    let path = place.path().join("consumequeue/t/0").join("0".repeat(20));
    let mut bytes = fs::read(&path).expect("a file");
    bytes[20 * 7..20 * 9].fill(0);
    fs::write(&path, bytes).expect("written");
    let first_doubt =
        fs::read_to_string(place.path().join("lakemq/snapshot.json.bak")).expect("a snapshot");
    assert!(
        first_doubt.contains("\"queues_durable_offset\":0"),
        "said before the repair began"
    );
    crate::support::patch_snapshot(place.path(), |s| s["queues_durable_offset"] = 0.into());
    let store = open(place.path());
    assert_eq!(bodies(&store, "t"), expected);
}

#[test]
fn test_a_topic_deleted_before_everything_was_built_again_can_be_made_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    send(&store, "gone", &["a", "b"]);
    let end = store.delete_topic("gone").expect("deleted");
    assert!(store.wait_dispatched(end, SOON));
    bulk(&store, "other", 20);
    store.close().expect("closed");
    drop(store);
    Store::rebuild(dir.path(), options(), environment()).expect("built again");
    let store = open(dir.path());
    assert!(store.topic("gone").is_none());
    send(&store, "gone", &["c"]);
    assert_eq!(bodies(&store, "gone"), ["c"]);
}

/// Entry 25 has its log offset and its size in the first sector of its file, and its tags in the second.
#[test]
fn test_an_entry_of_which_a_power_cut_took_the_tags_is_built_again() {
    for count in [26, 40] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let sent: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
        send(&store, "t", &sent);
        store.checkpoint().expect("taken");
        let cut = tempfile::tempdir().expect("a directory");
        copy(dir.path(), cut.path());
        patch_snapshot(cut.path(), |snapshot| {
            // Its syncs of queues had failed.
            snapshot["queues_durable_offset"] = 0.into();
        });
        let queue = cut
            .path()
            .join("consumequeue/t/0")
            .join("00000000000000000000");
        let mut bytes = fs::read(&queue).expect("a file");
        bytes[512..].fill(0);
        fs::write(&queue, bytes).expect("written");
        let store = open(cut.path());
        // They are read by their tag.
        assert_eq!(bodies(&store, "t").len(), count);
        let whole = fs::read(dir.path().join("consumequeue/t/0/00000000000000000000"));
        assert!(fs::read(&queue).expect("a file") == whole.expect("a file"));
    }
}

#[test]
fn test_a_lost_sector_of_a_queue_is_noticed_where_its_newest_file_is_lost_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let sent = bulk(&store, "t", 250);
    store.checkpoint().expect("checkpoint");
    let crashed = crash(dir.path());
    patch_snapshot(crashed.path(), |snapshot| {
        snapshot["queues_durable_offset"] = 0.into();
    });
    let queue = crashed.path().join("consumequeue/t/0");
    let mut files: Vec<_> = fs::read_dir(&queue)
        .expect("files")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() > 1, "{files:?}");
    let mut first = fs::read(&files[0]).expect("read");
    first[..512].fill(0);
    fs::write(&files[0], first).expect("written");
    fs::remove_file(files.last().expect("one")).expect("removed");
    let store = open(crashed.path());
    assert_eq!(store.bounds("t", 0).expect("bounds").min, 0);
    assert_eq!(bodies(&store, "t"), sent);
}

#[test]
fn test_places_before_a_queues_minimum_that_a_power_cut_took_hide_nothing_from_who_reads_beside_it()
{
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    bulk(&store, "other", 20);
    let sent = bulk(&store, "t", 250);
    store
        .expire(store.now_ms() + HOURS_100, true)
        .expect("expired");
    let bounds = store.bounds("t", 0).expect("bounds");
    let place = (bounds.min % 50 * 20) as usize;
    assert!(place > 0, "the queue begins within a file: {bounds:?}");
    let name = format!("consumequeue/t/0/{:020}", bounds.min / 50 * 1000);
    let losses: [&dyn Fn(&Path); 3] = [
        // What was written to it; its length too; what stands before the first entry.
        &|file| fs::write(file, [0; 1000]).expect("written"),
        &|file| fs::write(file, []).expect("written"),
        &|file| {
            let mut bytes = fs::read(file).expect("a file");
            bytes[..place].fill(0);
            fs::write(file, bytes).expect("written");
        },
    ];
    for (at, lose) in losses.iter().enumerate() {
        let crashed = crash(dir.path());
        patch_snapshot(crashed.path(), |snapshot| {
            snapshot["queues_durable_offset"] = 0.into();
        });
        lose(&crashed.path().join(&name));
        let store = open(crashed.path());
        let left = &sent[bounds.min as usize..];
        assert_eq!(bodies(&store, "t"), left, "loss {at}");
        let reader = Reader::open(crashed.path()).expect("a reader");
        assert_eq!(reader.bounds("t", 0).expect("bounds"), bounds, "loss {at}");
        let mut read = Vec::new();
        reader
            .read("t", 0, &everything(bounds.min), |record, _| {
                read.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
            .expect("readable");
        assert_eq!(read, left, "loss {at}");
    }
}

/// Entries 102, 230, ... have their log offset in the last eight bytes of a sector, size and tags in the next one.
#[test]
fn test_an_entry_of_which_a_power_cut_took_the_log_offset_alone_is_built_again() {
    let wide = || Options {
        consumequeue_file_entries: 300,
        ..options()
    };
    for count in [103, 120, 240] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path(), wide(), environment()).expect("a store");
        let mut sent = bulk(&store, "t", 102);
        let synced = store.watermarks().0;
        sent.extend(bulk(&store, "t", count - 102));
        store.checkpoint().expect("taken");
        let cut = crash(dir.path());
        // Its syncs of queues had failed since entry 102.
        patch_snapshot(cut.path(), |snapshot| {
            snapshot["queues_durable_offset"] = synced.into();
        });
        let file = "consumequeue/t/0/00000000000000000000";
        let whole = fs::read(dir.path().join(file)).expect("a file");
        let mut bytes = whole.clone();
        for entry in (102..count).step_by(128) {
            bytes[entry * 20..entry * 20 + 8].fill(0);
        }
        fs::write(cut.path().join(file), bytes).expect("written");
        let store = Store::open(cut.path(), wide(), environment()).expect("a store");
        assert_eq!(bodies(&store, "t"), sent, "of {count}");
        let repaired = fs::read(cut.path().join(file)).expect("a file");
        assert!(repaired == whole, "of {count}");
        let report = store.report();
        assert!(
            !report.rebuilt && report.records <= count as u64 - 100,
            "what was durable is not read again: {report:?}"
        );
    }
}

/// A queue lost entries whose records have expired since: the places stay, and a reader beside the store finds its way.
#[test]
fn test_places_that_were_cut_and_whose_records_expired_hide_nothing_from_who_reads_beside_it() {
    for empty in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        send(&store, "quiet", &["a", "b", "c"]);
        if empty {
            send(&store, "quiet", &["d", "e"]);
        }
        bulk(&store, "busy", 400);
        let base = store.watermarks().0 / 65_536 * 65_536;
        if !empty {
            send(&store, "quiet", &["d", "e"]);
        }
        bulk(&store, "busy", 4);
        store.checkpoint().expect("checkpoint");
        let crashed = crash(dir.path());
        for file in fs::read_dir(crashed.path().join("commitlog")).expect("files") {
            let file = file.expect("a file");
            let at: i64 = file
                .file_name()
                .to_string_lossy()
                .parse()
                .expect("a number");
            if at < base {
                fs::remove_file(file.path()).expect("removed");
            }
        }
        let file = crashed
            .path()
            .join("consumequeue/quiet/0/00000000000000000000");
        let mut bytes = fs::read(&file).expect("a file");
        bytes[20..].fill(0);
        fs::write(&file, bytes).expect("written");
        let store = open(crashed.path());
        let bounds = store.bounds("quiet", 0).expect("bounds");
        assert_eq!((bounds.min, bounds.max), (if empty { 5 } else { 3 }, 5));
        let reader = Reader::open(crashed.path()).expect("a reader");
        assert_eq!(reader.bounds("quiet", 0).expect("bounds"), bounds);
        send(&store, "quiet", &["f"]);
        let reader = Reader::open(crashed.path()).expect("a reader");
        assert_eq!(reader.bounds("quiet", 0).expect("bounds").max, 6);
    }
}
