//! Steps that choose, compute and name columns and choose rows.

use super::{columns, fake, readings, rows};
use crate::frame::functions::{col, lit, upper};
use arrow::datatypes::DataType;

#[tokio::test]
async fn select_takes_names_expressions_and_everything() {
    let frame = readings(&fake::session());
    assert_eq!(rows(&frame.clone().select(["seq", "sensorId"])).await, ["1 a", "2 b", "3 a"]);
    assert_eq!(columns(&frame.clone().select(["*"])), ["sensorId", "celsius", "seq", "data"]);
    let computed = frame.select([col("sensorId"), (col("seq") + lit(1i64)).alias("next")]);
    assert_eq!(columns(&computed), ["sensorId", "next"]);
    assert_eq!(rows(&computed).await, ["a 2", "b 3", "a 4"]);
}

#[test]
fn expression_without_alias_is_called_as_it_reads() {
    let frame = readings(&fake::session());
    let named = frame.clone().select([upper(col("sensorId")), col("seq") + lit(1i64)]);
    assert_eq!(columns(&named), ["upper(sensorId)", "seq + Int64(1)"]);
    let cast = frame.select([datafusion::logical_expr::cast(col("seq"), DataType::Utf8)]);
    assert_eq!(columns(&cast), ["seq"]);
}

#[tokio::test]
async fn struct_fields_are_expanded() {
    let frame = readings(&fake::session());
    let fields = frame.clone().select(["data.*"]);
    assert_eq!(columns(&fields), ["celsius", "unit"]);
    assert_eq!(rows(&fields).await, ["20.5 C", "40.0 C", "C"]);
    assert_eq!(columns(&frame.clone().select(["sensorId", "data.*"])), ["sensorId", "celsius", "unit"]);
    assert_eq!(columns(&frame.select_expr(["`data`.*", "data.unit AS u"])), ["celsius", "unit", "u"]);
}

#[tokio::test]
async fn select_expr_reads_sql() {
    let frame = readings(&fake::session());
    let frame = frame.select_expr(["sensorId", "celsius * 2 AS doubleCelsius", "CAST(seq AS STRING)", "data.unit"]);
    assert_eq!(columns(&frame), ["sensorId", "doubleCelsius", "seq", "unit"]);
    assert_eq!(rows(&frame).await, ["a 41.0 1 C", "b 80.0 2 C", "a  3 C"]);
    let everything = readings(&fake::session()).select_expr(["*", "seq + 1"]);
    assert_eq!(columns(&everything), ["sensorId", "celsius", "seq", "data", "seq + 1"]);
}

#[tokio::test]
async fn filter_takes_an_expression_or_sql() {
    let frame = readings(&fake::session()).select(["sensorId", "celsius"]);
    assert_eq!(rows(&frame.clone().filter(col("celsius").gt(lit(30.0)))).await, ["b 40.0"]);
    assert_eq!(rows(&frame.filter("celsius > 30 OR sensorId = 'a' AND celsius IS NULL")).await, ["b 40.0", "a"]);
}

#[tokio::test]
async fn with_column_adds_or_replaces_in_place() {
    let frame = readings(&fake::session()).select(["sensorId", "seq"]);
    let added = frame.clone().with_column("next", col("seq") + lit(1i64)).with_column("sensorId", "upper(sensorId)");
    assert_eq!(columns(&added), ["sensorId", "seq", "next"]);
    assert_eq!(rows(&added).await, ["A 1 2", "B 2 3", "A 3 4"]);
    // All at once: both values see the old `seq`.
    let swapped = frame.with_columns([("seq", "seq * 10"), ("old", "seq")]);
    assert_eq!(rows(&swapped).await, ["a 10 1", "b 20 2", "a 30 3"]);
}

#[tokio::test]
async fn rename_drop_and_cast_keep_the_other_columns() {
    let frame = readings(&fake::session());
    let frame = frame.drop(["data", "celsius"]).rename("sensorId", "sensor").with_column_renamed("seq", "n");
    assert_eq!(columns(&frame), ["sensor", "n"]);
    let cast = frame.clone().cast("n", "string").cast("n", DataType::Float64).cast("n", "decimal(10, 1)");
    assert_eq!(cast.schema().expect("a schema").field(1).data_type(), &DataType::Decimal128(10, 1));
    assert_eq!(rows(&cast).await, ["a 1.0", "b 2.0", "a 3.0"]);
}

#[test]
fn type_names_are_the_same_in_cast_and_in_sql() {
    let frame = readings(&fake::session()).select(["seq"]);
    let names = [
        "string",
        "long",
        "bigint",
        "int",
        "short",
        "byte",
        "double",
        "float",
        "boolean",
        "timestamp",
        "decimal(12, 3)",
    ];
    for name in names {
        let cast = frame.clone().cast("seq", name).schema().expect(name);
        let sql = frame.clone().select_expr([format!("CAST(seq AS {name})")]).schema().expect(name);
        assert_eq!(cast.field(0).data_type(), sql.field(0).data_type(), "{name}");
    }
}

#[tokio::test]
async fn names_keep_their_case_and_their_dots() {
    let session = fake::session();
    let frame = readings(&session).select(["seq"]).rename("seq", "a.B");
    assert_eq!(columns(&frame.clone().select(["a.B"])), ["a.B"]);
    assert_eq!(rows(&frame.clone().filter(col("a.B").gt(lit(2i64)))).await, ["3"]);
    assert_eq!(rows(&frame.clone().filter("\"a.B\" > 2")).await, ["3"]);
    assert_eq!(rows(&frame.clone().select_expr(["`a.B` AS x"])).await, ["1", "2", "3"]);
    assert_eq!(columns(&frame.with_column("A.b", col("a.B")).rename("A.b", "Ab")), ["a.B", "Ab"]);
}

#[tokio::test]
async fn window_functions_can_be_selected() {
    let frame = readings(&fake::session());
    let numbered = frame.select_expr(["seq", "row_number() OVER (ORDER BY seq DESC) AS n"]).sort(["seq"]);
    assert_eq!(rows(&numbered).await, ["1 3", "2 2", "3 1"]);
}
