//! Types by name: in `cast` as in the schema texts of decoders, and the same names and meanings in SQL.
//!
//! Spark's names and meanings: `string` is UTF-8, `timestamp` an instant in microseconds, `timestamp_ntz` a wall-clock
//! time in microseconds, `long`, `short` and `byte` are whole numbers.

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, TimezoneInfo};
use tidemill_core::decode::parse_ddl;
use tidemill_core::{Error, Result, code};

use super::column::TypeOrDdl;

/// The type that is meant.
pub(super) fn resolve(data_type: TypeOrDdl) -> Result<DataType> {
    let text = match data_type {
        TypeOrDdl::Type(data_type) => return Ok(data_type),
        TypeOrDdl::Ddl(text) => text,
    };
    let wrong = |why: &str| {
        Error::new(code::BAD_PLAN, format!("\"{text}\" is not a type: {why}"))
            .fix("use a type such as string, long, double, boolean, timestamp, date or decimal(10, 2)")
    };
    // A schema of one column, so that `cast` and the schemas of decoders cannot differ.
    let fields = parse_ddl(&format!("column {text}")).map_err(|error| wrong(&error.message))?;
    match fields.as_ref() {
        [field] if field.is_nullable() && field.metadata().is_empty() => Ok(field.data_type().clone()),
        _ => Err(wrong("it says more than a type")),
    }
}

/// Teaches DataFusion's SQL the type names of Spark.
#[derive(Debug)]
pub(crate) struct DdlTypes;

impl TypePlanner for DdlTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> PlanResult<Option<FieldRef>> {
        let data_type = match sql_type {
            SqlType::String(_) | SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => DataType::Utf8,
            SqlType::Binary(_) | SqlType::Varbinary(_) | SqlType::Bytea => DataType::Binary,
            SqlType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => instant(),
            SqlType::Timestamp(None, TimezoneInfo::WithoutTimeZone) | SqlType::TimestampNtz(None) => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            SqlType::Custom(name, arguments) if arguments.is_empty() => {
                match name.to_string().to_lowercase().as_str() {
                    "long" => DataType::Int64,
                    "short" => DataType::Int16,
                    "byte" => DataType::Int8,
                    "timestamp_ltz" => instant(),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(FieldRef::new(Field::new("", data_type, true))))
    }
}

fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}
