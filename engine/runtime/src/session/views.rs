//! Static rows, temporary views, and SQL over both static and streaming ones.

use std::panic::Location;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::TableReference;
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, UNNAMED_TABLE};
use tidemill_core::{Error, Result, code};

use super::Session;
use crate::dataflow::from_datafusion;
use crate::frame::{DataFrame, at_step, check_plan, plan_query};

impl Session {
    /// A static frame of these rows, which must have one schema.
    #[track_caller]
    pub fn create_dataframe(&self, rows: Vec<RecordBatch>) -> DataFrame {
        let caller = Location::caller();
        let plan = static_plan(rows).map_err(|error| at_step(error, "create_dataframe", caller));
        DataFrame::new(self.clone(), plan)
    }

    /// The result of a query over temporary views, static or streaming. Identifiers keep their case; a name with a dot
    /// or a space stands in double quotes or backticks.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow::array::{ArrayRef, Float64Array, RecordBatch};
    /// # use tidemill_core::Registry;
    /// # use tidemill_runtime::session::Session;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tidemill_core::Result<()> {
    /// # let session = Session::with_registry(Registry::new()).build()?;
    /// # let celsius: ArrayRef = Arc::new(Float64Array::from(vec![20.0, 40.0]));
    /// # let rows = RecordBatch::try_from_iter([("airCelsius", celsius)]).expect("one column");
    /// session.create_dataframe(vec![rows]).create_or_replace_temp_view("sensors")?;
    /// let hot = session.sql("SELECT airCelsius FROM sensors WHERE airCelsius > 30");
    /// assert_eq!(hot.collect().await?[0].num_rows(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn sql(&self, text: impl AsRef<str>) -> DataFrame {
        let caller = Location::caller();
        let plan = plan_query(self.state(), text.as_ref()).and_then(check_plan);
        DataFrame::new(self.clone(), plan.map_err(|error| at_step(error, "sql", caller)))
    }

    /// Forgets a view; tells whether there was one. Frames made from it stay as they are.
    pub fn drop_temp_view(&self, name: impl AsRef<str>) -> Result<bool> {
        let views = self.state().schema_for_ref(TableReference::bare(name.as_ref())).map_err(from_datafusion)?;
        Ok(views.deregister_table(name.as_ref()).map_err(from_datafusion)?.is_some())
    }
}

impl DataFrame {
    /// Makes this frame known to [`Session::sql`] under a name, in place of an earlier one. What queries already use of
    /// the earlier one stays as it is.
    pub fn create_or_replace_temp_view(&self, name: impl Into<String>) -> Result<()> {
        let name = name.into();
        if name.is_empty() {
            return Err(Error::new(code::INVALID_OPTION, "a view needs a name"));
        }
        // Checked now, so that an error shows where the view is made; kept unanalysed, to be analysed with its query.
        self.schema()?;
        let view = Arc::new(ViewTable::new(self.plan()?.clone(), None));
        let views =
            self.session().state().schema_for_ref(TableReference::bare(name.as_str())).map_err(from_datafusion)?;
        views.deregister_table(&name).map_err(from_datafusion)?;
        views.register_table(name, view).map_err(from_datafusion)?;
        Ok(())
    }
}

fn static_plan(rows: Vec<RecordBatch>) -> Result<LogicalPlan> {
    let Some(first) = rows.first() else {
        return Err(Error::new(code::USAGE, "a frame of no record batches has no schema")
            .fix("pass one record batch without rows"));
    };
    let schema = first.schema();
    if let Some(other) = rows.iter().position(|rows| rows.schema() != schema) {
        return Err(Error::new(code::USAGE, format!("record batch {other} has another schema than the first")));
    }
    let table = MemTable::try_new(schema, vec![rows]).map_err(from_datafusion)?;
    let scan = LogicalPlanBuilder::scan(TableReference::bare(UNNAMED_TABLE), provider_as_source(Arc::new(table)), None);
    scan.and_then(LogicalPlanBuilder::build).map_err(from_datafusion)
}
