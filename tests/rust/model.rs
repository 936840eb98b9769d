//! What a store has to show after what was asked of it: the requests in their order, and what of them counts.
//!
//! Invariants: nothing here looks into the store; ends of requests are what it answered. Of a request that failed and
//! may be stored all the same (`uncertain`), the end of the log after the next start says whether it is.

use std::collections::{BTreeMap, VecDeque};

pub type Queue = (&'static str, u32);

/// Queues that a topic takes messages in when its first message makes it.
pub const FIRST_QUEUES: u32 = 4;
pub const DELAYS_MS: [i64; 3] = [1_000, 5_000, 10_000];
/// How far the clock may be set back before stamps follow it.
const STAMP_LEAD_MS: i64 = 60_000;

/// A delayed message of the model: where it goes, and when, by the time that passes.
#[derive(Debug, Clone)]
pub struct Delayed {
    pub queue: Queue,
    pub body: String,
    pub due: i64,
}

/// The delay of a request: its level, and when it is over, by the time that passes.
#[derive(Debug, Clone)]
pub struct Delay {
    pub level: u32,
    pub due: i64,
}

impl Delay {
    pub fn ms(level: u32) -> i64 {
        DELAYS_MS[level as usize - 1]
    }
}

/// A request that the store took, or may have taken.
#[derive(Debug, Clone)]
pub struct Sent {
    pub topic: &'static str,
    pub messages: Vec<(u32, String)>,
    pub key: Option<String>,
    pub delay: Option<Delay>,
    /// Offsets that its messages were given in their queues; of delayed ones, in the queue of their level.
    pub offsets: Vec<i64>,
    /// Its records do not begin before this log offset.
    pub begins: i64,
}

#[derive(Debug, Clone)]
pub enum Event {
    Sent(Sent),
    /// The level of each message that was delivered, in order.
    Delivered(Vec<u32>),
    Committed(Queue, i64),
    /// A topic was made or changed: so many queues take messages.
    Queues(&'static str, u32),
    Deleted(&'static str),
    /// An owner got the group, in this epoch.
    Leased(usize, i64),
}

/// What counts of the events up to some offset.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The topics there are, and how many of their queues take messages.
    pub topics: BTreeMap<&'static str, u32>,
    /// All that a queue ever held since its topic was made, from offset 0 on.
    pub queues: BTreeMap<Queue, Vec<String>>,
    /// Delayed messages not delivered yet, by level.
    pub waiting: BTreeMap<u32, VecDeque<Delayed>>,
    /// How many were delivered, by level.
    pub delivered: BTreeMap<u32, i64>,
    pub committed: BTreeMap<Queue, i64>,
    /// Who got the group last, and the epoch.
    pub lease: Option<(usize, i64)>,
}

impl View {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::Sent(sent) => {
                for (queue, body) in &sent.messages {
                    let queue = (sent.topic, *queue);
                    let body = body.clone();
                    match &sent.delay {
                        None => self.queues.entry(queue).or_default().push(body),
                        Some(Delay { level, due }) => {
                            let delayed = Delayed {
                                queue,
                                body,
                                due: *due,
                            };
                            self.waiting.entry(*level).or_default().push_back(delayed);
                        }
                    }
                }
            }
            Event::Delivered(levels) => levels.iter().for_each(|level| self.deliver(*level)),
            Event::Committed(queue, offset) => {
                self.committed.insert(*queue, *offset);
            }
            Event::Queues(topic, count) => {
                self.topics.insert(topic, *count);
            }
            Event::Deleted(topic) => {
                self.topics.remove(topic);
                self.queues.retain(|(of, _), _| of != topic);
                self.committed.retain(|(of, _), _| of != topic);
            }
            Event::Leased(owner, epoch) => self.lease = Some((*owner, *epoch)),
        }
    }

    /// A message whose topic is gone goes too; one for a queue that takes no more goes to another.
    fn deliver(&mut self, level: u32) {
        let delayed = self.waiting.get_mut(&level).and_then(VecDeque::pop_front);
        let delayed = delayed.expect("delivered, so it waited");
        *self.delivered.entry(level).or_default() += 1;
        let (topic, queue) = delayed.queue;
        if let Some(count) = self.topics.get(topic) {
            let queue = (topic, queue % count);
            self.queues.entry(queue).or_default().push(delayed.body);
        }
    }

    /// Offset of the next message of a queue, or, delayed, of a level.
    pub fn next_offset(&self, queue: Queue, delay: Option<u32>) -> i64 {
        match delay {
            None => self.queues.get(&queue).map_or(0, Vec::len) as i64,
            Some(level) => self.ever(level),
        }
    }

    /// Messages of a level, delivered or not.
    pub fn ever(&self, level: u32) -> i64 {
        let waits = self.waiting.get(&level).map_or(0, VecDeque::len) as i64;
        waits + self.delivered.get(&level).unwrap_or(&0)
    }
}

/// One event with the end of its records and their stamp.
#[derive(Debug, Clone)]
struct Noted {
    end: i64,
    stamp: i64,
    event: Event,
}

/// The requests so far, each with the end of its records.
#[derive(Debug, Clone, Default)]
pub struct Model {
    events: Vec<Noted>,
    /// What failed and may stand behind this offset.
    uncertain: Option<Noted>,
}

impl Model {
    /// Notes what was stored when the clock said `day`.
    pub fn add(&mut self, end: i64, day: i64, event: Event) {
        assert!(
            self.events.last().is_none_or(|last| last.end < end),
            "the log grows"
        );
        let stamp = self.stamp(day);
        self.events.push(Noted { end, stamp, event });
    }

    /// Notes what failed, behind the log's end, and is stored or not.
    pub fn doubt(&mut self, end: i64, day: i64, event: Event) {
        assert!(self.uncertain.is_none(), "nothing was taken after a doubt");
        let stamp = self.stamp(day);
        self.uncertain = Some(Noted { end, stamp, event });
    }

    /// The stamp of what is stored now: it follows the clock, but does not go back by a little.
    fn stamp(&self, day: i64) -> i64 {
        let last = self.events.last().map_or(i64::MIN, |last| last.stamp);
        let keeps = last > day && last - day <= STAMP_LEAD_MS;
        if keeps { last } else { day }
    }

    /// The newest event, and where it ends.
    pub fn newest(&self) -> Option<(i64, &Event)> {
        self.events.last().map(|last| (last.end, &last.event))
    }

    /// What counts when all records up to an offset do.
    pub fn view(&self, to: i64) -> View {
        let mut view = View::default();
        for noted in self.events.iter().take_while(|noted| noted.end <= to) {
            view.apply(&noted.event);
        }
        view
    }

    pub fn all(&self) -> View {
        self.view(i64::MAX)
    }

    /// Where a view changes between two offsets, both of them included.
    pub fn between(&self, from: i64, to: i64) -> Vec<i64> {
        let ends = self.events.iter().map(|noted| noted.end);
        let mut out: Vec<i64> = ends.filter(|end| (from..=to).contains(end)).collect();
        out.push(from);
        out
    }

    /// Whether a deletion of the topic lies behind an offset.
    pub fn is_deleted_behind(&self, topic: &str, offset: i64) -> bool {
        let deletes = |event: &Event| matches!(event, Event::Deleted(of) if *of == topic);
        self.events
            .iter()
            .any(|noted| noted.end > offset && deletes(&noted.event))
    }

    /// Requests under a key whose topic was not deleted since, in the log from an offset on.
    pub fn keyed(&self, log_min: i64) -> Vec<&Sent> {
        let lasting = |noted: &Noted| match &noted.event {
            Event::Sent(sent) if sent.key.is_some() && sent.begins >= log_min => {
                !self.is_deleted_behind(sent.topic, noted.end)
            }
            _ => false,
        };
        let lasting = self.events.iter().filter(|noted| lasting(noted));
        lasting
            .filter_map(|noted| match &noted.event {
                Event::Sent(sent) => Some(sent),
                _ => None,
            })
            .collect()
    }

    /// What is due when so much time has passed, where so many messages of a level ever came to its queue, in the order
    /// of delivery.
    pub fn due(&self, passed: i64, seen: impl Fn(u32) -> i64) -> Vec<u32> {
        let all = self.all();
        let mut levels = Vec::new();
        for (level, waiting) in &all.waiting {
            let unseen = (all.ever(*level) - seen(*level)) as usize;
            let visible = waiting.len().saturating_sub(unseen);
            let due = waiting.iter().take(visible);
            let due = due.take_while(|delayed| delayed.due <= passed);
            levels.extend(due.map(|_| *level));
        }
        levels
    }

    /// A start, with a log whose last record ends at `end`: forgets what that does not hold. Of a delivery of several,
    /// as many count as `delivered` says, by level. Delays from before it go by the clock, and last no longer than their
    /// level from now on.
    pub fn start(&mut self, end: i64, delivered: &BTreeMap<u32, i64>, (day, passed): (i64, i64)) {
        if let Some(doubt) = self.uncertain.take().filter(|doubt| end > doubt.end) {
            self.events.push(Noted { end, ..doubt });
        }
        self.cut(end, delivered);
        for noted in &mut self.events {
            if let Event::Sent(Sent {
                delay: Some(delay), ..
            }) = &mut noted.event
            {
                let delay_ms = Delay::ms(delay.level);
                delay.due = (noted.stamp + delay_ms - (day - passed)).min(passed + delay_ms);
            }
        }
    }

    fn cut(&mut self, end: i64, delivered: &BTreeMap<u32, i64>) {
        let kept = self.events.iter().take_while(|of| of.end <= end).count();
        let cut = self.events.split_off(kept);
        if let Some(first) = cut.first()
            && let Event::Delivered(levels) = &first.event
        {
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
                let event = Event::Delivered(some);
                self.events.push(Noted {
                    end,
                    event,
                    ..*first
                });
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
