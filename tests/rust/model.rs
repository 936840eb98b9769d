//! What a store has to show after what was asked of it: the requests in their order, and what of them counts.
//!
//! Invariants: nothing here looks into the store; ends of requests are what it answered.

use std::collections::{BTreeMap, VecDeque};

pub type Queue = (&'static str, u32);

/// A delayed message of the model: where it goes, and when.
#[derive(Debug, Clone)]
pub struct Delayed {
    pub queue: Queue,
    pub body: String,
    pub due: i64,
}

/// A request that the store took.
#[derive(Debug, Clone)]
pub struct Sent {
    pub topic: &'static str,
    pub messages: Vec<(u32, String)>,
    pub key: Option<String>,
    /// Level and due time of a delayed one.
    pub delay: Option<(u32, i64)>,
    /// Offsets that its messages were given in their queues.
    pub offsets: Vec<i64>,
}

#[derive(Debug, Clone)]
pub enum Event {
    Sent(Sent),
    /// The level of each message that was delivered, in order.
    Delivered(Vec<u32>),
    Committed(Queue, i64),
    Deleted(&'static str),
}

/// What counts of the events up to some offset.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All that a queue ever held since its topic was made, from offset 0 on.
    pub queues: BTreeMap<Queue, Vec<String>>,
    /// Delayed messages not delivered yet, by level.
    pub waiting: BTreeMap<u32, VecDeque<Delayed>>,
    /// How many were delivered, by level.
    pub delivered: BTreeMap<u32, i64>,
    pub committed: BTreeMap<Queue, i64>,
}

impl View {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::Sent(sent) => {
                for (queue, body) in &sent.messages {
                    let queue = (sent.topic, *queue);
                    match sent.delay {
                        None => self.queues.entry(queue).or_default().push(body.clone()),
                        Some((level, due)) => {
                            let body = body.clone();
                            self.waiting.entry(level).or_default().push_back(Delayed {
                                queue,
                                body,
                                due,
                            });
                        }
                    }
                }
            }
            Event::Delivered(levels) => levels.iter().for_each(|level| self.deliver(*level)),
            Event::Committed(queue, offset) => {
                self.committed.insert(*queue, *offset);
            }
            Event::Deleted(topic) => {
                self.queues.retain(|(of, _), _| of != topic);
                self.committed.retain(|(of, _), _| of != topic);
            }
        }
    }

    fn deliver(&mut self, level: u32) {
        let delayed = self.waiting.get_mut(&level).and_then(VecDeque::pop_front);
        let delayed = delayed.expect("delivered, so it waited");
        self.queues
            .entry(delayed.queue)
            .or_default()
            .push(delayed.body);
        *self.delivered.entry(level).or_default() += 1;
    }
}

/// The requests so far, each with the end of its records.
#[derive(Debug, Clone, Default)]
pub struct Model {
    events: Vec<(i64, Event)>,
}

impl Model {
    pub fn add(&mut self, end: i64, event: Event) {
        assert!(
            self.events.last().is_none_or(|(last, _)| *last < end),
            "the log grows"
        );
        self.events.push((end, event));
    }

    pub fn newest(&self) -> Option<&(i64, Event)> {
        self.events.last()
    }

    /// What counts when all records up to an offset do.
    pub fn view(&self, to: i64) -> View {
        let mut view = View::default();
        for (_, event) in self.events.iter().take_while(|(end, _)| *end <= to) {
            view.apply(event);
        }
        view
    }

    pub fn all(&self) -> View {
        self.view(i64::MAX)
    }

    /// Whether a deletion of the topic lies behind an offset.
    pub fn is_deleted_behind(&self, topic: &str, offset: i64) -> bool {
        let deletes = |event: &Event| matches!(event, Event::Deleted(of) if *of == topic);
        self.events
            .iter()
            .any(|(end, event)| *end > offset && deletes(event))
    }

    /// Requests under a key whose topic was not deleted since.
    pub fn keyed(&self) -> Vec<&Sent> {
        let keyed = |(end, event): &'_ (i64, Event)| match event {
            Event::Sent(sent) if sent.key.is_some() => Some((*end, sent.topic)),
            _ => None,
        };
        let lasting = |event: &&(i64, Event)| {
            keyed(event).is_some_and(|(end, topic)| !self.is_deleted_behind(topic, end))
        };
        self.events
            .iter()
            .filter(lasting)
            .filter_map(|(_, event)| match event {
                Event::Sent(sent) => Some(sent),
                _ => None,
            })
            .collect()
    }

    /// What is due at `now` of what is dispatched, in the order of delivery.
    pub fn due(&self, now: i64, dispatched: i64) -> Vec<u32> {
        let (seen, all) = (self.view(dispatched), self.all());
        let mut levels = Vec::new();
        for (level, waiting) in &all.waiting {
            let waits = waiting.len();
            let ever = waits as i64 + all.delivered.get(level).unwrap_or(&0);
            let seen_ever = seen.waiting.get(level).map_or(0, VecDeque::len) as i64
                + seen.delivered.get(level).unwrap_or(&0);
            let visible = waits.saturating_sub((ever - seen_ever) as usize);
            let due = waiting
                .iter()
                .take(visible)
                .take_while(|delayed| delayed.due <= now);
            levels.extend(due.map(|_| *level));
        }
        levels
    }

    /// Forgets what a log that ends at `end` does not hold. Of a delivery of several, as many count as `delivered`
    /// says, by level.
    pub fn cut(&mut self, end: i64, delivered: &BTreeMap<u32, i64>) {
        let kept = self.events.iter().take_while(|(of, _)| *of <= end).count();
        let cut = self.events.split_off(kept);
        if let Some((_, Event::Delivered(levels))) = cut.first() {
            let before = self.all().delivered;
            let mut left: BTreeMap<u32, i64> = delivered.clone();
            for (level, count) in &before {
                *left.entry(*level).or_default() -= count;
            }
            let count = left.values().sum::<i64>();
            let some: Vec<u32> = levels
                .iter()
                .copied()
                .take(usize::try_from(count).expect("none goes back"))
                .collect();
            if !some.is_empty() {
                self.events.push((end, Event::Delivered(some)));
            }
        }
        let found = self.all().delivered;
        for (level, count) in delivered {
            assert_eq!(
                found.get(level).unwrap_or(&0),
                count,
                "delivered of level {level}"
            );
        }
    }
}
