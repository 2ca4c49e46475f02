//! Streaming frames: what they allow, what they refuse, and what their sources are called.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use tidemill_core::code;

use super::fake::{self, FakeSource, stream};
use super::{columns, error, readings};
use crate::dataflow::sources_of;
use crate::frame::functions::{JoinType, col, count, lit, now};
use crate::frame::{DataFrame, name_sources, scan};

#[test]
fn stateless_steps_are_allowed() {
    let session = fake::session();
    let frame = stream(&session)
        .filter("celsius > 30")
        .with_column("at", now())
        .select(["sensorId", "data.*", "at"])
        .rename("unit", "inUnit")
        .cast("celsius", "string");
    let frame = frame.clone().union_by_name(frame.clone()).union(frame);
    assert!(frame.is_streaming());
    assert_eq!(columns(&frame), ["sensorId", "celsius", "inUnit", "at"]);
    assert!(!readings(&session).is_streaming());
}

#[test]
fn now_is_not_folded_when_the_plan_is_built() {
    let plan = stream(&fake::session()).select([now().alias("at")]).into_plan().expect("a plan");
    assert!(plan.display_indent().to_string().contains("now()"), "{}", plan.display_indent());
}

/// One refusal, by the step that asks for it.
fn refused(step: &str, frame: DataFrame) {
    let error = error(&frame);
    assert_eq!(error.code(), code::UNSUPPORTED_PLAN, "{error}");
    assert_eq!(error.places().iter().find(|(name, _)| *name == "step").map(|(_, step)| step.as_str()), Some(step));
}

#[test]
fn sort_on_a_stream_is_refused() {
    refused("sort", stream(&fake::session()).sort(["celsius"]));
}

#[test]
fn limit_on_a_stream_is_refused() {
    refused("limit", stream(&fake::session()).limit(1));
}

#[test]
fn distinct_on_a_stream_is_refused() {
    refused("distinct", stream(&fake::session()).distinct());
}

#[test]
fn aggregate_on_a_stream_is_refused() {
    refused("agg", stream(&fake::session()).group_by(["sensorId"]).agg([count(lit(1))]));
}

#[test]
fn join_with_a_stream_is_refused_on_either_side() {
    let session = fake::session();
    let lookup = readings(&session).select_expr(["sensorId", "seq"]);
    refused("join", stream(&session).join(lookup.clone(), ["sensorId"], JoinType::Inner));
    refused("join", lookup.join(stream(&session), ["sensorId"], JoinType::Inner));
}

#[test]
fn window_function_on_a_stream_is_refused() {
    refused("select_expr", stream(&fake::session()).select_expr(["row_number() OVER (ORDER BY celsius) AS n"]));
}

#[test]
fn aggregate_in_sql_on_a_stream_is_refused() {
    let session = fake::session();
    stream(&session).create_or_replace_temp_view("sensors").expect("a view");
    refused("sql", session.sql("SELECT sensorId, count(*) FROM sensors GROUP BY sensorId"));
    refused("sql", session.sql("SELECT sensorId FROM sensors ORDER BY sensorId LIMIT 1"));
}

#[tokio::test]
async fn rows_of_a_stream_are_not_collected_or_shown() {
    let frame = stream(&fake::session());
    for error in [frame.collect().await.expect_err("refused"), frame.show().await.expect_err("refused")] {
        assert_eq!(error.code(), code::USAGE);
        assert!(error.fix_text().is_some_and(|fix| fix.contains("write_stream")), "{error}");
    }
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let twice = stream(&fake::session()).select([col("sensorId"), col("celsius").alias("sensorId")]);
    assert_eq!(error(&twice).code(), code::BAD_PLAN);
}

/// The names that a query of these frames gives its sources, plan by plan.
fn names_of(frames: &[DataFrame]) -> Vec<Vec<String>> {
    let mut plans: Vec<Arc<LogicalPlan>> =
        frames.iter().map(|frame| frame.clone().into_plan().expect("a plan")).collect();
    name_sources(&mut plans).expect("names");
    let names = |plan: &Arc<LogicalPlan>| sources_of(plan).expect("names").into_iter().map(|(name, _)| name).collect();
    plans.iter().map(names).collect()
}

#[test]
fn sources_are_numbered_in_order_of_appearance_in_the_query() {
    let session = fake::session();
    let (first, second) = (stream(&session), stream(&session));
    assert_eq!(names_of(std::slice::from_ref(&first)), [["fake-0"]]);
    // The order in which they were loaded does not count.
    assert_eq!(names_of(&[second.clone(), first.clone()]), [["fake-0"], ["fake-1"]]);
    assert_eq!(names_of(&[second.clone().union(first.clone())]), [["fake-0", "fake-1"]]);
    // Two sinks, and two scans, of one stream read it under one name.
    assert_eq!(names_of(&[first.clone().filter("celsius > 1"), first.clone()]), [["fake-0"], ["fake-0"]]);
    assert_eq!(names_of(&[first.clone().union(first)]), [["fake-0"]]);
}

#[test]
fn named_sources_keep_their_names_and_do_not_count() {
    let session = fake::session();
    let named = |name: &str| DataFrame::new(session.clone(), scan(Some(name.to_owned()), FakeSource::new("orders")));
    let unnamed = stream(&session);
    assert_eq!(names_of(&[named("orders").union(unnamed.clone())]), [["orders", "fake-0"]]);
    for clash in [named("orders").union(named("orders")), unnamed.union(named("fake-0"))] {
        let mut plans = [clash.into_plan().expect("a plan")];
        let error = name_sources(&mut plans).expect_err("refused");
        assert!(error.to_string().contains("two sources of the query are called"), "{error}");
    }
    for name in ["", "a b", "fake-?", "ä"] {
        assert_eq!(error(&named(name)).code(), code::INVALID_OPTION, "{name}");
    }
}

#[test]
fn explain_describes_the_sources() {
    let text = stream(&fake::session()).filter("celsius > 30").explain().expect("a plan");
    assert!(text.ends_with("\n== Sources ==\nfake-0: fake rows of \"readings\"\n"), "{text}");
    assert!(text.contains("TableScan: fake"), "{text}");
}
