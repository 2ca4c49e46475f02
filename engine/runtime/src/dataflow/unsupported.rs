//! What a stream cannot do yet, said when the query is built and not in its first batch.
//!
//! A streaming plan is a chain of row-by-row steps over scans of streams, and unions of such chains: everything else
//! would need rows of other batches, or all rows of a stream that never ends. What is allowed is listed here, so a
//! step that nobody thought of is refused too.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan, Volatility};
use tidemill_core::error::{Error, Result, code};

use super::errors::from_datafusion;
use super::json::is_ours;
use super::scan::is_streaming;

/// Refuses a plan that a stream cannot run. A plan without a stream is not looked at.
pub fn check_streaming(plan: &LogicalPlan) -> Result<()> {
    if !is_streaming(plan) {
        return Ok(());
    }
    check_node(plan)?;
    check_expressions(plan)?;
    if let LogicalPlan::TableScan(scan) = plan
        && let Some(view) = scan.source.get_logical_plan()
    {
        return check_streaming(&view);
    }
    plan.inputs().into_iter().try_for_each(check_streaming)
}

/// A step that has a stream somewhere below it.
fn check_node(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::TableScan(_) => Ok(()),
        LogicalPlan::Union(union) => match union.inputs.iter().all(|input| is_streaming(input)) {
            true => Ok(()),
            false => refuse(
                "a stream and a static frame cannot be united",
                "each batch would repeat the static rows; write them to the sink once, by a query of their own",
            ),
        },
        LogicalPlan::Sort(_) => refuse(
            "a stream cannot be sorted: its last row has not come yet",
            "drop the sort, or sort when reading the table that this query writes",
        ),
        LogicalPlan::Limit(_) => refuse(
            "a stream cannot be limited to a number of rows",
            "drop the limit; to read less at a time, bound the batch (maxOffsetsPerTrigger)",
        ),
        LogicalPlan::Aggregate(_) => refuse(
            "streams cannot be aggregated yet",
            "write the rows, and aggregate when reading the table that this query writes",
        ),
        LogicalPlan::Distinct(Distinct::All(_) | Distinct::On(_)) => refuse(
            "streams cannot be made distinct yet",
            "write the rows and drop duplicates when reading them; UNION keeps duplicates as UNION ALL",
        ),
        LogicalPlan::Window(_) => refuse(
            "window functions (OVER) need all rows of a stream",
            "drop them, or use them when reading the table that this query writes",
        ),
        LogicalPlan::Join(join) if matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti) => refuse(
            "streams cannot be joined yet (IN, EXISTS, INTERSECT and EXCEPT are joins)",
            "write the stream, and compare when reading the table",
        ),
        LogicalPlan::Join(_) => refuse(
            "streams cannot be joined yet, neither with a stream nor with a static frame",
            "write the streams, and join when reading the tables",
        ),
        LogicalPlan::RecursiveQuery(_) => refuse("a stream cannot be read recursively", "drop WITH RECURSIVE"),
        LogicalPlan::Repartition(_) => refuse(
            "the rows of a stream cannot be repartitioned by hand",
            "drop it; the engine spreads splits over tasks by their size",
        ),
        LogicalPlan::Subquery(_) => refuse_subquery(),
        LogicalPlan::Dml(_) | LogicalPlan::Ddl(_) | LogicalPlan::Copy(_) | LogicalPlan::Statement(_) => refuse(
            "a streaming frame is a query: statements that change something cannot be part of it",
            "use SELECT, and write_stream() to write",
        ),
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_) => {
            refuse("EXPLAIN and DESCRIBE cannot be part of a streaming frame", "use explain() and print_schema()")
        }
        LogicalPlan::Extension(node) => refuse(
            &format!("the step \"{}\" cannot run on a stream", node.node.name()),
            "use select, filter, with_column and union",
        ),
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => Ok(()),
    }
}

fn check_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    let mut see = |expr: &Expr| {
        match expr {
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
                refused = Some(refuse_subquery());
            }
            Expr::AggregateFunction(function) => {
                refused = Some(refuse(
                    &format!("streams cannot be aggregated yet: {}()", function.func.name()),
                    "write the rows, and aggregate when reading the table that this query writes",
                ));
            }
            Expr::WindowFunction(_) => {
                refused = Some(refuse(
                    "window functions (OVER) need all rows of a stream",
                    "drop them, or use them when reading the table that this query writes",
                ));
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_expressions(|expr| expr.apply(&mut see)).map_err(from_datafusion)?;
    refused.unwrap_or(Ok(()))
}

/// The functions in a plan whose result differs from call to call: a batch that is run again gives other rows than
/// before.
pub fn volatile_functions(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    functions(plan, Volatility::Volatile)
}

/// Whether a plan has functions such as `now()`, in whose place the optimiser puts what they say in the batch.
pub(super) fn asks_for_the_time(plan: &LogicalPlan) -> Result<bool> {
    Ok(!functions(plan, Volatility::Stable)?.is_empty())
}

fn functions(plan: &LogicalPlan, volatility: Volatility) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut see = |expr: &Expr| {
        if let Expr::ScalarFunction(call) = expr
            && call.func.signature().volatility == volatility
            && !is_ours(&call.func)
        {
            found.insert(call.func.name().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(&mut see))).map_err(from_datafusion)?;
    Ok(found)
}

fn refuse(what: &str, fix: &str) -> Result<()> {
    Err(Error::new(code::UNSUPPORTED_PLAN, what).fix(fix))
}

fn refuse_subquery() -> Result<()> {
    refuse("a streaming frame cannot contain a subquery", "select from the streams directly, or from a view of them")
}
