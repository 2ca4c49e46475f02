//! JSON messages as typed rows, one row for each message.
//!
//! **Aligned.** Row *i* of the result belongs to message *i*, whatever the message holds. A null message (a tombstone)
//! is a null struct, and not bad. A bad message is a struct whose fields are all null, with its text in
//! `_corrupt_record` when the schema has that column, and an entry in [`Decoded::bad`]; nothing of its other fields is
//! kept (Spark keeps partial results). It never touches its neighbours.
//!
//! **Strict.** One message is one JSON object by RFC 8259, with blanks around it. Bad are: empty and blank messages,
//! `null`, scalars and arrays at the top, a second document, trailing commas, leading zeros, `NaN`, control characters
//! in strings, lone surrogates, invalid UTF-8, a byte order mark, and nesting beyond 128 levels. Fields that the
//! schema does not name are skipped, but checked all the same.
//!
//! **Fields** are found by exact name, in any order. A key that comes twice counts with its last value, as in Spark,
//! and each of its values must fit the type. A missing field is null; one that must not be null makes the message bad.
//!
//! **What a type takes**
//!
//! | type | JSON | bad |
//! | --- | --- | --- |
//! | boolean | `true`, `false` | all else, as everywhere below |
//! | whole numbers | a number without fraction and exponent; `-0` is 0 | `1.0`, `1e3`, `"12"`, what passes the width |
//! | float, double | a number; the nearest value | `1e400`, `"1.5"` |
//! | decimal | a number, or a string that holds one; rounded half-up | more digits than the precision |
//! | string | a string; of any other value its JSON text, as in Spark | |
//! | binary | base64, padded | |
//! | date | `"2024-03-10"` | numbers |
//! | timestamp | text or whole seconds, see `time.rs` | `1710037800.5`, `1710037800000`, `"1710037800"` |
//! | struct | an object, by these same rules | |
//! | array | an array | |
//! | map | an object | a key that comes twice |

use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray, GenericBinaryArray, NullBufferBuilder, OffsetSizeTrait, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;
use serde::{Deserialize, Serialize};

use super::column::Slices;
use super::cursor::{Cursor, DEPTH_MAX};
use super::fault::{Fault, Step};
use super::group::{Group, nests_deeper_than};
use super::{BadRecord, Decoded};

/// How JSON is decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JsonOptions {
    /// The column that receives the text of a bad message, if the schema has a string column of this name. It is
    /// never read from a message. Spark's `columnNameOfCorruptRecord`.
    pub corrupt_record_column: String,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self { corrupt_record_column: "_corrupt_record".to_owned() }
    }
}

/// Decodes JSON messages into rows of one schema. See the [module](self) for its rules.
///
/// ```
/// use arrow::array::{Array, StringArray};
/// use tidemill_core::decode::{JsonDecoder, JsonOptions, parse_ddl};
///
/// let decoder = JsonDecoder::try_new(parse_ddl("id bigint, name string")?, JsonOptions::default())?;
/// let messages = StringArray::from(vec![Some(r#"{"id":1,"name":"a"}"#), Some("oops"), None]);
/// let decoded = decoder.decode(&messages)?;
/// assert_eq!(decoded.rows.len(), 3);
/// assert_eq!(decoded.bad[0].row, 1);
/// assert_eq!(decoded.bad[0].reason, "expected an object, found \"oops\" (byte 0)");
/// assert!(decoded.rows.is_null(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonDecoder {
    /// The result's fields, `_corrupt_record` included.
    fields: Fields,
    /// The fields that messages have, each as strict as the schema asked.
    message_fields: Fields,
    corrupt: Option<(usize, FieldRef)>,
}

/// A schema or a column that JSON cannot be decoded with. Never the fault of a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum JsonError {
    /// JSON cannot be decoded into this type.
    UnsupportedType {
        /// The field, with the fields around it: `reading.values[]`.
        path: String,
        /// Its type.
        data_type: DataType,
    },
    /// Two fields of one struct have the same name.
    DuplicateField {
        /// The name.
        name: String,
        /// The struct's path; empty for the top.
        path: String,
    },
    /// The column for bad messages is not a string.
    CorruptRecordType {
        /// The column.
        name: String,
        /// Its type.
        data_type: DataType,
    },
    /// The schema nests deeper than a message may.
    SchemaTooDeep,
    /// The messages are neither binary nor string.
    MessageType(DataType),
    /// A column of one batch would pass 2 GiB or 2^31 items: decode fewer messages at once.
    BatchTooLarge,
    /// Arrow refused the finished columns.
    Arrow(ArrowError),
}

impl JsonDecoder {
    /// A decoder for rows of `fields`.
    ///
    /// Supported are boolean, all integers, 32 and 64 bit floats, decimal128, strings, binaries, date32, timestamps of
    /// any unit and zone, structs, lists, and maps with string keys.
    pub fn try_new(fields: Fields, options: JsonOptions) -> Result<Self, JsonError> {
        if nests_deeper_than(&DataType::Struct(fields.clone()), DEPTH_MAX) {
            return Err(JsonError::SchemaTooDeep);
        }
        let corrupt = fields.iter().position(|field| *field.name() == options.corrupt_record_column);
        let corrupt = corrupt.map(|at| (at, fields[at].clone()));
        if let Some((_, field)) = &corrupt
            && !matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        {
            let (name, data_type) = (field.name().clone(), field.data_type().clone());
            return Err(JsonError::CorruptRecordType { name, data_type });
        }
        let message_fields: Fields =
            fields.iter().filter(|field| *field.name() != options.corrupt_record_column).cloned().collect();
        // Refuses repeated names and types that JSON does not go into.
        Group::try_new(fields.clone(), 0, "")?;
        let as_nullable = |field: &FieldRef| Field::clone(field).with_nullable(true);
        let fields = fields.iter().map(as_nullable).collect();
        Ok(Self { fields, message_fields, corrupt })
    }

    /// The fields of [`Decoded::rows`]: those of `try_new`, all nullable at the top, because a bad message has no
    /// values. Within structs, lists and maps nullability is as given.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Decodes a column of messages: binary or string, of Arrow's plain, large or view layout.
    ///
    /// Bad messages are no error; they are listed in [`Decoded::bad`], in order.
    pub fn decode(&self, messages: &dyn Array) -> Result<Decoded, JsonError> {
        let count = messages.len();
        match messages.data_type() {
            DataType::Binary => {
                let messages = messages.as_binary::<i32>();
                self.decode_each(messages.iter(), count, Checked::of(messages))
            }
            DataType::LargeBinary => {
                let messages = messages.as_binary::<i64>();
                self.decode_each(messages.iter(), count, Checked::of(messages))
            }
            DataType::BinaryView => self.decode_each(messages.as_binary_view().iter(), count, Checked::No),
            DataType::Utf8 => self.decode_each(bytes(messages.as_string::<i32>()), count, Checked::Utf8),
            DataType::LargeUtf8 => self.decode_each(bytes(messages.as_string::<i64>()), count, Checked::Utf8),
            DataType::Utf8View => self.decode_each(bytes(messages.as_string_view()), count, Checked::Utf8),
            other => Err(JsonError::MessageType(other.clone())),
        }
    }

    fn decode_each<'a>(
        &self,
        messages: impl Iterator<Item = Option<&'a [u8]>>,
        count: usize,
        checked: Checked,
    ) -> Result<Decoded, JsonError> {
        let mut group = Group::try_new(self.message_fields.clone(), count, "")?;
        let mut corrupt = self.corrupt.as_ref().map(|(at, field)| CorruptColumn::new(*at, field, count));
        let mut nulls = NullBufferBuilder::new(count);
        let mut bad = Vec::new();
        let mut cursor = Cursor::new();
        for (row, message) in messages.enumerate() {
            nulls.append(message.is_some());
            let mut text = None;
            match message {
                None => group.append_null(),
                Some(message) => {
                    if let Err(fault) = read_message(&mut cursor, message, checked, &mut group, row) {
                        if fault.column_is_full {
                            return Err(JsonError::BatchTooLarge);
                        }
                        group.truncate(row);
                        group.append_null();
                        bad.push(BadRecord { row, reason: fault.reason() });
                        text = Some(message);
                    }
                }
            }
            if let Some(corrupt) = &mut corrupt {
                corrupt.push(text)?;
            }
        }
        let nulls = nulls.finish();
        let mut arrays = group.columns.into_iter().map(|column| column.finish()).collect::<Result<Vec<_>, _>>()?;
        if let Some(corrupt) = corrupt {
            corrupt.finish_into(&mut arrays)?;
        }
        let rows = StructArray::try_new_with_length(self.fields.clone(), arrays, nulls, count)?;
        Ok(Decoded { rows, bad })
    }
}

/// Whether the messages are known to be UTF-8.
#[derive(Clone, Copy, PartialEq)]
enum Checked {
    No,
    Utf8,
}

impl Checked {
    /// ASCII is UTF-8, however it is cut: that is seen for all messages at once, many bytes at a time.
    fn of<O: OffsetSizeTrait>(messages: &GenericBinaryArray<O>) -> Self {
        let offsets = messages.value_offsets();
        let ends = offsets.first().zip(offsets.last()).map(|(first, last)| first.as_usize()..last.as_usize());
        let data = ends.and_then(|ends| messages.value_data().get(ends));
        if data.is_some_and(<[u8]>::is_ascii) { Checked::Utf8 } else { Checked::No }
    }
}

fn bytes<'a>(texts: impl IntoIterator<Item = Option<&'a str>>) -> impl Iterator<Item = Option<&'a [u8]>> {
    texts.into_iter().map(|text| text.map(str::as_bytes))
}

fn read_message<'a>(
    cursor: &mut Cursor<'a>,
    message: &'a [u8],
    checked: Checked,
    group: &mut Group,
    row: usize,
) -> Step<()> {
    if checked == Checked::No
        && let Err(error) = std::str::from_utf8(message)
    {
        return Err(Fault::new("invalid UTF-8", error.valid_up_to()));
    }
    cursor.reset(message);
    cursor.skip_blanks();
    match cursor.peek() {
        Some(b'{') => group.read(cursor, row)?,
        None if message.is_empty() => return Err(Fault::new("the message is empty", 0)),
        None => return Err(Fault::new("the message is blank", 0)),
        _ if message.starts_with("\u{feff}".as_bytes()) => {
            return Err(Fault::new("the message begins with a byte order mark", 0));
        }
        _ => return Err(cursor.unexpected("an object")),
    }
    cursor.skip_blanks();
    if cursor.peek().is_some() {
        return Err(cursor.unexpected("the end of the message"));
    }
    Ok(())
}

/// The texts of bad messages.
struct CorruptColumn<'a> {
    /// Its place among the result's fields.
    at: usize,
    field: &'a Field,
    texts: Slices,
    nulls: NullBufferBuilder,
}

impl<'a> CorruptColumn<'a> {
    fn new(at: usize, field: &'a Field, count: usize) -> Self {
        Self { at, field, texts: Slices::new(0), nulls: NullBufferBuilder::new(count) }
    }

    /// One more row. What is not UTF-8 is replaced by U+FFFD.
    fn push(&mut self, message: Option<&[u8]>) -> Result<(), JsonError> {
        self.nulls.append(message.is_some());
        match message {
            None => self.texts.ends.push_empty(),
            Some(message) => {
                let text = String::from_utf8_lossy(message);
                self.texts.push(text.as_bytes()).map_err(|_| JsonError::BatchTooLarge)?;
            }
        }
        Ok(())
    }

    fn finish_into(mut self, arrays: &mut Vec<ArrayRef>) -> Result<(), JsonError> {
        arrays.insert(self.at, self.texts.finish_text(self.nulls.finish(), self.field.data_type())?);
        Ok(())
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnsupportedType { path, data_type } => {
                write!(f, "field \"{path}\": JSON cannot be decoded into {data_type}")
            }
            Self::DuplicateField { name, path } if path.is_empty() => write!(f, "two fields are named \"{name}\""),
            Self::DuplicateField { name, path } => write!(f, "two fields of \"{path}\" are named \"{name}\""),
            Self::CorruptRecordType { name, data_type } => {
                write!(f, "column \"{name}\" takes the text of bad messages and must be a string, not {data_type}")
            }
            Self::SchemaTooDeep => write!(f, "the schema nests deeper than the {DEPTH_MAX} levels a message may have"),
            Self::MessageType(data_type) => {
                write!(f, "messages must be binary or string, not {data_type}; cast the column first")
            }
            Self::BatchTooLarge => {
                f.write_str("a column of one batch would pass 2 GiB or 2^31 items; decode fewer messages at once")
            }
            Self::Arrow(_) => f.write_str("the decoded columns do not make a valid struct"),
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Arrow(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ArrowError> for JsonError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}
