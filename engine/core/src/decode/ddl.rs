//! Schemas as Spark writes them: `sensor_id string, at timestamp, n struct<a: bigint, b: array<string>> not null`.
//!
//! A schema is a list of `name type`, or `name: type`, each with an optional `not null` and `comment 'text'`, at the
//! top as within `struct<…>`. Names are taken exactly, case included; one that is not all letters, digits and `_`
//! stands in backticks (a backtick in it is doubled). Keywords and types may be in any case.
//!
//! | DDL | Arrow |
//! | --- | --- |
//! | `boolean` | `Boolean` |
//! | `tinyint`, `byte`; `smallint`, `short`; `int`, `integer`; `bigint`, `long` | `Int8`, `Int16`, `Int32`, `Int64` |
//! | `float`, `real`; `double` | `Float32`, `Float64` |
//! | `decimal(p, s)`, also `dec`, `numeric`; `(p)` is `(p, 0)`, none is `(10, 0)` | `Decimal128` |
//! | `string`, `binary`, `date` | `Utf8`, `Binary`, `Date32` |
//! | `timestamp`, `timestamp_ltz` | `Timestamp(Microsecond, "UTC")` |
//! | `timestamp_ntz` | `Timestamp(Microsecond, None)` |
//! | `struct<name: type, …>`, `array<type>`, `map<string, type>` | `Struct`, `List`, `Map` |
//!
//! Beyond Spark, the items of an array and the values of a map may be `not null` too: `array<bigint not null>`.
//! Spark's `interval`, `void`, `variant`, `char(n)` and `varchar(n)` are left out.

mod lexer;
mod print;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use lexer::{Lexer, Token};

pub use print::to_ddl;
pub(super) use print::type_name;

/// The key of a field's metadata that holds its comment.
pub const COMMENT: &str = "comment";

/// How deep types may nest in one schema.
const DEPTH_MAX: usize = 64;

const DECIMAL_DIGITS_MAX: u8 = 38;

/// A schema that cannot be read, or not be written as DDL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdlError {
    /// What is wrong.
    pub message: String,
    /// Where it shows: a character of the text, counted from 1. `None` when there is no text.
    pub position: Option<usize>,
}

impl fmt::Display for DdlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "{} (character {position} of the schema)", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for DdlError {}

/// Reads a DDL schema. See the [module](self) for what it may hold.
///
/// ```
/// use tidemill_core::decode::{parse_ddl, to_ddl};
///
/// let fields = parse_ddl("sensor_id STRING NOT NULL, celsius double, at timestamp")?;
/// assert_eq!(to_ddl(&fields)?, "sensor_id string not null, celsius double, at timestamp");
///
/// let error = parse_ddl("celsius doubel").unwrap_err();
/// assert_eq!(error.message, "unknown type \"doubel\", did you mean \"double\"?");
/// # Ok::<(), tidemill_core::decode::DdlError>(())
/// ```
///
/// A whole `struct<…>` is taken as the list of its fields, as in Spark.
pub fn parse_ddl(text: &str) -> Result<Fields, DdlError> {
    let mut parser = Parser { lexer: Lexer::new(text), depth: 0 };
    if let Token::End = parser.lexer.peek()? {
        return Err(parser.lexer.error_here("the schema is empty"));
    }
    let is_one_struct = parser.lexer.take_word("struct")? && parser.lexer.take_symbol('<')?;
    if !is_one_struct {
        parser.lexer = Lexer::new(text);
        let fields = parser.fields(&Token::End)?;
        return Ok(fields);
    }
    let fields = parser.fields(&Token::Symbol('>'))?;
    parser.lexer.expect_symbol('>')?;
    match parser.lexer.peek()? {
        Token::End => Ok(fields),
        other => Err(parser.lexer.error_here(format!("expected the end of the schema, found {other}"))),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    depth: usize,
}

impl Parser<'_> {
    /// Fields up to `end`, which is left in place.
    fn fields(&mut self, end: &Token) -> Result<Fields, DdlError> {
        let mut fields = Vec::new();
        let mut names = HashSet::new();
        if self.lexer.peek()? == *end {
            return Ok(Fields::empty());
        }
        loop {
            let at = self.lexer.position()?;
            let field = self.field()?;
            if !names.insert(field.name().clone()) {
                return Err(DdlError::at(at, format!("two fields are named \"{}\"", field.name())));
            }
            fields.push(field);
            if self.lexer.take_symbol(',')? {
                continue;
            }
            match self.lexer.peek()? {
                token if token == *end => return Ok(fields.into()),
                token => return Err(self.lexer.error_here(format!("expected \",\" or {end}, found {token}"))),
            }
        }
    }

    fn field(&mut self) -> Result<Field, DdlError> {
        let name = match self.lexer.next()? {
            Token::Word(name) | Token::Quoted(name) => name,
            other => return Err(self.lexer.error_at_last(format!("expected a field name, found {other}"))),
        };
        self.lexer.take_symbol(':')?;
        let data_type = match self.lexer.peek()? {
            Token::Word(_) => self.data_type()?,
            other => return Err(self.lexer.error_here(format!("expected the type of \"{name}\", found {other}"))),
        };
        let field = Field::new(name, data_type, !self.not_null()?);
        if !self.lexer.take_word("comment")? {
            return Ok(field);
        }
        match self.lexer.next()? {
            Token::Text(comment) => Ok(field.with_metadata([(COMMENT.to_owned(), comment)].into())),
            other => Err(self.lexer.error_at_last(format!("expected the comment in quotes, found {other}"))),
        }
    }

    fn not_null(&mut self) -> Result<bool, DdlError> {
        if !self.lexer.take_word("not")? {
            return Ok(false);
        }
        if !self.lexer.take_word("null")? {
            return Err(self.lexer.error_here("expected \"null\" after \"not\""));
        }
        Ok(true)
    }

    fn data_type(&mut self) -> Result<DataType, DdlError> {
        let name = match self.lexer.next()? {
            Token::Word(name) => name,
            other => return Err(self.lexer.error_at_last(format!("expected a type, found {other}"))),
        };
        Ok(match name.to_ascii_lowercase().as_str() {
            "boolean" => DataType::Boolean,
            "tinyint" | "byte" => DataType::Int8,
            "smallint" | "short" => DataType::Int16,
            "int" | "integer" => DataType::Int32,
            "bigint" | "long" => DataType::Int64,
            "float" | "real" => DataType::Float32,
            "double" => DataType::Float64,
            "string" => DataType::Utf8,
            "binary" => DataType::Binary,
            "date" => DataType::Date32,
            "timestamp" | "timestamp_ltz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "decimal" | "dec" | "numeric" => return self.decimal(),
            "struct" => return self.nested(|parser| Ok(DataType::Struct(parser.fields(&Token::Symbol('>'))?))),
            "array" => return self.nested(Self::array),
            "map" => return self.nested(Self::map),
            _ => return Err(self.lexer.error_at_last(unknown_type(&name))),
        })
    }

    /// What stands between `<` and `>`.
    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<DataType, DdlError>) -> Result<DataType, DdlError> {
        self.lexer.expect_symbol('<')?;
        if self.depth == DEPTH_MAX {
            return Err(self.lexer.error_at_last(format!("types nest more than {DEPTH_MAX} levels deep")));
        }
        self.depth += 1;
        let data_type = inner(self)?;
        self.depth -= 1;
        self.lexer.expect_symbol('>')?;
        Ok(data_type)
    }

    fn array(&mut self) -> Result<DataType, DdlError> {
        let item = self.data_type()?;
        let nullable = !self.not_null()?;
        Ok(DataType::List(Arc::new(Field::new_list_field(item, nullable))))
    }

    fn map(&mut self) -> Result<DataType, DdlError> {
        let at = self.lexer.position()?;
        let key = self.data_type()?;
        if key != DataType::Utf8 {
            return Err(DdlError::at(at, format!("map keys must be string, not {}", type_name(&key))));
        }
        self.lexer.expect_symbol(',')?;
        let value = self.data_type()?;
        let nullable = !self.not_null()?;
        let entry: Fields = vec![Field::new("key", key, false), Field::new("value", value, nullable)].into();
        Ok(DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entry), false)), false))
    }

    fn decimal(&mut self) -> Result<DataType, DdlError> {
        if !self.lexer.take_symbol('(')? {
            return Ok(DataType::Decimal128(10, 0));
        }
        let precision = self.digits("the precision", 1)?;
        let scale = if self.lexer.take_symbol(',')? { self.digits("the scale", 0)? } else { 0 };
        if scale > precision {
            let message = format!("the scale {scale} passes the precision {precision}");
            return Err(self.lexer.error_at_last(message));
        }
        self.lexer.expect_symbol(')')?;
        Ok(DataType::Decimal128(precision, scale.cast_signed()))
    }

    fn digits(&mut self, what: &str, least: u8) -> Result<u8, DdlError> {
        let token = self.lexer.next()?;
        let number = if let Token::Word(text) = &token { text.parse().ok() } else { None };
        number.filter(|number| (least..=DECIMAL_DIGITS_MAX).contains(number)).ok_or_else(|| {
            let message = format!("{what} of a decimal is a number from {least} to {DECIMAL_DIGITS_MAX}, not {token}");
            self.lexer.error_at_last(message)
        })
    }
}

/// All type names, for suggestions.
const TYPE_NAMES: [&str; 24] = [
    "array",
    "bigint",
    "binary",
    "boolean",
    "byte",
    "date",
    "dec",
    "decimal",
    "double",
    "float",
    "int",
    "integer",
    "long",
    "map",
    "numeric",
    "real",
    "short",
    "smallint",
    "string",
    "struct",
    "timestamp",
    "timestamp_ltz",
    "timestamp_ntz",
    "tinyint",
];

fn unknown_type(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let known_elsewhere = match lower.as_str() {
        "bool" => Some("boolean"),
        "text" | "varchar" | "char" | "str" | "utf8" => Some("string"),
        "int8" | "i8" => Some("tinyint"),
        "int16" | "i16" => Some("smallint"),
        "int32" | "i32" => Some("int"),
        "int64" | "i64" => Some("bigint"),
        "float32" | "f32" => Some("float"),
        "float64" | "f64" => Some("double"),
        "bytes" => Some("binary"),
        "datetime" | "timestamptz" => Some("timestamp"),
        "list" => Some("array"),
        _ => None,
    };
    let nearest = || {
        let distance = |known: &&str| strsim::damerau_levenshtein(&lower, known);
        TYPE_NAMES.into_iter().min_by_key(distance).filter(|known| distance(known) <= 2.min(lower.chars().count() / 2))
    };
    match known_elsewhere.or_else(nearest) {
        Some(known) => format!("unknown type \"{name}\", did you mean \"{known}\"?"),
        None => format!(
            "unknown type \"{name}\"; there are boolean, tinyint, smallint, int, bigint, float, double, decimal, string, \
             binary, date, timestamp, timestamp_ntz, struct, array and map"
        ),
    }
}

impl DdlError {
    fn at(position: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), position: Some(position) }
    }
}
