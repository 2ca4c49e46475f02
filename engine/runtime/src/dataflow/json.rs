//! JSON messages as columns: the function `from_json` for SQL and expressions, and [`Json`] for `.decode(…)`.
//!
//! The decoding itself is [`tidemill_core::decode`]; here it gets its place in a plan and its policy for bad records.
//! Both functions are declared volatile though they are not: the optimiser copies what it thinks cheap and constant into
//! every place that mentions it, and a message would be decoded once for each of its columns.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, SchemaRef};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use serde::{Deserialize, Serialize};
pub use tidemill_core::decode::BadRecordPolicy;
use tidemill_core::decode::{JsonDecoder, JsonError, JsonOptions, parse_ddl};
use tidemill_core::error::{Error, Result, code};

use super::errors::into_datafusion;

const FROM_JSON: &str = "from_json";
const DECODE_JSON: &str = "decode_json";

/// How messages are decoded by `.decode(…)`: their schema, and what happens to a bad one.
///
/// ```
/// use tidemill_runtime::dataflow::{BadRecordPolicy, Json};
///
/// let json = Json::ddl("sensor_id string, celsius double, at timestamp").on_bad_record(BadRecordPolicy::Null);
/// assert_eq!(json.fields()?.len(), 3);
/// # Ok::<(), tidemill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Json {
    schema: JsonSchema,
    settings: JsonSettings,
}

#[derive(Clone, Debug)]
enum JsonSchema {
    Ddl(String),
    Fields(Fields),
}

/// How a message is decoded, apart from its schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JsonSettings {
    /// What happens to a record that does not fit.
    pub policy: BadRecordPolicy,
    /// The column that takes the text of a bad record, where the schema has it; `_corrupt_record` if none is named.
    pub corrupt_record_column: Option<String>,
}

impl Json {
    /// Messages with this schema, in Spark's words: `"sensor_id string, celsius double, at timestamp"`.
    pub fn ddl(schema: impl Into<String>) -> Self {
        Json { schema: JsonSchema::Ddl(schema.into()), settings: JsonSettings::default() }
    }

    /// Messages with this schema.
    pub fn schema(schema: SchemaRef) -> Self {
        Json { schema: JsonSchema::Fields(schema.fields().clone()), settings: JsonSettings::default() }
    }

    /// What happens to a record that does not fit; [`BadRecordPolicy::Fail`] unless it is set.
    #[must_use]
    pub fn on_bad_record(mut self, policy: BadRecordPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// The column that takes the text of a bad record, where the schema has it; `_corrupt_record` unless it is set.
    #[must_use]
    pub fn corrupt_record_column(mut self, name: impl Into<String>) -> Self {
        self.settings.corrupt_record_column = Some(name.into());
        self
    }

    /// The columns that decoding gives, all nullable.
    pub fn fields(&self) -> Result<Fields> {
        Ok(self.function()?.decoder.fields().clone())
    }

    /// The decoded message as one struct column. `locator` are columns that tell where a record came from, for the
    /// error about a bad one: of a Kafka source `topic`, `partition` and `offset`, in this order.
    pub fn decode(&self, value: Expr, locator: impl IntoIterator<Item = Expr>) -> Result<Expr> {
        let function = Arc::new(ScalarUDF::from(self.function()?));
        let arguments = std::iter::once(value).chain(locator).collect();
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments)))
    }

    fn function(&self) -> Result<DecodeJson> {
        let fields = match &self.schema {
            JsonSchema::Ddl(text) => fields_of_ddl(text)?,
            JsonSchema::Fields(fields) => fields.clone(),
        };
        DecodeJson::try_new(fields, self.settings.clone())
    }
}

/// The function `from_json(value, 'a int, b string')`, as an expression: one struct column; a record that does not fit
/// has null fields, and its text in `_corrupt_record` where the schema has that.
pub fn from_json(value: Expr, schema: impl Into<String>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(from_json_udf(), vec![value, lit(schema.into())]))
}

/// The function `from_json`, for a session's functions.
pub fn from_json_udf() -> Arc<ScalarUDF> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(FromJson::default())));
    Arc::clone(&FUNCTION)
}

/// Whether a function is one of these: volatile in name only.
pub(super) fn is_ours(function: &ScalarUDF) -> bool {
    function.inner().is::<FromJson>() || function.inner().is::<DecodeJson>()
}

fn fields_of_ddl(text: &str) -> Result<Fields> {
    parse_ddl(text).map_err(|error| {
        Error::new(code::BAD_PLAN, format!("the schema \"{text}\" does not parse: {error}"))
            .fix("write it as in \"sensor_id string, celsius double, at timestamp\"")
    })
}

fn decoder(fields: &Fields, settings: &JsonSettings) -> Result<JsonDecoder> {
    let mut options = JsonOptions::default();
    if let Some(column) = &settings.corrupt_record_column {
        options.corrupt_record_column.clone_from(column);
    }
    JsonDecoder::try_new(fields.clone(), options)
        .map_err(|error| Error::new(code::BAD_PLAN, format!("JSON cannot be decoded: {error}")))
}

/// Messages are taken as they are, binary or text of every layout.
fn check_messages(function: &str, arguments: &[DataType]) -> Result<DataType> {
    match arguments.first() {
        Some(DataType::Null) => Ok(DataType::Utf8),
        Some(
            layout @ (DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View),
        ) => Ok(layout.clone()),
        Some(other) => {
            Err(Error::new(code::BAD_PLAN, format!("{function} takes text or binary messages, not {other}")))
        }
        None => Err(Error::new(code::BAD_PLAN, format!("{function} needs the messages as its first argument"))),
    }
}

fn failed(error: JsonError) -> Error {
    let code = match &error {
        JsonError::BatchTooLarge => code::OUT_OF_MEMORY,
        _ => code::BUG,
    };
    Error::new(code, format!("JSON cannot be decoded: {error}"))
}

/// `from_json(value, schema)`. The schema is a literal, so that the columns are known when the query is built.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FromJson {
    signature: Signature,
}

impl Default for FromJson {
    fn default() -> Self {
        FromJson { signature: Signature::user_defined(Volatility::Volatile) }
    }
}

impl FromJson {
    fn decoder(schema: Option<&ScalarValue>) -> Result<JsonDecoder> {
        let text = schema.and_then(|schema| schema.try_as_str().flatten()).ok_or_else(|| {
            Error::new(code::BAD_PLAN, "the second argument of from_json is the schema, as a literal text")
                .fix("write from_json(value, 'sensor_id string, celsius double')")
        })?;
        decoder(&fields_of_ddl(text)?, &JsonSettings::default())
    }
}

impl ScalarUDFImpl for FromJson {
    fn name(&self) -> &str {
        FROM_JSON
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        let messages = check_messages(FROM_JSON, arguments).map_err(into_datafusion)?;
        match arguments.len() {
            2 => Ok(vec![messages, DataType::Utf8]),
            count => Err(into_datafusion(Error::new(
                code::BAD_PLAN,
                format!("from_json takes two arguments, the messages and their schema, not {count}"),
            ))),
        }
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Err(into_datafusion(Error::new(code::BUG, "the type of from_json depends on its schema")))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        let schema = arguments.scalar_arguments.get(1).copied().flatten();
        let decoder = FromJson::decoder(schema).map_err(into_datafusion)?;
        Ok(Arc::new(Field::new(FROM_JSON, DataType::Struct(decoder.fields().clone()), true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [messages, ColumnarValue::Scalar(schema)] = arguments.args.as_slice() else {
            return Err(into_datafusion(Error::new(code::BUG, "from_json was called without a literal schema")));
        };
        let decoder = FromJson::decoder(Some(schema)).map_err(into_datafusion)?;
        let messages = messages.to_array(arguments.number_rows)?;
        let decoded = decoder.decode(&messages).map_err(|error| into_datafusion(failed(error)))?;
        Ok(ColumnarValue::Array(Arc::new(decoded.rows)))
    }
}

/// What `.decode(…)` puts into a plan: the schema is part of the function, and columns that locate a record follow the
/// messages.
#[derive(Debug)]
pub(super) struct DecodeJson {
    signature: Signature,
    fields: Fields,
    settings: JsonSettings,
    decoder: JsonDecoder,
}

impl DecodeJson {
    /// The function for these fields.
    pub fn try_new(fields: Fields, settings: JsonSettings) -> Result<Self> {
        let decoder = decoder(&fields, &settings)?;
        Ok(DecodeJson { signature: Signature::user_defined(Volatility::Volatile), fields, settings, decoder })
    }

    /// The fields, as strict as they were given.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How a message is decoded, apart from its schema.
    pub fn settings(&self) -> &JsonSettings {
        &self.settings
    }
}

impl PartialEq for DecodeJson {
    fn eq(&self, other: &Self) -> bool {
        (&self.fields, &self.settings) == (&other.fields, &other.settings)
    }
}

impl Eq for DecodeJson {}

impl Hash for DecodeJson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.fields, &self.settings).hash(state);
    }
}

impl ScalarUDFImpl for DecodeJson {
    fn name(&self) -> &str {
        DECODE_JSON
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> PlanResult<Vec<DataType>> {
        let mut types = arguments.to_vec();
        let messages = check_messages("decode", arguments).map_err(into_datafusion)?;
        if let Some(first) = types.first_mut() {
            *first = messages;
        }
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Struct(self.decoder.fields().clone()))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let mut columns = ColumnarValue::values_to_arrays(&arguments.args)?.into_iter();
        let messages = columns.next().ok_or_else(|| into_datafusion(Error::new(code::BUG, "nothing to decode")))?;
        let decoded = self.decoder.decode(&messages).map_err(|error| into_datafusion(failed(error)))?;
        match (self.settings.policy, decoded.bad.first()) {
            (BadRecordPolicy::Fail, Some(bad)) => {
                let locator: Vec<ArrayRef> = columns.collect();
                let what = format!("a record does not fit its schema: {}", bad.reason);
                let fix = "correct the schema, or let bad records pass: .on_bad_record(BadRecordPolicy::Null)";
                let place = place(&locator, bad.row);
                Err(into_datafusion(Error::new(code::BAD_RECORD, what).at("record", place).fix(fix)))
            }
            _ => Ok(ColumnarValue::Array(Arc::new(decoded.rows))),
        }
    }
}

/// Where a record came from: `topic-partition@offset`, or the locators that there are.
fn place(locator: &[ArrayRef], row: usize) -> String {
    let text = |column: &ArrayRef| match column.len() {
        1 => array_value_to_string(column, 0),
        _ => array_value_to_string(column, row),
    };
    let texts: Vec<String> = locator.iter().map(|column| text(column).unwrap_or_default()).collect();
    match texts.as_slice() {
        [] => format!("in row {row} of a record batch"),
        [topic, partition, offset] => format!("{topic}-{partition}@{offset}"),
        texts => texts.join(" "),
    }
}
