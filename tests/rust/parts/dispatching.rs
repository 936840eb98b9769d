//! What the dispatcher makes of a record: a queue entry, index entries, state, keys; and what of some records it does
//! not.

use std::path::Path;
use std::sync::Arc;

use lakemq_store::consumequeue::{Entry, QueueFiles, QueueTable};
use lakemq_store::dispatch::Dispatcher;
use lakemq_store::environment::{Disk, Environment};
use lakemq_store::idempotence::KeyFile;
use lakemq_store::index::{Index, Shape};
use lakemq_store::message::RecordView;
use lakemq_store::message::hash::tags_code;
use lakemq_store::message::sys_flag::{TRANSACTION_PREPARED, TRANSACTION_ROLLBACK};
use lakemq_store::paths::StorePaths;
use lakemq_store::state::names::{META_TOPIC, SCHEDULE_TOPIC};
use lakemq_store::state::{MetaState, Op, TopicConfig};

use crate::records::{CountingDisk, Sketch, record};

const LEVELS: [i64; 3] = [1000, 5000, 60_000];

struct Bench {
    dispatcher: Dispatcher,
    queues: Arc<QueueTable>,
    index: Arc<Index>,
    environment: Environment,
}

impl Bench {
    fn new(root: &Path) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(CountingDisk::default());
        let environment = Environment {
            disk: Arc::clone(&disk),
            ..Environment::real("").expect("randomness")
        };
        let paths = StorePaths::new(root);
        std::fs::create_dir_all(paths.lakemq()).expect("a directory");
        let files = QueueFiles::owned(
            &paths.consumequeue(),
            400,
            &paths.trash(),
            Arc::clone(&disk),
        );
        let queues = Arc::new(QueueTable::new(Arc::new(files)));
        let shape = Shape {
            slots: 7,
            entries: 20,
        };
        let index = Arc::new(Index::open(&paths.index(), shape, true, &*disk).expect("an index"));
        let (table, keys) = (Arc::clone(&queues), KeyFile::new(&paths));
        let dispatcher = Dispatcher::new(
            MetaState::default(),
            0,
            table,
            Arc::clone(&index),
            keys,
            environment.clone(),
            LEVELS.to_vec(),
        );
        Self {
            dispatcher,
            queues,
            index,
            environment,
        }
    }

    /// Dispatches a record and stores what comes of it; gives the queue's entry, if there is one.
    fn take(&mut self, sketch: &Sketch<'_>, physical_offset: i64) -> Option<Entry> {
        let bytes = record(sketch, physical_offset);
        let view = RecordView::parse(&bytes).expect("a record");
        self.dispatcher.dispatch(&view).expect("taken");
        self.dispatcher.store().expect("disk space");
        let queue = self
            .queues
            .get(sketch.topic, u32::try_from(sketch.queue_id).ok()?)?;
        queue.entry(sketch.queue_offset).expect("readable")
    }

    /// A change of state, as the log has it.
    fn change(&mut self, op: &Op, queue_offset: i64, physical_offset: i64) {
        let body = op.encode().expect("encoded");
        let sketch = Sketch {
            topic: META_TOPIC,
            body: &body,
            queue_offset,
            ..Sketch::default()
        };
        self.take(&sketch, physical_offset);
    }
}

#[test]
fn test_a_record_is_in_its_queue_under_its_tags_and_in_the_index() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    let properties = [("TAGS", "paid"), ("KEYS", "k1 k2"), ("DELAY", "2")];
    let sketch = Sketch {
        properties: &properties,
        queue_id: 3,
        ..Sketch::default()
    };
    let entry = bench.take(&sketch, 500).expect("an entry");
    assert_eq!(
        (entry.physical_offset, entry.tags_code),
        (500, tags_code(Some("paid")))
    );
    assert_eq!(entry.size as usize, record(&sketch, 500).len());
    assert_eq!(bench.index.find("t", "k2", 0, i64::MAX, 9), [500]);
    assert_eq!(bench.dispatcher.store_timestamp, 1000);
    assert_eq!(
        bench.take(&sketch, 500),
        Some(entry),
        "taking it twice is taking it once"
    );
    assert_eq!(bench.queues.get("t", 3).expect("a queue").max_offset(), 1);
    let plain = Sketch {
        queue_offset: 1,
        queue_id: 3,
        ..Sketch::default()
    };
    assert_eq!(
        bench.take(&plain, 900).expect("an entry").tags_code,
        tags_code(None)
    );
}

#[test]
fn test_a_delayed_record_carries_the_time_at_which_it_is_due() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    let cases = [
        ("1", 1000),
        ("2", 5000),
        ("3", 60_000),
        ("4", 60_000),
        ("64", 60_000),
    ];
    for (number, (level, delay)) in cases.into_iter().enumerate() {
        let properties = [("DELAY", level), ("TAGS", "paid")];
        let sketch = Sketch {
            topic: SCHEDULE_TOPIC,
            queue_offset: number as i64,
            store_timestamp: 7,
            properties: &properties,
            ..Sketch::default()
        };
        let entry = bench
            .take(&sketch, 1000 * (number as i64 + 1))
            .expect("an entry");
        assert_eq!(entry.tags_code, 7 + delay, "level {level}");
    }
    for level in ["0", "x", "-1", ""] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut bench = Bench::new(dir.path());
        let properties = [("DELAY", level), ("TAGS", "paid")];
        let sketch = Sketch {
            topic: SCHEDULE_TOPIC,
            properties: &properties,
            ..Sketch::default()
        };
        let entry = bench.take(&sketch, 1000).expect("an entry");
        assert_eq!(
            entry.tags_code,
            tags_code(Some("paid")),
            "{level:?} is no level"
        );
    }
}

#[test]
fn test_records_that_consumers_must_not_see_are_in_no_queue() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    for sketch in [
        Sketch {
            sys_flag: TRANSACTION_PREPARED,
            ..Sketch::default()
        },
        Sketch {
            sys_flag: TRANSACTION_ROLLBACK,
            ..Sketch::default()
        },
        Sketch {
            queue_id: -1,
            ..Sketch::default()
        },
        Sketch {
            queue_id: i32::MIN,
            ..Sketch::default()
        },
        Sketch {
            topic: "../t",
            ..Sketch::default()
        },
        Sketch {
            topic: "a/b",
            ..Sketch::default()
        },
    ] {
        assert_eq!(bench.take(&sketch, 500), None, "{sketch:?}");
    }
    assert!(bench.queues.all().is_empty());
    assert!(bench.environment.events.take().is_empty());
}

#[test]
fn test_a_record_whose_offset_cannot_be_is_passed_over_with_an_event() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    assert!(bench.take(&Sketch::default(), 0).is_some());
    let far = Sketch {
        queue_offset: 1000,
        ..Sketch::default()
    };
    assert_eq!(bench.take(&far, 400), None);
    let events = bench.environment.events.take();
    assert_eq!(events.len(), 1);
    assert!(
        events[0].text.contains("message 1000 of topic[t] queue 0"),
        "{events:?}"
    );
    let next = Sketch {
        queue_offset: 1,
        ..Sketch::default()
    };
    assert!(
        bench.take(&next, 800).is_some(),
        "what follows is not stopped"
    );
}

#[test]
fn test_a_damaged_range_is_in_the_queue_as_tombstones() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    bench.dispatcher.quarantine.0 = vec![(50, 60), (300, 600), (5000, 6000)];
    bench.take(&Sketch::default(), 0);
    let behind = Sketch {
        queue_offset: 3,
        ..Sketch::default()
    };
    assert!(bench.take(&behind, 900).is_some());
    let queue = bench.queues.get("t", 0).expect("a queue");
    for offset in [1, 2] {
        let found = queue.entry(offset).expect("readable").expect("a tombstone");
        assert!(found.is_tombstone());
        assert_eq!((found.physical_offset, found.end()), (300, 600));
    }
    assert_eq!(bench.dispatcher.quarantine.end_of(300), Some(600));
    assert_eq!(bench.dispatcher.quarantine.end_of(599), Some(600));
    assert_eq!(bench.dispatcher.quarantine.end_of(600), None);
    assert_eq!(bench.dispatcher.quarantine.between(0, 100), (50, 60));
    assert_eq!(
        bench.dispatcher.quarantine.between(0, 55),
        (0, 55),
        "not all of it lies between"
    );
    assert_eq!(
        bench.dispatcher.quarantine.between(0, 9000),
        (5000, 6000),
        "the last"
    );
}

#[test]
fn test_changes_of_state_are_applied_and_a_deleted_topics_queues_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    let config = TopicConfig {
        topic_id: "1".into(),
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        attributes: std::collections::BTreeMap::new(),
    };
    bench.change(
        &Op::PutTopic {
            topic: "t".into(),
            config,
        },
        4,
        0,
    );
    assert!(bench.dispatcher.state().topics.contains_key("t"));
    assert_eq!(bench.dispatcher.state().topics_at, 5, "behind the change");
    bench.take(&Sketch::default(), 1000);
    bench.take(
        &Sketch {
            topic: "u",
            ..Sketch::default()
        },
        1500,
    );
    // Staged and not stored when the topic goes.
    let bytes = record(
        &Sketch {
            queue_offset: 1,
            ..Sketch::default()
        },
        2000,
    );
    bench
        .dispatcher
        .dispatch(&RecordView::parse(&bytes).expect("a record"))
        .expect("taken");
    bench.change(&Op::DeleteTopic { topic: "t".into() }, 5, 3000);
    assert!(!bench.dispatcher.state().topics.contains_key("t"));
    assert_eq!(bench.dispatcher.state().topics_at, 6);
    assert!(bench.queues.get("t", 0).is_none() && bench.queues.get("u", 0).is_some());
    assert!(!dir.path().join("consumequeue/t").exists());
    bench.change(
        &Op::CommitOffsets {
            group: "g".into(),
            offsets: vec![("u".into(), 0, 1)],
        },
        6,
        4000,
    );
    assert_eq!(
        bench.dispatcher.state().topics_at,
        6,
        "no change of a topic"
    );
}

#[test]
fn test_keys_and_deliveries_come_from_the_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    let properties = [("__LMQ_KEY", "request-1"), ("__LMQ_FROM", "2:41")];
    bench.take(
        &Sketch {
            properties: &properties,
            ..Sketch::default()
        },
        700,
    );
    assert_eq!(
        bench.dispatcher.state().delay.get(&2),
        Some(&42),
        "the next one"
    );
    let unknown = bench.dispatcher.take_unknown_keys();
    assert_eq!(unknown.len(), 1);
    assert_eq!(
        (unknown[0].0.as_str(), unknown[0].1.physical_offset),
        ("request-1", 700)
    );
    let properties = [("__LMQ_KEY", "request-2"), ("__LMQ_FROM", "2:7")];
    bench.take(
        &Sketch {
            queue_offset: 1,
            properties: &properties,
            ..Sketch::default()
        },
        1200,
    );
    assert_eq!(
        bench.dispatcher.state().delay.get(&2),
        Some(&42),
        "it never goes back"
    );
    assert!(
        bench.dispatcher.take_unknown_keys().is_empty(),
        "the append side knows it by then"
    );
    for text in ["2", "x:1", "2:x", ""] {
        let properties = [("__LMQ_FROM", text)];
        bench.take(
            &Sketch {
                queue_offset: 2,
                properties: &properties,
                ..Sketch::default()
            },
            2000,
        );
        assert_eq!(bench.dispatcher.state().delay.len(), 1, "{text:?}");
    }
}

#[test]
fn test_who_watches_a_queue_is_notified_of_its_next_message_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut bench = Bench::new(dir.path());
    let notifications = bench.dispatcher.notifications();
    bench.take(&Sketch::default(), 0);
    notifications.watch("t", 0);
    notifications.watch("t", 7);
    assert!(!notifications.is_pending() && notifications.take().is_empty());
    bench.take(
        &Sketch {
            queue_offset: 1,
            ..Sketch::default()
        },
        400,
    );
    assert!(notifications.is_pending());
    bench.take(
        &Sketch {
            queue_offset: 2,
            ..Sketch::default()
        },
        800,
    );
    assert_eq!(notifications.take(), [("t".to_owned(), 0)]);
    assert!(!notifications.is_pending() && notifications.take().is_empty());
    bench.take(
        &Sketch {
            queue_offset: 3,
            ..Sketch::default()
        },
        1200,
    );
    assert!(!notifications.is_pending(), "it is watched no longer");
    bench.take(
        &Sketch {
            queue_id: 7,
            ..Sketch::default()
        },
        1600,
    );
    assert_eq!(
        notifications.take(),
        [("t".to_owned(), 7)],
        "this one still was"
    );
}
