//! Steps that look at many rows or at two frames, and what a frame shows of itself.

use super::{columns, fake, readings, rows};
use crate::frame::functions::{JoinType, avg, col, count, lit, sum};

#[tokio::test]
async fn union_matches_by_position_and_union_by_name_by_name() {
    let frame = readings(&fake::session()).select(["sensorId", "seq"]).filter("seq < 3");
    let other = frame.clone().select_expr(["upper(sensorId) AS id", "seq * 10 AS n"]);
    let union = frame.clone().union(other).sort(["seq"]);
    assert_eq!(columns(&union), ["sensorId", "seq"]);
    assert_eq!(rows(&union).await, ["a 1", "b 2", "A 10", "B 20"]);
    let swapped = frame.clone().select(["seq", "sensorId"]).filter("seq = 1");
    assert_eq!(rows(&frame.union_by_name(swapped).sort(["seq"])).await, ["a 1", "a 1", "b 2"]);
}

#[tokio::test]
async fn union_widens_types_where_they_differ() {
    let frame = readings(&fake::session());
    let union = frame.clone().select(["seq"]).union(frame.select(["celsius"]));
    assert_eq!(union.schema_tree().expect("a tree"), "root\n |-- seq: double (nullable = true)\n");
    assert_eq!(union.collect().await.expect("rows").iter().map(|rows| rows.num_rows()).sum::<usize>(), 6);
}

#[tokio::test]
async fn static_frames_are_sorted_limited_and_made_distinct() {
    let frame = readings(&fake::session());
    assert_eq!(rows(&frame.clone().select(["celsius"]).sort(["celsius"])).await, ["", "20.5", "40.0"]);
    let descending = frame.clone().select(["seq"]).sort([col("seq").sort(false, false)]);
    assert_eq!(rows(&descending.limit(2)).await, ["3", "2"]);
    assert_eq!(rows(&frame.select(["sensorId"]).distinct().sort(["sensorId"])).await, ["a", "b"]);
}

#[tokio::test]
async fn static_frames_are_grouped() {
    let frame = readings(&fake::session());
    let grouped = frame.clone().group_by(["sensorId"]).agg([
        count(lit(1)).alias("n"),
        (sum(col("seq")) + lit(1i64)).alias("more"),
        avg(col("celsius")),
    ]);
    assert_eq!(columns(&grouped), ["sensorId", "n", "more", "avg(celsius)"]);
    assert_eq!(rows(&grouped.sort(["sensorId"])).await, ["a 2 5 20.5", "b 1 3 40.0"]);
    let odd = frame.clone().group_by([(col("seq") % lit(2i64)).alias("odd")]).agg([count(lit(1)).alias("n")]);
    assert_eq!(rows(&odd.sort(["odd"])).await, ["0 1", "1 2"]);
    assert_eq!(rows(&frame.agg([sum(col("seq"))])).await, ["6"]);
}

#[tokio::test]
async fn static_frames_are_joined_and_show_the_key_once() {
    let session = fake::session();
    let left = readings(&session).select(["sensorId", "seq"]);
    let right = readings(&session).select_expr(["sensorId", "celsius"]).filter("celsius > 30");
    let joined = |how| left.clone().join(right.clone(), ["sensorId"], how).sort(["seq"]);
    assert_eq!(columns(&joined(JoinType::Inner)), ["sensorId", "seq", "celsius"]);
    assert_eq!(rows(&joined(JoinType::Inner)).await, ["b 2 40.0"]);
    assert_eq!(rows(&joined(JoinType::Left)).await, ["a 1", "b 2 40.0", "a 3"]);
    assert_eq!(rows(&joined(JoinType::LeftAnti)).await, ["a 1", "a 3"]);
    let far = right.with_column("sensorId", lit("z"));
    assert_eq!(rows(&left.clone().join(far.clone(), ["sensorId"], JoinType::Right)).await, ["z  40.0"]);
    let full = left.join(far, ["sensorId"], JoinType::Full).sort(["seq"]);
    assert_eq!(rows(&full).await, ["z  40.0", "a 1", "b 2", "a 3"]);
}

#[tokio::test]
async fn table_shows_the_first_rows_and_says_that_there_are_more() {
    let frame = readings(&fake::session()).select(["sensorId"]);
    let expected = ["+----------+", "| sensorId |", "+----------+", "| a        |", "+----------+"];
    let more = format!("{}\nonly showing top 1 rows", expected.join("\n"));
    assert_eq!(frame.table(1).await.expect("a table"), more);
    let empty = frame.filter("sensorId = 'z'").table(1).await.expect("a table");
    assert!(empty.contains("| sensorId |"), "{empty}");
}

#[test]
fn explain_of_static_rows_shows_the_plan() {
    let text = readings(&fake::session()).filter("seq > 1").explain().expect("a plan");
    assert!(text.starts_with("== Logical Plan ==\nFilter: "), "{text}");
    assert!(!text.contains("Sources"), "{text}");
}
