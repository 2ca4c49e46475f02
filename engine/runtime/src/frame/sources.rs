//! The names of streams. A name is the key under which a query's checkpoint keeps a stream's offsets, so it must come
//! out the same at every start: the user's own, or the format and a number in order of appearance within the query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::TableReference;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use tidemill_core::{Error, Result, Source, code};

use super::resolve::built;
use crate::dataflow::{RangeTable, StreamTable, from_datafusion};

/// Stands in a name that is not final yet, between the format and a number that tells it from others in this process.
/// No user's name has it.
const UNNAMED: &str = "-?";

/// A plan that scans a stream; one without a name gets its final one from [`name_sources`].
pub(crate) fn scan(name: Option<String>, source: Arc<dyn Source>) -> Result<LogicalPlan> {
    if let Some(name) = &name {
        check_name(name)?;
    }
    let format = source.spec().format.clone();
    let name = name.unwrap_or_else(|| {
        static LOADED: AtomicU64 = AtomicU64::new(0);
        format!("{format}{UNNAMED}{}", LOADED.fetch_add(1, Ordering::Relaxed))
    });
    let table = provider_as_source(Arc::new(StreamTable { name, source }));
    built(LogicalPlanBuilder::scan(TableReference::bare(format), table, None))
}

/// A plan that scans a fixed range.
pub(crate) fn static_scan(format: &str, table: RangeTable) -> Result<LogicalPlan> {
    built(LogicalPlanBuilder::scan(TableReference::bare(format), provider_as_source(Arc::new(table)), None))
}

/// Gives every stream that these plans of one query read its final name: `kafka-0`, `kafka-1`, … in order of appearance,
/// the plans in their order, and in each from its leftmost leaf. A stream that is read several times keeps one name.
pub(crate) fn name_sources(plans: &mut [Arc<LogicalPlan>]) -> Result<()> {
    let mut names: Vec<(Arc<dyn Source>, String)> = Vec::new();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for plan in plans.iter_mut() {
        let named = plan.as_ref().clone().transform_down_with_subqueries(|node| {
            let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
            let provider = source_as_provider(&scan.source).ok();
            let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<StreamTable>()) else {
                return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
            };
            let known = names.iter().find(|(source, _)| Arc::ptr_eq(source, &table.source));
            let name = match (known, table.name.split_once(UNNAMED)) {
                (Some((_, name)), _) => name.clone(),
                (None, Some((format, _))) => next_name(&mut counts, format),
                (None, None) => table.name.clone(),
            };
            if known.is_none() {
                names.push((Arc::clone(&table.source), name.clone()));
            }
            scan.source = provider_as_source(Arc::new(StreamTable { name, source: Arc::clone(&table.source) }));
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        });
        *plan = Arc::new(named.map_err(from_datafusion)?.data);
    }
    for (at, (_, name)) in names.iter().enumerate() {
        if names[..at].iter().any(|(_, other)| other == name) {
            return Err(Error::new(code::BAD_PLAN, format!("two sources of the query are called \"{name}\""))
                .fix("give each source a name of its own, with .name(…)"));
        }
    }
    Ok(())
}

fn next_name(counts: &mut Vec<(String, usize)>, format: &str) -> String {
    match counts.iter_mut().find(|(known, _)| known == format) {
        Some((_, count)) => {
            *count += 1;
            format!("{format}-{count}")
        }
        None => {
            counts.push((format.to_owned(), 0));
            format!("{format}-0")
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    match !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
        true => Ok(()),
        false => Err(Error::new(code::INVALID_OPTION, format!("\"{name}\" cannot be the name of a source"))
            .fix("use letters, digits, \"_\" and \"-\"")),
    }
}
