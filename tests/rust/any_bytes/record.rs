//! Records of the log, their properties, changes of state in them, and the tags that readers ask for.

use lakemq_store::filter::TagFilter;
use lakemq_store::message::compress::body_of;
use lakemq_store::message::hash::tags_code;
use lakemq_store::message::properties::{NAME_END, PROPERTY_END};
use lakemq_store::message::record::{CRC_PROPERTY_BYTES, MAGIC_V2, Place, Plan, crc31};
use lakemq_store::message::{RecordView, properties as stored};
use lakemq_store::state::{MetaState, Op};
use lakemq_store::wire::answer::write_message;

/// A record ends where it says, all of its parts can be read, and one with a checksum is written again byte by byte.
pub fn record(bytes: &[u8]) {
    let Ok(found) = RecordView::parse(bytes) else {
        return;
    };
    looked_at(bytes, &found);
    if found.properties.len() >= CRC_PROPERTY_BYTES {
        let sealed = sealed(&bytes[..found.total_size as usize]);
        let found = RecordView::parse(&sealed).expect("only its checksum was changed");
        if RecordView::parse_checked(&sealed, found.physical_offset).is_ok() {
            looked_at(&sealed, &found);
            written_again(&sealed, &found);
        }
    }
}

/// The record with the checksum that its bytes have.
fn sealed(record: &[u8]) -> Vec<u8> {
    let mut out = record.to_vec();
    let at = out.len() - CRC_PROPERTY_BYTES;
    let mut crc = crc31(&out[..at]);
    let digits: String = (0..10)
        .map(|_| {
            let digit = char::from(b'0' + (crc % 10) as u8);
            crc /= 10;
            digit
        })
        .collect();
    out[at..].copy_from_slice(format!("{}\u{1}{digits}\u{2}", stored::CRC32).as_bytes());
    out
}

fn looked_at(bytes: &[u8], found: &RecordView<'_>) {
    let size = found.total_size as usize;
    assert!(size <= bytes.len());
    assert!(
        RecordView::parse(&bytes[..size - 1]).is_err(),
        "a byte is missing"
    );
    let alone = RecordView::parse(&bytes[..size]).expect("what follows it is nothing to it");
    assert_eq!(alone.body, found.body);
    let elsewhere = found.physical_offset.wrapping_add(1);
    assert!(
        RecordView::parse_checked(bytes, elsewhere).is_err(),
        "it does not lie there"
    );
    let _ = body_of(found);
    let mut json = Vec::new();
    if write_message(&mut json, found, "broker-a").is_ok() {
        serde_json::from_slice::<serde_json::Value>(&json).expect("JSON");
    }
    let _ = (found.message_id(), found.tags_code(), found.is_visible());
}

fn written_again(bytes: &[u8], found: &RecordView<'_>) {
    if (found.magic == MAGIC_V2) != (found.topic.len() > 127) {
        return; // as another broker may write it, not this one
    }
    let plan = Plan {
        topic: found.topic,
        body: found.body,
        body_crc: found.body_crc,
        properties: 0..found.properties.len() - CRC_PROPERTY_BYTES,
        queue_id: found.queue_id,
        flag: found.flag,
        sys_flag: found.sys_flag,
        born_timestamp: found.born_timestamp,
        born_host: found.born_host,
        reconsume_times: found.reconsume_times,
        prepared_transaction_offset: found.prepared_transaction_offset,
    };
    let place = Place {
        queue_offset: found.queue_offset,
        physical_offset: found.physical_offset,
        store_timestamp: found.store_timestamp,
        store_host: found.store_host,
    };
    let mut again = vec![0; plan.size(found.store_host)];
    plan.encode(&mut again, found.properties, &place);
    assert!(again == bytes, "written again it is another record");
}

/// What is read is what stands between the separators, and what is no property is passed over.
pub fn properties(bytes: &[u8]) {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let pieces = bytes.split(|byte| *byte == PROPERTY_END);
    let wanted: Vec<(&str, &str)> = pieces
        .filter_map(|piece| {
            let at = piece.iter().position(|byte| *byte == NAME_END)?;
            Some((text(&piece[..at])?, text(&piece[at + 1..])?))
        })
        .collect();
    assert_eq!(stored::iter(bytes).collect::<Vec<_>>(), wanted);
    let mut again = Vec::new();
    for (name, value) in &wanted {
        let first = wanted.iter().find(|(other, _)| other == name);
        assert_eq!(stored::get(bytes, name), first.map(|(_, value)| *value));
        stored::push(&mut again, name, value);
    }
    assert_eq!(stored::iter(&again).collect::<Vec<_>>(), wanted);
}

/// A change of state reads back as it was written, and can be applied to any state; anything else is damage.
pub fn change(bytes: &[u8]) {
    match Op::decode(bytes, 77) {
        Ok(op) => {
            let again = Op::decode(&op.encode().expect("encoded"), 77).expect("its own");
            assert_eq!(again, op);
            let mut state = MetaState::default();
            for at in 0..2 {
                state.apply(op.clone(), at);
            }
        }
        Err(error) => {
            assert_eq!(error.code(), "DATA_CORRUPT");
            assert!(error.detail().contains("offset 77"), "{error}");
        }
    }
}

/// A filter lets the tags it names pass, in both of its steps, and nothing else in the second.
pub fn tags(bytes: &[u8]) {
    let Ok(expression) = std::str::from_utf8(bytes) else {
        return;
    };
    let named: Vec<&str> = expression.split("||").map(str::trim).collect();
    match TagFilter::parse(expression) {
        Ok(None) => assert!(matches!(expression.trim(), "" | "*")),
        Ok(Some(filter)) => {
            for tag in named.iter().filter(|tag| !tag.is_empty()) {
                assert!(filter.matches(Some(tag)), "{tag:?} of {expression:?}");
                assert!(filter.matches_code(tags_code(Some(tag))));
                let other = format!("{tag}x");
                assert_eq!(
                    filter.matches(Some(&other)),
                    named.contains(&other.as_str())
                );
            }
            assert!(!filter.matches(None) && !filter.matches(Some("")));
            let again = TagFilter::parse(&named.join("||")).expect("legal");
            assert_eq!(again, Some(filter));
        }
        Err(error) => assert_eq!(error.code(), "FILTER_ILLEGAL", "{expression:?}"),
    }
}
