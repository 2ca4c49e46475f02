//! One column under construction: JSON values in, an Arrow array out.
//!
//! The values lie in plain vectors, not in Arrow's builders, because a column must be able to go back: a bad row is
//! found half-way, and a key may come twice. [`Column::truncate`] undoes both, at every depth.
//!
//! What each type takes is in [`super::json`]'s documentation.

use std::collections::HashSet;

use arrow::array::{BooleanBufferBuilder, NullBufferBuilder};
use arrow::datatypes::{DataType, Field};

use super::base64;
use super::cursor::{Cursor, NumberToken};
use super::fault::{Fault, Step, excerpt};
use super::group::Group;
use super::json::JsonError;
use super::number;
use super::time::{self, Clock};

/// Up to this many keys, comparing all pairs beats a hash.
const KEYS_TO_COMPARE: usize = 16;

/// A column and the values it has so far.
pub(super) struct Column {
    pub(super) data_type: DataType,
    /// Rows so far; asking `nulls` costs more.
    rows: usize,
    pub(super) nulls: NullBufferBuilder,
    pub(super) values: Values,
    is_nullable: bool,
    /// The type's name in reasons.
    type_name: String,
}

/// The values of a column, one for each row, null or not.
pub(super) enum Values {
    Bool(BooleanBufferBuilder),
    /// Whole numbers of up to 64 bits, kept within the column's own width.
    Int {
        values: Vec<i64>,
        least: i64,
        greatest: i64,
    },
    /// The one whole type that does not fit `Int`.
    UInt64(Vec<u64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    Text(Slices),
    Bytes(Slices),
    /// Days since 1970.
    Date(Vec<i64>),
    Timestamp {
        values: Vec<i64>,
        clock: Clock,
    },
    Struct(Box<Group>),
    List {
        ends: Ends,
        items: Box<Column>,
    },
    Map {
        ends: Ends,
        keys: Slices,
        values: Box<Column>,
    },
}

impl Column {
    /// An empty column, with room for `rows`.
    pub(super) fn try_new(field: &Field, rows: usize, path: &str) -> Result<Self, JsonError> {
        let data_type = field.data_type();
        let unsupported = || JsonError::UnsupportedType { path: path.to_owned(), data_type: data_type.clone() };
        let int = |least: i64, greatest: i64| Values::Int { values: Vec::with_capacity(rows), least, greatest };
        let values = match data_type {
            DataType::Boolean => Values::Bool(BooleanBufferBuilder::new(rows)),
            DataType::Int8 => int(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => int(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => int(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => int(i64::MIN, i64::MAX),
            DataType::UInt8 => int(0, u8::MAX.into()),
            DataType::UInt16 => int(0, u16::MAX.into()),
            DataType::UInt32 => int(0, u32::MAX.into()),
            DataType::UInt64 => Values::UInt64(Vec::with_capacity(rows)),
            DataType::Float32 => Values::Float(Vec::with_capacity(rows)),
            DataType::Float64 => Values::Double(Vec::with_capacity(rows)),
            DataType::Decimal128(precision, scale) => {
                Values::Decimal { values: Vec::with_capacity(rows), precision: *precision, scale: *scale }
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Values::Text(Slices::new(rows)),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Values::Bytes(Slices::new(rows)),
            DataType::Date32 => Values::Date(Vec::with_capacity(rows)),
            DataType::Timestamp(unit, zone) => Values::Timestamp {
                values: Vec::with_capacity(rows),
                clock: Clock::try_new(*unit, zone.as_deref()).map_err(|_| unsupported())?,
            },
            DataType::Struct(fields) => Values::Struct(Box::new(Group::try_new(fields.clone(), rows, path)?)),
            DataType::List(item) | DataType::LargeList(item) => {
                let items = Column::try_new(item, rows, &format!("{path}[]"))?;
                Values::List { ends: Ends::new(rows), items: Box::new(items) }
            }
            DataType::Map(entry, _) => {
                let DataType::Struct(entry) = entry.data_type() else { return Err(unsupported()) };
                let [key, value] = entry.as_ref() else { return Err(unsupported()) };
                if key.data_type() != &DataType::Utf8 {
                    return Err(unsupported());
                }
                let values = Column::try_new(value, rows, &format!("{path}[]"))?;
                Values::Map { ends: Ends::new(rows), keys: Slices::new(rows), values: Box::new(values) }
            }
            _ => return Err(unsupported()),
        };
        Ok(Self {
            data_type: data_type.clone(),
            rows: 0,
            nulls: NullBufferBuilder::new(rows),
            values,
            is_nullable: field.is_nullable(),
            type_name: super::ddl::type_name(data_type),
        })
    }

    /// Rows so far.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Reads the value at the cursor as one more row. After a fault the column is out of step, see
    /// [`Column::truncate`].
    #[inline]
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>) -> Step<()> {
        if cursor.peek() == Some(b'n') {
            return self.read_null(cursor);
        }
        let name = &self.type_name;
        match &mut self.values {
            Values::Text(slices) => slices.push(read_text(cursor)?)?,
            Values::Double(values) => values.push(read_number(cursor, name, number::double)?),
            Values::Int { values, least, greatest } => {
                let range = *least..=*greatest;
                values.push(read_whole(cursor, name, |token| {
                    number::whole(token).filter(|value| range.contains(value))
                })?);
            }
            Values::Timestamp { values, clock } => values.push(read_timestamp(cursor, name, clock)?),
            Values::Bool(values) => values.append(read_bool(cursor)?),
            Values::UInt64(values) => values.push(read_whole(cursor, name, number::unsigned)?),
            Values::Float(values) => values.push(read_number(cursor, name, number::float)?),
            Values::Decimal { values, precision, scale } => {
                values.push(read_decimal(cursor, name, |text| number::decimal(text, *precision, *scale).ok())?);
            }
            Values::Bytes(slices) => read_base64(cursor, slices)?,
            Values::Date(values) => {
                let at = cursor.pos();
                let text = read_quoted(cursor, name)?;
                values.push(time::date(text).map_err(|why| Fault::new(format!("{} {why}", excerpt(text)), at))?);
            }
            Values::Struct(group) => {
                let row = self.rows;
                expect_value(cursor, b'{', name)?;
                group.read(cursor, row)?;
            }
            Values::List { ends, items } => {
                expect_value(cursor, b'[', name)?;
                read_list(cursor, items)?;
                ends.push(items.len())?;
            }
            Values::Map { ends, keys, values } => {
                expect_value(cursor, b'{', name)?;
                read_map(cursor, keys, values, ends.last())?;
                ends.push(values.len())?;
            }
        }
        self.nulls.append_non_null();
        self.rows += 1;
        Ok(())
    }

    fn read_null(&mut self, cursor: &mut Cursor<'_>) -> Step<()> {
        let at = cursor.pos();
        cursor.word("null")?;
        if !self.is_nullable {
            return Err(Fault::new("is null, and must not be", at));
        }
        self.append_null();
        Ok(())
    }

    /// One more row that is null, whether the column allows it or not (a null parent may hide it).
    pub(super) fn append_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.append(false),
            Values::Int { values, .. } | Values::Date(values) | Values::Timestamp { values, .. } => values.push(0),
            Values::UInt64(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Text(slices) | Values::Bytes(slices) => slices.ends.push_empty(),
            Values::Struct(group) => group.append_null(),
            Values::List { ends, .. } | Values::Map { ends, .. } => ends.push_empty(),
        }
        self.nulls.append_null();
        self.rows += 1;
    }

    /// Forgets all rows from `rows` on, and whatever a fault left half-written.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.nulls.truncate(rows);
        self.rows = self.nulls.len();
        match &mut self.values {
            Values::Bool(values) => values.truncate(rows),
            Values::Int { values, .. } | Values::Date(values) | Values::Timestamp { values, .. } => {
                values.truncate(rows)
            }
            Values::UInt64(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Double(values) => values.truncate(rows),
            Values::Decimal { values, .. } => values.truncate(rows),
            Values::Text(slices) | Values::Bytes(slices) => slices.truncate(rows),
            Values::Struct(group) => group.truncate(rows),
            Values::List { ends, items } => {
                ends.truncate(rows);
                items.truncate(ends.last());
            }
            Values::Map { ends, keys, values } => {
                ends.truncate(rows);
                keys.truncate(ends.last());
                values.truncate(ends.last());
            }
        }
    }
}

/// A string's text; of any other value the JSON text as it stands in the message, checked.
#[inline]
fn read_text<'c>(cursor: &'c mut Cursor<'_>) -> Step<&'c [u8]> {
    if cursor.peek() == Some(b'"') {
        return cursor.string();
    }
    let start = cursor.pos();
    cursor.skip_value()?;
    Ok(cursor.since(start))
}

#[inline]
fn read_number<T>(cursor: &mut Cursor<'_>, name: &str, parse: impl Fn(&NumberToken<'_>) -> Option<T>) -> Step<T> {
    let at = cursor.pos();
    let Some(b'-' | b'0'..=b'9') = cursor.peek() else { return Err(cursor.unexpected(name)) };
    let token = cursor.number()?;
    parse(&token).ok_or_else(|| out_of_range(token.text, name, at))
}

#[inline]
fn read_whole<T>(cursor: &mut Cursor<'_>, name: &str, parse: impl Fn(&NumberToken<'_>) -> Option<T>) -> Step<T> {
    let at = cursor.pos();
    let Some(b'-' | b'0'..=b'9') = cursor.peek() else { return Err(cursor.unexpected(name)) };
    let token = cursor.number()?;
    if !token.is_whole() {
        return Err(Fault::new(format!("expected {name}, found {}", excerpt(token.text)), at));
    }
    parse(&token).ok_or_else(|| out_of_range(token.text, name, at))
}

#[cold]
fn out_of_range(text: &[u8], name: &str, at: usize) -> Box<Fault> {
    Fault::new(format!("{} is out of range of {name}", excerpt(text)), at)
}

/// A number, or a string that holds exactly one.
fn read_decimal(cursor: &mut Cursor<'_>, name: &str, parse: impl Fn(&[u8]) -> Option<i128>) -> Step<i128> {
    if cursor.peek() != Some(b'"') {
        return read_number(cursor, name, |token| parse(token.text));
    }
    let at = cursor.pos();
    let text = cursor.string()?;
    if !number::is_number(text) {
        return Err(Fault::new(format!("{} is not a number", excerpt(text)), at));
    }
    parse(text).ok_or_else(|| out_of_range(text, name, at))
}

fn read_bool(cursor: &mut Cursor<'_>) -> Step<bool> {
    match cursor.peek() {
        Some(b't') => cursor.word("true").map(|()| true),
        Some(b'f') => cursor.word("false").map(|()| false),
        _ => Err(cursor.unexpected("boolean")),
    }
}

#[inline]
fn read_timestamp(cursor: &mut Cursor<'_>, name: &str, clock: &mut Clock) -> Step<i64> {
    let at = cursor.pos();
    if cursor.peek() == Some(b'"') {
        let text = cursor.string()?;
        return clock.read_text(text).map_err(|why| Fault::new(format!("{} {why}", excerpt(text)), at));
    }
    let seconds = read_whole(cursor, name, number::whole)?;
    clock.read_seconds(seconds).map_err(|why| Fault::new(format!("\"{seconds}\" {why}"), at))
}

fn read_base64(cursor: &mut Cursor<'_>, slices: &mut Slices) -> Step<()> {
    let at = cursor.pos();
    let text = read_quoted(cursor, "binary")?;
    if !base64::decode_into(text, &mut slices.data) {
        return Err(Fault::new(format!("{} is not base64", excerpt(text)), at));
    }
    slices.ends.push(slices.data.len())
}

#[inline]
fn read_quoted<'c>(cursor: &'c mut Cursor<'_>, name: &str) -> Step<&'c [u8]> {
    expect_value(cursor, b'"', name)?;
    cursor.string()
}

/// Checks that a value begins here whose first byte is `first`, without stepping over it.
#[inline]
fn expect_value(cursor: &Cursor<'_>, first: u8, name: &str) -> Step<()> {
    if cursor.peek() == Some(first) { Ok(()) } else { Err(cursor.unexpected(name)) }
}

fn read_list(cursor: &mut Cursor<'_>, items: &mut Column) -> Step<()> {
    cursor.open(b'[')?;
    let mut more = !cursor.closes_empty(b']');
    while more {
        items.read(cursor).map_err(|fault| fault.within("[]"))?;
        more = cursor.next_item(b']')?;
    }
    Ok(())
}

/// `start` is the number of entries of the rows before.
fn read_map(cursor: &mut Cursor<'_>, keys: &mut Slices, values: &mut Column, start: usize) -> Step<()> {
    let at = cursor.pos();
    cursor.open(b'{')?;
    let mut more = !cursor.closes_empty(b'}');
    while more {
        keys.push(cursor.string()?)?;
        cursor.colon()?;
        values.read(cursor).map_err(|fault| fault.within("[]"))?;
        more = cursor.next_item(b'}')?;
    }
    match keys.duplicate_from(start) {
        Some(key) => Err(Fault::new(format!("map key {} comes twice", excerpt(key)), at)),
        None => Ok(()),
    }
}

/// Byte strings, end to end.
pub(super) struct Slices {
    pub(super) data: Vec<u8>,
    pub(super) ends: Ends,
}

impl Slices {
    pub(super) fn new(rows: usize) -> Self {
        Self { data: Vec::with_capacity(rows.saturating_mul(8)), ends: Ends::new(rows) }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) -> Step<()> {
        self.data.extend_from_slice(bytes);
        self.ends.push(self.data.len())
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.data.truncate(self.ends.last());
    }

    /// A string that occurs twice from number `start` on.
    fn duplicate_from(&self, start: usize) -> Option<&[u8]> {
        let mut bounds = self.ends.0[start..].windows(2).map(|pair| &self.data[pair[0] as usize..pair[1] as usize]);
        if bounds.len() <= KEYS_TO_COMPARE {
            let rest = bounds.clone().enumerate();
            return rest
                .into_iter()
                .find(|(at, key)| bounds.clone().take(*at).any(|other| other == *key))
                .map(|it| it.1);
        }
        let mut seen = HashSet::with_capacity(bounds.len());
        bounds.find(|key| !seen.insert(*key))
    }
}

/// Where each row's items end within the items of all rows; begins with the 0 that Arrow's offsets begin with.
pub(super) struct Ends(pub(super) Vec<i32>);

impl Ends {
    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows.saturating_add(1));
        ends.push(0);
        Self(ends)
    }

    #[inline]
    fn push(&mut self, end: usize) -> Step<()> {
        let Ok(end) = i32::try_from(end) else { return Err(Fault::column_is_full()) };
        self.0.push(end);
        Ok(())
    }

    pub(super) fn push_empty(&mut self) {
        self.0.push(self.0.last().copied().unwrap_or(0));
    }

    fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows + 1);
    }

    /// The end of the last row. Never negative: `push` took it from a length.
    fn last(&self) -> usize {
        self.0.last().map_or(0, |end| end.unsigned_abs() as usize)
    }
}
