//! What a stream is refused, and what it is not.

use std::sync::Arc;

use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::logical_plan::TableScanBuilder;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use tidemill_core::error::code;

use super::super::testing::{Fault, Kit, Numbers};
use super::super::{StreamTable, check_streaming, volatile_functions};

async fn kit() -> Kit {
    let kit = Kit::new();
    kit.table("numbers", Fault::None);
    kit.table("others", Fault::None);
    let fixed = kit.sql("SELECT 1 AS n, 'x' AS part").await.expect("a static plan");
    let view = ViewTable::new(fixed, None);
    let schema = kit.engine.state().schema_for_ref("fixed").expect("the default schema");
    schema.register_table("fixed".into(), Arc::new(view)).expect("registered");
    kit
}

#[tokio::test]
async fn steps_that_need_other_rows_are_refused_with_a_fix() {
    async fn check(sql: &str, text: &str) {
        let kit = kit().await;
        let plan = kit.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let error = check_streaming(&plan).expect_err(sql);
        assert_eq!(error.code(), code::UNSUPPORTED_PLAN, "{sql}");
        assert!(error.what().contains(text), "{sql}: {error}");
        assert!(error.fix_text().is_some_and(|fix| !fix.is_empty()), "{sql}: {error}");
    }
    check("SELECT n FROM numbers ORDER BY n", "sorted").await;
    check("SELECT n FROM numbers LIMIT 3", "limited").await;
    check("SELECT n FROM (SELECT n FROM numbers LIMIT 3) WHERE n > 1", "limited").await;
    check("SELECT count(*) FROM numbers", "aggregated").await;
    check("SELECT part, sum(n) FROM numbers GROUP BY part", "aggregated").await;
    check("SELECT DISTINCT part FROM numbers", "distinct").await;
    check("SELECT n FROM numbers UNION SELECT n FROM others", "distinct").await;
    check("SELECT row_number() OVER (PARTITION BY part ORDER BY n) FROM numbers", "window").await;
    check("SELECT a.n FROM numbers a JOIN others b ON a.n = b.n", "joined").await;
    check("SELECT a.n FROM numbers a JOIN fixed b ON a.n = b.n", "joined").await;
    check("SELECT a.n FROM numbers a, others b", "joined").await;
    check("SELECT n FROM numbers EXCEPT SELECT n FROM others", "").await;
    check("SELECT n FROM numbers INTERSECT SELECT n FROM others", "").await;
    check("SELECT n FROM numbers WHERE n IN (SELECT n FROM fixed)", "subquery").await;
    check("SELECT n FROM numbers WHERE EXISTS (SELECT 1 FROM others)", "subquery").await;
    check("SELECT (SELECT max(n) FROM fixed) FROM numbers", "subquery").await;
    check("SELECT n FROM fixed WHERE n IN (SELECT n FROM numbers)", "subquery").await;
    check("SELECT n, part FROM numbers UNION ALL SELECT n, part FROM fixed", "united").await;
    check("EXPLAIN SELECT n FROM numbers", "EXPLAIN").await;
    check("CREATE TABLE t AS SELECT n FROM numbers", "statements").await;
    check(
        "WITH RECURSIVE r AS (SELECT n FROM numbers UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "recursively",
    )
    .await;
}

#[tokio::test]
async fn row_by_row_steps_and_static_plans_pass() {
    let kit = kit().await;
    for sql in [
        "SELECT n + 1 AS m, upper(part) FROM numbers WHERE n % 2 = 0 AND part IN ('a', 'b')",
        "SELECT x.n FROM (SELECT n FROM numbers) x UNION ALL SELECT n FROM others",
        "SELECT from_json(body, 'a long')['a'] FROM numbers",
        "SELECT unnest([n, n + 1]) FROM numbers",
        "SELECT random(), n FROM numbers",
        "SELECT count(*) FROM fixed",
        "SELECT DISTINCT n FROM fixed ORDER BY n LIMIT 1",
    ] {
        let plan = kit.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        check_streaming(&plan).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[tokio::test]
async fn functions_that_differ_from_run_to_run_are_found_and_ours_are_not_among_them() {
    let kit = kit().await;
    for (sql, expected) in [
        ("SELECT n + 1, from_json(body, 'a long')['a'] FROM numbers", &[][..]),
        ("SELECT n FROM (SELECT n, abs(random()) AS r FROM numbers) WHERE r < 0.5 OR uuid() = ''", &["random", "uuid"]),
    ] {
        let found = volatile_functions(&kit.sql(sql).await.expect("a plan")).expect("a walk");
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{sql}");
    }
}

#[tokio::test]
async fn view_of_a_stream_is_a_stream() {
    let kit = kit().await;
    let schema = kit.engine.state().schema_for_ref("v").expect("the default schema");
    let streamed = || StreamTable { name: "s".into(), source: Numbers::with(Fault::None) }.into_plan().expect("a plan");
    let limited = LogicalPlanBuilder::from(streamed()).limit(0, Some(1)).and_then(LogicalPlanBuilder::build);
    for (name, plan) in [("v", streamed()), ("w", limited.expect("a plan"))] {
        schema.register_table(name.into(), Arc::new(ViewTable::new(plan, None))).expect("registered");
    }
    let check = async |sql: &str| check_streaming(&kit.sql(sql).await.expect("a plan")).map_err(|error| error.code());
    assert_eq!(check("SELECT n FROM v").await, Ok(()));
    assert_eq!(check("SELECT n FROM v ORDER BY n").await, Err(code::UNSUPPORTED_PLAN));
    assert_eq!(check("SELECT n FROM w").await, Err(code::UNSUPPORTED_PLAN));

    // As a scan that has not been replaced by what the view says.
    let view = provider_as_source(Arc::new(ViewTable::new(kit.sql("SELECT n FROM w").await.expect("a plan"), None)));
    let scan = LogicalPlan::TableScan(TableScanBuilder::new("x", view).build().expect("a scan"));
    assert_eq!(check_streaming(&scan).map_err(|error| error.code()), Err(code::UNSUPPORTED_PLAN));
}
