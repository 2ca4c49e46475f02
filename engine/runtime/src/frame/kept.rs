//! Errors that are kept: an error is reported where a frame is used, perhaps several times, and tells where it was made.

use std::panic::Location;

use tidemill_core::Error;

/// Adds the step and the user's line; an error that came from another frame's chain keeps the ones it has.
pub(crate) fn at_step(error: Error, step: &'static str, caller: &Location<'_>) -> Error {
    if error.places().iter().any(|(name, _)| *name == STEP) {
        return error;
    }
    error.at(STEP, step).at("at", format_args!("{}:{}", caller.file(), caller.line()))
}

const STEP: &str = "step";
