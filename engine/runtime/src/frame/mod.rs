//! The data frame: one type for static and streaming data, so that one function transforms both.
//!
//! A [`DataFrame`] is a plan under construction and the session that it belongs to. Its steps never fail: the first
//! error of a chain is kept, with the step and the line that made it, and comes out where the frame is used: at
//! `start`, [`DataFrame::collect`] or [`DataFrame::schema`]. What a stream cannot do is refused in the same way, by the
//! step that asks for it.
//!
//! * [`mod@column`]: what steps take: our [`col`], names, expressions, SQL texts
//! * `select`, `combine`, `group`: the steps; `decode`: from bytes to typed columns
//! * `sql`, `types`: SQL and type texts; `resolve`: the errors of names that nobody knows
//! * `sources`: which streams a plan reads, and what they are called
//! * `tree`, `explain`, `show`: for people
//!
//! The plan stays unanalysed until [`DataFrame::into_plan`], and unoptimised for ever: the engine optimises it for every
//! batch, with `now()` fixed to the batch's time.

use std::panic::Location;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use tidemill_core::{Error, Result};

use crate::dataflow::{check_streaming, is_streaming};
use crate::session::Session;

pub mod column;
pub mod functions;

mod combine;
mod decode;
mod explain;
mod group;
mod kept;
mod resolve;
mod select;
mod show;
mod sources;
mod sql;
mod tree;
mod types;

#[cfg(test)]
pub(crate) mod tests;

pub use column::{ExprOrSql, SelectExpr, SortKey, TypeOrDdl, col};
pub use group::GroupedFrame;

pub(crate) use kept::at_step;
pub(crate) use sources::{name_sources, scan, static_scan};
pub(crate) use sql::plan_query;
pub(crate) use types::DdlTypes;

/// Rows with named, typed columns: static, or still arriving.
///
/// ```
/// use std::sync::Arc;
///
/// use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
/// use tidemill_runtime::frame::DataFrame;
/// use tidemill_runtime::frame::functions::{col, lit};
/// use tidemill_core::Registry;
/// use tidemill_runtime::session::Session;
///
/// fn hot(readings: DataFrame) -> DataFrame {
///     readings.filter(col("celsius").gt(lit(30.0))).select_expr(["sensorId", "celsius * 1.8 + 32 AS fahrenheit"])
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tidemill_core::Result<()> {
/// let session = Session::with_registry(Registry::new()).build()?;
/// let sensors: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
/// let celsius: ArrayRef = Arc::new(Float64Array::from(vec![20.0, 40.0]));
/// let rows = RecordBatch::try_from_iter([("sensorId", sensors), ("celsius", celsius)]).expect("equal lengths");
///
/// let readings = session.create_dataframe(vec![rows]);
/// assert!(!readings.is_streaming());
/// let hot = hot(readings);
/// assert_eq!(
///     hot.schema_tree()?,
///     "root\n |-- sensorId: string (nullable = false)\n |-- fahrenheit: double (nullable = false)\n"
/// );
/// assert_eq!(hot.collect().await?[0].num_rows(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DataFrame {
    session: Session,
    /// The steps so far, or the first error among them.
    plan: Result<Arc<LogicalPlan>>,
}

impl DataFrame {
    pub(crate) fn new(session: Session, plan: Result<LogicalPlan>) -> Self {
        DataFrame { session, plan: plan.map(Arc::new) }
    }

    /// The session that this frame belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether rows are still arriving: whether the plan reads at least one stream. A frame whose chain failed is not.
    pub fn is_streaming(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| is_streaming(plan))
    }

    /// The columns, as a sink will see them; or the first error of the chain.
    pub fn schema(&self) -> Result<SchemaRef> {
        let plan = self.clone().into_plan()?;
        Ok(Arc::clone(plan.schema().inner()))
    }

    /// The columns in Spark's form.
    ///
    /// ```text
    /// root
    ///  |-- sensorId: string (nullable = true)
    ///  |-- celsius: double (nullable = true)
    /// ```
    pub fn schema_tree(&self) -> Result<String> {
        let schema = self.schema()?;
        Ok(tree::schema_tree(&schema))
    }

    /// Prints [`DataFrame::schema_tree`].
    pub fn print_schema(&self) -> Result<()> {
        show::print(&self.schema_tree()?)
    }

    /// The finished plan: analysed (names and types resolved) and not optimised; if it reads a stream, checked to be one
    /// that a stream can run. Or the first error of the chain.
    pub fn into_plan(self) -> Result<Arc<LogicalPlan>> {
        let plan = self.plan?;
        let analysed = self.session.engine().analyze(Arc::unwrap_or_clone(plan))?;
        check_plan(analysed).map(Arc::new)
    }

    /// The plan so far, or the first error of the chain.
    pub(crate) fn plan(&self) -> Result<&LogicalPlan> {
        self.plan.as_ref().map(Arc::as_ref).map_err(Error::clone)
    }

    /// One step of a chain: skipped after an error, and its own error kept with its name and the user's line.
    #[track_caller]
    fn step(self, name: &'static str, build: impl FnOnce(&Session, LogicalPlan) -> Result<LogicalPlan>) -> Self {
        let caller = Location::caller();
        let DataFrame { session, plan } = self;
        let plan = plan.and_then(|plan| {
            let built = build(&session, Arc::unwrap_or_clone(plan)).and_then(check_plan);
            built.map(Arc::new).map_err(|error| kept::at_step(error, name, caller))
        });
        DataFrame { session, plan }
    }

    /// The plan of another frame that a step takes; or its first error.
    fn plan_for(self, session: &Session) -> Result<LogicalPlan> {
        resolve::check_session(session, &self.session)?;
        self.plan.map(Arc::unwrap_or_clone)
    }
}

/// Lets a plan pass that can run: a streaming one only if a stream can run it.
pub(crate) fn check_plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    check_streaming(&plan)?;
    Ok(plan)
}

impl std::fmt::Debug for DataFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.plan {
            Ok(plan) => write!(f, "DataFrame({})", plan.display_indent()),
            Err(error) => write!(f, "DataFrame({error})"),
        }
    }
}
