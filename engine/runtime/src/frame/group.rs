//! Steps that look at many rows at once. Static frames only, for now: on a stream they need state that is kept from
//! batch to batch.

use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, SortExpr};
use tidemill_core::{Error, code};

use super::column::{SelectExpr, SortKey};
use super::resolve::built;
use super::{DataFrame, select, sql};

impl DataFrame {
    /// Sorts by names or expressions, ascending with nulls first unless said otherwise.
    #[track_caller]
    pub fn sort(self, keys: impl IntoIterator<Item = impl Into<SortKey>>) -> Self {
        let keys: Vec<SortExpr> = keys.into_iter().map(|key| key.into().0).collect();
        self.step("sort", |_, plan| built(LogicalPlanBuilder::new(plan).sort(keys)))
    }

    /// Keeps at most this many rows.
    #[track_caller]
    pub fn limit(self, rows: usize) -> Self {
        self.step("limit", |_, plan| built(LogicalPlanBuilder::new(plan).limit(0, Some(rows))))
    }

    /// Leaves out rows that equal another one in every column.
    #[track_caller]
    pub fn distinct(self) -> Self {
        self.step("distinct", |_, plan| built(LogicalPlanBuilder::new(plan).distinct()))
    }

    /// Groups rows by names or expressions; [`GroupedFrame::agg`] says what is computed of each group.
    pub fn group_by(self, keys: impl IntoIterator<Item = impl Into<SelectExpr>>) -> GroupedFrame {
        GroupedFrame { frame: self, keys: keys.into_iter().map(Into::into).collect() }
    }

    /// Computes aggregates over all rows.
    #[track_caller]
    pub fn agg(self, aggregates: impl IntoIterator<Item = Expr>) -> Self {
        GroupedFrame { frame: self, keys: Vec::new() }.agg(aggregates)
    }
}

/// A frame whose rows are grouped.
#[derive(Clone, Debug)]
pub struct GroupedFrame {
    frame: DataFrame,
    keys: Vec<SelectExpr>,
}

impl GroupedFrame {
    /// One row a group: the keys, then the aggregates, which may be part of larger expressions.
    ///
    /// ```
    /// # use tidemill_runtime::frame::DataFrame;
    /// use tidemill_runtime::frame::functions::{avg, col, max};
    ///
    /// # fn example(readings: DataFrame) {
    /// let daily = readings.group_by(["sensorId"]).agg([avg(col("celsius")).alias("mean"), max(col("celsius"))]);
    /// # }
    /// ```
    #[track_caller]
    pub fn agg(self, aggregates: impl IntoIterator<Item = Expr>) -> DataFrame {
        let GroupedFrame { frame, keys } = self;
        let aggregates: Vec<Expr> = aggregates.into_iter().map(sql::named).collect();
        frame.step("agg", |_, plan| {
            if aggregates.is_empty() {
                return Err(
                    Error::new(code::BAD_PLAN, "nothing is computed of the groups").fix("give agg an aggregate")
                );
            }
            let keys = select::expand(keys, &plan)?;
            let groups: Vec<Expr> = keys.iter().cloned().map(Expr::unalias).collect();
            let found = find_aggregate_exprs(&aggregates);
            let grouped = LogicalPlanBuilder::new(plan).aggregate(groups, found);
            built(grouped.and_then(|grouped| grouped.project(keys.into_iter().chain(aggregates))))
        })
    }
}
