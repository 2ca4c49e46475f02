//! Errors: what went wrong, where, why, and what to do about it.
//!
//! Every error has a stable [`Code`] (`TM0207`). The code decides the [`ErrorKind`], which tells a *program* what to do
//! (try again, stop, ask), and the process's exit code. The message, the places and the fix tell a *person*. A foreign
//! error is wrapped once, at the door of the library it comes from, as the source; `Display` does not repeat it,
//! [`Error::report`] prints the whole chain.

use std::fmt;
use std::sync::Arc;

/// The result of everything in Tidemill that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a program should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A passing fault: the same step may be tried again, within a bound of time.
    Retry,
    /// Another driver owns the checkpoint. Stop; nothing may be written any more.
    Fenced,
    /// An option, an address or a name is wrong. A person must change it.
    FixConfig,
    /// The data or the checkpoint is damaged, or does not fit. A person must look.
    FixData,
    /// A mistake of ours.
    Bug,
}

/// A stable error code. All of them are in [`code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// The printed form, such as `TM0207`. Never used again for another meaning.
    pub id: &'static str,
    /// What a program should do.
    pub kind: ErrorKind,
    /// The exit code of a process that ends with this error, after `sysexits.h`.
    pub exit: u8,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal, $kind:ident, $exit:literal;)+) => {
        /// The catalogue of error codes. 00xx general, 01xx checkpoint, 02xx sources, 03xx sinks, 04xx plans and data.
        pub mod code {
            use super::{Code, ErrorKind};
            $($(#[doc = $doc])+ pub const $name: Code = Code { id: $id, kind: ErrorKind::$kind, exit: $exit };)+
            /// Every code there is, in order.
            pub const ALL: &[Code] = &[$($name),+];
        }
    };
}

codes! {
    /// An option or argument has a value that cannot be used.
    INVALID_OPTION = "TM0001", FixConfig, 78;
    /// An option that nobody knows; the message suggests the nearest known one.
    UNKNOWN_OPTION = "TM0002", FixConfig, 78;
    /// An option that is needed was not given.
    MISSING_OPTION = "TM0003", FixConfig, 78;
    /// A source or sink format that is not registered.
    UNKNOWN_FORMAT = "TM0004", FixConfig, 78;
    /// A call that does not fit, such as `collect` on a streaming frame.
    USAGE = "TM0005", FixConfig, 64;
    /// An invariant of ours does not hold.
    BUG = "TM0010", Bug, 70;
    /// A task of an attempt panicked. The attempt failed; the process goes on.
    TASK_PANICKED = "TM0011", Retry, 70;
    /// The query was asked to stop in the middle of this step.
    STOPPED = "TM0012", Retry, 0;

    /// The store answered with an error that may pass.
    STORE_UNAVAILABLE = "TM0101", Retry, 74;
    /// The store refused: permission, read-only, no space.
    STORE_REFUSED = "TM0102", FixConfig, 74;
    /// A write whose outcome could not be found out before the deadline. The next start finds out.
    WRITE_UNKNOWN = "TM0103", FixData, 74;
    /// A durable write could not be made durable (fsync failed). Nothing after it can be trusted.
    NOT_DURABLE = "TM0104", FixData, 74;
    /// The store gives one name to two writers, or loses what it acknowledged.
    STORE_UNFIT = "TM0105", FixConfig, 78;
    /// A newer driver runs on this checkpoint.
    FENCED = "TM0110", Fenced, 75;
    /// A file of the checkpoint is damaged.
    CHECKPOINT_DAMAGED = "TM0120", FixData, 65;
    /// A file of the checkpoint has a format that this version does not know.
    CHECKPOINT_VERSION = "TM0121", FixData, 65;
    /// A file of the checkpoint is missing between others.
    CHECKPOINT_HOLE = "TM0122", FixData, 65;
    /// A file of the checkpoint belongs to another query.
    CHECKPOINT_FOREIGN = "TM0123", FixData, 65;
    /// The query has another set of sources or sinks than the batch that is pending, or a source is another one than
    /// its checkpoint knows.
    QUERY_CHANGED = "TM0124", FixConfig, 78;
    /// The batch asked for is not in the log.
    BATCH_NOT_FOUND = "TM0125", FixConfig, 78;
    /// A location that this build cannot open.
    UNKNOWN_LOCATION = "TM0130", FixConfig, 78;

    /// The source does not answer, or not in time.
    SOURCE_UNAVAILABLE = "TM0201", Retry, 69;
    /// A topic or partition that does not exist.
    SOURCE_NOT_FOUND = "TM0202", FixConfig, 78;
    /// The source refused the credentials or the right to read.
    SOURCE_DENIED = "TM0203", FixConfig, 78;
    /// Rows of the range are no longer there.
    DATA_LOSS = "TM0205", FixData, 65;
    /// The end of the source lies below a known one.
    SOURCE_TRUNCATED = "TM0206", FixData, 65;
    /// A topic was deleted and made again.
    TOPIC_RECREATED = "TM0207", FixData, 65;
    /// A range made no progress within its bound.
    RANGE_STUCK = "TM0208", Retry, 69;
    /// The receipts of an attempt do not match its plan.
    RECEIPT_MISMATCH = "TM0209", Retry, 65;
    /// An offset that the source cannot understand.
    BAD_OFFSET = "TM0210", FixData, 65;

    /// The sink does not answer, or not in time.
    SINK_UNAVAILABLE = "TM0301", Retry, 69;
    /// The sink holds batches that the checkpoint does not know.
    SINK_AHEAD = "TM0302", FixData, 65;
    /// The sink lacks batches that the checkpoint has committed.
    SINK_BEHIND = "TM0303", FixData, 65;
    /// Another checkpoint wrote this batch of this sink.
    SINK_FOREIGN = "TM0304", FixData, 65;
    /// A staged file is gone, or has another size, before it was published.
    STAGE_LOST = "TM0305", FixData, 65;
    /// A value of a partition column cannot be a folder.
    BAD_PARTITION_VALUE = "TM0306", FixData, 65;
    /// The rows do not fit what the sink takes.
    SINK_SCHEMA = "TM0307", FixConfig, 78;
    /// The rows could not be encoded.
    ENCODE = "TM0308", FixData, 65;

    /// A plan that a stream cannot run.
    UNSUPPORTED_PLAN = "TM0401", FixConfig, 78;
    /// An expression, a column or SQL text that does not resolve.
    BAD_PLAN = "TM0402", FixConfig, 78;
    /// A record that does not fit its schema, under the policy `fail`.
    BAD_RECORD = "TM0403", FixData, 65;
    /// An expression failed on a value.
    EXPRESSION = "TM0404", FixData, 65;
    /// A batch does not fit the memory that was allowed.
    OUT_OF_MEMORY = "TM0405", FixConfig, 78;
}

#[derive(Clone)]
struct Inner {
    code: Code,
    what: String,
    places: Vec<(&'static str, String)>,
    fix: Option<String>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// An error with a code, a place, a cause and a fix.
///
/// ```
/// use tidemill_core::{Error, ErrorKind, code};
///
/// let error = Error::new(code::SOURCE_NOT_FOUND, "topic \"sensor-dta\" does not exist")
///     .at("source", "kafka-0")
///     .fix("did you mean \"sensor-data\"?");
/// assert_eq!(error.kind(), ErrorKind::FixConfig);
/// assert_eq!(error.exit_code(), 78);
/// assert_eq!(
///     error.to_string(),
///     "TM0202 topic \"sensor-dta\" does not exist (source kafka-0); fix: did you mean \"sensor-data\"?"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

impl Error {
    /// A new error. `what` is lower case, without a full stop, names quoted.
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Error(Arc::new(Inner { code, what: what.into(), places: Vec::new(), fix: None, source: None }))
    }

    /// Adds a place: a query, a source, `topic-partition@offset`, a batch, a path. The first added is printed first.
    #[must_use]
    pub fn at(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        let place = (name, value.to_string());
        // Callers on the way up may all know where it was.
        if !self.0.places.contains(&place) {
            Arc::make_mut(&mut self.0).places.push(place);
        }
        self
    }

    /// Sets what a person can do about it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).fix = Some(fix.into());
        self
    }

    /// Wraps the foreign error that caused this one.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::from(source.into()));
        self
    }

    /// The same error under another code, keeping text, places, fix and source.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        Arc::make_mut(&mut self.0).code = code;
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What a program should do.
    pub fn kind(&self) -> ErrorKind {
        self.0.code.kind
    }

    /// The exit code for a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        self.0.code.exit
    }

    /// What went wrong, alone.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The places, in the order in which they were added.
    pub fn places(&self) -> &[(&'static str, String)] {
        &self.0.places
    }

    /// What a person can do, if that is known.
    pub fn fix_text(&self) -> Option<&str> {
        self.0.fix.as_deref()
    }

    /// The whole story over several lines: the error, then each cause, then the fix.
    pub fn report(&self) -> String {
        let mut text = format!("{} {}{}", self.0.code.id, self.0.what, Places(&self.0.places));
        let mut last = self.0.what.clone();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let line = cause.to_string();
            if !last.ends_with(&line) {
                text.push_str(&format!("\n  because: {line}"));
            }
            last = line;
            source = cause.source();
        }
        if let Some(fix) = &self.0.fix {
            text.push_str(&format!("\n  fix: {fix}"));
        }
        text
    }
}

struct Places<'a>(&'a [(&'static str, String)]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let texts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
        write!(f, " ({})", texts.join(", "))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0.code.id, self.0.what, Places(&self.0.places))?;
        match &self.0.fix {
            Some(fix) => write!(f, "; fix: {fix}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_their_exit_codes_are_known() {
        let mut ids: Vec<_> = code::ALL.iter().map(|code| code.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), code::ALL.len());
        for code in code::ALL {
            assert!([0, 64, 65, 69, 70, 74, 75, 78].contains(&code.exit), "{code:?}");
        }
    }

    #[test]
    fn report_prints_the_chain_once_and_the_fix_last() {
        let error = Error::new(code::STORE_REFUSED, "the table cannot be written")
            .at("path", "/t")
            .because(std::io::Error::other("no space left"))
            .fix("free some space");
        assert_eq!(
            error.report(),
            "TM0102 the table cannot be written (path /t)\n  because: no space left\n  fix: free some space"
        );
        assert_eq!(error.to_string(), "TM0102 the table cannot be written (path /t); fix: free some space");
    }
}
