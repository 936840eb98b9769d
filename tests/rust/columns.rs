//! Contract of reads: a slice has the columns asked for, in order and typed as documented, one row a record;
//! the same record as JSON says the same.

use std::net::SocketAddr;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_schema::DataType;
use lakemq_store::message::{RecordView, properties};
use lakemq_store::wire::answer::{Capacity, ColumnSet, SliceBuilder, to_ipc, write_message};
use proptest::prelude::*;

fn encoded(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    pairs
        .iter()
        .for_each(|(name, value)| properties::push(&mut out, name, value));
    out
}

fn record<'a>(body: &'a [u8], properties: &'a [u8]) -> RecordView<'a> {
    RecordView {
        total_size: 0,
        magic: 0,
        body_crc: 0,
        queue_id: 3,
        flag: -7,
        queue_offset: 41,
        physical_offset: 4096,
        sys_flag: 0,
        born_timestamp: 1_763_700_000_001,
        born_host: SocketAddr::from(([10, 0, 0, 1], 5555)),
        store_timestamp: 1_763_700_000_002,
        store_host: SocketAddr::from(([127, 0, 0, 1], 8090)),
        reconsume_times: 2,
        prepared_transaction_offset: 0,
        body,
        topic: "orders",
        properties,
    }
}

fn slice(names: Option<&[&str]>, records: &[RecordView<'_>]) -> RecordBatch {
    let names = names.map(|names| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    });
    let columns = ColumnSet::parse(names.as_deref()).expect("known columns");
    let mut builder = SliceBuilder::new(&columns, "orders", 3, "broker-a", Capacity::default());
    for (at, record) in records.iter().enumerate() {
        builder
            .push(record, 41 + at as i64)
            .expect("a sound record");
    }
    assert_eq!(builder.len(), records.len());
    builder.finish().expect("a batch")
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch
        .column_by_name(name)
        .expect("the column")
        .as_string::<i32>();
    column.iter().map(|text| text.map(str::to_owned)).collect()
}

fn json(record: &RecordView<'_>) -> serde_json::Value {
    let mut out = Vec::new();
    write_message(&mut out, record, "broker-a").expect("a sound record");
    serde_json::from_slice(&out).expect("JSON")
}

const OFFSET_ID: &str = "7F00000100001F9A0000000000001000";

#[test]
fn test_the_default_columns_hold_what_the_record_says() {
    let first = encoded(&[
        ("UNIQ_KEY", "id-1"),
        ("KEYS", "k1  k2"),
        ("TAGS", "paid"),
        ("colour", "red"),
        ("__CRC32#", "0123456789"),
    ]);
    let batch = slice(None, &[record(b"one", &first), record(b"", b"")]);
    let names: Vec<_> = batch
        .schema_ref()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(
        names.join(" "),
        "topic broker_name queue_id queue_offset message_id keys tags body born_timestamp store_timestamp \
         reconsume_times"
    );
    assert_eq!(
        texts(&batch, "topic"),
        [Some("orders".into()), Some("orders".into())]
    );
    assert_eq!(texts(&batch, "broker_name")[1].as_deref(), Some("broker-a"));
    assert_eq!(
        texts(&batch, "message_id"),
        [Some("id-1".into()), Some(OFFSET_ID.into())]
    );
    assert_eq!(texts(&batch, "tags"), [Some("paid".into()), None]);
    assert_eq!(
        batch["queue_id"].as_primitive::<Int32Type>().values(),
        &[3, 3]
    );
    assert_eq!(
        batch["queue_offset"].as_primitive::<Int64Type>().values(),
        &[41, 42]
    );
    assert_eq!(
        batch["reconsume_times"]
            .as_primitive::<Int32Type>()
            .values(),
        &[2, 2]
    );
    assert_eq!(
        batch["body"]
            .as_binary::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        [&b"one"[..], b""]
    );
    let born = batch["born_timestamp"].as_primitive::<TimestampMicrosecondType>();
    assert_eq!(
        (born.value(0), born.timezone()),
        (1_763_700_000_001_000, Some("UTC"))
    );
    let keys = batch["keys"].as_list::<i32>();
    assert_eq!(
        keys.value(0)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["k1", "k2"]
    );
    assert_eq!((keys.is_null(1), keys.value(1).len()), (false, 0));
}

#[test]
fn test_only_what_is_asked_for_is_built_in_that_order() {
    let bytes = encoded(&[
        ("__SHARDINGKEY", "s"),
        ("REAL_TOPIC", "x"),
        ("colour", "red"),
        ("__LMQ_BATCH", "9"),
    ]);
    let names = [
        "physical_offset",
        "properties",
        "store_host",
        "body",
        "flag",
        "born_host",
        "sharding_key",
    ];
    let batch = slice(Some(&names), &[record(b"one", &bytes), record(b"two", b"")]);
    assert_eq!(batch.num_columns(), names.len());
    assert_eq!(
        batch.column(0).as_primitive::<Int64Type>().values(),
        &[4096, 4096]
    );
    let properties = batch.column(1).as_map();
    let entry = properties.value(0);
    assert_eq!(
        entry
            .column(0)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["colour"]
    );
    assert_eq!(entry.column(1).as_string::<i32>().value(0), "red");
    assert_eq!(properties.value(1).len(), 0);
    assert_eq!(
        texts(&batch, "store_host")[0].as_deref(),
        Some("127.0.0.1:8090")
    );
    assert_eq!(
        texts(&batch, "born_host")[0].as_deref(),
        Some("10.0.0.1:5555")
    );
    assert_eq!(texts(&batch, "sharding_key"), [Some("s".into()), None]);
    assert_eq!(batch["flag"].as_primitive::<Int32Type>().value(1), -7);
}

#[test]
fn test_kafka_columns_are_those_of_sparks_kafka_source() {
    let names = [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ];
    let bytes = encoded(&[("KEYS", "k1 k2"), ("colour", "red"), ("TAGS", "t")]);
    let batch = slice(Some(&names), &[record(b"one", &bytes), record(b"two", b"")]);
    let keys = batch["key"].as_binary::<i32>();
    assert_eq!((keys.value(0), keys.is_null(1)), (&b"k1"[..], true));
    assert_eq!(batch["value"].as_binary::<i32>().value(1), b"two");
    assert_eq!(batch["partition"].as_primitive::<Int32Type>().value(0), 3);
    assert_eq!(batch["offset"].as_primitive::<Int64Type>().value(1), 42);
    assert_eq!(
        batch["timestamp"]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_763_700_000_002_000
    );
    assert_eq!(
        batch["timestampType"].as_primitive::<Int32Type>().value(0),
        1
    );
    let headers = batch["headers"].as_list::<i32>();
    let header = headers.value(0);
    let header = header.as_struct();
    assert_eq!((header.len(), headers.is_null(1)), (1, true));
    assert_eq!(header.column(0).as_string::<i32>().value(0), "colour");
    assert_eq!(header.column(1).as_binary::<i32>().value(0), b"red");
}

#[test]
fn test_one_column_under_two_names_and_no_column_at_all() {
    let batch = slice(Some(&["body", "value"]), &[record(b"one", b"")]);
    assert_eq!(batch.column(0).as_ref(), batch.column(1).as_ref());
    let counted = slice(Some(&[]), &[record(b"one", b""), record(b"two", b"")]);
    assert_eq!((counted.num_columns(), counted.num_rows()), (0, 2));
    assert_eq!(slice(None, &[]).num_rows(), 0);
}

#[test]
fn test_a_record_that_cannot_be_read_leaves_the_slice_as_it_was() {
    let columns = ColumnSet::parse(None).expect("legal");
    let mut builder = SliceBuilder::new(
        &columns,
        "orders",
        3,
        "broker-a",
        Capacity {
            records: 2,
            body_bytes: 9,
        },
    );
    let mut damaged = record(b"no zlib", b"");
    damaged.sys_flag = 1;
    assert_eq!(
        builder.push(&damaged, 41).expect_err("damaged").code(),
        "DATA_CORRUPT"
    );
    assert!(builder.is_empty());
    builder.push(&record(b"sound", b""), 42).expect("sound");
    assert_eq!(builder.finish().expect("a batch").num_rows(), 1);
    let mut out = b"[".to_vec();
    assert!(write_message(&mut out, &damaged, "broker-a").is_err());
    assert_eq!(out, b"[");
    // Who does not ask for the body does not need it to be sound.
    assert_eq!(slice(Some(&["offset"]), &[damaged]).num_rows(), 1);
}

#[test]
fn test_an_ipc_stream_reads_back() {
    let bytes = encoded(&[("KEYS", "k"), ("colour", "red")]);
    let names = [
        "keys",
        "properties",
        "headers",
        "body",
        "topic",
        "store_timestamp",
    ];
    let batch = slice(Some(&names), &[record(b"one", &bytes), record(b"two", b"")]);
    let stream = to_ipc(&batch).expect("memory");
    let read: Vec<_> = StreamReader::try_new(stream.as_slice(), None)
        .expect("a stream")
        .flatten()
        .collect();
    assert_eq!(read, [batch]);
    let map = read[0].schema_ref().field(1).data_type();
    assert!(matches!(map, DataType::Map(entries, false) if entries.name() == "entries"));
}

#[test]
fn test_a_message_read_as_json_has_the_documented_fields() {
    let bytes = encoded(&[
        ("KEYS", "k1 k2"),
        ("WAIT", "true"),
        ("a\"b", "c\\\n\u{1}é"),
        ("UNIQ_KEY", "id"),
        ("DELAY", "3"),
        ("LMQ_ORIGIN", "broker-a/0/7"),
    ]);
    let wanted = serde_json::json!({
        "message_id": "id", "offset_message_id": OFFSET_ID, "topic": "orders", "broker_name": "broker-a",
        "queue_id": 3, "queue_offset": 41, "physical_offset": 4096, "keys": ["k1", "k2"], "tags": null,
        "body": "hé\u{0}", "properties": {"a\"b": "c\\\n\u{1}é", "LMQ_ORIGIN": "broker-a/0/7"}, "flag": -7,
        "born_timestamp": 1_763_700_000_001_i64, "store_timestamp": 1_763_700_000_002_i64,
        "born_host": "10.0.0.1:5555", "store_host": "127.0.0.1:8090", "reconsume_times": 2,
    });
    assert_eq!(json(&record("hé\u{0}".as_bytes(), &bytes)), wanted);
    let binary = json(&record(&[0xff, 0], b""));
    assert_eq!(
        (binary["body_base64"].as_str(), binary.get("body")),
        (Some("/wA="), None)
    );
    assert_eq!(
        (binary["message_id"].as_str(), &binary["keys"]),
        (Some(OFFSET_ID), &serde_json::json!([]))
    );
}

proptest! {
    #[test]
    fn test_any_properties_give_a_row_and_json(bytes in proptest::collection::vec(
        prop_oneof![Just(1u8), Just(2u8), Just(b'K'), any::<u8>()], 0..200,
    )) {
        let view = record(b"body", &bytes);
        let names = ["properties", "headers", "keys", "tags", "message_id", "key"];
        prop_assert_eq!(slice(Some(&names), std::slice::from_ref(&view)).num_rows(), 1);
        prop_assert_eq!(&json(&view)["body"], "body");
    }
}
