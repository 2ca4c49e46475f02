//! JSON in plans: decoded once, in SQL and by `.decode(…)`, under both policies.

use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, BinaryViewArray, RecordBatch, StringArray, StringViewArray};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::displayable;
use tidemill_core::error::code;
use tokio_util::sync::CancellationToken;

use super::super::executor::BatchExecutor;
use super::super::testing::{Fault, Kit, Numbers, lines_of, split};
use super::super::{BadRecordPolicy, Json, StreamTable, from_json};

fn col(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

fn field(column: &str, name: &str) -> Expr {
    datafusion::functions::core::expr_fn::get_field(col(column), name).alias(name)
}

async fn physical(kit: &Kit, plan: &LogicalPlan) -> String {
    let plan = kit.engine.plan_rows(plan, &[split("numbers", "a", 0..9)], 0).await.expect("plans");
    displayable(plan.as_ref()).indent(false).to_string()
}

#[tokio::test]
async fn message_is_decoded_once_however_many_columns_and_filters_look_at_it() {
    let kit = Kit::new();
    let table =
        || StreamTable { name: "numbers".into(), source: Numbers::with(Fault::None) }.into_plan().expect("plan");
    let decode = Json::ddl("a long, b string").decode(col("body"), [col("part"), lit(0), col("n")]).expect("decodes");
    let decoded = LogicalPlanBuilder::from(table())
        .project(vec![decode.alias("data"), col("n")])
        .and_then(|plan| plan.project(vec![field("data", "a"), field("data", "b"), col("n")]))
        .and_then(|plan| plan.filter(col("a").gt(lit(3_i64)).and(col("n").lt(lit(7_i64)))))
        .and_then(LogicalPlanBuilder::build)
        .expect("a plan");
    let plan = physical(&kit, &kit.engine.analyze(decoded).expect("analysed")).await;
    assert_eq!(plan.matches("decode_json(").count(), 1, "{plan}");

    kit.table("numbers", Fault::None);
    let sql = "SELECT data.a, data.b, data.a + 1 FROM (SELECT from_json(body, 'a long, b string') AS data FROM numbers) \
               WHERE data.a > 3";
    let plan = physical(&kit, &kit.sql(sql).await.expect("a plan")).await;
    assert_eq!(plan.matches("from_json(").count(), 1, "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decoded_columns_arrive_at_the_sink() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    let sql = "SELECT data.b AS b, data.a AS a, n FROM (SELECT from_json(body, 'a long, b string') AS data, n FROM numbers) \
               WHERE data.a >= 7";
    let request = kit.request(vec![split("numbers", "a", 0..9)], &[sql]).await;
    let job = kit.engine.plan_batch(request).await.expect("plans");
    kit.engine.executor().execute(job, CancellationToken::new()).await.expect("runs");
    assert_eq!(kit.lines("s0"), ["b7 7 7", "b8 8 8"]);
}

/// Runs an expression over one column `m` of messages.
async fn evaluate(messages: Arc<dyn Array>, expr: Expr) -> tidemill_core::Result<Vec<String>> {
    let kit = Kit::new();
    let rows = RecordBatch::try_from_iter([("m", messages)]).expect("rows");
    let context = datafusion::prelude::SessionContext::new_with_state(kit.engine.state().clone());
    let frame = context.read_batch(rows).expect("a frame");
    let collected = async { frame.select(vec![expr])?.collect().await }.await;
    Ok(lines_of(&collected.map_err(super::super::from_datafusion)?))
}

const MESSAGES: [&str; 3] = [r#"{"a":1}"#, "oops", r#"{"a":3}"#];

#[tokio::test]
async fn from_json_takes_text_and_binary_of_every_layout_and_gives_null_for_bad_records() {
    let layouts: [Arc<dyn Array>; 4] = [
        Arc::new(StringArray::from_iter_values(MESSAGES)),
        Arc::new(StringViewArray::from_iter_values(MESSAGES)),
        Arc::new(BinaryArray::from_iter_values(MESSAGES)),
        Arc::new(BinaryViewArray::from_iter_values(MESSAGES)),
    ];
    for messages in layouts {
        let layout = messages.data_type().clone();
        let rows = evaluate(messages, from_json(col("m"), "a int, _corrupt_record string")).await.expect("decodes");
        let expected = ["{a: 1, _corrupt_record: }", "{a: , _corrupt_record: oops}", "{a: 3, _corrupt_record: }"];
        assert_eq!(rows, expected, "{layout}");
    }
}

#[tokio::test]
async fn bad_record_is_named_by_topic_partition_and_offset() {
    let messages = || Arc::new(StringArray::from_iter_values(MESSAGES));
    let decode = |json: Json, locator: Vec<Expr>| json.decode(col("m"), locator).expect("decodes");
    let locator = || vec![lit("sensors"), lit(3), datafusion::functions::expr_fn::length(col("m"))];
    let fail = decode(Json::ddl("a int"), locator());
    let error = evaluate(messages(), fail).await.expect_err("fails");
    assert_eq!(error.code(), code::BAD_RECORD);
    assert!(error.to_string().contains("(record sensors-3@4)"), "{error}");
    assert!(error.what().contains("does not fit its schema"), "{error}");

    let pass = decode(Json::ddl("a int").on_bad_record(BadRecordPolicy::Null), locator());
    assert_eq!(evaluate(messages(), pass).await.expect("passes"), ["{a: 1}", "{a: }", "{a: 3}"]);
}

#[tokio::test]
async fn wrong_schemas_and_arguments_are_refused_when_the_query_is_built() {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    for (sql, text) in [
        ("SELECT from_json(body, 'a lung') FROM numbers", "does not parse"),
        ("SELECT from_json(body, part) FROM numbers", "literal text"),
        ("SELECT from_json(n, 'a int') FROM numbers", "takes text or binary"),
        ("SELECT from_json(body) FROM numbers", "two arguments"),
    ] {
        let error = kit.sql(sql).await.expect_err(sql);
        assert_eq!(error.code(), code::BAD_PLAN, "{sql}: {error}");
        assert!(error.to_string().contains(text), "{sql}: {error}");
    }
    assert_eq!(Json::ddl("a lung").fields().expect_err("refused").code(), code::BAD_PLAN);
}
