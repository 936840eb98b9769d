//! Small files that are read whole: the snapshot, idempotence keys, epochs, the store's identity, RocketMQ's JSON.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;

use lakemq_store::commitlog::epochs::EpochFile;
use lakemq_store::idempotence::{IdempotenceTable, KeyFile, KeyPlace};
use lakemq_store::identity::Identity;
use lakemq_store::message::record::crc31;
use lakemq_store::options::{Options, Role};
use lakemq_store::snapshot::Snapshot;
use lakemq_store::state::{MetaState, names, rocketmq_files};

use super::{Unsynced, empty_store, is_damage_of};

/// A snapshot that is accepted reads back as it was written.
pub fn snapshot(bytes: &[u8]) {
    looked_at(bytes);
    let body = bytes.get(9..).unwrap_or(bytes);
    let mut sealed = format!("{:08x}\n", crc31(body)).into_bytes();
    sealed.extend_from_slice(body);
    looked_at(&sealed);
}

fn looked_at(bytes: &[u8]) {
    if let Some(found) = Snapshot::decode(bytes) {
        let written = found.encode().expect("encoded");
        let again = Snapshot::decode(&written).expect("its own");
        assert!(again.encode().expect("encoded") == written);
    }
}

const MAX_KEYS: usize = 8;
const LOG_END: i64 = 1 << 40;

/// The file gives the keys of its whole lines in the log's range, the first place of each, as many as are remembered;
/// it keeps those lines and no other.
pub fn keys(bytes: &[u8]) {
    key_file(bytes);
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.get(9..).unwrap_or(line));
    let mut sealed = Vec::new();
    for line in lines {
        sealed.extend_from_slice(format!("{:08x} ", crc31(line)).as_bytes());
        sealed.extend_from_slice(line);
        sealed.push(b'\n');
    }
    key_file(&sealed);
}

fn key_file(bytes: &[u8]) {
    let paths = empty_store();
    fs::write(paths.idempotence_keys(), bytes).expect("written");
    let mut wanted: VecDeque<(&str, KeyPlace)> = VecDeque::new();
    let mut whole = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some((key, place)) = whole_line(line) else {
            continue;
        };
        if !(1..LOG_END).contains(&place.physical_offset) {
            continue;
        }
        whole.push(line);
        if wanted.iter().all(|(known, _)| *known != key) {
            wanted.push_back((key, place));
            if wanted.len() > MAX_KEYS {
                wanted.pop_front();
            }
        }
    }
    for _ in 0..2 {
        let mut table = IdempotenceTable::new(MAX_KEYS, i64::MAX);
        let mut file = KeyFile::new(&paths);
        file.load(1, LOG_END, &mut table, &Unsynced)
            .expect("readable");
        assert_eq!(table.len(), wanted.len());
        for (key, place) in &wanted {
            assert_eq!(table.get(key), Some(*place), "{key:?}");
        }
        let oldest = wanted.front().map(|(_, place)| place.physical_offset);
        assert_eq!(table.oldest_offset(), oldest.unwrap_or(i64::MAX));
        let left = fs::read(paths.idempotence_keys()).expect("a file");
        let left = left.split(|byte| *byte == b'\n');
        assert!(
            left.filter(|line| !line.is_empty())
                .eq(whole.iter().copied())
        );
    }
}

/// A line as the file's owner writes it: `crc physical_offset store_timestamp key`.
fn whole_line(line: &[u8]) -> Option<(&str, KeyPlace)> {
    let (crc, rest) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let [offset, time, key] = rest.splitn(3, ' ').collect::<Vec<_>>().try_into().ok()?;
    let place = KeyPlace {
        physical_offset: offset.parse().ok()?,
        store_timestamp: time.parse().ok()?,
    };
    (u32::from_str_radix(crc, 16).ok()? == crc31(rest.as_bytes())).then_some((key, place))
}

/// Epochs that are accepted are in order, tell every offset's, and stay so when the file is opened again.
pub fn epochs(bytes: &[u8]) {
    let paths = empty_store();
    for role in [Role::Master, Role::Slave] {
        fs::write(paths.epochs(), bytes).expect("written");
        let open = || EpochFile::open(&paths, role, 1, (0, LOG_END), Arc::new(Unsynced));
        let file = match open() {
            Ok(file) => file,
            Err(error) if error.code() == "ARGUMENT_ILLEGAL" => {
                assert!(role == Role::Master, "a slave's file is a slave's: {error}");
                continue;
            }
            Err(error) => {
                is_damage_of(&error, &paths.epochs());
                continue;
            }
        };
        let epochs = file.epochs().to_vec();
        assert!(
            epochs.windows(2).all(|pair| pair[0].epoch < pair[1].epoch
                && pair[0].start_offset <= pair[1].start_offset)
        );
        assert!(file.last() <= file.seen() && Some(file.last()) == epochs.last().map(|e| e.epoch));
        for (at, entry) in epochs.iter().enumerate() {
            let (epoch, end) = file.at(entry.start_offset);
            let last_of_start = epochs[at..]
                .iter()
                .take_while(|e| e.start_offset == entry.start_offset)
                .last();
            assert_eq!(Some(epoch), last_of_start.map(|e| e.epoch));
            assert!(end > entry.start_offset || entry.start_offset == i64::MAX);
            assert!(at == 0 || entry.start_offset <= LOG_END, "behind the log");
        }
        assert_eq!(file.common_end(LOG_END, &epochs, LOG_END), Some(LOG_END));
        let again = open().expect("its own");
        assert_eq!((again.epochs(), again.seen()), (&*epochs, file.seen()));
    }
}

/// An identity that is accepted could have been asked for.
pub fn identity(bytes: &[u8]) {
    let paths = empty_store();
    fs::write(paths.identity(), bytes).expect("written");
    match Identity::read(&paths, &Unsynced) {
        Ok(None) => panic!("the file is there"),
        Ok(Some(found)) => {
            found.write(&paths, &Unsynced).expect("disk space");
            assert_eq!(
                Identity::read(&paths, &Unsynced).expect("its own"),
                Some(found.clone())
            );
            let asked = Options {
                broker_name: found.broker_name,
                cluster: found.cluster,
                // A RocketMQ broker's may have any length.
                commitlog_file_size: found.commitlog_file_size.clamp(1 << 16, 1 << 30) & !4095,
                consumequeue_file_entries: found.consumequeue_file_entries,
                index_slots: found.index_slots,
                index_entries: found.index_entries,
                ..Options::default()
            };
            asked.validate().expect("a store could be made so");
            assert!((4096..=i32::MAX as u64).contains(&found.commitlog_file_size));
        }
        Err(error) => is_damage_of(&error, &paths.identity()),
    }
}

/// What RocketMQ's files say is written again and reads the same; one that is no JSON is damage, and put aside.
pub fn config(bytes: &[u8]) {
    let paths = empty_store();
    let files = [
        paths.topics_json(),
        paths.groups_json(),
        paths.consumer_offsets_json(),
        paths.delay_offsets_json(),
    ];
    for file in &files {
        fs::write(file, bytes).expect("written");
    }
    let mut taken_over = MetaState::default();
    let outcome = rocketmq_files::take_over(&paths, &mut taken_over, &Unsynced);
    match rocketmq_files::read(&paths, &Unsynced) {
        Ok(mut state) => {
            outcome.expect("it is readable");
            for topic in state.topics.keys() {
                names::validate_topic(topic).expect("names become paths");
            }
            // Kept in the log alone.
            state.topics.remove(names::META_TOPIC);
            rocketmq_files::write(&paths, &state, &Unsynced).expect("disk space");
            assert_eq!(
                rocketmq_files::read(&paths, &Unsynced).expect("its own"),
                state
            );
            let before = taken_over.clone();
            rocketmq_files::take_over(&paths, &mut taken_over, &Unsynced).expect("its own");
            assert_eq!(taken_over, before, "what this store wrote is no news to it");
            let aside = rocketmq_files::put_aside_unreadable(&paths, &Unsynced).expect("looked at");
            assert!(aside.is_empty(), "{aside:?}");
        }
        Err(error) => {
            is_damage_of(&error, &files[0]);
            is_damage_of(&outcome.expect_err("it is not readable"), &files[0]);
            let aside = rocketmq_files::put_aside_unreadable(&paths, &Unsynced).expect("renamed");
            assert_eq!(aside, files);
            let none = rocketmq_files::read(&paths, &Unsynced).expect("files that are not there");
            assert_eq!(none, MetaState::default());
        }
    }
}
