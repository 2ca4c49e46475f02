//! Steps that choose, compute and name columns, and the one that chooses rows.

use std::collections::HashSet;

use datafusion::common::Column;
use datafusion::logical_expr::utils::{find_aggregate_exprs, find_window_exprs};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use tidemill_core::{Error, Result, code};

use super::column::{ExprOrSql, SelectExpr, TypeOrDdl};
use super::resolve::{built, doubled, names, plan_error, position, unknown_column};
use super::{DataFrame, sql, types};
use crate::session::Session;

impl DataFrame {
    /// Chooses columns: by exact name, `*` for all of them, `data.*` for the fields of a struct, or expressions.
    ///
    /// An expression without an alias keeps the name of the column that it casts, or is called as it reads.
    ///
    /// ```
    /// # use tidemill_runtime::frame::DataFrame;
    /// use tidemill_runtime::frame::functions::{col, lit};
    ///
    /// # fn example(readings: DataFrame) {
    /// let by_name = readings.clone().select(["sensorId", "celsius"]);
    /// let computed = readings.clone().select([col("sensorId"), (col("celsius") * lit(1.8)).alias("scaled")]);
    /// let fields = readings.select(["data.*"]);
    /// # }
    /// ```
    #[track_caller]
    pub fn select(self, columns: impl IntoIterator<Item = impl Into<SelectExpr>>) -> Self {
        let columns: Vec<SelectExpr> = columns.into_iter().map(Into::into).collect();
        self.step("select", |_, plan| {
            let exprs = expand(columns, &plan)?;
            project(plan, exprs)
        })
    }

    /// Chooses columns by SQL texts, with or without `AS`: `CAST(value AS STRING) AS reading`, `*`, `data.*`,
    /// `data.celsius`. Identifiers keep their case.
    #[track_caller]
    pub fn select_expr(self, texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let texts: Vec<String> = texts.into_iter().map(|text| text.as_ref().to_owned()).collect();
        self.step("select_expr", |session, plan| {
            let mut exprs = Vec::with_capacity(texts.len());
            for text in &texts {
                exprs.extend(sql::select_item(session.state(), text, plan.schema())?);
            }
            project(plan, exprs)
        })
    }

    /// Keeps the rows for which the condition, an expression or SQL, is true.
    ///
    /// ```
    /// # use tidemill_runtime::frame::DataFrame;
    /// use tidemill_runtime::frame::functions::{col, lit};
    ///
    /// # fn example(readings: DataFrame) {
    /// let hot = readings.clone().filter(col("celsius").gt(lit(30.0)));
    /// let named = readings.filter("sensorId LIKE 'a%' AND celsius IS NOT NULL");
    /// # }
    /// ```
    #[track_caller]
    pub fn filter(self, condition: impl Into<ExprOrSql>) -> Self {
        let condition = condition.into();
        self.step("filter", |session, plan| {
            let condition = expression(session, condition, &plan)?;
            built(LogicalPlanBuilder::new(plan).filter(condition))
        })
    }

    /// Adds a column, or replaces the one of this name in its place. The value is an expression or SQL.
    #[track_caller]
    pub fn with_column(self, name: impl Into<String>, value: impl Into<ExprOrSql>) -> Self {
        let columns = vec![(name.into(), value.into())];
        self.step("with_column", |session, plan| add_columns(session, plan, columns))
    }

    /// Adds or replaces several columns at once: all values are computed from the columns as they were before.
    #[track_caller]
    pub fn with_columns(self, columns: impl IntoIterator<Item = (impl Into<String>, impl Into<ExprOrSql>)>) -> Self {
        let columns: Vec<_> = columns.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.step("with_columns", |session, plan| add_columns(session, plan, columns))
    }

    /// Gives a column another name. (Spark ignores a name that does not exist; here it is an error.)
    #[track_caller]
    pub fn rename(self, name: impl AsRef<str>, to: impl Into<String>) -> Self {
        let (name, to) = (name.as_ref().to_owned(), to.into());
        self.step("rename", |_, plan| rename(plan, &name, to))
    }

    /// [`DataFrame::rename`] under Spark's name.
    #[track_caller]
    pub fn with_column_renamed(self, name: impl AsRef<str>, to: impl Into<String>) -> Self {
        self.rename(name, to)
    }

    /// Leaves columns out. (Spark ignores a name that does not exist; here it is an error.)
    #[track_caller]
    pub fn drop(self, columns: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let dropped: Vec<String> = columns.into_iter().map(|name| name.as_ref().to_owned()).collect();
        self.step("drop", |_, plan| {
            if let Some(unknown) = dropped.iter().find(|dropped| !names(plan.schema()).any(|name| name == *dropped)) {
                return Err(unknown_column(unknown, names(plan.schema())));
            }
            let kept = plan.schema().columns().into_iter().filter(|column| !dropped.contains(&column.name));
            let kept = kept.map(Expr::Column).collect();
            project(plan, kept)
        })
    }

    /// Changes the type of a column, which keeps its name and place. The type is Arrow's, or named as in `CREATE TABLE`:
    /// `double`, `timestamp`, `decimal(10, 2)`. A value that does not fit is an error when it is met.
    #[track_caller]
    pub fn cast(self, column: impl AsRef<str>, to: impl Into<TypeOrDdl>) -> Self {
        let (column, to) = (column.as_ref().to_owned(), to.into());
        self.step("cast", |_, plan| {
            let data_type = types::resolve(to)?;
            let at = position(plan.schema(), &column)?;
            let value = Expr::Column(Column::from(plan.schema().qualified_field(at)));
            let value = value.cast_to(&data_type, plan.schema()).map_err(plan_error)?;
            replace_columns(plan, vec![(column, value)])
        })
    }
}

/// The expressions that a select list stands for.
pub(super) fn expand(columns: Vec<SelectExpr>, plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let schema = plan.schema();
    let mut exprs = Vec::with_capacity(columns.len());
    for column in columns {
        match column {
            SelectExpr::Expr(expr) => exprs.push(sql::named(expr)),
            // A column that is really called `data.*` comes before what `data.*` stands for.
            SelectExpr::Name(name) if names(schema).any(|known| known == name) => {
                let at = position(schema, &name)?;
                exprs.push(Expr::Column(Column::from(schema.qualified_field(at))));
            }
            SelectExpr::Name(name) => match sql::wildcard_path(&name) {
                Some(path) => exprs.extend(sql::expand_wildcard(&path, schema)?),
                None => return Err(unknown_column(&name, names(schema))),
            },
        }
    }
    Ok(exprs)
}

/// A projection, with window functions computed below it.
pub(super) fn project(plan: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    if exprs.is_empty() {
        return Err(Error::new(code::BAD_PLAN, "no column is left").fix("keep at least one"));
    }
    if let Some(aggregate) = find_aggregate_exprs(&exprs).first() {
        return Err(Error::new(code::BAD_PLAN, format!("\"{aggregate}\" is an aggregate, and there is no group"))
            .fix("use group_by(…).agg(…)"));
    }
    let windows = find_window_exprs(&exprs);
    let plan = match windows.is_empty() {
        true => plan,
        false => LogicalPlanBuilder::window_plan(plan, windows).map_err(plan_error)?,
    };
    built(LogicalPlanBuilder::new(plan).project(exprs))
}

/// The expression that a text or an expression stands for.
pub(super) fn expression(session: &Session, value: ExprOrSql, plan: &LogicalPlan) -> Result<Expr> {
    match value {
        ExprOrSql::Expr(expr) => Ok(expr),
        ExprOrSql::Sql(text) => sql::expression(session.state(), &text, plan.schema()),
    }
}

fn add_columns(session: &Session, plan: LogicalPlan, columns: Vec<(String, ExprOrSql)>) -> Result<LogicalPlan> {
    let mut values = Vec::with_capacity(columns.len());
    for (name, value) in columns {
        values.push((name, expression(session, value, &plan)?));
    }
    replace_columns(plan, values)
}

/// Every column as it is, or with its new value; then the new columns, in the order given.
fn replace_columns(plan: LogicalPlan, values: Vec<(String, Expr)>) -> Result<LogicalPlan> {
    let mut seen = HashSet::new();
    if let Some((name, _)) = values.iter().find(|(name, _)| !seen.insert(name)) {
        return Err(doubled(name));
    }
    let mut values: Vec<(String, Option<Expr>)> =
        values.into_iter().map(|(name, value)| (name, Some(value.unalias()))).collect();
    let mut exprs = Vec::with_capacity(plan.schema().fields().len() + values.len());
    for column in plan.schema().columns() {
        match values.iter_mut().find(|(name, _)| *name == column.name) {
            Some((name, value)) => exprs.push(value.take().ok_or_else(|| doubled(name))?.alias(name.as_str())),
            None => exprs.push(Expr::Column(column)),
        }
    }
    exprs.extend(values.into_iter().filter_map(|(name, value)| value.map(|value| value.alias(name))));
    project(plan, exprs)
}

fn rename(plan: LogicalPlan, name: &str, to: String) -> Result<LogicalPlan> {
    let renamed = position(plan.schema(), name)?;
    if name != to && names(plan.schema()).any(|known| known == to) {
        return Err(doubled(&to));
    }
    let mut exprs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    exprs[renamed] = exprs[renamed].clone().alias(to);
    project(plan, exprs)
}
