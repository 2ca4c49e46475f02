//! Schemas back into DDL.

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

use super::lexer::is_of_word;
use super::{COMMENT, DdlError};

/// Writes fields as DDL, such that [`parse_ddl`](super::parse_ddl) gives the same fields back.
///
/// Large and view layouts are written like plain ones. Errors on types that DDL has no word for, such as unsigned
/// integers and timestamps in other units or zones.
pub fn to_ddl(fields: &Fields) -> Result<String, DdlError> {
    let fields = fields.iter().map(|field| write_field(field, " ")).collect::<Result<Vec<_>, _>>()?;
    Ok(fields.join(", "))
}

/// The type in DDL, or in Arrow's words where DDL has none.
pub(in super::super) fn type_name(data_type: &DataType) -> String {
    write_type(data_type).unwrap_or_else(|_| data_type.to_string())
}

fn write_field(field: &Field, between: &str) -> Result<String, DdlError> {
    let name = field.name();
    let quoted = if !name.is_empty() && name.chars().all(is_of_word) {
        name.clone()
    } else {
        format!("`{}`", name.replace('`', "``"))
    };
    let comment = match field.metadata().get(COMMENT) {
        Some(comment) => format!(" comment '{}'", comment.replace('\'', "''")),
        None => String::new(),
    };
    Ok(format!("{quoted}{between}{}{}{comment}", write_type(field.data_type())?, not_null(field)))
}

fn not_null(field: &Field) -> &'static str {
    if field.is_nullable() { "" } else { " not null" }
}

fn write_type(data_type: &DataType) -> Result<String, DdlError> {
    let plain = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "int",
        DataType::Int64 => "bigint",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz",
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if zone.as_ref() == "UTC" => "timestamp",
        DataType::Decimal128(precision, scale @ 0..) => return Ok(format!("decimal({precision},{scale})")),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| write_field(field, ": ")).collect::<Result<Vec<_>, _>>()?;
            return Ok(format!("struct<{}>", fields.join(", ")));
        }
        DataType::List(item) | DataType::LargeList(item) => {
            return Ok(format!("array<{}{}>", write_type(item.data_type())?, not_null(item)));
        }
        DataType::Map(entry, _) => {
            if let DataType::Struct(fields) = entry.data_type()
                && let [key, value] = fields.as_ref()
            {
                let (key, null) = (write_type(key.data_type())?, not_null(value));
                return Ok(format!("map<{key},{}{null}>", write_type(value.data_type())?));
            }
            return Err(no_word_for(data_type));
        }
        other => return Err(no_word_for(other)),
    };
    Ok(plain.to_owned())
}

fn no_word_for(data_type: &DataType) -> DdlError {
    DdlError { message: format!("DDL has no word for the type {data_type}"), position: None }
}
