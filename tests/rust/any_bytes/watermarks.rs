//! The page of watermarks, as a reader in another process maps it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use lakemq_store::environment::Environment;
use lakemq_store::filter::Filter;
use lakemq_store::message::NewMessage;
use lakemq_store::options::Options;
use lakemq_store::paths::StorePaths;
use lakemq_store::read::SliceRequest;
use lakemq_store::reader::Reader;
use lakemq_store::store::{AppendRequest, Store};
use lakemq_store::watermarks::Watermarks;

use super::{directory, is_damage_of};

const BYTES: usize = 4096;
const MESSAGES: usize = 40;
/// Where the low byte of the count of recoveries stands: odd while one is under way, which a reader waits for.
const RECOVERIES_AT: usize = 64;

fn body(number: usize) -> String {
    format!("message {number}")
}

/// A stopped store, made once.
fn store() -> &'static PathBuf {
    static STORE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, root) = STORE.get_or_init(|| {
        let home = directory();
        let root = home.path().join("store");
        let options = Options {
            commitlog_file_size: 64 << 10,
            consumequeue_file_entries: 20,
            index_slots: 7,
            index_entries: 20,
            ..Options::default()
        };
        let environment = Environment::real("").expect("randomness");
        let store = Store::open_at_rest(&root, options, environment).expect("a store");
        let bodies: Vec<String> = (0..MESSAGES).map(body).collect();
        let messages: Vec<NewMessage<'_>> = bodies
            .iter()
            .map(|body| NewMessage {
                body: body.as_bytes().into(),
                queue_id: Some(0),
                wait_store_ok: true,
                ..NewMessage::default()
            })
            .collect();
        let request = AppendRequest {
            topic: "t",
            born_host: None,
            idempotency_key: None,
        };
        store.append(&request, &messages).expect("stored");
        store.close().expect("closed");
        (home, root)
    });
    root
}

/// A page of another length or kind is refused. By any other, a reader shows messages that were sent, each once and in
/// order, or an error.
pub fn watermarks(bytes: &[u8]) {
    let paths = StorePaths::new(store());
    if bytes.len() != BYTES {
        fs::write(paths.watermarks(), bytes).expect("written");
        let refused = Watermarks::open_for_reading(&paths.watermarks());
        let error = refused.expect_err("of no length");
        is_damage_of(&error, &paths.watermarks());
    }
    let mut page = bytes.to_vec();
    page.resize(BYTES, 0);
    page[RECOVERIES_AT] &= !1;
    fs::write(paths.watermarks(), &page).expect("written");
    let marks = match Watermarks::open_for_reading(&paths.watermarks()) {
        Ok(marks) => marks.expect("the file is there"),
        Err(error) => {
            assert!(!page.starts_with(b"LAKEMQW1"));
            is_damage_of(&error, &paths.watermarks());
            return;
        }
    };
    let long = |at: usize| i64::from_ne_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((marks.appended(), marks.dispatched()), (long(8), long(24)));
    assert_eq!((marks.log_min(), marks.generation()), (long(40), long(56)));
    let reader = Reader::open(store()).expect("opened");
    let mut shown = Vec::new();
    let slice = SliceRequest {
        offset: 0,
        end_offset: None,
        max_messages: 1000,
        max_bytes: usize::MAX,
        filter: Filter::All,
    };
    let outcome = reader.read("t", 0, &slice, |record, offset| {
        shown.push((offset, String::from_utf8_lossy(record.body).into_owned()));
        Ok(())
    });
    for (offset, text) in &shown {
        assert_eq!(*text, body(*offset as usize), "{outcome:?}");
    }
    let different: BTreeSet<_> = shown.iter().collect();
    assert_eq!(different.len(), shown.len());
    let _ = (reader.topics(), reader.offset_by_time("t", 0, 5));
    let _ = reader.find("t", "no key", (0, i64::MAX), 10, |_| Ok(true));
}
