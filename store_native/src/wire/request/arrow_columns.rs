//! Columns of an Arrow batch, read row by row in whichever physical type they came.
//!
//! Invariants: values are borrowed from the batch; a null is `None`.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, GenericListArray, Int64Array,
    LargeBinaryArray, LargeStringArray, MapArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::parse_error::{Parse, ParseError};

/// Texts or bytes. A column that is missing, or of the type null, is `Absent`.
#[derive(Clone, Copy)]
pub(super) enum Texts<'a> {
    Absent,
    Utf8(&'a StringArray),
    Large(&'a LargeStringArray),
    View(&'a StringViewArray),
}

impl<'a> Texts<'a> {
    pub fn of(column: &'a ArrayRef) -> Parse<Self> {
        Ok(match column.data_type() {
            DataType::Null => Self::Absent,
            DataType::Utf8 => Self::Utf8(column.as_string()),
            DataType::LargeUtf8 => Self::Large(column.as_string()),
            DataType::Utf8View => Self::View(column.as_string_view()),
            other => return Err(wrong_type("utf8", other)),
        })
    }

    #[inline]
    pub fn get(self, row: usize) -> Option<&'a str> {
        match self {
            Self::Absent => None,
            Self::Utf8(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Large(column) => column.is_valid(row).then(|| column.value(row)),
            Self::View(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Bodies<'a> {
    Texts(Texts<'a>),
    Binary(&'a BinaryArray),
    Large(&'a LargeBinaryArray),
    View(&'a BinaryViewArray),
}

impl<'a> Bodies<'a> {
    pub fn of(column: &'a ArrayRef) -> Parse<Self> {
        Ok(match column.data_type() {
            DataType::Binary => Self::Binary(column.as_binary()),
            DataType::LargeBinary => Self::Large(column.as_binary()),
            DataType::BinaryView => Self::View(column.as_binary_view()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Texts(Texts::of(column)?),
            other => return Err(wrong_type("binary or utf8", other)),
        })
    }

    #[inline]
    pub fn get(self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Texts(column) => column.get(row).map(str::as_bytes),
            Self::Binary(column) => column.is_valid(row).then(|| column.value(row)),
            Self::Large(column) => column.is_valid(row).then(|| column.value(row)),
            Self::View(column) => column.is_valid(row).then(|| column.value(row)),
        }
    }
}

/// Lists of texts, or texts.
#[derive(Clone, Copy)]
pub(super) enum Lists<'a> {
    Texts(Texts<'a>),
    List(&'a GenericListArray<i32>, Texts<'a>),
    Large(&'a GenericListArray<i64>, Texts<'a>),
}

impl<'a> Lists<'a> {
    pub fn of(column: &'a ArrayRef) -> Parse<Self> {
        Ok(match column.data_type() {
            DataType::List(_) => {
                let list = column.as_list();
                Self::List(list, Texts::of(list.values())?)
            }
            DataType::LargeList(_) => {
                let list = column.as_list();
                Self::Large(list, Texts::of(list.values())?)
            }
            _ => Self::Texts(Texts::of(column)?),
        })
    }

    /// The items of a row, or its text.
    #[inline]
    pub fn get(self, row: usize) -> Option<Item<'a>> {
        let range = match self {
            Self::Texts(texts) => return texts.get(row).map(Item::Text),
            Self::List(list, _) if list.is_valid(row) => span(list.value_offsets(), row),
            Self::Large(list, _) if list.is_valid(row) => span(list.value_offsets(), row),
            _ => return None,
        };
        match self {
            Self::Texts(texts) | Self::List(_, texts) | Self::Large(_, texts) => {
                Some(Item::List(texts, range))
            }
        }
    }
}

/// The items of a row; none for a row that is not there.
#[inline]
fn span<T: Copy + TryInto<usize>>(offsets: &[T], row: usize) -> std::ops::Range<usize> {
    match offsets.get(row..) {
        Some([from, to, ..]) => {
            let (from, to) = ((*from).try_into(), (*to).try_into());
            from.unwrap_or(0)..to.unwrap_or(0)
        }
        _ => 0..0,
    }
}

pub(super) enum Item<'a> {
    Text(&'a str),
    List(Texts<'a>, std::ops::Range<usize>),
}

/// Maps of text to text.
#[derive(Clone, Copy)]
pub(super) struct Maps<'a> {
    map: &'a MapArray,
    names: Texts<'a>,
    values: Texts<'a>,
}

impl<'a> Maps<'a> {
    pub fn of(column: &'a ArrayRef) -> Parse<Option<Self>> {
        match column.data_type() {
            DataType::Null => Ok(None),
            DataType::Map(_, _) => {
                let map = column.as_map();
                Ok(Some(Self { map, names: Texts::of(map.keys())?, values: Texts::of(map.values())? }))
            }
            other => Err(wrong_type("map<utf8, utf8>", other)),
        }
    }

    /// The names and values of a row; either may be null.
    pub fn get(self, row: usize) -> impl Iterator<Item = (Option<&'a str>, Option<&'a str>)> {
        let range = if self.map.is_valid(row) { span(self.map.value_offsets(), row) } else { 0..0 };
        range.map(move |at| (self.names.get(at), self.values.get(at)))
    }
}

/// Integers of any width, widened; times as milliseconds.
pub(super) fn integers(column: &ArrayRef) -> Parse<Option<Int64Array>> {
    fn widen<T>(column: &ArrayRef) -> Int64Array
    where
        T: arrow_array::types::ArrowPrimitiveType<Native: Into<i64>>,
    {
        column.as_primitive::<T>().unary(Into::into)
    }
    Ok(Some(match column.data_type() {
        DataType::Null => return Ok(None),
        DataType::Int8 => widen::<Int8Type>(column),
        DataType::Int16 => widen::<Int16Type>(column),
        DataType::Int32 => widen::<Int32Type>(column),
        DataType::Int64 => column.as_primitive::<Int64Type>().clone(),
        DataType::UInt8 => widen::<UInt8Type>(column),
        DataType::UInt16 => widen::<UInt16Type>(column),
        DataType::UInt32 => widen::<UInt32Type>(column),
        // Above the range of i64 is above the range of every field.
        DataType::UInt64 => {
            column.as_primitive::<UInt64Type>().unary(|value| i64::try_from(value).unwrap_or(i64::MAX))
        }
        other => return Err(wrong_type("an integer type", other)),
    }))
}

/// Times as epoch milliseconds; integers are taken as such.
pub(super) fn times(column: &ArrayRef) -> Parse<Option<Int64Array>> {
    let DataType::Timestamp(unit, _) = column.data_type() else {
        return integers(column);
    };
    Ok(Some(match unit {
        TimeUnit::Second => scale(column.as_primitive::<TimestampSecondType>(), |v| v.saturating_mul(1000)),
        TimeUnit::Millisecond => scale(column.as_primitive::<TimestampMillisecondType>(), |v| v),
        TimeUnit::Microsecond => {
            scale(column.as_primitive::<TimestampMicrosecondType>(), |v| v.div_euclid(1000))
        }
        TimeUnit::Nanosecond => {
            scale(column.as_primitive::<TimestampNanosecondType>(), |v| v.div_euclid(1_000_000))
        }
    }))
}

fn scale<T>(column: &PrimitiveArray<T>, to_ms: impl Fn(i64) -> i64) -> Int64Array
where
    T: arrow_array::types::ArrowPrimitiveType<Native = i64>,
{
    column.unary(to_ms)
}

pub(super) fn booleans(column: &ArrayRef) -> Parse<Option<&BooleanArray>> {
    match column.data_type() {
        DataType::Null => Ok(None),
        DataType::Boolean => Ok(Some(column.as_boolean())),
        other => Err(wrong_type("bool", other)),
    }
}

#[cold]
fn wrong_type(wanted: &str, found: &DataType) -> Box<ParseError> {
    ParseError::illegal(format!("expected a column of {wanted}, found {found}"))
}
