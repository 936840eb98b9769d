//! Contract of ingestion: what producers may send as JSON becomes messages, anything else is refused with a
//! code, the message's number and the exact place, and no input makes it panic.

use std::borrow::Cow;

use lakemq_store::error::StoreError;
use lakemq_store::message::NewMessage;
use lakemq_store::wire::request::{Limits, parse_json, parse_ndjson};
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

fn json(text: &str) -> Result<Vec<NewMessage<'_>>, Refusal> {
    parse_json(text.as_bytes(), &Limits::default())
        .map(|parsed| parsed.messages)
        .map_err(refusal)
}

fn refused(text: &str) -> (&'static str, Option<String>) {
    let (code, _, _, pointer) = json(text).expect_err(text);
    (code, pointer)
}

#[test]
fn test_a_message_with_every_field_is_read() {
    let text = r#" {"body":"hé\n","tags":"paid","keys":["k1","k2"],"properties":{"a":"1","RETRY_TOPIC":"t"},
        "sharding_key":"s","queue_id":"3","flag":-7,"delay_level":2,"message_id":"id","reconsume_times":4,
        "born_timestamp":"1763700000000","wait_store_ok":false} "#;
    let messages = json(text).expect("legal");
    let [m] = messages.as_slice() else {
        panic!("one message")
    };
    assert_eq!(m.body.as_ref(), "hé\n".as_bytes());
    assert_eq!(
        (m.tags.as_deref(), m.keys.as_deref()),
        (Some("paid"), Some("k1 k2"))
    );
    assert_eq!(
        m.properties,
        [
            ("a".into(), "1".into()),
            (Cow::from("RETRY_TOPIC"), Cow::from("t"))
        ]
    );
    assert_eq!(
        (m.sharding_key.as_deref(), m.message_id.as_deref()),
        (Some("s"), Some("id"))
    );
    assert_eq!(
        (m.queue_id, m.flag, m.delay_level, m.reconsume_times),
        (Some(3), -7, 2, 4)
    );
    assert_eq!(
        (m.born_timestamp, m.wait_store_ok),
        (Some(1_763_700_000_000), false)
    );
}

#[test]
fn test_bodies_come_as_text_base64_or_json_and_are_borrowed_where_they_can_be() {
    let body = |text| json(text).expect("legal").remove(0).body;
    assert!(matches!(
        body(r#"{"body":"plain"}"#),
        Cow::Borrowed(b"plain")
    ));
    assert!(matches!(
        body(r#"{"body_json": {"a": [1.50, null]} }"#),
        Cow::Borrowed(br#"{"a": [1.50, null]}"#)
    ));
    assert_eq!(body(r#"{"body_json":null}"#).as_ref(), b"null");
    assert_eq!(body(r#"{"body_base64":"AP8Q"}"#).as_ref(), [0, 255, 16]);
    assert_eq!(body(r#"{"body_base64":"AP8"}"#).as_ref(), [0, 255]);
    assert_eq!(body(r#"{"body_base64":"AP8="}"#).as_ref(), [0, 255]);
}

#[test]
fn test_null_empty_and_default_fields_are_as_good_as_left_out() {
    let m = json(
        r#"{"body":"b","tags":null,"keys":[],"properties":{},"sharding_key":"","queue_id":null}"#,
    )
    .expect("legal")
    .remove(0);
    assert!(
        m.tags.is_none() && m.keys.is_none() && m.properties.is_empty() && m.sharding_key.is_none()
    );
    assert!(m.queue_id.is_none() && m.wait_store_ok && m.born_timestamp.is_none());
    assert_eq!(
        json(r#"{"body":"b","keys":"a  b"}"#).expect("legal")[0]
            .keys
            .as_deref(),
        Some("a b")
    );
}

#[test]
fn test_one_object_and_a_list_are_told_apart() {
    let parse =
        |text: &'static str| parse_json(text.as_bytes(), &Limits::default()).expect("legal");
    assert!(!parse(r#"{"body":"b"}"#).many);
    let list = parse(r#"{ "messages" : [ {"body":"a"} , {"body":"b"} ] } "#);
    assert!(list.many);
    assert_eq!(
        list.messages
            .iter()
            .map(|m| m.body.as_ref())
            .collect::<Vec<_>>(),
        [b"a", b"b"]
    );
    assert!(parse(r#"{"messages":[{"body":"a"}]}"#).many);
}

#[test]
fn test_each_wrong_field_is_refused_with_its_pointer() {
    let illegal = "MESSAGE_ILLEGAL";
    for (text, pointer) in [
        (r#"{"body":"b","colour":"red"}"#, "/colour"),
        (r#"{"body":"b","a/b~":1}"#, "/a~1b~0"),
        (r#"{"body":1}"#, "/body"),
        (r#"{"body":""}"#, "/body"),
        (r#"{"body":null}"#, "/body"),
        (r#"{"tags":"t"}"#, "/body"),
        (r#"{"body":"b","body_base64":"AA=="}"#, "/body_base64"),
        (r#"{"body_json":1,"body":"b"}"#, "/body"),
        (r#"{"body_base64":"*"}"#, "/body_base64"),
        (r#"{"body_base64":""}"#, "/body_base64"),
        (r#"{"body":"b","body":"c"}"#, "/body"),
        (r#"{"body":"b","tags":"a\u0001"}"#, "/tags"),
        (r#"{"body":"b","tags":["a"]}"#, "/tags"),
        (r#"{"body":"b","tags":"a || b"}"#, "/tags"),
        (r#"{"body":"b","tags":"a&&b"}"#, "/tags"),
        (r#"{"body":"b","tags":"a "}"#, "/tags"),
        (r#"{"body":"b","keys":["a","b c"]}"#, "/keys/1"),
        (r#"{"body":"b","keys":["a",""]}"#, "/keys/1"),
        (r#"{"body":"b","keys":["a",2]}"#, "/keys/1"),
        (r#"{"body":"b","keys":{"a":2}}"#, "/keys"),
        (r#"{"body":"b","keys":"a\tb"}"#, "/keys"),
        (
            r#"{"body":"b","properties":{"a":"1","a":"2"}}"#,
            "/properties/a",
        ),
        (r#"{"body":"b","properties":{"a":1}}"#, "/properties/a"),
        (r#"{"body":"b","properties":{"a":""}}"#, "/properties/a"),
        (r#"{"body":"b","properties":{"":"a"}}"#, "/properties/"),
        (
            r#"{"body":"b","properties":{"a/b":"\u0002"}}"#,
            "/properties/a~1b",
        ),
        (
            r#"{"body":"b","properties":{"UNIQ_KEY":"x"}}"#,
            "/properties/UNIQ_KEY",
        ),
        (
            r#"{"body":"b","properties":{"TRAN_MSG":"true"}}"#,
            "/properties/TRAN_MSG",
        ),
        (
            r#"{"body":"b","properties":{"__LMQ_KEY":"x"}}"#,
            "/properties/__LMQ_KEY",
        ),
        (
            r#"{"body":"b","properties":{"__CRC32#":"x"}}"#,
            "/properties/__CRC32#",
        ),
        (r#"{"body":"b","properties":["a"]}"#, "/properties"),
        (r#"{"body":"b","sharding_key":"\u007f"}"#, "/sharding_key"),
        (r#"{"body":"b","message_id":""}"#, "/message_id"),
        (r#"{"body":"b","message_id":"a\n"}"#, "/message_id"),
        (r#"{"body":"b","queue_id":-1}"#, "/queue_id"),
        (r#"{"body":"b","queue_id":2147483648}"#, "/queue_id"),
        (r#"{"body":"b","queue_id":1.0}"#, "/queue_id"),
        (r#"{"body":"b","queue_id":"+1"}"#, "/queue_id"),
        (r#"{"body":"b","queue_id":" 1"}"#, "/queue_id"),
        (r#"{"body":"b","queue_id":true}"#, "/queue_id"),
        (
            r#"{"body":"b","born_timestamp":9223372036854775808}"#,
            "/born_timestamp",
        ),
        (r#"{"body":"b","flag":1e3}"#, "/flag"),
        (r#"{"body":"b","wait_store_ok":"true"}"#, "/wait_store_ok"),
        (r#"{"body_json":{"a":[{"b":1,"b":2}]}}"#, "/body_json/a/0/b"),
        (r#"[{"body":"b"}]"#, ""),
        (r#""text""#, ""),
        (r#"{"messages":[]}"#, "/messages"),
        (r#"{"messages":{"body":"b"}}"#, "/messages"),
        (r#"{"messages":[{"body":"b"}],"x":1}"#, "/x"),
        (r#"{"messages":[{"body":"b"}],"messages":[]}"#, "/messages"),
        (r#"{"body":"b","messages":[]}"#, "/messages"),
        (
            r#"{"messages":[{"body":"b"},{"body":"b","properties":{"KEYS":"k"}}]}"#,
            "/messages/1/properties/KEYS",
        ),
        (r#"{"messages":[{"body":"b"},7]}"#, "/messages/1"),
    ] {
        assert_eq!(refused(text), (illegal, Some(pointer.to_owned())), "{text}");
    }
    assert_eq!(
        refused(r#"{"body":"b","delay_ms":5}"#),
        ("NOT_IMPLEMENTED", Some("/delay_ms".into()))
    );
    assert_eq!(
        refused(r#"{"body":"b","deliver_at":5}"#),
        ("NOT_IMPLEMENTED", Some("/deliver_at".into()))
    );
}

#[test]
fn test_a_refusal_in_a_list_names_the_message() {
    let error = json(r#"{"messages":[{"body":"a"},{"body":"b"},{"body":"c","tags":3}]}"#)
        .expect_err("refused");
    assert_eq!(
        error,
        (
            "MESSAGE_ILLEGAL",
            Some(2),
            None,
            Some("/messages/2/tags".into())
        )
    );
}

#[test]
fn test_what_is_no_json_is_refused_with_line_and_column() {
    for (text, line, place) in [
        ("", 1, "line 1 column 1"),
        (" \n ", 1, "line 1 column 1"),
        ("{\"body\":\"b\"", 1, "line 1 column 12"),
        ("{\"body\":\n \"b\" \"x\"}", 2, "line 2 column 6"),
        ("{\"body\":\"b\"}\n{", 2, "line 2 column 1"),
        ("{\"body\":\"é\u{1}\"}", 1, "line 1 column 11"),
        ("{\"body\":\"b\",\"tags\":[1,}", 1, "line 1 column 23"),
    ] {
        let error = parse_json(text.as_bytes(), &Limits::default()).expect_err(text);
        assert!(
            error.detail().starts_with(&format!("{place}:")),
            "{text:?}: {error}"
        );
        let (code, _, found, pointer) = refusal(error);
        assert_eq!((code, found, pointer), ("MALFORMED_BODY", Some(line), None));
    }
    let error = parse_json(b"{\"body\":\"\xff\"}", &Limits::default()).expect_err("not UTF-8");
    assert!(error.detail().starts_with("line 1 column 10:"), "{error}");
}

#[test]
fn test_deep_nesting_is_refused_and_no_stack_is_used_up() {
    for open in ["[", "{\"a\":"] {
        let text = format!("{{\"body_json\":{}", open.repeat(1_000_000));
        assert_eq!(refused(&text).0, "MESSAGE_ILLEGAL");
    }
}

#[test]
fn test_sizes_are_bounded_to_the_byte() {
    let limits = Limits {
        max_message_bytes: 10,
        max_properties_bytes: 40,
        max_messages: 2,
        ..Limits::default()
    };
    let parse = |text: &str| {
        parse_json(text.as_bytes(), &limits)
            .map(|_| ())
            .map_err(refusal)
    };
    assert_eq!(parse(r#"{"body":"0123456789"}"#), Ok(()));
    let too_large =
        |pointer: &str| Err(("MESSAGE_TOO_LARGE", Some(0), None, Some(pointer.to_owned())));
    assert_eq!(parse(r#"{"body":"0123456789a"}"#), too_large("/body"));
    assert_eq!(
        parse(r#"{"body_base64":"AAAAAAAAAAAAAAAAAAAA"}"#),
        too_large("/body_base64")
    );
    assert_eq!(
        parse(r#"{"body_base64":"AAAAAAAAAAAAAAA="}"#),
        too_large("/body_base64")
    );
    assert_eq!(
        parse(&format!(
            r#"{{"body":"b","properties":{{"a":"{}"}}}}"#,
            "x".repeat(37)
        )),
        Ok(())
    );
    let long = format!(
        r#"{{"body":"b","properties":{{"a":"{}"}}}}"#,
        "x".repeat(38)
    );
    assert_eq!(parse(&long), too_large("/properties"));
    assert_eq!(
        parse(&format!(r#"{{"body":"b","tags":"{}"}}"#, "x".repeat(40))),
        too_large("")
    );
    let many = |n: usize| {
        format!(
            r#"{{"messages":[{}]}}"#,
            vec![r#"{"body":"b"}"#; n].join(",")
        )
    };
    assert_eq!(parse(&many(2)), Ok(()));
    assert_eq!(
        parse(&many(3)),
        Err(("REQUEST_TOO_LARGE", Some(2), None, None))
    );
}

#[test]
fn test_ndjson_reads_one_message_a_line_and_passes_over_blank_lines() {
    let text = "\n{\"body\":\"a\"}\r\n  \t\n{\"body\":\"b\"}";
    let messages = parse_ndjson(text.as_bytes(), &Limits::default()).expect("legal");
    assert_eq!(
        messages.iter().map(|m| m.body.as_ref()).collect::<Vec<_>>(),
        [b"a", b"b"]
    );
}

#[test]
fn test_a_bad_line_is_named_by_line_and_message() {
    let parse = |text: &str| {
        parse_ndjson(text.as_bytes(), &Limits::default())
            .map(|_| ())
            .map_err(refusal)
    };
    let bad = |third: &str| {
        parse(&format!(
            "{{\"body\":\"a\"}}\n\n{third}\n{{\"body\":\"c\"}}"
        ))
    };
    let illegal = |pointer: &str| {
        Err((
            "MESSAGE_ILLEGAL",
            Some(1),
            Some(3),
            Some(pointer.to_owned()),
        ))
    };
    assert_eq!(bad(r#"{"body":"b","tags":4}"#), illegal("/tags"));
    assert_eq!(bad("7"), illegal(""));
    let malformed = Err(("MALFORMED_BODY", Some(1), Some(3), None));
    assert_eq!(bad(r#"{"body":"b"#), malformed);
    assert_eq!(bad(r#"{"body":"b"} {"body":"b"}"#), malformed);
    for empty in ["", "\n\n", "  "] {
        assert_eq!(
            parse(empty).map_err(|r| r.0),
            Err("MALFORMED_BODY"),
            "{empty:?}"
        );
    }
    let error =
        parse_ndjson(b"{\"body\":\"a\"}\n{\"body\" 1}", &Limits::default()).expect_err("malformed");
    assert!(error.detail().starts_with("line 2 column 9:"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn test_a_body_reads_back_however_serde_writes_it(body in ".{1,200}", tags in "[^\\x00-\\x1f\\x7f]{1,20}") {
        let text = serde_json::json!({"tags": tags, "body": body}).to_string();
        let limits = Limits { any_tags: true, ..Limits::default() };
        let messages = parse_json(text.as_bytes(), &limits).expect("legal").messages;
        prop_assert_eq!(messages[0].body.as_ref(), body.as_bytes());
        prop_assert_eq!(messages[0].tags.as_deref(), Some(tags.as_str()));
    }

    #[test]
    fn test_changed_json_is_read_or_refused(at in 0usize..200, byte in any::<u8>()) {
        let mut text = br#"{"messages":[{"body":"a\u00e9","keys":["k"],"properties":{"a":"b"},"queue_id":1},{"body_json":{"x":[1,2.5e3,null]}}]}"#.to_vec();
        let at = at % text.len();
        text[at] = byte;
        let limits = Limits::default();
        let _ = (parse_json(&text, &limits), parse_ndjson(&text, &limits));
    }
}
