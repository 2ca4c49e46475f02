//! A stream as a table: what a logical plan scans, and which streams a plan scans.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::offsets::Split;
use tidemill_core::source::Source;

use super::errors::{from_datafusion, into_datafusion};
use super::source_read::{SourceRead, SourceReadExec};

/// A named source as a table. Logical plans scan it like any other table; what it reads is bound for every batch anew,
/// so the rows of a scan are those of the batch being planned, and there are none outside of a batch.
///
/// Takes projections; filters and limits stay with the operators above.
#[derive(Clone, Debug)]
pub struct StreamTable {
    /// The source's name within the query: what offsets, splits and receipts call it.
    pub name: String,
    /// The source.
    pub source: Arc<dyn Source>,
}

impl StreamTable {
    /// A plan that scans the source, its columns qualified with its name.
    pub fn into_plan(self) -> Result<LogicalPlan> {
        let table = TableReference::bare(self.name.clone());
        let scan = LogicalPlanBuilder::scan(table, provider_as_source(Arc::new(self)), None);
        scan.and_then(LogicalPlanBuilder::build).map_err(from_datafusion)
    }
}

/// What one batch reads, for the planning of one plan: an extension of the session's configuration.
#[derive(Debug, Default)]
pub(super) struct BatchBinding {
    /// By the source's name. A source that is not there has no rows in this batch.
    pub sources: BTreeMap<String, SourceBinding>,
}

/// What one batch reads of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceBinding {
    /// The splits of each partition.
    pub partitions: Vec<Vec<Split>>,
    /// How many scans, over all plans of the batch, read this source.
    pub consumers: usize,
    /// The columns that these scans read together, rising.
    pub columns: Vec<usize>,
    /// Whether a partition shows its splits' rows one split after the other.
    pub ordered: bool,
}

#[async_trait]
impl TableProvider for StreamTable {
    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let binding = state.config().get_extension::<BatchBinding>().ok_or_else(|| {
            let error = Error::new(code::USAGE, "a stream has no rows outside of a query");
            into_datafusion(error.at("source", &self.name).fix("write the frame to a sink, with write_stream()"))
        })?;
        let schema = self.source.schema();
        let wanted = match projection {
            Some(columns) => columns.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let bound = binding.sources.get(&self.name).cloned().unwrap_or_default();
        let read = SourceRead::new(&self.name, self.source.as_ref(), &bound, &wanted).map_err(into_datafusion)?;
        Ok(Arc::new(SourceReadExec::over_splits(read, &schema, &bound.partitions)?))
    }
}

/// The streams that a plan scans, by name, in the order in which they appear. Two sources under one name are refused:
/// names are what the checkpoint knows them by.
pub fn sources_of(plan: &LogicalPlan) -> Result<Vec<(String, Arc<dyn Source>)>> {
    let mut sources: Vec<(String, Arc<dyn Source>)> = Vec::new();
    let mut doubled = None;
    for_each_stream(plan, &mut |_, table| match sources.iter().find(|(name, _)| *name == table.name) {
        None => sources.push((table.name.clone(), Arc::clone(&table.source))),
        Some((_, known)) if Arc::ptr_eq(known, &table.source) => {}
        Some((name, _)) => doubled = Some(name.clone()),
    })?;
    match doubled {
        None => Ok(sources),
        Some(name) => Err(Error::new(code::BAD_PLAN, format!("two sources have the name \"{name}\""))
            .fix("give each source a name of its own, with .name(…)")),
    }
}

/// Whether a plan scans a stream.
pub fn is_streaming(plan: &LogicalPlan) -> bool {
    let mut found = false;
    // Looking cannot fail: the walk only passes on what its closure returns.
    let _ = for_each_stream(plan, &mut |_, _| found = true);
    found
}

/// Calls `see` for every scan of a stream, those within views and subqueries too.
pub(super) fn for_each_stream(plan: &LogicalPlan, see: &mut dyn FnMut(&TableScan, &StreamTable)) -> Result<()> {
    let walk = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            match scan.source.get_logical_plan() {
                Some(view) => for_each_stream(&view, see).map_err(into_datafusion)?,
                None => {
                    if let Ok(provider) = source_as_provider(&scan.source)
                        && let Some(table) = provider.as_ref().downcast_ref::<StreamTable>()
                    {
                        see(scan, table);
                    }
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walk.map(|_| ()).map_err(from_datafusion)
}
