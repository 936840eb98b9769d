//! What a simulated run asks of the store, and what of it the model notes.
//!
//! Contract: a store that is poisoned takes nothing; a request that is refused otherwise leaves the log as it was; one
//! that poisons the store may be stored, as a whole, behind the log's end.

use std::collections::BTreeMap;

use lakemq_store::environment::Clock;
use lakemq_store::error::Result;
use lakemq_store::message::NewMessage;
use lakemq_store::store::{AppendRequest, Appended, TopicChange, Work};

use crate::looks::key_of;
use crate::model::{DELAYS_MS, Delay, Event, FIRST_QUEUES, Queue, Sent};
use crate::simulation::{GROUP, Held, QUEUES, Simulation};
use crate::support::message;

impl Simulation<'_> {
    pub fn send(
        &mut self,
        topic: &'static str,
        count: usize,
        length: usize,
        keyed: bool,
        level: Option<u32>,
    ) {
        let number = self.sent;
        self.sent += 1;
        let known = self.model.all();
        let queues = known.topics.get(topic).copied().unwrap_or(FIRST_QUEUES) as usize;
        let messages: Vec<(u32, String)> = (0..count)
            .map(|at| {
                let queue = ((number + at) % QUEUES.min(queues)) as u32;
                (queue, format!("{number}-{at}-{}", "x".repeat(length)))
            })
            .collect();
        let place = |(at, (queue, _)): (usize, &(u32, String))| {
            let earlier = messages[..at].iter();
            let earlier = earlier.filter(|(of, _)| level.is_some() || of == queue);
            known.next_offset((topic, *queue), level) + earlier.count() as i64
        };
        let mut sent = Sent {
            topic,
            offsets: messages.iter().enumerate().map(place).collect(),
            messages,
            key: keyed.then(|| format!("request-{number}")),
            delay: level.map(|level| Delay {
                level,
                due: self.clock.monotonic_ms() + Delay::ms(level),
            }),
            begins: self.appended(),
        };
        let makes = (!known.topics.contains_key(topic)).then_some(topic);
        let Some(stored) = self.ask(makes, Event::Sent(sent.clone()), |this| this.append(&sent))
        else {
            return;
        };
        assert!(!stored.duplicate, "{number} was not sent before");
        assert_eq!(
            offsets(&stored),
            sent.offsets,
            "offsets of request {number}"
        );
        let day = self.clock.now_ms();
        sent.begins = stored.placed.first().expect("a place").physical_offset;
        if makes.is_some() {
            // The topic stands right before what made it.
            let made = Event::Queues(topic, FIRST_QUEUES);
            self.model.add(sent.begins, day, made);
        }
        self.model.add(stored.end_offset, day, Event::Sent(sent));
    }

    fn append(&self, sent: &Sent) -> Result<Appended> {
        let messages: Vec<NewMessage<'_>> = sent
            .messages
            .iter()
            .map(|(queue, body)| NewMessage {
                queue_id: Some(*queue),
                delay_level: sent.delay.as_ref().map_or(0, |delay| delay.level),
                keys: Some(key_of(body).to_owned().into()),
                ..message(body)
            })
            .collect();
        let request = AppendRequest {
            topic: sent.topic,
            born_host: None,
            idempotency_key: sent.key.as_deref(),
        };
        self.store().append(&request, &messages)
    }

    /// Asks for something that is to be stored; `None` when it was refused. `makes` is the topic that is made for it.
    fn ask<T>(
        &mut self,
        makes: Option<&'static str>,
        event: Event,
        ask: impl FnOnce(&Self) -> Result<T>,
    ) -> Option<T> {
        let (failures, before, poisoned) =
            (self.disk.failures(), self.appended(), self.is_poisoned());
        let outcome = ask(self);
        let (after, day) = (self.appended(), self.clock.now_ms());
        let error = match outcome {
            Ok(answer) => {
                assert!(!poisoned, "a poisoned store takes nothing");
                return Some(answer);
            }
            Err(error) => error,
        };
        self.excuse(failures, &error);
        let made = makes.map(|topic| Event::Queues(topic, FIRST_QUEUES));
        let (for_sure, in_doubt) = if after > before {
            (made, event)
        } else {
            (None, made.unwrap_or(event))
        };
        assert!(
            after == before || for_sure.is_some() && self.is_poisoned(),
            "refused, and stored: {error:?}"
        );
        if let Some(made) = for_sure {
            self.model.add(after, day, made);
        }
        if self.is_poisoned() && !poisoned {
            self.model.doubt(after, day, in_doubt);
        }
        None
    }

    pub fn repeat(&mut self, which: usize) {
        let keyed = self.model.keyed(self.log_min());
        let Some(sent) = keyed.get(which % keyed.len().max(1)) else {
            return;
        };
        let appended = self.appended();
        match self.append(sent) {
            Ok(stored) => {
                assert!(stored.duplicate, "{:?} was stored again", sent.key);
                assert_eq!(offsets(&stored), sent.offsets, "of {:?}", sent.key);
            }
            Err(error) => self.excuse(self.disk.failures(), &error),
        }
        assert_eq!(self.appended(), appended, "nothing is stored again");
    }

    pub fn commit(&mut self, which: usize) {
        let known = self.model.all();
        let queues: Vec<(&Queue, usize)> = known
            .queues
            .iter()
            .map(|(queue, bodies)| (queue, bodies.len()))
            .collect();
        let Some((queue, end)) = queues.get(which % queues.len().max(1)) else {
            return;
        };
        let offset = (which % (end + 1)) as i64;
        let offsets = vec![(queue.0.to_owned(), queue.1, offset)];
        self.change(Event::Committed(**queue, offset), |this| {
            this.store().commit_offsets(GROUP, offsets)
        });
    }

    /// Asks for a change of state.
    fn change(&mut self, event: Event, ask: impl FnOnce(&Self) -> Result<i64>) {
        if let Some(end) = self.ask(None, event.clone(), ask) {
            self.model.add(end, self.clock.now_ms(), event);
        }
    }

    pub fn shrink(&mut self, topic: &'static str, count: u32) {
        let change = TopicChange {
            write_queue_nums: Some(count),
            ..TopicChange::default()
        };
        if self.store().topic(topic).is_some() {
            self.change(Event::Queues(topic, count), |this| {
                this.store().put_topic(topic, &change)
            });
        }
    }

    pub fn delete(&mut self, topic: &'static str) {
        if self.store().topic(topic).is_some() {
            self.change(Event::Deleted(topic), |this| {
                this.store().delete_topic(topic)
            });
        }
    }

    /// Asks for the group. Who asks waits for the disk, so the threads' work is done meanwhile.
    pub fn lease(&mut self, owner: usize, ttl_ms: i64) {
        self.work(Work::Flush);
        let (failures, before, poisoned) =
            (self.disk.failures(), self.appended(), self.is_poisoned());
        let mut flusher_ended = self.flusher_ended;
        let outcome = std::thread::scope(|scope| {
            let store = self.store();
            let asking =
                scope.spawn(move || store.acquire_lease(GROUP, &format!("owner-{owner}"), ttl_ms));
            while !asking.is_finished() {
                if self.appended() > before && !flusher_ended {
                    flusher_ended = store.work(Work::Flush).is_err();
                    // A failure is the dispatcher's to get over.
                    let _ = store.work(Work::Dispatch);
                } else {
                    std::thread::yield_now();
                }
            }
            asking.join().expect("no panic")
        });
        self.flusher_ended = flusher_ended;
        let (day, passed, after) = (
            self.clock.now_ms(),
            self.clock.monotonic_ms(),
            self.appended(),
        );
        let expected = match &self.held {
            Some(held) if held.owner == owner => Some(held.epoch),
            Some(held) if held.until > passed => None,
            Some(held) => Some(held.epoch + 1),
            None => Some(1),
        };
        if poisoned {
            // It may have granted what its flush did not bring to the disk.
            match outcome {
                Ok((epoch, _)) => {
                    let held = self.held.as_ref().filter(|held| held.owner == owner);
                    assert_eq!(held.map(|held| held.epoch), Some(epoch));
                }
                Err(error) => assert!(
                    ["LEASE_CONFLICT", "STORE_POISONED"].contains(&error.code()),
                    "{error:?}"
                ),
            }
            return;
        }
        let event = expected.map(|epoch| Event::Leased(owner, epoch));
        if after > before {
            let event = event.clone().expect("somebody else holds it");
            self.model.add(after, day, event);
        }
        match (outcome, expected) {
            (Ok((epoch, until)), Some(expected)) => {
                assert_eq!((epoch, until), (expected, day + ttl_ms), "epoch and end");
                let until = passed + ttl_ms;
                self.held = Some(Held {
                    owner,
                    epoch,
                    until,
                });
            }
            (Err(error), None) => assert_eq!(error.code(), "LEASE_CONFLICT"),
            (Err(error), Some(_)) => {
                self.excuse(failures, &error);
                if after == before && self.is_poisoned() {
                    self.model.doubt(after, day, event.expect("expected"));
                }
            }
            (outcome, expected) => panic!("{outcome:?}, not {expected:?}"),
        }
    }

    /// Lets the scheduler look.
    pub fn deliver(&mut self) {
        let seen = self.scheduled();
        let seen = |level: u32| seen.get(&level).copied().unwrap_or(0);
        let levels = self.model.due(self.clock.monotonic_ms(), seen);
        let (failures, before, poisoned) =
            (self.disk.failures(), self.appended(), self.is_poisoned());
        let ended = self.deliveries();
        let outcome = self.store().work(Work::Deliver);
        let count = (self.deliveries() - ended) as usize;
        let (after, day) = (self.appended(), self.clock.now_ms());
        assert!(count <= levels.len(), "{count} delivered, due: {levels:?}");
        assert_eq!(after > before, count > 0, "due: {levels:?}");
        if count > 0 {
            let done = Event::Delivered(levels[..count].to_vec());
            self.model.add(after, day, done);
        }
        match outcome {
            Ok(()) => assert_eq!(count, levels.len(), "due: {levels:?}"),
            Err(error) => {
                self.excuse(failures, &error);
                if self.is_poisoned() && !poisoned {
                    let next = Event::Delivered(vec![levels[count]]);
                    self.model.doubt(after, day, next);
                }
            }
        }
    }

    /// How many messages of each level ever came to its queue: those that are dispatched, and after a round that failed
    /// some of what is confirmed.
    fn scheduled(&self) -> BTreeMap<u32, i64> {
        let (least, most) = self.shown();
        let levels = self.store().delay_progress().into_iter();
        let seen: BTreeMap<u32, i64> = levels.map(|(level, _, max)| (level, max)).collect();
        for level in 1..=DELAYS_MS.len() as u32 {
            let found = seen.get(&level).copied().unwrap_or(0);
            let (least, most) = (least.ever(level), most.ever(level));
            assert!(
                (least..=most).contains(&found),
                "level {level} has {found}, not {least} to {most}"
            );
        }
        seen
    }

    /// Delayed messages that were delivered or dropped.
    fn deliveries(&self) -> u64 {
        let names = ["delayed_delivered_total", "delayed_dropped_total"];
        let stats = self.store().stats().into_iter();
        let of_them = stats.filter(|(name, _)| names.contains(name));
        of_them.map(|(_, count)| count as u64).sum()
    }
}

fn offsets(stored: &Appended) -> Vec<i64> {
    let places = stored.placed.iter();
    places.map(|place| place.queue_offset).collect()
}
