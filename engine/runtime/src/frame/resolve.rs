//! Names that meet a schema, and the errors of names that nobody knows.

use datafusion::common::{DFSchema, DataFusionError, SchemaError};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use tidemill_core::options::nearest;
use tidemill_core::{Error, Result, code};

use crate::dataflow::from_datafusion;
use crate::session::Session;

/// DataFusion's error about a plan, in our words.
pub(crate) fn plan_error(error: DataFusionError) -> Error {
    if let DataFusionError::SchemaError(schema_error, _) = error.find_root()
        && let SchemaError::FieldNotFound { field, valid_fields } = schema_error.as_ref()
    {
        return unknown_column(&field.name, valid_fields.iter().map(|field| field.name.as_str()));
    }
    from_datafusion(error)
}

/// A column that is not there, with the name that was most likely meant.
pub(crate) fn unknown_column<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Error {
    let error = Error::new(code::BAD_PLAN, format!("there is no column \"{name}\""));
    // A dot first: `data.celsius` is a way to write a field of a struct in SQL, and a name that `col` takes as it is.
    if let Some((parent, _)) = name.split_once('.')
        && known.clone().any(|known| known == parent)
    {
        return error.fix(format!("a field of \"{parent}\" is read with select_expr([\"{name}\"])"));
    }
    match nearest(name, known.clone()) {
        Some(known) => error.fix(format!("did you mean \"{known}\"?")),
        None => error.fix(format!("there is: {}", known.collect::<Vec<_>>().join(", "))),
    }
}

/// Two columns of one name, where names must tell them apart.
pub(crate) fn doubled(name: &str) -> Error {
    Error::new(code::BAD_PLAN, format!("two columns are called \"{name}\"")).fix("rename one of them, or drop it")
}

/// The names of a schema's columns.
pub(crate) fn names(schema: &DFSchema) -> impl Iterator<Item = &str> + Clone {
    schema.fields().iter().map(|field| field.name().as_str())
}

/// Where a column of exactly this name stands; an error if there is none, or more than one.
pub(crate) fn position(schema: &DFSchema, name: &str) -> Result<usize> {
    let mut found = names(schema).enumerate().filter(|(_, known)| *known == name).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(doubled(name)),
        (None, _) => Err(unknown_column(name, names(schema))),
    }
}

/// Refuses a frame of another session: its views, memory and streams are not ours.
pub(crate) fn check_session(ours: &Session, theirs: &Session) -> Result<()> {
    match ours.is_same(theirs) {
        true => Ok(()),
        false => Err(Error::new(code::USAGE, "the two frames belong to different sessions")
            .fix("build both from clones of one session")),
    }
}

/// What DataFusion's builder built, or its error in our words.
pub(crate) fn built(builder: Result<LogicalPlanBuilder, DataFusionError>) -> Result<LogicalPlan> {
    builder.and_then(LogicalPlanBuilder::build).map_err(plan_error)
}
