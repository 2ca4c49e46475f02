//! DataFusion's errors, turned into ours at its door.
//!
//! An error of ours that travelled through DataFusion (as `External`, however deep it was wrapped) comes out as it went
//! in. A foreign one gets a code: what does not resolve is [`code::BAD_PLAN`], what failed on a value is
//! [`code::EXPRESSION`], what did not fit is [`code::OUT_OF_MEMORY`]. Its text is ours from then on, so it is not also
//! kept as the source: nothing is said twice.

use std::any::Any;
use std::error::Error as StdError;
use std::sync::Arc;

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use tidemill_core::error::{Code, Error, code};
use tidemill_core::options::nearest;

type Boxed = Box<dyn StdError + Send + Sync>;

/// An error of DataFusion as one of ours.
pub fn from_datafusion(error: DataFusionError) -> Error {
    take(error).unwrap_or_else(|foreign| describe(&foreign))
}

/// An error of Arrow as one of ours.
pub fn from_arrow(error: ArrowError) -> Error {
    from_datafusion(error.into())
}

/// An error of ours on its way through DataFusion; [`from_datafusion`] gives it back.
pub fn into_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The error with a place, unless it names one of this kind already.
pub fn placed(error: Error, name: &'static str, value: &str) -> Error {
    if error.places().iter().any(|(known, _)| *known == name) { error } else { error.at(name, value) }
}

/// A caught panic as an error: it fails the attempt, not the process.
pub fn from_panic(payload: Box<dyn Any + Send>) -> Error {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "without a text",
    };
    Error::new(code::TASK_PANICKED, format!("a task panicked: {text}"))
}

/// What a task answers that was told to stop.
pub fn stopped() -> Error {
    Error::new(code::STOPPED, "the attempt was stopped")
}

/// Ours, if it is inside; otherwise the foreign error, with its wrapping taken off.
fn take(error: DataFusionError) -> Result<Error, DataFusionError> {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => take(*inner),
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => take(first),
            None => Err(DataFusionError::Internal("an empty collection of errors".to_owned())),
        },
        DataFusionError::Shared(shared) => match Arc::try_unwrap(shared) {
            Ok(inner) => take(inner),
            Err(shared) => find(&shared).cloned().ok_or(DataFusionError::Shared(shared)),
        },
        DataFusionError::External(boxed) => take_boxed(boxed),
        DataFusionError::ArrowError(inner, note) => match *inner {
            ArrowError::ExternalError(boxed) => take_boxed(boxed),
            inner => Err(DataFusionError::ArrowError(Box::new(inner), note)),
        },
        other => Err(other),
    }
}

fn take_boxed(boxed: Boxed) -> Result<Error, DataFusionError> {
    let boxed = match boxed.downcast::<Error>() {
        Ok(ours) => return Ok(*ours),
        Err(boxed) => boxed,
    };
    let boxed = match boxed.downcast::<DataFusionError>() {
        Ok(inner) => return take(*inner),
        Err(boxed) => boxed,
    };
    match boxed.downcast::<ArrowError>() {
        Ok(inner) => take(DataFusionError::ArrowError(inner, None)),
        Err(boxed) => Err(DataFusionError::External(boxed)),
    }
}

/// Ours, inside an error that somebody else holds as well.
fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    if let Some(ours) = error.downcast_ref::<Error>() {
        return Some(ours);
    }
    // `source` does not lead into every kind of wrapping, so these are opened by hand.
    match error.downcast_ref::<DataFusionError>() {
        Some(DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner)) => find(inner.as_ref()),
        Some(DataFusionError::Collection(errors)) => errors.first().and_then(|first| find(first)),
        Some(DataFusionError::Shared(inner)) => find(inner.as_ref()),
        Some(DataFusionError::External(boxed)) => find(boxed.as_ref()),
        Some(DataFusionError::ArrowError(inner, _)) => find(inner.as_ref()),
        Some(_) => None,
        None => match error.downcast_ref::<ArrowError>() {
            Some(ArrowError::ExternalError(boxed)) => find(boxed.as_ref()),
            _ => error.source().and_then(|source| find(source)),
        },
    }
}

/// A code and a text for a foreign error.
fn describe(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::SchemaError(error, _) => describe_schema(error),
        DataFusionError::SQL(error, _) => {
            new(code::BAD_PLAN, format!("the SQL text does not parse: {error}")).fix("write it as for DataFusion's SQL")
        }
        DataFusionError::Plan(text) | DataFusionError::Configuration(text) => new(code::BAD_PLAN, text.clone()),
        DataFusionError::NotImplemented(text) => new(code::BAD_PLAN, format!("not supported: {text}")),
        DataFusionError::ResourcesExhausted(text) => new(code::OUT_OF_MEMORY, text.clone())
            .fix("give the session more memory, or let a batch read less (maxOffsetsPerTrigger)"),
        DataFusionError::Execution(text) => expression(text.clone()),
        DataFusionError::ArrowError(error, _) => describe_arrow(error),
        DataFusionError::IoError(error) => new(code::STORE_UNAVAILABLE, format!("spilling failed: {error}")),
        DataFusionError::ExecutionJoin(error) if error.is_panic() => {
            new(code::TASK_PANICKED, format!("a task panicked: {error}"))
        }
        DataFusionError::ExecutionJoin(_) => new(code::STOPPED, "a task was cancelled".to_owned()),
        DataFusionError::External(error) => expression(chain(error.as_ref())),
        DataFusionError::Shared(inner) => describe(inner),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => describe(inner),
        DataFusionError::Internal(text) => new(code::BUG, text.clone()),
        other => new(code::BUG, other.strip_backtrace()),
    }
}

fn describe_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error = Error::new(code::BAD_PLAN, format!("there is no column \"{}\"", field.name()));
            let known: Vec<&str> = valid_fields.iter().map(|field| field.name()).collect();
            match nearest(field.name(), known.iter().copied()) {
                Some(near) => error.fix(format!("did you mean \"{near}\"?")),
                None => error.fix(format!("there is: {}", known.join(", "))),
            }
        }
        SchemaError::AmbiguousReference { field } => {
            Error::new(code::BAD_PLAN, format!("column \"{}\" is there more than once", field.name()))
                .fix("put the table's name before it, or rename one of them")
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            Error::new(code::BAD_PLAN, format!("two columns would have the name \"{name}\"")).fix("rename one of them")
        }
    }
}

fn describe_arrow(error: &ArrowError) -> Error {
    let text = error.to_string();
    match error {
        ArrowError::SchemaError(_) | ArrowError::NotYetImplemented(_) => new(code::BAD_PLAN, text),
        ArrowError::MemoryError(_) => new(code::OUT_OF_MEMORY, text),
        ArrowError::IoError(_, _) => new(code::STORE_UNAVAILABLE, text),
        ArrowError::ExternalError(error) => expression(chain(error.as_ref())),
        _ => expression(text),
    }
}

/// An expression that failed on a value. Which expression and which value is not told to us.
fn expression(text: String) -> Error {
    new(code::EXPRESSION, text).fix("guard it, by CASE or NULLIF or try_cast, or filter such rows out before it")
}

/// An error and its causes in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let line = cause.to_string();
        if !text.ends_with(&line) {
            text = format!("{text}: {line}");
        }
        source = cause.source();
    }
    text
}

/// A foreign text in our form: one line, lower case, without a full stop.
fn new(code: Code, text: String) -> Error {
    let text = text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    let text = match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    };
    Error::new(code, text)
}

#[cfg(test)]
mod tests {
    use datafusion::common::Column;

    use super::*;

    fn ours() -> Error {
        Error::new(code::SOURCE_DENIED, "no right to read").at("topic", "t").fix("ask").because("refused")
    }

    #[test]
    fn error_of_ours_comes_out_as_it_went_in_however_deep() {
        let external = || into_datafusion(ours());
        let arrow = |inner: Boxed| DataFusionError::ArrowError(Box::new(ArrowError::ExternalError(inner)), None);
        let wrapped = [
            external(),
            external().context("while planning").context("while optimising"),
            arrow(Box::new(ours())),
            arrow(Box::new(external().context("inside"))),
            DataFusionError::External(Box::new(arrow(Box::new(ours())))),
            DataFusionError::External(Box::new(ArrowError::ExternalError(Box::new(ours())))),
            DataFusionError::Shared(Arc::new(external().context("shared"))),
            DataFusionError::Collection(vec![external(), DataFusionError::Plan("another".to_owned())]),
        ];
        for error in wrapped {
            let shape = format!("{error:?}");
            assert_eq!(from_datafusion(error).report(), ours().report(), "{shape}");
        }
    }

    #[test]
    fn error_that_somebody_else_holds_too_is_copied() {
        let shared = Arc::new(into_datafusion(ours()).context("kept"));
        let outer =
            DataFusionError::Context("outer".to_owned(), Box::new(DataFusionError::Shared(Arc::clone(&shared))));
        assert_eq!(from_datafusion(outer).report(), ours().report());
        drop(shared);
    }

    #[test]
    fn foreign_errors_get_the_code_of_their_kind() {
        fn check(error: DataFusionError, code: Code, text: &str) {
            let error = from_datafusion(error);
            assert_eq!((error.code(), error.to_string().as_str()), (code, text));
        }
        let missing = SchemaError::FieldNotFound {
            field: Box::new(Column::from_name("celsus")),
            valid_fields: vec![Column::from_name("sensor_id"), Column::from_name("celsius")],
        };
        check(
            DataFusionError::SchemaError(Box::new(missing), Box::new(None)),
            code::BAD_PLAN,
            "TM0402 there is no column \"celsus\"; fix: did you mean \"celsius\"?",
        );
        check(
            DataFusionError::Plan("Invalid function 'fo'.\nDid you mean 'foo'?".to_owned()),
            code::BAD_PLAN,
            "TM0402 invalid function 'fo'. Did you mean 'foo'?",
        );
        check(
            DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None).context("projection"),
            code::EXPRESSION,
            "TM0404 divide by zero error; fix: guard it, by CASE or NULLIF or try_cast, or filter such rows out before it",
        );
        check(
            DataFusionError::ResourcesExhausted("Failed to allocate".to_owned()),
            code::OUT_OF_MEMORY,
            "TM0405 failed to allocate; fix: give the session more memory, or let a batch read less (maxOffsetsPerTrigger)",
        );
        check(
            DataFusionError::External("boom".into()),
            code::EXPRESSION,
            "TM0404 boom; fix: guard it, by CASE or NULLIF or try_cast, or filter such rows out before it",
        );
    }
}
