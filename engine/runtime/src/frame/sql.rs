//! SQL texts: items of a select list, conditions, whole queries. Identifiers keep their case.

use arrow::datatypes::{DataType, Fields};
use datafusion::common::{Column, DFSchema, DataFusionError, TableReference};
use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::Expr as SqlAst;
use futures::FutureExt;
use tidemill_core::options::nearest;
use tidemill_core::{Error, Result, code};

use super::resolve::{built, names, plan_error, unknown_column};

/// One item of a select list: `*`, `data.*`, or an expression with or without `AS`.
///
/// Without `AS` a cast keeps the name of what it casts, a field of a struct its own name, and anything else is called as
/// it was written.
pub(crate) fn select_item(state: &SessionState, text: &str, schema: &DFSchema) -> Result<Vec<Expr>> {
    if let Some(path) = wildcard_path(text) {
        return expand_wildcard(&path, schema);
    }
    let dialect = state.config_options().sql_parser.dialect;
    let parsed = state.sql_to_expr_with_alias(text, &dialect).map_err(|error| bad_text(text, error))?;
    let written = match (&parsed.alias, &parsed.expr) {
        (Some(alias), _) => alias.value.clone(),
        (None, SqlAst::CompoundIdentifier(parts)) => {
            parts.last().map_or_else(|| text.trim().to_owned(), |part| part.value.clone())
        }
        (None, _) => text.trim().to_owned(),
    };
    let expr = state.create_logical_expr_from_sql_expr(parsed, schema).map_err(|error| bad_text(text, error))?;
    let name = match uncast(&expr) {
        Expr::Column(column) => column.name.clone(),
        _ => written,
    };
    Ok(vec![match expr {
        Expr::Column(_) | Expr::Alias(_) => expr,
        expr => expr.alias(name),
    }])
}

/// One expression, such as a condition.
pub(crate) fn expression(state: &SessionState, text: &str, schema: &DFSchema) -> Result<Expr> {
    let expr = state.create_logical_expr(text, schema).map_err(|error| bad_text(text, error))?;
    Ok(expr.unalias())
}

/// The plan of a query over the session's views.
pub(crate) fn plan_query(state: &SessionState, text: &str) -> Result<LogicalPlan> {
    let dialect = state.config_options().sql_parser.dialect;
    let statement = state.sql_to_statement(text, &dialect).map_err(plan_error)?;
    let tables = state.resolve_table_references(&statement).map_err(plan_error)?;
    let planned = state
        .statement_to_plan(statement)
        .now_or_never()
        .ok_or_else(|| Error::new(code::BUG, "a view was not found at once, though views are in memory"))?;
    let plan = planned.map_err(|error| {
        let missing = tables.iter().map(|table| table.table()).find(|table| !view_exists(state, table));
        match missing {
            Some(table) if error.to_string().contains("not found") => unknown_view(state, table),
            _ => plan_error(error),
        }
    })?;
    let queries = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    queries.verify_plan(&plan).map_err(|error| {
        Error::new(code::USAGE, "only queries can be run as SQL")
            .because(error)
            .fix("write with write_stream(), make a view with create_or_replace_temp_view(…)")
    })?;
    tidy_names(plan)
}

/// What an expression is called when the user gives no name: as DataFusion would, but without the names of tables.
pub(crate) fn named(expr: Expr) -> Expr {
    if matches!(expr, Expr::Column(_) | Expr::Alias(_)) {
        return expr;
    }
    let name = unnormalize_col(uncast(&expr).clone()).schema_name().to_string();
    expr.alias(name)
}

/// An expression without the casts around it.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => uncast(&cast.expr),
        Expr::TryCast(cast) => uncast(&cast.expr),
        expr => expr,
    }
}

/// Gives the columns of a query the names that [`named`] would give them, where that keeps them apart. DataFusion's would
/// carry the view's name, as in `sensors.celsius + Int64(1)`.
fn tidy_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let tidy: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| match origin(&plan, at).cloned().map(named) {
            Some(Expr::Alias(alias)) => alias.name,
            _ => column.name.clone(),
        })
        .collect();
    if columns.iter().zip(&tidy).all(|(column, name)| column.name == *name) {
        return Ok(plan);
    }
    let is_clear = |name: &String| tidy.iter().filter(|other| *other == name).count() == 1;
    let renamed = columns.into_iter().zip(&tidy).map(|(column, name)| match column.name != *name && is_clear(name) {
        true => Expr::Column(column).alias(name),
        false => Expr::Column(column),
    });
    built(LogicalPlanBuilder::new(plan.clone()).project(renamed))
}

/// The expression that an output column was computed by, as far down as steps that only hand it on.
fn origin(plan: &LogicalPlan, at: usize) -> Option<&Expr> {
    match plan {
        LogicalPlan::Projection(projection) => match projection.expr.get(at)? {
            Expr::Column(column) => origin(&projection.input, projection.input.schema().index_of_column(column).ok()?),
            expr => Some(expr),
        },
        LogicalPlan::Sort(sort) => origin(&sort.input, at),
        LogicalPlan::Limit(limit) => origin(&limit.input, at),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, at),
        _ => None,
    }
}

/// The parts before `.*`, for `*` none; nothing if the text is not such an item.
pub(crate) fn wildcard_path(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if text == "*" {
        return Some(Vec::new());
    }
    let mut rest = text.strip_suffix(".*")?;
    let mut path = Vec::new();
    loop {
        let quote = rest.chars().next().filter(|first| ['"', '`'].contains(first));
        let (part, after) = match quote {
            Some(quote) => rest[1..].split_once(quote)?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        let plain = |c: char| c.is_alphanumeric() || c == '_';
        if part.is_empty() || (quote.is_none() && !part.chars().all(plain)) {
            return None;
        }
        path.push(part.to_owned());
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(path),
            None => return None,
        }
    }
}

/// The columns that `*` or `data.*` stands for: all of them, the fields of a struct, or the columns of a table.
pub(crate) fn expand_wildcard(path: &[String], schema: &DFSchema) -> Result<Vec<Expr>> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(schema.columns().into_iter().map(Expr::Column).collect());
    };
    let Some(at) = names(schema).position(|name| name == first) else {
        let of_table = |column: &Column| column.relation.as_ref().is_some_and(|table| table.table() == first);
        let columns: Vec<Expr> = schema.columns().into_iter().filter(of_table).map(Expr::Column).collect();
        return match columns.is_empty() || !rest.is_empty() {
            true => Err(unknown_column(first, names(schema))),
            false => Ok(columns),
        };
    };
    let mut expr = Expr::Column(Column::from(schema.qualified_field(at)));
    let mut data_type = schema.field(at).data_type();
    let mut reached = first.clone();
    for name in rest {
        let fields = struct_fields(&reached, data_type)?;
        let known = fields.iter().map(|field| field.name().as_str());
        let Some(field) = fields.iter().find(|field| field.name() == name) else {
            return Err(unknown_column(&format!("{reached}.{name}"), known));
        };
        (expr, data_type) = (get_field(expr, name.as_str()), field.data_type());
        reached = format!("{reached}.{name}");
    }
    let fields = struct_fields(&reached, data_type)?;
    Ok(fields.iter().map(|field| get_field(expr.clone(), field.name().as_str()).alias(field.name())).collect())
}

fn struct_fields<'a>(name: &str, data_type: &'a DataType) -> Result<&'a Fields> {
    match data_type {
        DataType::Struct(fields) => Ok(fields),
        other => Err(Error::new(code::BAD_PLAN, format!("\"{name}.*\" needs a struct, and \"{name}\" is {other}"))),
    }
}

fn bad_text(text: &str, error: DataFusionError) -> Error {
    plan_error(error).at("sql", format_args!("\"{text}\""))
}

fn view_exists(state: &SessionState, name: &str) -> bool {
    state.schema_for_ref(TableReference::bare(name)).is_ok_and(|views| views.table_exist(name))
}

fn unknown_view(state: &SessionState, name: &str) -> Error {
    let known = state.schema_for_ref(TableReference::bare(name)).map(|views| views.table_names()).unwrap_or_default();
    let error = Error::new(code::BAD_PLAN, format!("there is no view \"{name}\""));
    match nearest(name, known.iter().map(String::as_str)) {
        Some(known) => error.fix(format!("did you mean \"{known}\"?")),
        None => error.fix(format!("make one with create_or_replace_temp_view(\"{name}\")")),
    }
}
