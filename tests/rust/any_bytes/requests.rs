//! What producers send: JSON, NDJSON and Arrow. What is accepted can be stored, and stands in its records.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use arrow_array::builder::{MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamWriter;
use base64::Engine;
use lakemq_store::commitlog::batch::{Batch, RequestFacts};
use lakemq_store::error::StoreError;
use lakemq_store::message::message_id::UniqKeys;
use lakemq_store::message::record::Place;
use lakemq_store::message::{NewMessage, RecordView, properties as stored};
use lakemq_store::wire::request::{ArrowMessages, Limits, parse_json, parse_ndjson};
use serde_json::{Map, Value, json};

/// More of this nesting than serde_json follows.
const DEEP: usize = 100;

fn limits() -> Limits {
    Limits {
        max_message_bytes: 64 << 10,
        max_messages: 1000,
        max_request_bytes: 1 << 20,
        ..Limits::default()
    }
}

/// A JSON request is JSON, and says the same when it is written again.
pub fn json(bytes: &[u8]) {
    let parsed = match parse_json(bytes, &limits()) {
        Ok(parsed) => parsed,
        Err(error) => return refused(&error),
    };
    assert!(parsed.many || parsed.messages.len() == 1);
    let nested = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{'));
    if nested.count() < DEEP {
        serde_json::from_slice::<serde::de::IgnoredAny>(bytes).expect("JSON");
    }
    can_be_stored(&parsed.messages);
    let list: Vec<Value> = parsed.messages.iter().map(in_json).collect();
    let again = serde_json::to_vec(&json!({ "messages": list })).expect("JSON");
    let again = parse_json(&again, &Limits::default()).expect("its own");
    assert_eq!(facts(&again.messages), facts(&parsed.messages));
}

/// An NDJSON request is lines of JSON requests.
pub fn ndjson(bytes: &[u8]) {
    let messages = match parse_ndjson(bytes, &limits()) {
        Ok(messages) => messages,
        Err(error) => return refused(&error),
    };
    let mut lines = bytes.split(|byte| *byte == b'\n');
    for message in &messages {
        let line = lines
            .find(|line| !line.iter().all(u8::is_ascii_whitespace))
            .expect("a line");
        let alone = parse_json(line, &limits()).expect("a message");
        assert_eq!(facts(&alone.messages), facts(std::slice::from_ref(message)));
    }
    assert!(lines.all(|line| line.iter().all(u8::is_ascii_whitespace)));
    can_be_stored(&messages);
}

/// An Arrow stream gives the same messages wherever in memory it lies, and when they are written again.
pub fn arrow(bytes: &[u8]) {
    let mut shifted = vec![0];
    shifted.extend_from_slice(bytes);
    let shifted = Buffer::from_vec(shifted).slice(1);
    let (owner, elsewhere) = match (
        ArrowMessages::read(Buffer::from(bytes)),
        ArrowMessages::read(shifted),
    ) {
        (Ok(owner), Ok(elsewhere)) => (owner, elsewhere),
        (Err(error), Err(_)) => return refused(&error),
        (one, other) => panic!("it hangs on where it lies: {one:?} {other:?}"),
    };
    let messages = match owner.messages(&limits()) {
        Ok(messages) => messages,
        Err(error) => {
            let same = elsewhere.messages(&limits()).expect_err("the same bytes");
            assert_eq!(same.detail(), error.detail());
            return refused(&error);
        }
    };
    let same = elsewhere.messages(&limits()).expect("the same bytes");
    assert_eq!(facts(&same), facts(&messages));
    can_be_stored(&messages);
    let again = ArrowMessages::read(Buffer::from_vec(in_arrow(&messages))).expect("its own");
    let again = again.messages(&Limits::default()).expect("its own");
    assert_eq!(facts(&again), facts(&messages));
}

fn refused(error: &StoreError) {
    let known = [
        "MALFORMED_BODY",
        "MESSAGE_ILLEGAL",
        "MESSAGE_TOO_LARGE",
        "REQUEST_TOO_LARGE",
        "NOT_IMPLEMENTED",
    ];
    assert!(known.contains(&error.code()), "{error}");
    assert!(!error.detail().is_empty());
}

/// All that the messages say; the order of properties says nothing.
fn facts(messages: &[NewMessage<'_>]) -> Vec<String> {
    let sorted = |message: &NewMessage<'_>| {
        let mut message = message.clone();
        message.properties.sort();
        format!("{message:?}")
    };
    messages.iter().map(sorted).collect()
}

/// Each message makes a record that reads back with all that the message says.
fn can_be_stored(messages: &[NewMessage<'_>]) {
    let limits = limits();
    assert!(!messages.is_empty() && messages.len() <= limits.max_messages);
    let bodies: usize = messages.iter().map(|message| message.body.len()).sum();
    assert!(bodies <= limits.max_request_bytes);
    let host: SocketAddr = "127.0.0.1:8090".parse().expect("an address");
    let request = RequestFacts {
        topic: "t",
        born_host: host,
        now_ms: 5,
        key: None,
    };
    let batch = Batch::new(&request, messages, &UniqKeys::new(host.ip(), &[7; 16]));
    for (at, message) in messages.iter().enumerate() {
        let plan = batch.plan(at, "t", 3);
        let mut bytes = vec![0; plan.size(host)];
        let place = Place {
            queue_offset: 1,
            physical_offset: 4096,
            store_timestamp: 6,
            store_host: host,
        };
        plan.encode(&mut bytes, batch.properties(), &place);
        let record = RecordView::parse_checked(&bytes, 4096).expect("a record");
        assert_eq!(record.body, &*message.body);
        assert_eq!(record.flag, message.flag);
        assert_eq!(record.reconsume_times, message.reconsume_times);
        assert_eq!(record.born_timestamp, message.born_timestamp.unwrap_or(5));
        assert_eq!(record.property(stored::TAGS), message.tags.as_deref());
        assert_eq!(record.property(stored::KEYS), message.keys.as_deref());
        assert_eq!(
            record.property(stored::SHARDING_KEY),
            message.sharding_key.as_deref()
        );
        if let Some(id) = &message.message_id {
            assert_eq!(record.message_id(), **id);
        }
        for (name, value) in &message.properties {
            assert_eq!(record.property(name), Some(&**value), "{name}");
        }
    }
}

fn in_json(message: &NewMessage<'_>) -> Value {
    let mut out = Map::new();
    let body = base64::engine::general_purpose::STANDARD.encode(&message.body);
    out.insert("body_base64".into(), body.into());
    let texts = [
        ("tags", &message.tags),
        ("keys", &message.keys),
        ("sharding_key", &message.sharding_key),
        ("message_id", &message.message_id),
    ];
    for (name, text) in texts {
        out.insert(name.into(), text.as_deref().into());
    }
    let properties: Map<String, Value> = message
        .properties
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_ref().into()))
        .collect();
    out.insert("properties".into(), properties.into());
    out.insert("queue_id".into(), message.queue_id.into());
    out.insert("flag".into(), message.flag.into());
    out.insert("delay_level".into(), message.delay_level.into());
    out.insert("reconsume_times".into(), message.reconsume_times.into());
    out.insert("born_timestamp".into(), message.born_timestamp.into());
    out.insert("wait_store_ok".into(), message.wait_store_ok.into());
    Value::Object(out)
}

fn in_arrow(messages: &[NewMessage<'_>]) -> Vec<u8> {
    fn texts<'m>(
        messages: &'m [NewMessage<'m>],
        of: impl Fn(&'m NewMessage<'m>) -> &'m Option<Cow<'m, str>>,
    ) -> ArrayRef {
        let texts = messages.iter().map(|message| of(message).as_deref());
        Arc::new(texts.collect::<StringArray>())
    }
    let mut properties = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for message in messages {
        for (name, value) in &message.properties {
            properties.keys().append_value(name);
            properties.values().append_value(value);
        }
        properties.append(true).expect("balanced");
    }
    let bodies = messages.iter().map(|message| &*message.body);
    let queues = messages.iter().map(|message| message.queue_id);
    let times = messages.iter().map(|message| message.born_timestamp);
    let integers = |of: fn(&NewMessage<'_>) -> i64| -> ArrayRef {
        Arc::new(messages.iter().map(of).collect::<Int64Array>())
    };
    let waits: Vec<bool> = messages.iter().map(|m| m.wait_store_ok).collect();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        (
            "body",
            Arc::new(BinaryArray::from_iter_values(bodies)),
            true,
        ),
        ("tags", texts(messages, |m| &m.tags), true),
        ("keys", texts(messages, |m| &m.keys), true),
        ("sharding_key", texts(messages, |m| &m.sharding_key), true),
        ("message_id", texts(messages, |m| &m.message_id), true),
        ("properties", Arc::new(properties.finish()), true),
        ("queue_id", Arc::new(queues.collect::<UInt32Array>()), true),
        (
            "born_timestamp",
            Arc::new(times.collect::<Int64Array>()),
            true,
        ),
        ("flag", integers(|m| m.flag.into()), true),
        ("delay_level", integers(|m| m.delay_level.into()), true),
        (
            "reconsume_times",
            integers(|m| m.reconsume_times.into()),
            true,
        ),
        ("wait_store_ok", Arc::new(BooleanArray::from(waits)), true),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("of one length");
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, batch.schema_ref()).expect("memory");
    writer.write(&batch).expect("memory");
    writer.finish().expect("memory");
    drop(writer);
    out
}
