//! Plans that travel: encoded, decoded on another machine, run there in whatever partitions.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use tidemill_core::source::Receipt;
use tokio_util::sync::CancellationToken;

use super::super::codec::Codec;
use super::super::executor::BatchExecutor;
use super::super::plan_batch::BatchJob;
use super::super::testing::{Fault, Kit, lines_of, split};

const QUERIES: [&str; 2] = [
    "SELECT data.a + 1 AS a, part FROM (SELECT from_json(body, 'a long, b string') AS data, part FROM numbers) \
     WHERE data.a % 2 = 0",
    "SELECT n FROM numbers UNION ALL SELECT -n FROM numbers",
];

/// A machine that knows the same formats and functions, and nothing of the plan.
fn elsewhere(kit: &Kit) -> TaskContext {
    TaskContext::from(kit.engine.state())
}

async fn job(kit: &Kit) -> BatchJob {
    kit.table("numbers", Fault::None);
    let splits =
        vec![split("numbers", "a", 0..15_000), split("numbers", "b", 20_000..35_000), split("numbers", "c", 0..9)];
    kit.engine.plan_batch(kit.request(splits, &QUERIES).await).await.expect("plans")
}

/// What is done to the partitions of a leaf.
type Change = dyn Fn(Vec<Vec<RecordBatch>>) -> Vec<Vec<RecordBatch>>;

/// Changes the partitions of every leaf.
fn with_leaves(plan: Arc<dyn ExecutionPlan>, change: &Change) -> Arc<dyn ExecutionPlan> {
    let changed = plan.transform_up(|node| {
        let leaf = node.downcast_ref::<DataSourceExec>();
        let memory = leaf.and_then(|leaf| leaf.data_source().as_ref().downcast_ref::<MemorySourceConfig>());
        match memory {
            Some(memory) => {
                let partitions = change(memory.partitions().to_vec());
                let leaf = MemorySourceConfig::try_new_exec(&partitions, memory.original_schema(), None)?;
                Ok(Transformed::yes(leaf as Arc<dyn ExecutionPlan>))
            }
            None => Ok(Transformed::no(node)),
        }
    });
    changed.expect("changes").data
}

async fn run(kit: &Kit, job: BatchJob) -> Vec<Vec<String>> {
    let splits = job.splits.clone();
    let outcome = kit.engine.executor().execute(job, CancellationToken::new()).await.expect("runs");
    Receipt::check(&splits, &outcome.receipts).expect("each split once");
    let written = QUERIES.iter().enumerate().map(|(at, _)| kit.lines(&format!("s{at}")));
    written.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decoded_plan_gives_the_same_rows_in_whatever_partitions() {
    let here = Kit::new();
    let expected = run(&here, job(&here).await).await;
    assert_eq!((expected[0].len(), expected[1].len()), (15_005, 60_018));

    let reversed = |mut partitions: Vec<Vec<RecordBatch>>| {
        partitions.reverse();
        partitions
    };
    let one_by_one = |partitions: Vec<Vec<RecordBatch>>| {
        let rows = partitions.into_iter().flatten();
        rows.flat_map(|rows| (0..rows.num_rows()).map(move |row| vec![rows.slice(row, 1)])).collect()
    };
    let all_in_one = |partitions: Vec<Vec<RecordBatch>>| vec![partitions.into_iter().flatten().collect()];
    let padded = |mut partitions: Vec<Vec<RecordBatch>>| {
        partitions.insert(0, Vec::new());
        partitions
    };
    let changes: [&Change; 5] = [&|same| same, &reversed, &one_by_one, &all_in_one, &padded];
    for (at, change) in changes.into_iter().enumerate() {
        let there = Kit::new();
        let mut job = job(&there).await;
        for (_, plan) in &mut job.sinks {
            let shown = displayable(plan.as_ref()).indent(true).to_string();
            let bytes = Codec::encode(Arc::clone(plan)).expect("encodes");
            let decoded = Codec::decode(&bytes, &elsewhere(&there)).expect("decodes");
            assert_eq!(displayable(decoded.as_ref()).indent(true).to_string(), shown);
            *plan = with_leaves(decoded, change);
        }
        assert_eq!(run(&there, job).await, expected, "change {at}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_of_a_plan_that_run_one_after_the_other_read_each_split_once() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let splits = vec![split("numbers", "a", 0..15_000), split("numbers", "b", 0..15_000)];
    let job = kit.engine.plan_batch(kit.request(splits.clone(), &["SELECT part, n FROM numbers"]).await).await.unwrap();
    let mut receipts = Vec::new();
    for slice in 0..2 {
        let bytes = Codec::encode(Arc::clone(&job.sinks[0].1)).expect("encodes");
        let plan = Codec::decode(&bytes, &elsewhere(&kit)).expect("decodes");
        let plan = with_leaves(plan, &move |partitions| vec![partitions[slice].clone()]);
        let part = BatchJob { sinks: vec![("s0".into(), plan)], ..job.clone() };
        receipts.extend(kit.engine.executor().execute(part, CancellationToken::new()).await.expect("runs").receipts);
    }
    Receipt::check(&splits, &receipts).expect("each split once");
    assert_eq!(kit.lines("s0").len(), 30_000);
}

#[tokio::test]
async fn decode_function_travels_with_its_schema_and_policy() {
    use super::super::{BadRecordPolicy, Json};
    use datafusion::common::Column;
    use datafusion::logical_expr::{Expr, LogicalPlanBuilder};

    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let body = Expr::Column(Column::from_name("body"));
    let json = Json::ddl("a long not null, b string").on_bad_record(BadRecordPolicy::Null).corrupt_record_column("b");
    let plan = LogicalPlanBuilder::from(kit.sql("SELECT body FROM numbers").await.unwrap())
        .project(vec![json.decode(body, []).unwrap().alias("data")])
        .and_then(LogicalPlanBuilder::build)
        .unwrap();
    let splits = [split("numbers", "a", 0..2)];
    let plan = kit.engine.plan_rows(&kit.engine.analyze(plan).unwrap(), &splits, 0).await.unwrap();
    let decoded = Codec::decode(&Codec::encode(plan).expect("encodes"), &elsewhere(&kit)).expect("decodes");
    let executor = kit.engine.executor();
    let read = executor.read(decoded, tidemill_core::BatchId(0), 1, CancellationToken::new());
    // `b` takes bad records, so it is not read from messages.
    assert_eq!(lines_of(&read.await.expect("reads").0), ["{a: 0, b: }", "{a: 1, b: }"]);
}
