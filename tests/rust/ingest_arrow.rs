//! Contract of Arrow ingestion: rows become messages that borrow from the stream, anything else is refused
//! with a code, the row and the column, and no bytes make it panic.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, Int16Array, Int64Array,
    LargeStringArray, NullArray, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray, types::Int32Type,
};
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamWriter;
use lakemq_store::error::StoreError;
use lakemq_store::wire::request::{ArrowMessages, Limits};
use proptest::prelude::*;

/// Code, message number, line and pointer of a refusal.
type Refusal = (&'static str, Option<usize>, Option<usize>, Option<String>);

fn refusal(error: StoreError) -> Refusal {
    match error {
        StoreError::Invalid {
            code,
            index,
            line,
            pointer,
            ..
        } => (code, index, line, pointer),
        other => panic!("another kind of error: {other}"),
    }
}

fn ipc(batches: &[RecordBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, batches[0].schema_ref()).expect("memory");
    for batch in batches {
        writer.write(batch).expect("memory");
    }
    writer.finish().expect("memory");
    drop(writer);
    out
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .expect("columns of one length")
}

fn arrow_refused(columns: Vec<(&str, ArrayRef)>) -> Refusal {
    let messages = ArrowMessages::read(Buffer::from_vec(ipc(&[batch(columns)]))).map_err(refusal);
    messages
        .and_then(|m| m.messages(&Limits::default()).map(|_| ()).map_err(refusal))
        .expect_err("refused")
}

fn bodies(n: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(
        (0..n).map(|i| format!("body {i}")),
    ))
}

#[test]
fn test_arrow_reads_every_column_over_several_batches() {
    let mut keys = ListBuilder::new(StringBuilder::new());
    keys.append_value([Some("k1"), Some("k2")]);
    keys.append_value([Some("k3")]);
    keys.append_null();
    let mut properties = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    properties.keys().append_value("a");
    properties.values().append_value("1");
    for valid in [true, true, false] {
        properties.append(valid).expect("balanced");
    }
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "tags",
            Arc::new(StringViewArray::from(vec![Some("t"), None, Some("")])),
        ),
        (
            "body",
            Arc::new(BinaryArray::from_vec(vec![b"x", b"y", b"z"])),
        ),
        ("keys", Arc::new(keys.finish())),
        ("properties", Arc::new(properties.finish())),
        (
            "sharding_key",
            Arc::new(LargeStringArray::from(vec![Some("s"), None, None])),
        ),
        (
            "queue_id",
            Arc::new(Int16Array::from(vec![Some(2), None, None])),
        ),
        (
            "delay_level",
            Arc::new(Int64Array::from(vec![Some(3), None, None])),
        ),
        (
            "born_timestamp",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(7_999),
                None,
                None,
            ])),
        ),
        (
            "due_at",
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(8_999),
                None,
                None,
            ])),
        ),
        (
            "message_id",
            Arc::new(StringArray::from(vec![Some("id"), None, None])),
        ),
        ("deliver_at", Arc::new(NullArray::new(3))),
    ];
    let batch = batch(columns);
    let batches = [batch.clone(), batch];
    let owner = ArrowMessages::read(Buffer::from_vec(ipc(&batches))).expect("a stream");
    let messages = owner.messages(&Limits::default()).expect("legal");
    assert_eq!(messages.len(), 6);
    let m = &messages[3];
    assert!(matches!(m.body, Cow::Borrowed(b"x")));
    assert_eq!(
        (m.tags.as_deref(), m.keys.as_deref()),
        (Some("t"), Some("k1 k2"))
    );
    assert_eq!(m.properties, [(Cow::from("a"), Cow::from("1"))]);
    assert_eq!(
        (m.sharding_key.as_deref(), m.message_id.as_deref()),
        (Some("s"), Some("id"))
    );
    assert_eq!(
        (m.queue_id, m.delay_level, m.born_timestamp, m.due_at),
        (Some(2), 3, Some(7), Some(8))
    );
    assert!(matches!(messages[1].keys, Some(Cow::Borrowed("k3"))));
    let plain = &messages[5];
    assert!(
        plain.tags.is_none()
            && plain.keys.is_none()
            && plain.queue_id.is_none()
            && plain.due_at.is_none()
            && plain.wait_store_ok
    );
}

#[test]
fn test_arrow_refusals_name_the_row_and_the_column() {
    let illegal = |index: Option<usize>, pointer: &str| {
        ("MESSAGE_ILLEGAL", index, None, Some(pointer.to_owned()))
    };
    let texts = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let tags = texts(vec![Some("a"), Some("b\u{2}")]);
    assert_eq!(
        arrow_refused(vec![("body", bodies(2)), ("tags", tags)]),
        illegal(Some(1), "/tags")
    );
    assert_eq!(
        arrow_refused(vec![("body", bodies(1)), ("colour", bodies(1))]),
        illegal(None, "/colour")
    );
    assert_eq!(
        arrow_refused(vec![("tags", bodies(1))]),
        illegal(None, "/body")
    );
    assert_eq!(
        arrow_refused(vec![("body", texts(vec![Some("a"), None]))]),
        illegal(Some(1), "/body")
    );
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, -1]));
    assert_eq!(
        arrow_refused(vec![("body", numbers.clone())]),
        illegal(None, "/body")
    );
    assert_eq!(
        arrow_refused(vec![("body", bodies(2)), ("queue_id", numbers.clone())]),
        illegal(Some(1), "/queue_id")
    );
    assert_eq!(
        arrow_refused(vec![("body", bodies(2)), ("due_at", numbers.clone())]),
        illegal(Some(1), "/due_at")
    );
    let late = arrow_refused(vec![("body", bodies(2)), ("deliver_at", numbers)]);
    assert_eq!(
        late,
        (
            "NOT_IMPLEMENTED",
            None,
            None,
            Some("/deliver_at".to_owned())
        )
    );
    let mut keys = ListBuilder::new(StringBuilder::new());
    keys.append_value([Some("k1"), Some("k 2")]);
    assert_eq!(
        arrow_refused(vec![("body", bodies(1)), ("keys", Arc::new(keys.finish()))]),
        illegal(Some(0), "/keys/1")
    );
    let dictionary: DictionaryArray<Int32Type> = ["a", "a"].into_iter().collect();
    let refusal = arrow_refused(vec![("body", bodies(2)), ("tags", Arc::new(dictionary))]);
    assert_eq!(refusal, ("MESSAGE_ILLEGAL", None, None, None));
    assert_eq!(
        arrow_refused(vec![("body", bodies(0))]).0,
        "MESSAGE_ILLEGAL"
    );
}

#[test]
fn test_an_arrow_stream_cut_anywhere_is_malformed() {
    let stream = ipc(&[batch(vec![("body", bodies(3)), ("tags", bodies(3))])]);
    for cut in 0..stream.len() {
        let error = ArrowMessages::read(Buffer::from(&stream[..cut])).expect_err("cut");
        assert_eq!(error.code(), "MALFORMED_BODY", "cut at {cut}");
    }
    let mut longer = stream.clone();
    longer.push(0);
    assert_eq!(
        ArrowMessages::read(Buffer::from_vec(longer))
            .expect_err("longer")
            .code(),
        "MALFORMED_BODY"
    );
    assert!(ArrowMessages::read(Buffer::from_vec(stream)).is_ok());
}

#[test]
fn test_views_that_repeat_one_text_do_not_outgrow_the_request() {
    let large = "x".repeat(1 << 20);
    let views = BinaryViewArray::from_iter_values(std::iter::once(large.as_bytes()));
    let indices = vec![views.views()[0]; 100];
    let repeated = BinaryViewArray::try_new(indices.into(), views.data_buffers().to_vec(), None)
        .expect("views");
    let refusal = arrow_refused(vec![("body", Arc::new(repeated))]);
    assert_eq!(refusal, ("REQUEST_TOO_LARGE", Some(64), None, None));
}

fn rich_stream() -> Vec<u8> {
    let mut keys = ListBuilder::new(StringBuilder::new());
    let mut properties = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for row in 0..3 {
        keys.append_value([Some("k"), Some("l")]);
        properties.keys().append_value("name");
        properties.values().append_value("value");
        properties.append(row != 1).expect("balanced");
    }
    ipc(&[batch(vec![
        (
            "body",
            Arc::new(BinaryArray::from_vec(vec![b"one", b"two", b"three"])),
        ),
        ("keys", Arc::new(keys.finish())),
        ("properties", Arc::new(properties.finish())),
        (
            "tags",
            Arc::new(StringViewArray::from(vec![
                Some("short"),
                None,
                Some("longer than twelve bytes"),
            ])),
        ),
        (
            "flag",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        ),
    ])])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn test_a_changed_arrow_stream_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = rich_stream();
        for (at, byte) in changes {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        if let Ok(owner) = ArrowMessages::read(Buffer::from_vec(stream)) {
            let _ = owner.messages(&Limits::default());
        }
    }
}
