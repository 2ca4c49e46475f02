//! From a query's plans to one batch's tasks.
//!
//! Planned anew for every batch, from the analysed plans: a physical plan that has run once may give wrong rows when it
//! runs again. All plans of the batch are optimised first, or were with an earlier one, unless they ask for the time;
//! then it is known which columns of each source they read together, and how many scans share its read; then the splits
//! are bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use serde_json::Value;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::ids::{AttemptId, BatchId, QueryId};
use tidemill_core::offsets::Split;
use tidemill_core::sink::{Sink, SinkKey};
use tidemill_core::source::Source;

use super::engine::Engine;
use super::errors::from_datafusion;
use super::scan::{BatchBinding, SourceBinding, for_each_stream, sources_of};
use super::sink_write::{SinkWrite, SinkWriteExec};
use super::source_read::{SourceRead, SourceReadExec};
use super::unsupported::asks_for_the_time;

/// Fewer rows than this are not worth a second task, and a second file.
const FEW_ROWS: u64 = 20_000;

/// A batch to be planned.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The query.
    pub query_id: QueryId,
    /// The batch.
    pub batch_id: BatchId,
    /// This execution of it.
    pub attempt: AttemptId,
    /// The batch's logged time: what `now()` means in it.
    pub timestamp_ms: i64,
    /// What the batch reads, per source, for the footers of files.
    pub ranges: Value,
    /// What the batch reads, cut into splits, of all sources.
    pub splits: Vec<Split>,
    /// Where its rows go.
    pub sinks: Vec<SinkPlan>,
}

/// One sink of a query, and the rows it gets.
#[derive(Clone, Debug)]
pub struct SinkPlan {
    /// The sink's name within the query.
    pub name: String,
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// Its rows: an analysed plan that [`check_streaming`](super::check_streaming) has passed.
    pub plan: Arc<LogicalPlan>,
    /// The plan, optimised, if that is the same for every batch.
    optimized: Arc<OnceLock<LogicalPlan>>,
}

impl SinkPlan {
    /// A sink that gets the rows of a plan.
    pub fn new(name: impl Into<String>, sink: Arc<dyn Sink>, plan: Arc<LogicalPlan>) -> Self {
        SinkPlan { name: name.into(), sink, plan, optimized: Arc::default() }
    }

    fn optimized(&self, state: &SessionState) -> Result<LogicalPlan> {
        if let Some(optimized) = self.optimized.get() {
            return Ok(optimized.clone());
        }
        let optimized = optimize(state, &self.plan)?;
        if !asks_for_the_time(&self.plan)? {
            let _ = self.optimized.set(optimized.clone());
        }
        Ok(optimized)
    }
}

/// A planned batch: everything that an executor needs, as data. It runs once.
#[derive(Clone, Debug)]
pub struct BatchJob {
    /// The query.
    pub query_id: QueryId,
    /// The batch.
    pub batch_id: BatchId,
    /// This execution of it.
    pub attempt: AttemptId,
    /// The batch's logged time.
    pub timestamp_ms: i64,
    /// What is read, each split once.
    pub splits: Vec<Split>,
    /// By sink: the plan whose rows are the sink's acks.
    pub sinks: Vec<(String, Arc<dyn ExecutionPlan>)>,
    /// Reads of splits that no sink looks at (its filter can never be true): their rows go nowhere, but their receipts
    /// are asked for like any other.
    pub drains: Vec<Arc<dyn ExecutionPlan>>,
}

impl Engine {
    /// Plans a batch.
    pub async fn plan_batch(&self, request: BatchRequest) -> Result<BatchJob> {
        let mut state = self.state_at(request.timestamp_ms)?;
        let mut plans = Vec::with_capacity(request.sinks.len());
        for sink in &request.sinks {
            plans.push(sink.optimized(&state)?);
        }
        let reads = Reads::new(&request.splits, request.sinks.iter().map(|sink| sink.plan.as_ref()), &plans)?;

        let mut sinks = Vec::with_capacity(plans.len());
        for (sink, plan) in request.sinks.iter().zip(&plans) {
            let tasks_max = sink.sink.tasks_max().max(1);
            let tasks = tasks(&reads.of(plan)?, self.options().parallelism, tasks_max);
            state.config_mut().set_extension(Arc::new(reads.bind(tasks, tasks_max == 1)));
            let rows = plan_physically(&state, plan).await?;
            let write = SinkWrite {
                spec: sink.sink.spec().clone(),
                key: SinkKey { query_id: request.query_id.clone(), sink: sink.name.clone() },
                batch_id: request.batch_id,
                attempt: request.attempt.clone(),
                ranges: request.ranges.clone(),
            };
            let root = SinkWriteExec::new(write, at_most(rows, tasks)?);
            sinks.push((sink.name.clone(), Arc::new(root) as Arc<dyn ExecutionPlan>));
        }
        let drains = reads.drains(self.options().parallelism)?;
        let BatchRequest { query_id, batch_id, attempt, timestamp_ms, splits, .. } = request;
        Ok(BatchJob { query_id, batch_id, attempt, timestamp_ms, splits, sinks, drains })
    }

    /// Plans the rows of a batch's ranges, to be looked at and not to be written: one partition, split after split, so
    /// that the rows come in the same order every time.
    pub async fn plan_rows(
        &self,
        plan: &LogicalPlan,
        splits: &[Split],
        timestamp_ms: i64,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut state = self.state_at(timestamp_ms)?;
        let optimized = optimize(&state, plan)?;
        let reads = Reads::new(splits, [plan].into_iter(), std::slice::from_ref(&optimized))?;
        state.config_mut().set_extension(Arc::new(reads.bind(1, true)));
        at_most(plan_physically(&state, &optimized).await?, 1)
    }
}

/// Optimises an analysed plan. `SessionState::optimize` would analyse it again.
fn optimize(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    state.optimizer().optimize(plan.clone(), state, |_, _| {}).map_err(from_datafusion)
}

async fn plan_physically(state: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    state.query_planner().create_physical_plan(plan, state).await.map_err(from_datafusion)
}

/// The same rows in at most this many partitions. Only unions have more of them than were bound.
fn at_most(plan: Arc<dyn ExecutionPlan>, partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let count = plan.output_partitioning().partition_count();
    if count <= partitions {
        return Ok(plan);
    }
    Ok(match partitions {
        1 => Arc::new(CoalescePartitionsExec::new(plan)),
        _ => {
            let dealt = RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(partitions));
            Arc::new(dealt.map_err(from_datafusion)?)
        }
    })
}

/// What all plans of a batch read.
struct Reads<'a> {
    sources: BTreeMap<String, SharedRead<'a>>,
}

/// What all plans of a batch read of one source.
struct SharedRead<'a> {
    source: Arc<dyn Source>,
    splits: Vec<&'a Split>,
    consumers: usize,
    columns: BTreeSet<usize>,
}

impl<'a> Reads<'a> {
    /// `plans` are as the user wrote them, `optimized` as they will run: a scan may be gone from these.
    fn new<'p>(
        splits: &'a [Split],
        plans: impl Iterator<Item = &'p LogicalPlan>,
        optimized: &[LogicalPlan],
    ) -> Result<Self> {
        let mut sources = BTreeMap::new();
        for plan in plans {
            for (name, source) in sources_of(plan)? {
                sources.entry(name).or_insert_with(|| SharedRead {
                    source,
                    splits: Vec::new(),
                    consumers: 0,
                    columns: BTreeSet::new(),
                });
            }
        }
        for split in splits {
            let read = sources.get_mut(&split.source).ok_or_else(|| {
                Error::new(code::BUG, format!("split \"{}\" belongs to no source of the query", split.id))
                    .at("source", &split.source)
            })?;
            read.splits.push(split);
        }
        for plan in optimized {
            for_each_stream(plan, &mut |scan, table| {
                if let Some(read) = sources.get_mut(&table.name) {
                    read.consumers += 1;
                    match &scan.projection {
                        Some(columns) => read.columns.extend(columns),
                        None => read.columns.extend(0..table.source.schema().fields().len()),
                    }
                }
            })?;
        }
        Ok(Reads { sources })
    }

    /// The splits that a plan reads.
    fn of(&self, plan: &LogicalPlan) -> Result<Vec<&'a Split>> {
        let names = sources_of(plan)?;
        let reads = names.iter().filter_map(|(name, _)| self.sources.get(name));
        Ok(reads.flat_map(|read| read.splits.iter().copied()).collect())
    }

    /// The splits of every source in as many partitions.
    fn bind(&self, tasks: usize, ordered: bool) -> BatchBinding {
        let reads = self.sources.iter().filter(|(_, read)| !read.splits.is_empty());
        let sources = reads.map(|(name, read)| (name.clone(), read.bind(tasks, ordered)));
        BatchBinding { sources: sources.collect() }
    }

    /// Plans that read what no other plan does.
    fn drains(&self, tasks: usize) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let unread = self.sources.iter().filter(|(_, read)| read.consumers == 0 && !read.splits.is_empty());
        let drains = unread.map(|(name, read)| {
            let bound = read.bind(tasks, false);
            let plan = SourceRead::new(name, read.source.as_ref(), &bound, &[])?;
            let exec = SourceReadExec::over_splits(plan, &read.source.schema(), &bound.partitions);
            Ok(Arc::new(exec.map_err(from_datafusion)?) as Arc<dyn ExecutionPlan>)
        });
        drains.collect()
    }
}

impl SharedRead<'_> {
    fn bind(&self, tasks: usize, ordered: bool) -> SourceBinding {
        let mut columns: Vec<usize> = self.columns.iter().copied().collect();
        if columns.is_empty() {
            // Rows without any column are a rare thing for a reader to make: it reads its cheapest column instead.
            let schema = self.source.schema();
            let width = |at: &usize| schema.field(*at).data_type().primitive_width().unwrap_or(usize::MAX);
            columns.extend((0..schema.fields().len()).min_by_key(width));
        }
        SourceBinding { partitions: group_splits(&self.splits, tasks), consumers: self.consumers, columns, ordered }
    }
}

/// How many tasks write these splits' rows to a sink.
fn tasks(splits: &[&Split], parallelism: usize, tasks_max: usize) -> usize {
    let known = splits.iter().all(|split| split.estimated_rows > 0);
    let rows: u64 = splits.iter().map(|split| split.estimated_rows).sum();
    if known && rows < FEW_ROWS { 1 } else { parallelism.min(tasks_max).max(1) }
}

/// Splits in at most this many groups of about equal weight: heaviest first, each to the lightest group. Within a group
/// they stand in their given order. The same splits give the same groups.
fn group_splits(splits: &[&Split], groups: usize) -> Vec<Vec<Split>> {
    let groups = groups.clamp(1, splits.len().max(1));
    let mut by_weight: Vec<usize> = (0..splits.len()).collect();
    by_weight.sort_by_key(|at| std::cmp::Reverse(splits[*at].estimated_rows));
    let mut chosen: Vec<(u64, BTreeSet<usize>)> = vec![(0, BTreeSet::new()); groups];
    for at in by_weight {
        let lightest = chosen.iter_mut().min_by_key(|(weight, group)| (*weight, group.len()));
        if let Some((weight, group)) = lightest {
            *weight += splits[at].estimated_rows;
            group.insert(at);
        }
    }
    chosen.into_iter().map(|(_, group)| group.into_iter().map(|at| splits[at].clone()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidemill_core::offsets::Offsets;

    use super::*;

    fn split(id: &str, estimated_rows: u64) -> Split {
        let offset = Offsets::encode(&json!(0));
        Split { source: "s".into(), id: id.into(), start: offset.clone(), end: offset, estimated_rows }
    }

    #[test]
    fn splits_are_grouped_by_weight_and_keep_their_order() {
        fn check(rows: &[u64], groups: usize, expected: &[&[&str]]) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let splits: Vec<Split> = names.iter().zip(rows).map(|(name, rows)| split(name, *rows)).collect();
            let grouped = group_splits(&splits.iter().collect::<Vec<_>>(), groups);
            let ids: Vec<Vec<&str>> =
                grouped.iter().map(|group| group.iter().map(|split| split.id.as_str()).collect()).collect();
            assert_eq!(ids, expected, "{rows:?} in {groups}");
        }
        check(&[], 2, &[&[]]);
        check(&[5], 4, &[&["a"]]);
        check(&[1, 1, 1, 1], 2, &[&["a", "c"], &["b", "d"]]);
        check(&[1, 9, 4, 4], 2, &[&["b"], &["a", "c", "d"]]);
        check(&[0, 0, 0], 2, &[&["a", "c"], &["b"]]);
        check(&[3, 2, 1], 1, &[&["a", "b", "c"]]);
    }

    #[test]
    fn few_rows_are_one_task() {
        fn check(rows: &[u64], parallelism: usize, tasks_max: usize, expected: usize) {
            let splits: Vec<Split> = rows.iter().map(|rows| split("s", *rows)).collect();
            let got = tasks(&splits.iter().collect::<Vec<_>>(), parallelism, tasks_max);
            assert_eq!(got, expected, "{rows:?} {parallelism} {tasks_max}");
        }
        check(&[], 8, usize::MAX, 1);
        check(&[10_000, 9_999], 8, usize::MAX, 1);
        check(&[10_000, 10_000], 8, usize::MAX, 8);
        check(&[10_000, 10_000], 8, 3, 3);
        check(&[1_000_000], 8, 1, 1);
        // Of unknown size.
        check(&[0, 10], 8, usize::MAX, 8);
    }
}
