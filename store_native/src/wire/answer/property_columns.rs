//! The columns of a slice that come out of the records' properties.
//!
//! Invariants: every column gets exactly one row a record. A record's properties are read once for all of them, and
//! not at all when none is asked for.

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, BinaryArray, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};

use super::layout::{
    Column as C, ColumnSet, entries_field, entry_fields, header_field, header_fields, item_field,
};
use crate::message::properties::{self, KEYS, SHARDING_KEY, TAGS, UNIQ_KEY};
use crate::message::reserved::is_reserved;
use crate::message::{RecordView, offset_id};

/// Characters of an id the broker makes.
const ID_BYTES: usize = 32;

/// Builders of the columns asked for.
#[derive(Debug)]
pub(super) struct PropertyColumns {
    message_id: Option<StringBuilder>,
    tags: Option<StringBuilder>,
    sharding_key: Option<StringBuilder>,
    keys: Option<KeyLists>,
    first_key: Option<BinaryBuilder>,
    pairs: Option<Pairs>,
    /// How many properties of known names are asked for.
    known: usize,
}

/// `keys`: all items, and where each row's begin.
#[derive(Debug)]
struct KeyLists {
    items: StringBuilder,
    offsets: Vec<i32>,
}

/// The users' properties, for `properties` and `headers` alike.
#[derive(Debug)]
struct Pairs {
    names: StringBuilder,
    values: StringBuilder,
    offsets: Vec<i32>,
}

impl PropertyColumns {
    pub fn new(columns: &ColumnSet, records: usize) -> Self {
        let texts = |column: C, bytes: usize| {
            columns.has(&[column]).then(|| StringBuilder::with_capacity(records, records * bytes))
        };
        let offsets = || {
            let mut offsets = Vec::with_capacity(records + 1);
            offsets.push(0);
            offsets
        };
        let keys = columns.has(&[C::Keys]).then(|| {
            let items = StringBuilder::with_capacity(records, records * 16);
            KeyLists { items, offsets: offsets() }
        });
        let pairs = columns.has(&[C::Properties, C::Headers]).then(|| {
            let (names, values) = (StringBuilder::new(), StringBuilder::new());
            Pairs { names, values, offsets: offsets() }
        });
        let first_key = columns.has(&[C::Key]).then(|| BinaryBuilder::with_capacity(records, records * 16));
        let groups: [&[C]; 4] = [&[C::MessageId], &[C::Tags], &[C::ShardingKey], &[C::Keys, C::Key]];
        Self {
            message_id: texts(C::MessageId, ID_BYTES),
            tags: texts(C::Tags, 8),
            sharding_key: texts(C::ShardingKey, 8),
            keys,
            first_key,
            pairs,
            known: groups.iter().filter(|group| columns.has(group)).count(),
        }
    }

    /// Adds a record's row to each column. The caller bounds what a slice holds to 31 bits.
    #[inline]
    pub fn push(&mut self, record: &RecordView<'_>) {
        if self.known > 0 || self.pairs.is_some() {
            self.push_properties(record);
        }
    }

    fn push_properties(&mut self, record: &RecordView<'_>) {
        let (mut id, mut tags, mut sharding_key, mut keys) = (None, None, None, None);
        let keys_wanted = self.keys.is_some() || self.first_key.is_some();
        let mut missing = self.known;
        for (name, value) in properties::iter(record.properties) {
            let slot = match name {
                UNIQ_KEY if self.message_id.is_some() => &mut id,
                TAGS if self.tags.is_some() => &mut tags,
                SHARDING_KEY if self.sharding_key.is_some() => &mut sharding_key,
                KEYS if keys_wanted => &mut keys,
                other => {
                    if let Some(pairs) = &mut self.pairs
                        && !is_reserved(other)
                    {
                        pairs.names.append_value(other);
                        pairs.values.append_value(value);
                    }
                    continue;
                }
            };
            if slot.is_none() {
                *slot = Some(value);
                missing -= 1;
                if missing == 0 && self.pairs.is_none() {
                    break;
                }
            }
        }
        if let Some(column) = &mut self.message_id {
            match id {
                Some(id) if !id.is_empty() => column.append_value(id),
                _ => column.append_value(offset_id(record.store_host, record.physical_offset)),
            }
        }
        if let Some(column) = &mut self.tags {
            column.append_option(tags);
        }
        if let Some(column) = &mut self.sharding_key {
            column.append_option(sharding_key);
        }
        let keys = || keys.unwrap_or_default().split(' ').filter(|key| !key.is_empty());
        if let Some(column) = &mut self.first_key {
            column.append_option(keys().next());
        }
        if let Some(column) = &mut self.keys {
            keys().for_each(|key| column.items.append_value(key));
            column.offsets.push(offset(column.items.len()));
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.offsets.push(offset(pairs.names.len()));
        }
    }

    /// The array of one of these columns; `None` when it was not asked for.
    pub fn finish(&mut self, column: C) -> Option<ArrayRef> {
        match column {
            C::MessageId => Some(Arc::new(self.message_id.as_mut()?.finish())),
            C::Tags => Some(Arc::new(self.tags.as_mut()?.finish())),
            C::ShardingKey => Some(Arc::new(self.sharding_key.as_mut()?.finish())),
            C::Key => Some(Arc::new(self.first_key.as_mut()?.finish())),
            C::Keys => {
                let keys = self.keys.as_mut()?;
                let items = Arc::new(keys.items.finish());
                let offsets = lists(std::mem::take(&mut keys.offsets));
                Some(Arc::new(ListArray::try_new(item_field(), offsets, items, None).ok()?))
            }
            C::Properties => self.pairs.as_ref()?.map(),
            C::Headers => self.pairs.as_ref()?.headers(),
            _ => None,
        }
    }
}

impl Pairs {
    fn map(&self) -> Option<ArrayRef> {
        let entries: Vec<ArrayRef> =
            vec![Arc::new(self.names.finish_cloned()), Arc::new(self.values.finish_cloned())];
        let entries = StructArray::try_new(entry_fields(), entries, None).ok()?;
        let map = MapArray::try_new(entries_field(), lists(self.offsets.clone()), entries, None, false);
        Some(Arc::new(map.ok()?))
    }

    /// As Spark's Kafka source gives them: bytes, and null where there is none.
    fn headers(&self) -> Option<ArrayRef> {
        let values = BinaryArray::from(self.values.finish_cloned());
        let fields: Vec<ArrayRef> = vec![Arc::new(self.names.finish_cloned()), Arc::new(values)];
        let items = StructArray::try_new(header_fields(), fields, None).ok()?;
        let some: NullBuffer = self.offsets.windows(2).map(|ends| ends.first() < ends.last()).collect();
        let list =
            ListArray::try_new(header_field(), lists(self.offsets.clone()), Arc::new(items), Some(some));
        Some(Arc::new(list.ok()?))
    }
}

/// Where a list ends; the slice's bound on bytes bounds its items, too.
fn offset(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}

/// Offsets that begin with 0 and never fall.
fn lists(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}
