//! Topics and groups in pages, and single groups: what lists over HTTP are made of.
//!
//! Invariants: a page costs what is on it, however many there are in all; only `topics` copies all.
//! Threads: those of callers, under the dispatch lock.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Store;
use crate::state::{GroupConfig, MetaState, TopicConfig, names};

fn behind(after: &str) -> (Bound<&str>, Bound<&str>) {
    (if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) }, Bound::Unbounded)
}

impl Store {
    /// All topics as applied, by name.
    pub fn topics(&self) -> BTreeMap<String, TopicConfig> {
        let mut topics = self.dispatch.applied().state().topics.clone();
        let levels = self.options.delay_levels_ms.len() as u32;
        for system in [names::SCHEDULE_TOPIC, names::META_TOPIC] {
            if let Some(config) = MetaState::system_topic(system, levels) {
                topics.entry(system.into()).or_insert(config);
            }
        }
        topics
    }

    /// The first `limit` topics whose names stand behind `after` (empty: from the first), by name.
    pub fn topics_after(&self, after: &str, limit: usize) -> Vec<(String, TopicConfig)> {
        let mut page: BTreeMap<String, TopicConfig> = self
            .dispatch
            .applied()
            .state()
            .topics
            .range::<str, _>(behind(after))
            .take(limit)
            .map(|(topic, config)| (topic.clone(), config.clone()))
            .collect();
        let levels = self.options.delay_levels_ms.len() as u32;
        for system in [names::SCHEDULE_TOPIC, names::META_TOPIC] {
            if system > after
                && let Some(config) = MetaState::system_topic(system, levels)
            {
                page.entry(system.into()).or_insert(config);
            }
        }
        page.into_iter().take(limit).collect()
    }

    /// The first `limit` groups whose names stand behind `after`, by name: those created, and those that
    /// only committed offsets.
    pub fn groups_after(&self, after: &str, limit: usize) -> Vec<(String, GroupConfig)> {
        let dispatcher = self.dispatch.applied();
        let state = dispatcher.state();
        let made = state.groups.range::<str, _>(behind(after)).take(limit);
        let mut page: BTreeMap<String, GroupConfig> = made.map(|(g, c)| (g.clone(), c.clone())).collect();
        for (group, _) in state.offsets.range::<str, _>(behind(after)).take(limit) {
            page.entry(group.clone()).or_default();
        }
        page.into_iter().take(limit).collect()
    }

    /// One group, as applied; `None` when it was neither created nor has committed offsets.
    pub fn group(&self, group: &str) -> Option<GroupConfig> {
        let dispatcher = self.dispatch.applied();
        let state = dispatcher.state();
        let made = state.groups.get(group).cloned();
        made.or_else(|| state.offsets.contains_key(group).then(GroupConfig::default))
    }
}
