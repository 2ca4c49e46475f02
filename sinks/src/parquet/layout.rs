//! Names within a table: where stages and manifests live, what files and partition folders are called.
//!
//! All paths are put together as text and read with `Path::parse`, which keeps our percent escapes; building a path
//! from parts would escape the `%` of an escape once more.

use object_store::path::Path;
use tidemill_core::{AttemptId, BatchId, Error, Result, SinkKey, code};

/// What Hive, Spark and every reader of their folders call a missing value.
pub const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// The longest name that file systems take, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The longest name of a query or a sink: file names carry it beside much else.
const OWNER_BYTES_MAX: usize = 100;

/// The part of a table that belongs to one sink of one query.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    own: String,
    query: String,
    /// The sink's name, as names carry it.
    sink: String,
}

impl Layout {
    pub(super) fn of(key: &SinkKey) -> Result<Self> {
        let (query, sink) = (escaped(key.query_id.as_str()), escaped(&key.sink));
        for name in [&query, &sink] {
            if name.is_empty() || name.len() > OWNER_BYTES_MAX || name.starts_with('.') {
                return Err(Error::new(code::INVALID_OPTION, format!("a folder cannot be called {name:?}"))
                    .at("sink", &key.sink)
                    .fix("give the sink a shorter name that does not begin with a dot"));
            }
        }
        Ok(Layout { own: format!("_tidemill/{query}/{sink}"), query: format!("_tidemill/{query}"), sink })
    }

    /// The folder of the whole query.
    pub(super) fn query(&self) -> Result<Path> {
        parsed(&self.query)
    }

    /// The claim on a batch: who gives its files their names.
    pub(super) fn claim(&self, batch_id: BatchId) -> Result<Path> {
        parsed(&format!("{}/{:020}.json", self.claims()?, batch_id.0))
    }

    /// The folder of all claims.
    pub(super) fn claims(&self) -> Result<Path> {
        parsed(&format!("{}/claim", self.own))
    }

    /// The folder of all manifests.
    pub(super) fn manifests(&self) -> Result<Path> {
        parsed(&format!("{}/manifest", self.own))
    }

    /// The record that a batch is visible.
    pub(super) fn manifest(&self, batch_id: BatchId) -> Result<Path> {
        parsed(&format!("{}/manifest/{:020}.json", self.own, batch_id.0))
    }

    /// The folder of all stages.
    pub(super) fn staging(&self) -> Result<Path> {
        parsed(&format!("{}/staging", self.own))
    }

    /// The folder of all attempts of one batch. It names the batch, so a late sweeper cannot take another's.
    pub(super) fn stages(&self, batch_id: BatchId) -> Result<Path> {
        parsed(&format!("{}/{:020}", self.staging()?, batch_id.0))
    }

    /// The folder of one attempt.
    pub(super) fn attempt(&self, batch_id: BatchId, attempt: &AttemptId) -> Result<Path> {
        parsed(&format!("{}/{}", self.stages(batch_id)?, escaped(attempt.as_str())))
    }

    /// Where a file waits that will be called `target`. Its own name is unlike every other's of the attempt, so stages
    /// need no partition folders.
    pub(super) fn stage(&self, batch_id: BatchId, attempt: &AttemptId, target: &Path) -> Result<Path> {
        let name = target.filename().unwrap_or_default();
        parsed(&format!("{}/{name}.staged", self.attempt(batch_id, attempt)?))
    }

    /// A file's final name below a partition folder (empty: the table's root). The attempt in it keeps two executions
    /// of a batch apart. Sinks of one query share their attempts, so the sink's name keeps two of them on one table
    /// apart.
    pub(super) fn file(
        &self,
        folder: &str,
        batch_id: BatchId,
        attempt: &AttemptId,
        task: u32,
        number: u32,
    ) -> Result<Path> {
        let (batch, attempt, sink) = (batch_id.0, escaped(attempt.as_str()), &self.sink);
        let name = format!("part-{batch:020}-{task:05}-{number:05}-{attempt}-{sink}.parquet");
        parsed(&if folder.is_empty() { name } else { format!("{folder}/{name}") })
    }
}

/// The folder of all queries that write here.
pub(super) fn queries() -> Path {
    Path::from("_tidemill")
}

/// The batch that a manifest's path names; none for whatever else lies in the folder.
pub(super) fn manifest_batch(path: &Path) -> Option<BatchId> {
    let digits = path.filename()?.strip_suffix(".json")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok().map(BatchId)).flatten()
}

/// A target as an ack or a manifest lists it: below the table's root, outside our own folder.
pub(super) fn target(text: &str) -> Result<Path> {
    let path = parsed(text)?;
    let listed = path.as_ref() == text && text.ends_with(".parquet") && !text.starts_with("_tidemill/");
    listed.then_some(path).ok_or_else(|| Error::new(code::BUG, format!("{text:?} is no file of a Parquet table")))
}

fn parsed(text: &str) -> Result<Path> {
    Path::parse(text).map_err(|error| Error::new(code::BUG, format!("{text:?} is no path")).because(error))
}

/// The folder `column=value`.
///
/// # Errors
///
/// [`code::BAD_PARTITION_VALUE`], naming the column: for `.`, `..` and the null folder's own name as text, which would
/// not come back as they are from every store and reader, and for folder names above 255 bytes.
pub(super) fn folder(column: &str, value: Option<&str>) -> Result<String> {
    let refuse = |why: &str| {
        let value = value.unwrap_or_default();
        let short: String = value.chars().take(40).collect();
        let more = if short.len() < value.len() { "…" } else { "" };
        Error::new(code::BAD_PARTITION_VALUE, format!("{short:?}{more} cannot be a partition folder: {why}"))
            .at("column", column)
            .fix("partition by another expression, such as a hash or a date, or filter the row out")
    };
    let value_name = match value {
        None | Some("") => NULL_FOLDER.to_owned(),
        Some(NULL_FOLDER) => return Err(refuse("it would be read back as null")),
        Some("." | "..") => return Err(refuse("it names a folder above")),
        Some(value) => escaped(value),
    };
    let name = format!("{}={value_name}", escaped(column));
    if name.len() > NAME_BYTES_MAX {
        return Err(refuse(&format!("its name has {} bytes, the limit is {NAME_BYTES_MAX}", name.len())));
    }
    Ok(name)
}

/// Escapes what cannot stand in a folder's name, as Hive and Spark do: control characters and `"#%'*/:=?\{[]^` become
/// `%XX`. Everything else, other alphabets included, stays as it is: readers decode an escape to one character each.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_control() || "\"#%'*/:=?\\{[]^".contains(c) {
            escaped.push_str(&format!("%{:02X}", c as u32));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use tidemill_core::QueryId;

    use super::*;

    #[test]
    fn values_become_folders() {
        for (value, folder_name) in [
            (Some("a"), "p=a"),
            (Some("a/b"), "p=a%2Fb"),
            (Some("a%2Fb"), "p=a%252Fb"),
            (Some("a=b"), "p=a%3Db"),
            (Some("a b"), "p=a b"),
            (Some("a:b"), "p=a%3Ab"),
            (Some("é"), "p=é"),
            (Some("潮"), "p=潮"),
            (Some("a\nb\u{7f}"), "p=a%0Ab%7F"),
            (Some("..."), "p=..."),
            (Some(""), "p=__HIVE_DEFAULT_PARTITION__"),
            (None, "p=__HIVE_DEFAULT_PARTITION__"),
        ] {
            assert_eq!(folder("p", value).unwrap(), folder_name);
            parsed(folder_name).unwrap();
        }
        assert_eq!(folder("a/b", Some("x")).unwrap(), "a%2Fb=x");
    }

    #[test]
    fn values_that_would_not_come_back_are_refused_naming_the_column() {
        let long = "x".repeat(300);
        let many_escapes = "/".repeat(90);
        for value in [".", "..", NULL_FOLDER, long.as_str(), many_escapes.as_str(), &"é".repeat(130)] {
            let error = folder("day", Some(value)).expect_err("refused");
            assert_eq!(error.code(), code::BAD_PARTITION_VALUE);
            assert!(error.to_string().contains("column day"), "{error}");
            assert!(error.to_string().len() < 300, "{error}");
        }
        assert!(folder("p", Some(&"x".repeat(253))).is_ok());
        assert!(folder("p", Some(&"x".repeat(254))).is_err());
    }

    #[test]
    fn names_carry_batch_and_attempt_and_stages_do_not_end_in_parquet() {
        let key = SinkKey { query_id: QueryId::from_text("q/1"), sink: "hot%".to_owned() };
        let attempt = AttemptId::from_text("beef");
        let layout = Layout::of(&key).unwrap();
        let target = layout.file("day=1", BatchId(7), &attempt, 3, 1).unwrap();
        assert_eq!(target.as_ref(), "day=1/part-00000000000000000007-00003-00001-beef-hot%25.parquet");
        assert_eq!(
            layout.stage(BatchId(7), &attempt, &target).unwrap().as_ref(),
            "_tidemill/q%2F1/hot%25/staging/00000000000000000007/beef/\
             part-00000000000000000007-00003-00001-beef-hot%25.parquet.staged"
        );
        let manifest = layout.manifest(BatchId(7)).unwrap();
        assert_eq!(manifest.as_ref(), "_tidemill/q%2F1/hot%25/manifest/00000000000000000007.json");
        assert_eq!(manifest_batch(&manifest), Some(BatchId(7)));
        for other in ["m/7.json", "m/.00000000000000000007.json.1-2.tmp", "m/0000000000000000000x.json"] {
            assert_eq!(manifest_batch(&Path::parse(other).unwrap()), None, "{other}");
        }
        for sink in ["", ".", "..", ".hidden", &"x".repeat(101)] {
            let key = SinkKey { query_id: QueryId::from_text("q"), sink: sink.to_owned() };
            assert!(Layout::of(&key).is_err(), "{sink:?}");
        }
    }

    #[test]
    fn listed_targets_stay_in_the_table() {
        assert!(target("day=1/part-0.parquet").is_ok());
        for text in ["../part-0.parquet", "/part-0.parquet", "a/../b.parquet", "_tidemill/x.parquet", "part-0", ""] {
            assert!(target(text).is_err(), "{text:?}");
        }
    }
}
