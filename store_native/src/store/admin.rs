//! Changing topics, groups, group offsets and leases. Each change is a record in the log; a caller waits
//! until it is dispatched before it tells anyone.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{LeaseHold, Shared, lock};
use crate::environment::Clock;
use crate::error::{Result, StoreError};
use crate::meta::{GroupConfig, Lease, MetaState, Op, TopicConfig, names};

const MAX_QUEUES: u32 = 1024;

/// What to change of a topic; what is `None` stays (or takes its default on creation).
#[derive(Debug, Clone, Default)]
pub struct TopicChange {
    pub read_queue_nums: Option<u32>,
    pub write_queue_nums: Option<u32>,
    pub perm: Option<u32>,
    pub attributes: Option<BTreeMap<String, String>>,
    /// Allows fewer read than write queues, which strands messages.
    pub force: bool,
}

/// How long the owner of a lease taken before a restart may take to renew it.
const LEASE_GRACE_MS: i64 = 10_000;
/// How long a lease waits for its record.
const LEASE_CONFIRMED_IN: Duration = Duration::from_secs(5);

impl LeaseHold {
    fn give_up(&mut self) {
        self.owner.clear();
        self.expires_at = 0;
        self.deadline = i64::MIN;
    }
}

impl Shared {
    /// Appends a change that needs nothing from the append side. Returns the offset to wait for.
    fn append_change(&self, op: &Op) -> Result<i64> {
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        self.append_op(&mut appender, op)?;
        let end = appender.writer.end();
        drop(appender);
        self.wake_flusher();
        Ok(end)
    }

    /// Creates or changes a topic. Returns the offset to wait for.
    ///
    /// # Errors
    /// `TOPIC_ILLEGAL`, `NO_PERMISSION` for system topics, `ARGUMENT_ILLEGAL` for numbers out of range,
    /// `TOPIC_CONFLICT` where messages would be stranded.
    pub fn put_topic(&self, topic: &str, change: &TopicChange) -> Result<i64> {
        names::validate_topic(topic)?;
        if names::is_system(topic) {
            return Err(StoreError::invalid(
                "NO_PERMISSION",
                format!("topic[{topic}] belongs to the system"),
            ));
        }
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        let known = appender.routing.get(topic).map(|r| r.config.clone());
        let config = self.changed_topic(topic, known, change)?;
        self.append_op(&mut appender, &Op::PutTopic { topic: topic.into(), config: config.clone() })?;
        appender.routing.put(topic, config);
        let end = appender.writer.end();
        drop(appender);
        self.wake_flusher();
        Ok(end)
    }

    fn changed_topic(
        &self,
        topic: &str,
        known: Option<TopicConfig>,
        change: &TopicChange,
    ) -> Result<TopicConfig> {
        let mut config = known.unwrap_or_else(|| TopicConfig {
            topic_id: self.new_topic_id(),
            read_queue_nums: change.write_queue_nums.unwrap_or(self.options.default_queue_nums),
            write_queue_nums: change.read_queue_nums.unwrap_or(self.options.default_queue_nums),
            perm: 6,
            attributes: BTreeMap::new(),
        });
        config.read_queue_nums = change.read_queue_nums.unwrap_or(config.read_queue_nums);
        config.write_queue_nums = change.write_queue_nums.unwrap_or(config.write_queue_nums);
        config.perm = change.perm.unwrap_or(config.perm);
        if let Some(attributes) = &change.attributes {
            config.attributes = attributes.clone();
        }
        for (name, queues) in
            [("read_queue_nums", config.read_queue_nums), ("write_queue_nums", config.write_queue_nums)]
        {
            if !(1..=MAX_QUEUES).contains(&queues) {
                let detail = format!("{name} is {queues}, it lies between 1 and {MAX_QUEUES}");
                return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
            }
        }
        if config.perm > 7 {
            let detail = format!("perm is {}, its bits are 4 read, 2 write, 1 inherit", config.perm);
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        if config.read_queue_nums < config.write_queue_nums && !change.force {
            let detail = format!(
                "topic[{topic}] would have {} read and {} write queues: messages in the queues that are not \
                 read would be stranded; shrink write_queue_nums first, or force",
                config.read_queue_nums, config.write_queue_nums
            );
            return Err(StoreError::invalid("TOPIC_CONFLICT", detail));
        }
        Ok(config)
    }

    /// Deletes a topic: its queues go, its records stay in the log until they expire.
    ///
    /// # Errors
    /// `TOPIC_NOT_EXIST`, `NO_PERMISSION` for system topics.
    pub fn delete_topic(&self, topic: &str) -> Result<i64> {
        names::validate_topic(topic)?;
        if names::is_system(topic) {
            return Err(StoreError::invalid(
                "NO_PERMISSION",
                format!("topic[{topic}] belongs to the system"),
            ));
        }
        let mut appender = lock(&self.appender);
        self.check_open(&appender)?;
        if appender.routing.get(topic).is_none() {
            return Err(StoreError::no_topic(topic));
        }
        self.append_op(&mut appender, &Op::DeleteTopic { topic: topic.into() })?;
        appender.routing.remove(topic);
        let end = appender.writer.end();
        drop(appender);
        self.wake_flusher();
        Ok(end)
    }

    /// A topic's settings, system topics included. A topic that was created a moment ago is known here
    /// before its record is dispatched.
    pub fn topic(&self, topic: &str) -> Option<TopicConfig> {
        lock(&self.appender).routing.get(topic).map(|route| route.config.clone())
    }

    /// All topics as applied, by name.
    pub fn topics(&self) -> BTreeMap<String, TopicConfig> {
        let mut topics = lock(&self.dispatcher).state.topics.clone();
        let levels = self.options.delay_levels_ms.len() as u32;
        for system in [names::SCHEDULE_TOPIC, names::META_TOPIC] {
            if let Some(config) = MetaState::system_topic(system, levels) {
                topics.entry(system.into()).or_insert(config);
            }
        }
        topics
    }

    /// Creates or changes a group, and its retry topic.
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`, `ARGUMENT_ILLEGAL` for settings that are not readable.
    pub fn put_group(&self, group: &str, config_json: &str) -> Result<i64> {
        names::validate_group(group)?;
        let config: GroupConfig = serde_json::from_str(config_json)
            .map_err(|e| StoreError::invalid("ARGUMENT_ILLEGAL", format!("the group's settings: {e}")))?;
        let retry_topic = format!("{}{group}", names::RETRY_PREFIX);
        let missing = lock(&self.appender).routing.get(&retry_topic).is_none();
        if missing {
            let change =
                TopicChange { read_queue_nums: Some(1), write_queue_nums: Some(1), ..TopicChange::default() };
            self.put_topic(&retry_topic, &change)?;
        }
        self.append_change(&Op::PutGroup { group: group.into(), config })
    }

    /// Forgets a group, its offsets and its lease.
    ///
    /// # Errors
    /// `GROUP_NOT_EXIST`.
    pub fn delete_group(&self, group: &str) -> Result<i64> {
        names::validate_group(group)?;
        let known = {
            let dispatcher = lock(&self.dispatcher);
            dispatcher.state.groups.contains_key(group) || dispatcher.state.offsets.contains_key(group)
        };
        if !known {
            return Err(StoreError::invalid("GROUP_NOT_EXIST", format!("group[{group}] does not exist")));
        }
        // Its epoch stays, here and in the state: the owner before the deletion must not meet it again.
        if let Some(held) = lock(&self.leases).get_mut(group) {
            held.give_up();
        }
        self.append_change(&Op::DeleteGroup { group: group.into() })
    }

    /// All groups as applied: those created, and those that only committed offsets.
    pub fn groups(&self) -> BTreeMap<String, GroupConfig> {
        let dispatcher = lock(&self.dispatcher);
        let mut groups = dispatcher.state.groups.clone();
        for group in dispatcher.state.offsets.keys() {
            groups.entry(group.clone()).or_default();
        }
        groups
    }

    /// Notes where a group stands: (topic, queue id, next offset).
    ///
    /// # Errors
    /// `GROUP_ILLEGAL`, `TOPIC_NOT_EXIST`, `OFFSET_ILLEGAL` for a negative offset.
    pub fn commit_offsets(&self, group: &str, offsets: Vec<(String, u32, i64)>) -> Result<i64> {
        names::validate_group(group)?;
        {
            let appender = lock(&self.appender);
            for (topic, queue_id, offset) in &offsets {
                let route = appender.routing.get(topic).ok_or_else(|| StoreError::no_topic(topic))?;
                if *queue_id >= MAX_QUEUES || *offset < 0 || *offset > route.next_offset(*queue_id) {
                    let detail = format!(
                        "group[{group}] cannot stand at {offset} of topic[{topic}] queue {queue_id}, which ends at {}",
                        route.next_offset(*queue_id)
                    );
                    return Err(StoreError::invalid("OFFSET_ILLEGAL", detail));
                }
            }
        }
        if offsets.is_empty() {
            return Ok(self.marks.appended());
        }
        self.append_change(&Op::CommitOffsets { group: group.into(), offsets })
    }

    /// Where a group stands, as applied.
    pub fn group_offsets(&self, group: &str) -> Vec<(String, u32, i64)> {
        let dispatcher = lock(&self.dispatcher);
        let topics = dispatcher.state.offsets.get(group).into_iter().flat_map(|topics| topics.iter());
        topics
            .flat_map(|(topic, queues)| queues.iter().map(|(queue, offset)| (topic.clone(), *queue, *offset)))
            .collect()
    }

    /// Takes or renews a group's lease. Taking it from somebody else raises the epoch; this returns when the
    /// record that says so is on the disk and dispatched, so that no power cut can give an epoch twice.
    ///
    /// # Errors
    /// `LEASE_CONFLICT` while another owner holds it; `SERVICE_NOT_AVAILABLE` when the record was not
    /// confirmed in time: the same owner may ask again, and gets the same epoch.
    pub fn acquire_lease(&self, group: &str, owner: &str, ttl_ms: i64) -> Result<(i64, i64)> {
        names::validate_group(group)?;
        if owner.is_empty() || owner.len() > 255 || !(1..=3_600_000).contains(&ttl_ms) {
            let detail = "a lease has an owner of 1 to 255 bytes and lives 1 ms to 1 h";
            return Err(StoreError::invalid("ARGUMENT_ILLEGAL", detail));
        }
        let hold = self.take_lease(group, owner, ttl_ms)?;
        let confirmed = || self.marks.confirmed() >= hold.end_offset;
        self.progress.wait_until(LEASE_CONFIRMED_IN, || confirmed() || self.poisoned().is_some());
        if !confirmed() {
            self.check_writable()?;
            let detail = format!("the lease on group[{group}] is not confirmed yet; ask again");
            return Err(StoreError::Unavailable { code: "SERVICE_NOT_AVAILABLE", detail });
        }
        Ok((hold.epoch, hold.expires_at))
    }

    /// Grants the lease; nobody may be told before its record is confirmed.
    fn take_lease(&self, group: &str, owner: &str, ttl_ms: i64) -> Result<LeaseHold> {
        let passed = self.environment.clock.monotonic_ms();
        let mut leases = lock(&self.leases);
        let held = leases.get(group).cloned();
        if let Some(held) = &held
            && held.owner != owner
            && held.deadline > passed
        {
            let expires_at = self.environment.clock.now_ms() + held.deadline - passed;
            return Err(StoreError::LeaseConflict { owner: held.owner.clone(), expires_at });
        }
        let (epoch, end_offset) = match held {
            Some(held) if held.owner == owner => (held.epoch, held.end_offset),
            held => {
                let logged = lock(&self.dispatcher).state.leases.get(group).map_or(0, |l| l.epoch);
                let epoch = held.map_or(0, |h| h.epoch).max(logged) + 1;
                let op = Op::Lease { group: group.into(), owner: owner.into(), epoch };
                (epoch, self.append_change(&op)?)
            }
        };
        let hold = LeaseHold {
            owner: owner.into(),
            epoch,
            expires_at: self.environment.clock.now_ms() + ttl_ms,
            deadline: passed + ttl_ms,
            end_offset,
        };
        leases.insert(group.into(), hold.clone());
        Ok(hold)
    }

    /// The leases that the log holds, as they stand after a start: their owners have a moment to renew them.
    pub(super) fn leases_of(state: &MetaState, clock: &dyn Clock) -> HashMap<String, LeaseHold> {
        let hold = |lease: &Lease| {
            let grace = if lease.owner.is_empty() { 0 } else { LEASE_GRACE_MS };
            LeaseHold {
                owner: lease.owner.clone(),
                epoch: lease.epoch,
                expires_at: clock.now_ms() + grace,
                deadline: clock.monotonic_ms() + grace,
                end_offset: 0,
            }
        };
        state.leases.iter().map(|(group, lease)| (group.clone(), hold(lease))).collect()
    }

    /// Gives a lease back. False when `owner` does not hold it. The next owner gets a higher epoch.
    pub fn release_lease(&self, group: &str, owner: &str) -> bool {
        let mut leases = lock(&self.leases);
        match leases.get_mut(group) {
            Some(held) if held.owner == owner => {
                held.give_up();
                true
            }
            _ => false,
        }
    }

    /// Who holds a group now. Nobody does whose record is not confirmed: a power cut may take the grant back.
    pub fn lease(&self, group: &str) -> Option<LeaseHold> {
        self.lease_up_to(group, self.marks.confirmed())
    }

    /// Who holds a group now or is about to: whose record is in the log, confirmed or not. Who moves a group
    /// without a lease is refused from then on.
    pub fn lease_or_claim(&self, group: &str) -> Option<LeaseHold> {
        self.lease_up_to(group, i64::MAX)
    }

    fn lease_up_to(&self, group: &str, confirmed: i64) -> Option<LeaseHold> {
        let passed = self.environment.clock.monotonic_ms();
        let holds = |l: &&LeaseHold| l.deadline > passed && l.end_offset <= confirmed;
        let mut held = lock(&self.leases).get(group).filter(holds).cloned()?;
        held.expires_at = self.environment.clock.now_ms() + held.deadline - passed;
        Some(held)
    }

    /// Tells the dispatcher to report the next message of a queue.
    pub fn watch(&self, topic: &str, queue_id: u32) {
        self.arrivals.watch(topic, queue_id);
    }

    /// Watched queues that got messages since the last call; they are watched no longer.
    pub fn take_arrivals(&self) -> Vec<(String, u32)> {
        self.arrivals.take()
    }
}
