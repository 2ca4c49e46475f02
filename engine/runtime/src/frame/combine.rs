//! Steps that bring two frames together.

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use tidemill_core::{Error, Result, code};

use super::resolve::{built, doubled, names, position, unknown_column};
use super::select::project;
use super::{DataFrame, functions};

impl DataFrame {
    /// The rows of both frames, columns matched by position. Names come from this frame, types are widened where they
    /// differ. Doubled rows stay.
    #[track_caller]
    pub fn union(self, other: DataFrame) -> Self {
        self.step("union", |session, plan| {
            let other = other.plan_for(session)?;
            let (ours, theirs) = (plan.schema().fields().len(), other.schema().fields().len());
            if ours != theirs {
                return Err(Error::new(code::BAD_PLAN, format!("a union of {ours} and {theirs} columns"))
                    .fix("select the same columns on both sides"));
            }
            built(LogicalPlanBuilder::new(plan).union(other))
        })
    }

    /// The rows of both frames, columns matched by name. Both must have the same names, in any order.
    #[track_caller]
    pub fn union_by_name(self, other: DataFrame) -> Self {
        self.step("union_by_name", |session, plan| {
            let other = other.plan_for(session)?;
            if let Some(extra) = names(other.schema()).find(|name| !names(plan.schema()).any(|ours| ours == *name)) {
                return Err(unknown_column(extra, names(plan.schema())));
            }
            let mut matched = Vec::with_capacity(plan.schema().fields().len());
            for name in names(plan.schema()) {
                let at = position(other.schema(), name)?;
                matched.push(Expr::Column(Column::from(other.schema().qualified_field(at))));
            }
            let other = project(other, matched)?;
            built(LogicalPlanBuilder::new(plan).union(other))
        })
    }

    /// Joins on equal values of columns that both frames have. The result has each of these columns once, then the
    /// others of this frame, then the others of the right one, which must not share a name.
    ///
    /// Static frames only, for now.
    #[track_caller]
    pub fn join(self, right: DataFrame, on: impl IntoIterator<Item = impl AsRef<str>>, how: JoinType) -> Self {
        let on: Vec<String> = on.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.step("join", |session, plan| {
            let right = right.plan_for(session)?;
            join(plan, right, &on, how)
        })
    }
}

fn join(left: LogicalPlan, right: LogicalPlan, on: &[String], how: JoinType) -> Result<LogicalPlan> {
    if on.is_empty() {
        return Err(Error::new(code::BAD_PLAN, "a join needs at least one column to join on"));
    }
    let one_sided = match how {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => false,
        JoinType::LeftSemi | JoinType::LeftAnti => true,
        other => return Err(Error::new(code::BAD_PLAN, format!("a join of the type {other} is not offered"))),
    };
    for name in on {
        position(left.schema(), name)?;
        position(right.schema(), name)?;
    }
    let others = |plan: &LogicalPlan| -> Vec<String> {
        names(plan.schema()).filter(|name| !on.iter().any(|key| key == name)).map(str::to_owned).collect()
    };
    let (left_others, right_others) = (others(&left), others(&right));
    if let Some(both) = left_others.iter().find(|name| right_others.contains(name))
        && !one_sided
    {
        return Err(doubled(both));
    }

    let side = |table: &'static str| move |name: &String| Expr::Column(Column::new(Some(table), name));
    let (of_left, of_right) = (side("left"), side("right"));
    let key = |name: &String| match how {
        JoinType::Right => of_right(name).alias(name),
        JoinType::Full => functions::coalesce(vec![of_left(name), of_right(name)]).alias(name),
        _ => of_left(name).alias(name),
    };
    let mut columns: Vec<Expr> = on.iter().map(key).collect();
    columns.extend(left_others.iter().map(|name| of_left(name).alias(name)));
    if !one_sided {
        columns.extend(right_others.iter().map(|name| of_right(name).alias(name)));
    }

    let keys = |table: &'static str| -> Vec<Column> { on.iter().map(|name| Column::new(Some(table), name)).collect() };
    let right = built(LogicalPlanBuilder::new(right).alias("right"))?;
    let joined = LogicalPlanBuilder::new(left)
        .alias("left")
        .and_then(|left| left.join(right, how, (keys("left"), keys("right")), None));
    project(built(joined)?, columns)
}
