//! RocketMQ's JSON files under `config/`: written as snapshots of the state, read from a store that RocketMQ wrote.
//!
//! Invariants: a file is replaced whole or not at all. Each that LakeMQ wrote says so, and is never taken over as
//! another's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::config::{GroupConfig, PERM_READ, PERM_WRITE, TopicConfig};
use super::meta_state::{DataVersion, MetaState};
use super::names;
use crate::environment::Disk;
use crate::error::{Result, StoreError};
use crate::paths::{self, StorePaths};

/// The attribute that keeps a topic's id in `topics.json`.
const TOPIC_ID_ATTRIBUTE: &str = "lakemq.topic.id";

/// Says, in each file, that LakeMQ wrote it. RocketMQ reads past it and drops it when it writes.
const WRITER: &str = "writer";
const WRITER_LAKEMQ: &str = "lakemq";
/// Where in the meta topic's queue a reader finds the changes behind those that `topics.json` has.
const TOPICS_AT: &str = "lakemqTopicsAt";

/// The versions of the tables that stand in the files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    pub topics: DataVersion,
    pub groups: DataVersion,
    pub offsets: DataVersion,
    pub delay: DataVersion,
}

impl Written {
    /// The versions of a state.
    pub fn of(state: &MetaState) -> Self {
        Self {
            topics: state.topics_version,
            groups: state.groups_version,
            offsets: state.offsets_version,
            delay: state.delay_version,
        }
    }
}

/// Writes the four files.
///
/// # Errors
/// `DISK_FULL` or any I/O error; a file is replaced whole or not at all.
pub fn write(paths: &StorePaths, state: &MetaState, disk: &dyn Disk) -> Result<()> {
    make_directory(paths, disk)?;
    put(&paths.topics_json(), topics(state), disk)?;
    put(&paths.groups_json(), groups(state), disk)?;
    put(&paths.consumer_offsets_json(), offsets(state), disk)?;
    put(&paths.delay_offsets_json(), delay(state), disk)
}

/// Writes the files whose tables changed since they were `written`; group offsets only if `offsets_due`. One
/// that cannot be written does not keep the others from it.
///
/// # Errors
/// The first failure: `DISK_FULL` or any I/O error.
pub fn write_changed(
    paths: &StorePaths,
    state: &MetaState,
    written: &mut Written,
    offsets_due: bool,
    disk: &dyn Disk,
) -> Result<()> {
    make_directory(paths, disk)?;
    let mut outcome = Ok(());
    let mut bring = |is: &mut DataVersion, now: DataVersion, path: &Path, table: fn(&MetaState) -> Value| {
        if *is != now {
            match put(path, table(state), disk) {
                Ok(()) => *is = now,
                Err(error) => outcome = std::mem::replace(&mut outcome, Ok(())).and(Err(error)),
            }
        }
    };
    bring(&mut written.topics, state.topics_version, &paths.topics_json(), topics);
    bring(&mut written.groups, state.groups_version, &paths.groups_json(), groups);
    bring(&mut written.delay, state.delay_version, &paths.delay_offsets_json(), delay);
    if offsets_due {
        bring(&mut written.offsets, state.offsets_version, &paths.consumer_offsets_json(), offsets);
    }
    outcome
}

fn make_directory(paths: &StorePaths, disk: &dyn Disk) -> Result<()> {
    let made = paths::create_directories(&paths.config(), disk);
    made.map(drop).map_err(|e| StoreError::io("creating config", e))
}

fn put(path: &Path, mut value: Value, disk: &dyn Disk) -> Result<()> {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(WRITER.into(), WRITER_LAKEMQ.into());
    }
    let context = || format!("writing {}", path.display());
    let text = serde_json::to_vec_pretty(&value).map_err(|e| StoreError::io(context(), e.into()))?;
    if disk.read(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    paths::replace_file(path, &text, disk).map_err(|e| StoreError::io(context(), e))
}

fn version(version: &DataVersion) -> Value {
    json!({"counter": version.counter, "stateVersion": 0, "timestamp": version.timestamp})
}

fn topics(state: &MetaState) -> Value {
    let mut table = Map::new();
    // The meta topic stays out: to a RocketMQ broker it would be a topic that anyone may write.
    for (name, config) in state.topics.iter().filter(|(n, _)| *n != names::META_TOPIC) {
        let mut attributes = config.attributes.clone();
        attributes.insert(TOPIC_ID_ATTRIBUTE.into(), config.topic_id.clone());
        table.insert(
            name.clone(),
            json!({
                "topicName": name, "readQueueNums": config.read_queue_nums,
                "writeQueueNums": config.write_queue_nums, "perm": config.perm,
                "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": false,
                "attributes": attributes,
            }),
        );
    }
    json!({"dataVersion": version(&state.topics_version), TOPICS_AT: state.topics_at, "topicConfigTable": table})
}

fn groups(state: &MetaState) -> Value {
    let mut table = Map::new();
    for (name, config) in &state.groups {
        table.insert(
            name.clone(),
            json!({
                "groupName": name, "consumeEnable": config.consume_enable, "consumeFromMinEnable": true,
                "consumeBroadcastEnable": config.consume_broadcast_enable, "consumeMessageOrderly": false,
                "retryQueueNums": 1, "retryMaxTimes": config.retry_max_times, "brokerId": 0,
                "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": true,
                "groupSysFlag": 0, "consumeTimeoutMinute": 15, "attributes": config.attributes,
            }),
        );
    }
    let version = version(&state.groups_version);
    json!({"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": table})
}

fn offsets(state: &MetaState) -> Value {
    let mut table = Map::new();
    for (group, topics) in &state.offsets {
        for (topic, queues) in topics.iter() {
            table.insert(format!("{topic}@{group}"), json!(queues));
        }
    }
    json!({"dataVersion": version(&state.offsets_version), "offsetTable": table})
}

fn delay(state: &MetaState) -> Value {
    json!({"dataVersion": version(&state.delay_version), "offsetTable": state.delay})
}

/// Reads the files of a store; a missing one is empty.
///
/// # Errors
/// `DATA_CORRUPT` when a file is no JSON even in RocketMQ's dialect; any I/O error.
pub fn read(paths: &StorePaths, disk: &dyn Disk) -> Result<MetaState> {
    let mut state = read_topics(paths, disk)?;
    if let Some(value) = load(&paths.groups_json(), disk)? {
        state.groups_version = read_version(&value);
        for (name, config) in entries(&value, "subscriptionGroupTable") {
            state.groups.insert(name.clone(), read_group(config));
        }
    }
    if let Some(value) = load(&paths.consumer_offsets_json(), disk)? {
        state.offsets_version = read_version(&value);
        for (key, queues) in entries(&value, "offsetTable") {
            if let (Some((topic, group)), Some(queues)) = (key.split_once('@'), queues.as_object()) {
                let known = Arc::make_mut(state.offsets.entry(group.into()).or_default());
                let known = known.entry(topic.into()).or_default();
                known.extend(numbers(queues));
            }
        }
    }
    if let Some(value) = load(&paths.delay_offsets_json(), disk)? {
        state.delay_version = read_version(&value);
        if let Some(table) = value.get("offsetTable").and_then(Value::as_object) {
            state.delay = numbers(table).collect();
        }
    }
    Ok(state)
}

/// Reads the topic table alone.
///
/// # Errors
/// As [`read`].
pub fn read_topics(paths: &StorePaths, disk: &dyn Disk) -> Result<MetaState> {
    let mut state = MetaState::default();
    if let Some(value) = load(&paths.topics_json(), disk)? {
        state.topics_version = read_version(&value);
        state.topics_at = value.get(TOPICS_AT).and_then(Value::as_i64).unwrap_or(0);
        for (name, config) in entries(&value, "topicConfigTable") {
            if names::validate_topic(name).is_ok() {
                state.topics.insert(name.clone(), read_topic(config));
            }
        }
    }
    Ok(state)
}

/// Takes over what a RocketMQ broker wrote into the files while it owned the store: its topics, groups and
/// group offsets as they stand, delay progress where it is ahead. Files that LakeMQ wrote say nothing new.
///
/// # Errors
/// As [`read`].
pub fn take_over(paths: &StorePaths, state: &mut MetaState, disk: &dyn Disk) -> Result<()> {
    let foreign = |path: &Path| {
        Ok(load(path, disk)?.is_some_and(|v| v.get(WRITER).and_then(Value::as_str) != Some(WRITER_LAKEMQ)))
    };
    let (topics, groups) = (foreign(&paths.topics_json())?, foreign(&paths.groups_json())?);
    let (offsets, delay) = (foreign(&paths.consumer_offsets_json())?, foreign(&paths.delay_offsets_json())?);
    if !(topics || groups || offsets || delay) {
        return Ok(());
    }
    let theirs = read(paths, disk)?;
    if topics {
        for (topic, mut config) in theirs.topics {
            if let (true, Some(ours)) = (config.topic_id.is_empty(), state.topics.get(&topic)) {
                config.topic_id.clone_from(&ours.topic_id);
            }
            state.topics.insert(topic, config);
        }
        state.topics_version = newer(state.topics_version, theirs.topics_version);
    }
    if groups {
        state.groups.extend(theirs.groups);
        state.groups_version = newer(state.groups_version, theirs.groups_version);
    }
    if offsets {
        for (group, topics) in theirs.offsets {
            let known = Arc::make_mut(state.offsets.entry(group).or_default());
            for (topic, queues) in topics.iter() {
                known.entry(topic.clone()).or_default().extend(queues);
            }
        }
        state.offsets_version = newer(state.offsets_version, theirs.offsets_version);
    }
    if delay {
        for (level, offset) in theirs.delay {
            state.delay_reached(level, offset, theirs.delay_version.timestamp);
        }
    }
    Ok(())
}

/// Files of one name that are put aside; then the newest is replaced.
const MOST_ASIDE: usize = 9;

/// Puts the files aside that cannot be read, as `NAME.unreadable`, `NAME.unreadable.2` and so on, and returns them: what
/// LakeMQ wrote in them is in the log. One with a `NAME.bak` beside it stays: only a RocketMQ broker makes that, and what it wrote is nowhere else.
///
/// # Errors
/// Any I/O error.
pub fn put_aside_unreadable(paths: &StorePaths, disk: &dyn Disk) -> Result<Vec<PathBuf>> {
    let mut aside = Vec::new();
    for path in
        [paths.topics_json(), paths.groups_json(), paths.consumer_offsets_json(), paths.delay_offsets_json()]
    {
        if let Err(StoreError::Corrupt { .. }) = load(&path, disk)
            && !disk
                .exists(&beside(&path, ".bak"))
                .map_err(|e| StoreError::io(format!("looking beside {}", path.display()), e))?
        {
            put_aside(&path, disk)
                .map_err(|e| StoreError::io(format!("putting {} aside", path.display()), e))?;
            aside.push(path);
        }
    }
    Ok(aside)
}

fn put_aside(path: &Path, disk: &dyn Disk) -> std::io::Result<()> {
    let first = std::iter::once(beside(path, ".unreadable"));
    let names = first.chain((2..MOST_ASIDE).map(|number| beside(path, &format!(".unreadable.{number}"))));
    for name in names {
        match disk.rename_new(path, &name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            outcome => return outcome,
        }
    }
    disk.rename(path, &beside(path, &format!(".unreadable.{MOST_ASIDE}")))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn newer(ours: DataVersion, theirs: DataVersion) -> DataVersion {
    let (counter, timestamp) = (ours.counter.max(theirs.counter), ours.timestamp.max(theirs.timestamp));
    DataVersion { counter: counter + 1, timestamp }
}

fn numbers(table: &Map<String, Value>) -> impl Iterator<Item = (u32, i64)> {
    table.iter().filter_map(|(key, value)| Some((key.parse().ok()?, value.as_i64()?)))
}

fn entries<'a>(value: &'a Value, table: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(table).and_then(Value::as_object).into_iter().flatten()
}

fn read_version(value: &Value) -> DataVersion {
    let of = |name| value.pointer(name).and_then(Value::as_i64).unwrap_or(0);
    DataVersion { counter: of("/dataVersion/counter").max(0) as u64, timestamp: of("/dataVersion/timestamp") }
}

fn read_topic(value: &Value) -> TopicConfig {
    let number = |name: &str, default: u32| {
        value.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
    };
    let mut attributes: BTreeMap<String, String> =
        value.get("attributes").and_then(|a| serde_json::from_value(a.clone()).ok()).unwrap_or_default();
    TopicConfig {
        topic_id: attributes.remove(TOPIC_ID_ATTRIBUTE).unwrap_or_default(),
        read_queue_nums: number("readQueueNums", 4),
        write_queue_nums: number("writeQueueNums", 4),
        perm: number("perm", PERM_READ | PERM_WRITE),
        attributes,
    }
}

fn read_group(value: &Value) -> GroupConfig {
    let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(true);
    GroupConfig {
        retry_max_times: value
            .get("retryMaxTimes")
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(16),
        consume_enable: flag("consumeEnable"),
        consume_broadcast_enable: flag("consumeBroadcastEnable"),
        attributes: value
            .get("attributes")
            .and_then(|a| serde_json::from_value(a.clone()).ok())
            .unwrap_or_default(),
    }
}

fn load(path: &Path, disk: &dyn Disk) -> Result<Option<Value>> {
    let text = match disk.read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io(format!("reading {}", path.display()), error)),
    };
    serde_json::from_slice(&text)
        .or_else(|_| serde_json::from_slice(&quote_number_keys(&text)))
        .map(Some)
        .map_err(|e| StoreError::corrupt(format!("{} is not readable: {e}", path.display())))
}

/// RocketMQ writes numbers as map keys without quotes, which JSON does not know.
fn quote_number_keys(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let (mut rest, mut in_string, mut escaped, mut before) = (text, false, false, b' ');
    while let [byte, behind @ ..] = rest {
        if !in_string && matches!(before, b'{' | b',') {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let (number, left) = rest.split_at_checked(digits).unwrap_or((&[], rest));
            if digits > 0 && left.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':') {
                out.push(b'"');
                out.extend_from_slice(number);
                out.push(b'"');
                (rest, before) = (left, b'"');
                continue;
            }
        }
        if *byte == b'"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && *byte == b'\\' && !escaped;
        if !byte.is_ascii_whitespace() {
            before = *byte;
        }
        out.push(*byte);
        rest = behind;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::RealDisk;
    use crate::state::Op;

    #[test]
    fn test_rocketmqs_unquoted_keys_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        std::fs::create_dir_all(paths.config()).expect("a directory");
        let text = "{\n\t\"dataVersion\":{\"counter\":3,\"timestamp\":9},\n\t\"offsetTable\":{\"a,1:b@g\":{0:3,1:4\n\t\t}\n\t}\n}";
        std::fs::write(paths.consumer_offsets_json(), text).expect("a file");
        std::fs::write(paths.delay_offsets_json(), "{\"offsetTable\":{1:6,18:2}}").expect("a file");
        let state = read(&paths, &RealDisk).expect("readable");
        assert_eq!(state.offsets["g"]["a,1:b"], BTreeMap::from([(0, 3), (1, 4)]));
        assert_eq!(state.delay, BTreeMap::from([(1, 6), (18, 2)]));
        assert_eq!(state.offsets_version.counter, 3);
    }

    #[test]
    fn test_what_rocketmq_wrote_meanwhile_is_taken_over_and_our_own_files_are_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        let mut state = MetaState::default();
        state.apply(Op::CommitOffsets { group: "g".into(), offsets: vec![("t".into(), 0, 7)] }, 1);
        state.delay_reached(1, 3, 1);
        write(&paths, &state, &RealDisk).expect("disk space");
        state.apply(Op::CommitOffsets { group: "g".into(), offsets: vec![("t".into(), 0, 5)] }, 2);
        let before = state.clone();
        take_over(&paths, &mut state, &RealDisk).expect("readable");
        assert_eq!(state, before, "our own snapshot is older than the log");
        std::fs::write(paths.consumer_offsets_json(), "{\"offsetTable\":{\"t@g\":{0:9}}}").expect("a file");
        std::fs::write(paths.delay_offsets_json(), "{\"offsetTable\":{1:6,2:0}}").expect("a file");
        take_over(&paths, &mut state, &RealDisk).expect("readable");
        assert_eq!(state.offsets["g"]["t"][&0], 9);
        assert_eq!(state.delay[&1], 6);
    }

    #[test]
    fn test_what_is_written_reads_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = StorePaths::new(dir.path());
        let mut state = MetaState::default();
        let config = TopicConfig {
            topic_id: "id-1".into(),
            read_queue_nums: 3,
            write_queue_nums: 2,
            perm: 6,
            attributes: BTreeMap::from([("a".into(), "b".into())]),
        };
        state.apply(Op::PutTopic { topic: "t".into(), config }, 5);
        state.apply(Op::PutGroup { group: "g".into(), config: GroupConfig::default() }, 6);
        state.apply(Op::CommitOffsets { group: "g".into(), offsets: vec![("t".into(), 1, 7)] }, 7);
        state.delay_reached(2, 9, 8);
        write(&paths, &state, &RealDisk).expect("disk space");
        assert_eq!(read(&paths, &RealDisk).expect("readable"), state);
    }
}
