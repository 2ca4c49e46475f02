//! The first error of a chain, with the step and the line that made it.

use tidemill_core::code;

use super::{error, fake, readings};
use crate::frame::DataFrame;
use crate::frame::functions::{col, count, lit};

#[test]
fn first_error_is_kept_with_its_step_and_its_line() {
    let line = line!() + 1;
    let frame = readings(&fake::session()).filter(col("sensorid").eq(lit("a"))).select(["nothing"]).limit(1);
    let error = error(&frame);
    assert_eq!(error.code(), code::BAD_PLAN);
    assert_eq!(
        error.to_string(),
        format!(
            "TM0402 there is no column \"sensorid\" (step filter, at {}:{line}); fix: did you mean \"sensorId\"?",
            file!()
        )
    );
    // It can be asked for again, and comes out of everything.
    assert_eq!(frame.explain().expect_err("kept").to_string(), error.to_string());
    assert_eq!(frame.into_plan().expect_err("kept").report(), error.report());
}

#[tokio::test]
async fn collect_and_views_give_the_kept_error() {
    let frame = readings(&fake::session()).drop(["nothing"]);
    let kept = error(&frame).to_string();
    assert_eq!(frame.collect().await.expect_err("kept").to_string(), kept);
    assert_eq!(frame.create_or_replace_temp_view("v").expect_err("kept").to_string(), kept);
}

#[test]
fn wrong_steps_say_what_is_wrong() {
    let session = fake::session();
    let frame = || readings(&session);
    let check = |step: &str, frame: DataFrame, expected: &str| {
        let error = error(&frame);
        let places: Vec<_> = error.places().iter().map(|(_, place)| place.as_str()).collect();
        assert!(places.contains(&step), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("select", frame().select(["celsus"]), "did you mean \"celsius\"?");
    check("select", frame().select(["data.celsius"]), "select_expr([\"data.celsius\"])");
    check("select", frame().select([col("data.celsius")]), "select_expr([\"data.celsius\"])");
    check("select", frame().select(["celsius.*"]), "needs a struct");
    check("select", frame().select(["date.*"]), "did you mean \"data\"?");
    check("select", frame().select([count(lit(1))]), "use group_by(…).agg(…)");
    check("select", frame().select(Vec::<&str>::new()), "no column is left");
    check("select", frame().select([col("seq"), col("celsius").alias("seq")]), "\"seq\"");
    check("select_expr", frame().select_expr(["celsius +"]), "celsius +");
    check("select_expr", frame().select_expr(["nofunction(celsius)"]), "nofunction");
    check("select_expr", frame().select_expr(["CELSIUS"]), "did you mean \"celsius\"?");
    check("filter", frame().filter("celsius"), "boolean");
    check("filter", frame().filter("SELECT 1"), "SELECT 1");
    check("with_column", frame().with_column("x", "y + 1"), "there is no column \"y\"");
    check("with_columns", frame().with_columns([("x", "seq"), ("x", "seq")]), "two columns are called \"x\"");
    check("rename", frame().rename("seq", "celsius"), "two columns are called \"celsius\"");
    check("rename", frame().rename("Seq", "n"), "did you mean \"seq\"?");
    check("drop", frame().drop(["sensor_id"]), "did you mean \"sensorId\"?");
    check("drop", frame().drop(["sensorId", "celsius", "seq", "data"]), "no column is left");
    check("cast", frame().cast("seq", "lnog"), "\"lnog\" is not a type");
    check("cast", frame().cast("seq", "int) + (1"), "is not a type");
    check("cast", frame().cast("data", "double"), "Float64");
    check("union", frame().union(frame().select(["seq"])), "a union of 4 and 1 columns");
    check("union_by_name", frame().union_by_name(frame().rename("seq", "sek")), "did you mean \"seq\"?");
    check("sort", frame().sort(["nothing"]), "there is no column \"nothing\"");
    check("agg", frame().group_by(["sensorId"]).agg([]), "nothing is computed");
    check("agg", frame().group_by(["sensor"]).agg([count(lit(1))]), "there is no column \"sensor\"");
}

#[test]
fn error_of_the_other_frame_keeps_its_own_step() {
    let frame = readings(&fake::session());
    let union = frame.clone().union(frame.select(["nothing"]));
    let places: Vec<_> = error(&union).places().to_vec();
    assert_eq!(places[0], ("step", "select".to_owned()));
}

#[test]
fn frames_of_two_sessions_do_not_mix() {
    let error = error(&readings(&fake::session()).union(readings(&fake::session())));
    assert_eq!(error.code(), code::USAGE);
}

#[test]
fn rows_of_two_schemas_or_of_none_make_no_frame() {
    let session = fake::session();
    let none = error(&session.create_dataframe(Vec::new()));
    assert!(none.to_string().contains("(step create_dataframe, at "), "{none}");
}
