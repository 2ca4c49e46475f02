//! Looks into a Parquet table as its users would: by DuckDB and by PyArrow, with a plain `**/*.parquet` glob.
//!
//! Promises: nothing of the engine takes part in reading; the answer is an exact multiset, so a row that is there twice
//! is told twice; a table without any file is empty, not an error. A file of its own, so that a bench can include it by
//! path.
#![allow(dead_code, reason = "each program that includes this uses its part")]

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::service::fetched;

/// The `(partition, offset)` of every row of the table, sorted, as DuckDB reads it.
pub fn offsets(table_dir: impl AsRef<Path>) -> Vec<(i32, i64)> {
    parse(&read_table(&["offsets", "duckdb", text(table_dir.as_ref())]))
}

/// As `offsets`, as PyArrow reads it.
pub fn offsets_by_pyarrow(table_dir: impl AsRef<Path>) -> Vec<(i32, i64)> {
    parse(&read_table(&["offsets", "pyarrow", text(table_dir.as_ref())]))
}

/// The answer of DuckDB to the SELECT `sql`: one line a row, comma-separated, no header, `NULL` for null, times in UTC.
/// For a schema: `SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM ..)`.
pub fn query(sql: &str) -> String {
    read_table(&["query", sql]).trim_end().to_owned()
}

/// The table's files as a FROM item for `query`: `read_parquet('DIR/**/*.parquet')`.
pub fn files(table_dir: impl AsRef<Path>) -> String {
    format!("read_parquet('{}/**/*.parquet')", text(table_dir.as_ref()).replace('\'', "''"))
}

fn parse(lines: &str) -> Vec<(i32, i64)> {
    let parse = |line: &str| {
        let (partition, offset) = line.split_once(',')?;
        Some((partition.parse().ok()?, offset.parse().ok()?))
    };
    let parse = |line| parse(line).unwrap_or_else(|| panic!("\"{line}\" is no partition and offset"));
    lines.lines().map(parse).collect()
}

/// Runs `tests/services/read_table.py`, which writes its answer to a file: DuckDB does that itself, and quickly.
fn read_table(arguments: &[&str]) -> String {
    let answer = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    let output = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/read_table.py"))
        .arg(answer.path())
        .args(arguments)
        .output()
        .expect("the fetched python runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot read the table by {arguments:?}: {complaint}");
    std::fs::read_to_string(answer.path()).expect("the answer is text")
}

/// The python that has both readers.
pub fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| fetched("python"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("test folders have plain names")
}
