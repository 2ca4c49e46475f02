//! Documents that are made from the code say what the code says.

use std::fmt::Write as _;
use std::path::Path;

use tidemill::registry::SourceFormat;

/// Set to write the documents anew.
const WRITE: &str = "TIDEMILL_WRITE_DOCS";

#[test]
fn options_of_sources_are_those_in_the_document() {
    let mut text = String::from(
        "# Options of sources\n\nMade from the code; `TIDEMILL_WRITE_DOCS=1 ./dev test docs` writes it anew. Names match in any \
         case, and an\noption that a source does not know is an error. The typed builders (`Kafka`, `Rate`) have the same under \
         Rust's names.\n\n`stream`: for `read_stream()`; `batch`: for static reads of a range; `both`: for both.\n",
    );
    for format in tidemill::formats().sources() {
        write_source(&mut text, format.as_ref()).expect("a text takes what is written");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/options.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).expect("the document is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "docs/options.md is not what the code says: run with {WRITE}=1");
}

fn write_source(text: &mut String, format: &dyn SourceFormat) -> std::fmt::Result {
    writeln!(text, "\n## `{}`\n\n| option | takes | default | applies to | in Spark | meaning |", format.name())?;
    writeln!(text, "| --- | --- | --- | --- | --- | --- |")?;
    for option in format.options() {
        let cell = |cell: &str| if cell.is_empty() { "–".to_owned() } else { cell.replace('|', "\\|") };
        let (name, takes, default) = (option.name, cell(option.takes), cell(option.default));
        let (applies, spark, meaning) = (option.applies.as_str(), cell(option.spark), cell(option.meaning));
        writeln!(text, "| `{name}` | {takes} | {default} | {applies} | {spark} | {meaning} |")?;
    }
    Ok(())
}
