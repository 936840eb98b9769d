//! What the store of a simulated run shows, to its own callers and to a reader beside it, held against the model.
//!
//! Contract: a reader sees what is dispatched; the store's own callers see that, and after a round that failed some of
//! what is confirmed. The reader goes on over every stop of the process.

use std::collections::BTreeMap;

use lakemq_store::error::Result;
use lakemq_store::read::SliceMeta;
use lakemq_store::reader::Reader;

use crate::model::View;
use crate::simulation::{GROUP, QUEUES, Simulation, TOPICS};
use crate::support::{FindJson, everything};

impl Simulation<'_> {
    pub fn look(&mut self) {
        let (dispatched, shown_to) = self.shown_from_to();
        let (least, most) = self.shown();
        if self.reader.is_none() {
            self.reader = Some(Reader::open(self.root()).expect("a reader"));
        }
        let all = self.model.all();
        for topic in TOPICS {
            let config = self.store().topic(topic);
            assert_eq!(
                config.map(|config| config.write_queue_nums),
                all.topics.get(topic).copied(),
                "queues of {topic}"
            );
            if self.model.is_deleted_behind(topic, dispatched) {
                continue; // it is about to go
            }
            for queue in 0..QUEUES as u32 {
                self.look_at_queue((topic, queue), &least, &most);
            }
        }
        let found: BTreeMap<_, _> = self
            .store()
            .group_offsets(GROUP)
            .into_iter()
            .map(|(topic, queue, offset)| ((topic, queue), offset))
            .collect();
        let committed = |view: View| -> BTreeMap<(String, u32), i64> {
            let offsets = view.committed.into_iter();
            offsets
                .map(|((topic, queue), offset)| ((topic.to_owned(), queue), offset))
                .collect()
        };
        let mut any = self.model.between(dispatched, shown_to).into_iter();
        assert!(
            any.any(|offset| committed(self.model.view(offset)) == found),
            "committed offsets: {found:?}, not {:?}",
            most.committed
        );
    }

    /// Up to where the store shows all, and up to where it may show some.
    fn shown_from_to(&self) -> (i64, i64) {
        let (_, _, dispatched, confirmed) = self.store().watermarks();
        let failed = self.store().dispatch_failure().is_some();
        (dispatched, if failed { confirmed } else { dispatched })
    }

    /// What the store shows at least, and at most.
    pub fn shown(&self) -> (View, View) {
        let (from, to) = self.shown_from_to();
        (self.model.view(from), self.model.view(to))
    }

    fn look_at_queue(&self, (topic, queue): (&'static str, u32), least: &View, most: &View) {
        let of = |view: &View| view.queues.get(&(topic, queue)).map_or(0, Vec::len);
        let Ok(bounds) = self.store().bounds(topic, queue) else {
            assert_eq!(of(least), 0, "{topic} is not there");
            return;
        };
        let (min, max) = (
            usize::try_from(bounds.min).expect("not negative"),
            usize::try_from(bounds.max).expect("not negative"),
        );
        assert!(
            (of(least)..=of(most)).contains(&max),
            "{topic} {queue} ends at {max}, not {} to {}",
            of(least),
            of(most)
        );
        assert!(min == 0 || self.expired, "{topic} {queue} begins at {min}");
        let Some(bodies) = most.queues.get(&(topic, queue)) else {
            return;
        };
        let request = everything(bounds.min);
        let failures = self.disk.failures();
        let shown = read(|out| {
            self.store().read(topic, queue, &request, |record, _| {
                out.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
        });
        match shown {
            Ok(shown) => assert!(
                shown == bodies[min..max],
                "{topic} {queue} shows {:?}",
                numbers(&shown)
            ),
            // The store opens a queue's file to write there too: that call may be the one that is to fail.
            Err(error) => assert!(self.disk.failures() > failures, "unreadable: {error:?}"),
        }
        let reader = self.reader.as_ref().expect("one beside it");
        let beside = reader.bounds(topic, queue).expect("readable");
        let end = usize::try_from(beside.max).expect("not negative");
        assert!(
            (of(least)..=of(most)).contains(&end),
            "beside it, {topic} {queue} ends at {end}, not {} to {}",
            of(least),
            of(most)
        );
        let shown = read(|out| {
            reader.read(topic, queue, &request, |record, _| {
                out.push(String::from_utf8_lossy(record.body).into_owned());
                Ok(())
            })
        })
        .expect("readable");
        assert!(
            shown == bodies[min.min(end)..end],
            "beside it, {topic} {queue} shows {:?}",
            numbers(&shown)
        );
    }

    /// Each message that there is is found by its key.
    pub fn find_each(&self) {
        let reader = self.reader.as_ref().expect("one beside it");
        for ((topic, queue), bodies) in &self.model.all().queues {
            let min = self.store().bounds(topic, *queue).expect("there").min;
            for body in &bodies[usize::try_from(min).expect("not negative")..] {
                let key = key_of(body);
                let found = self.store().messages_json(topic, key, (0, i64::MAX), 10);
                assert_eq!(found.expect("searched").len(), 1, "{key}");
                let found = reader.messages_json(topic, key, (0, i64::MAX), 10);
                assert_eq!(found.expect("searched").len(), 1, "beside it, {key}");
            }
        }
    }

    /// Where the log's first file begins.
    pub fn log_min(&self) -> i64 {
        let files = std::fs::read_dir(self.root().join("commitlog")).expect("a log");
        let names = files.map(|file| file.expect("a file").file_name());
        let bases = names.filter_map(|name| name.to_str()?.parse().ok());
        bases.min().unwrap_or(0)
    }
}

fn read(read: impl FnOnce(&mut Vec<String>) -> Result<SliceMeta>) -> Result<Vec<String>> {
    let mut shown = Vec::new();
    let meta = read(&mut shown)?;
    assert_eq!(meta.damaged, []);
    Ok(shown)
}

/// Request and place: what stands before the second dash.
pub fn key_of(body: &str) -> &str {
    body.rsplit_once('-').expect("a body of a run").0
}

fn numbers(bodies: &[String]) -> Vec<&str> {
    bodies.iter().map(|body| key_of(body)).collect()
}
