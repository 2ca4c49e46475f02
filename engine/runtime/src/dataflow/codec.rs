//! How plans travel: our operators and functions as bytes, beside DataFusion's own.
//!
//! A plan and the bytes it becomes belong to one version of Tidemill and of DataFusion; they are sent, never stored.
//! A payload is JSON, with Arrow schemas in it as DataFusion's protobuf message.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::error::Result as PlanResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use datafusion_proto::protobuf;
use prost::Message;
use serde::{Deserialize, Serialize};
use tidemill_core::error::{Error, Result, code};

use super::errors::{from_datafusion, into_datafusion};
use super::json::{DecodeJson, JsonSettings, from_json_udf};
use super::sink_write::{SinkWrite, SinkWriteExec};
use super::source_read::{SourceRead, SourceReadExec};

/// Encodes and decodes our operators and functions.
#[derive(Debug, Default)]
pub struct Codec;

/// One of our operators, as it travels. Its inputs travel beside it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Node {
    SourceRead { read: SourceRead, schema: Vec<u8> },
    SinkWrite(SinkWrite),
}

/// One of our functions, as it travels.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Function {
    DecodeJson { settings: JsonSettings, schema: Vec<u8> },
}

impl Codec {
    /// A plan as bytes.
    pub fn encode(plan: Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &Codec).map_err(from_datafusion)?;
        Ok(bytes.to_vec())
    }

    /// The plan in bytes that [`Codec::encode`] gave, on a machine with these functions.
    pub fn decode(bytes: &[u8], context: &TaskContext) -> Result<Arc<dyn ExecutionPlan>> {
        physical_plan_from_bytes_with_extension_codec(bytes, context, &Codec).map_err(from_datafusion)
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let node: Node = from_json_bytes(bytes)?;
        let [input] = inputs else { return Err(into_datafusion(broken("an operator has not one input"))) };
        let input = Arc::clone(input);
        Ok(match node {
            Node::SourceRead { read, schema } => {
                Arc::new(SourceReadExec::try_new(read, Arc::new(schema_from_bytes(&schema)?), input)?)
            }
            Node::SinkWrite(write) => Arc::new(SinkWriteExec::new(write, input)),
        })
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<()> {
        let node = if let Some(exec) = plan.downcast_ref::<SourceReadExec>() {
            Node::SourceRead { read: exec.read().clone(), schema: schema_to_bytes(exec.read_schema())? }
        } else if let Some(exec) = plan.downcast_ref::<SinkWriteExec>() {
            Node::SinkWrite(exec.write().clone())
        } else {
            return Err(into_datafusion(broken(&format!("operator {} cannot travel", plan.name()))));
        };
        to_json_bytes(&node, bytes)
    }

    fn try_decode_udf(&self, name: &str, bytes: &[u8]) -> PlanResult<Arc<ScalarUDF>> {
        if bytes.is_empty() {
            let known = from_json_udf();
            return match known.name() == name {
                true => Ok(known),
                false => Err(into_datafusion(broken(&format!("function {name} is not known here")))),
            };
        }
        match from_json_bytes(bytes)? {
            Function::DecodeJson { settings, schema } => {
                let fields = schema_from_bytes(&schema)?.fields;
                let decode = DecodeJson::try_new(fields, settings).map_err(into_datafusion)?;
                Ok(Arc::new(ScalarUDF::from(decode)))
            }
        }
    }

    fn try_encode_udf(&self, function: &ScalarUDF, bytes: &mut Vec<u8>) -> PlanResult<()> {
        // No bytes: the other side knows the function by its name.
        let Some(decode) = function.inner().downcast_ref::<DecodeJson>() else { return Ok(()) };
        let schema = schema_to_bytes(&Schema::new(decode.fields().clone()))?;
        to_json_bytes(&Function::DecodeJson { settings: decode.settings().clone(), schema }, bytes)
    }
}

fn to_json_bytes(value: &impl Serialize, bytes: &mut Vec<u8>) -> PlanResult<()> {
    serde_json::to_writer(bytes, value).map_err(|error| into_datafusion(broken("it does not encode").because(error)))
}

fn from_json_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> PlanResult<T> {
    serde_json::from_slice(bytes).map_err(|error| into_datafusion(broken("it does not decode").because(error)))
}

fn schema_to_bytes(schema: &Schema) -> PlanResult<Vec<u8>> {
    Ok(protobuf::Schema::try_from(schema)?.encode_to_vec())
}

fn schema_from_bytes(bytes: &[u8]) -> PlanResult<Schema> {
    let message = protobuf::Schema::decode(bytes)
        .map_err(|error| into_datafusion(broken("its schema does not decode").because(error)))?;
    Ok(Schema::try_from(&message)?)
}

fn broken(what: &str) -> Error {
    Error::new(code::BUG, format!("a travelling plan is broken: {what}"))
}
