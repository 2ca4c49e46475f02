//! Sessions: how they are set up, how streams are opened, views and SQL.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use tidemill_core::{Error, Registry, code};

use super::Session;
use crate::frame::DataFrame;
use crate::frame::tests::fake::{Fake, session, stream};

fn numbers(session: &Session, name: &str) -> DataFrame {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    session.create_dataframe(vec![RecordBatch::try_from_iter([(name, numbers)]).expect("one column")])
}

async fn count(frame: &DataFrame) -> usize {
    frame.collect().await.expect("rows").iter().map(RecordBatch::num_rows).sum()
}

fn columns(frame: &DataFrame) -> Vec<String> {
    frame.schema().expect("a schema").fields().iter().map(|field| field.name().clone()).collect()
}

#[test]
fn builder_fills_what_is_not_set() {
    let session = Session::with_registry(Registry::new()).build().expect("a session");
    assert!(session.parallelism() >= 1);
    assert!(session.memory_budget() >= 128 << 20);
    assert!(!session.logs_to_stderr());
    assert_eq!(session.retry_start(), Duration::from_secs(30));
    assert_eq!(session.retry_running(), Duration::from_secs(300));
    let session =
        Session::with_registry(Registry::new()).log_to_stderr().retry_start(Duration::ZERO).build().expect("a session");
    assert!(session.logs_to_stderr() && session.retry_start().is_zero());
}

#[test]
fn settings_of_zero_are_refused() {
    for builder in [
        Session::with_registry(Registry::new()).parallelism(0),
        Session::with_registry(Registry::new()).memory_budget(0),
    ] {
        assert_eq!(builder.build().expect_err("refused").code(), code::INVALID_OPTION);
    }
}

#[tokio::test]
async fn stream_is_loaded_by_format_or_by_a_typed_builder() {
    let session = session();
    let loaded = session.read_stream().format("FAKE").option("Topic", "t").name("orders").load().await.expect("loaded");
    let built = session.stream(Fake("t")).await.expect("built");
    let named = session.stream(Fake("t")).name("typed").await.expect("built");
    for frame in [&loaded, &built, &named] {
        assert!(frame.is_streaming());
        assert_eq!(columns(frame), ["sensorId", "celsius", "value", "data"]);
    }
    assert!(loaded.explain().expect("a plan").contains("\norders: fake rows of \"t\"\n"));
    assert!(named.explain().expect("a plan").contains("\ntyped: "));
}

#[tokio::test]
async fn wrong_readers_are_refused() {
    async fn check(reader: super::DataStreamReader, code: tidemill_core::Code, expected: &str) {
        let error: Error = reader.load().await.expect_err("refused");
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let session = session();
    let reader = || session.read_stream();
    check(reader(), code::MISSING_OPTION, ".format(").await;
    check(reader().format("fkae"), code::UNKNOWN_FORMAT, "did you mean \"fake\"?").await;
    check(reader().format("fake"), code::MISSING_OPTION, "\"topic\"").await;
    check(reader().format("fake").options([("topic", 1), ("tpoic", 2)]), code::UNKNOWN_OPTION, "topic").await;
    check(reader().format("fake").option("topic", "t").name("a b"), code::INVALID_OPTION, "\"a b\"").await;
}

#[tokio::test]
async fn sql_keeps_the_case_of_names() {
    let session = session();
    numbers(&session, "sensorSeq").create_or_replace_temp_view("mySensors").expect("a view");
    let frame = session.sql("SELECT sensorSeq, sensorSeq * 2 AS twiceSeq FROM mySensors WHERE sensorSeq > 1");
    assert_eq!(columns(&frame), ["sensorSeq", "twiceSeq"]);
    assert_eq!(count(&frame).await, 2);
}

#[test]
fn sql_names_columns_without_the_name_of_the_view() {
    let session = session();
    numbers(&session, "n").create_or_replace_temp_view("t").expect("a view");
    // Names are found below a sort and a limit too.
    assert_eq!(columns(&session.sql("SELECT n + 1 FROM t ORDER BY n LIMIT 2")), ["n + Int64(1)"]);
    let frame = session.sql("SELECT CAST(n AS STRING), n + 1 FROM t");
    assert_eq!(columns(&frame), ["n", "n + Int64(1)"]);
    assert_eq!(frame.schema().expect("a schema").field(0).data_type(), &DataType::Utf8);
}

#[tokio::test]
async fn sql_joins_and_groups_static_views() {
    let session = session();
    numbers(&session, "n").create_or_replace_temp_view("a").expect("a view");
    numbers(&session, "n").create_or_replace_temp_view("b").expect("a view");
    let frame = session.sql(
        "WITH big AS (SELECT n FROM b WHERE n > 1) \
         SELECT a.n, count(*) AS c FROM a JOIN big ON a.n = big.n GROUP BY a.n",
    );
    assert_eq!(count(&frame).await, 2);
    assert_eq!(count(&session.sql("SELECT * FROM a WHERE n IN (SELECT n FROM b WHERE n < 3)")).await, 2);
}

#[tokio::test]
async fn view_is_replaced_and_frames_made_before_stay() {
    let session = session();
    numbers(&session, "n").create_or_replace_temp_view("t").expect("a view");
    let before = session.sql("SELECT n FROM t");
    numbers(&session, "m").filter("m = 1").create_or_replace_temp_view("t").expect("a view");
    assert_eq!(count(&before).await, 3);
    assert_eq!(count(&session.sql("SELECT m FROM t")).await, 1);
    // A view may be made from the one that it replaces.
    session.sql("SELECT m AS k FROM t").create_or_replace_temp_view("t").expect("a view");
    assert_eq!(columns(&session.sql("SELECT * FROM t")), ["k"]);
    assert!(session.drop_temp_view("t").expect("dropped"));
    assert!(!session.drop_temp_view("t").expect("nothing left"));
    assert_eq!(count(&before).await, 3);
}

#[test]
fn views_of_streams_are_streams() {
    let session = session();
    stream(&session).create_or_replace_temp_view("sensors").expect("a view");
    let hot =
        session.sql("SELECT s.sensorId, data.unit AS unit FROM sensors s WHERE celsius > 30").filter("unit = 'C'");
    assert!(hot.is_streaming());
    assert_eq!(columns(&hot), ["sensorId", "unit"]);
    assert!(hot.explain().expect("a plan").contains("fake-0: "));
}

#[test]
fn wrong_sql_says_what_is_wrong() {
    let session = session();
    numbers(&session, "n").create_or_replace_temp_view("sensors").expect("a view");
    let check = |text: &str, expected: &str| {
        let error = session.sql(text).schema().expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("step sql, at "), "{error}");
    };
    check("SELECT n FROM sensrs", "did you mean \"sensors\"?");
    check("SELECT n FROM elsewhere", "there is no view \"elsewhere\"");
    check("SELECT N FROM sensors", "did you mean \"n\"?");
    check("SELECT n FORM sensors", "TM0402");
    check("", "TM0402");
    check("SELECT 1; SELECT 2", "single SQL statement");
    check("CREATE VIEW v AS SELECT 1", "only queries can be run as SQL");
    check("INSERT INTO sensors VALUES (1)", "only queries can be run as SQL");
    check("SET a = 1", "only queries can be run as SQL");
    check("COPY sensors TO '/tmp/x' STORED AS CSV", "only queries can be run as SQL");
}

#[tokio::test]
async fn now_in_a_static_frame_is_the_clock_of_the_session() {
    #[derive(Debug)]
    struct Stopped;
    impl tidemill_core::Clock for Stopped {
        fn now_ms(&self) -> i64 {
            1_700_000_000_000
        }
        fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, _duration: Duration) -> futures::future::BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }
    let session = Session::with_registry(Registry::new()).clock(Arc::new(Stopped)).build().expect("a session");
    let frame = numbers(&session, "n").select_expr(["now() AS at"]).limit(1);
    let table = frame.table(1).await.expect("a table");
    assert!(table.contains("2023-11-14T22:13:20"), "{table}");
}
