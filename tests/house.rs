//! The house rules: floors, doors, lengths, stubs, versions, licences.
//!
//! An exception stands in the list of its rule, with a reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Longest source file, tests included.
const LINES_MAX: usize = 650;

/// What each room may import of ours. Floors are numbered from the ground; arrows point down only, and rooms of one floor
/// do not know each other.
const FLOORS: &[(&str, &[&str])] = &[
    ("engine/core/src", &[]),
    ("connectors/src", &["tidemill_core"]),
    ("sinks/src", &["tidemill_core"]),
    ("engine/runtime/src", &["tidemill_core"]),
    ("src", &["tidemill_core", "tidemill_runtime", "tidemill_connectors", "tidemill_sinks"]),
    ("examples", &["tidemill"]),
];

/// Inside the runtime: what each room may import of its neighbours.
const ROOMS: &[(&str, &[&str])] = &[
    ("trigger", &[]),
    ("checkpoint", &[]),
    ("dataflow", &[]),
    ("micro_batch", &["checkpoint", "dataflow"]),
    // What a user holds is one room with three doors: a session makes frames, a frame knows its session.
    ("session", &["dataflow", "frame"]),
    ("frame", &["dataflow", "session", "checkpoint"]),
    ("query", &["micro_batch", "dataflow", "checkpoint", "trigger", "session", "frame"]),
];

/// Each outside thing has one door.
const DOORS: &[(&str, &[&str])] = &[
    ("rdkafka", &["connectors/src/kafka", "sinks/src/kafka"]),
    ("object_store", &["engine/core/src/store", "engine/core/src/testing", "connectors/src/files", "sinks/src"]),
    (
        "datafusion",
        &[
            "engine/runtime/src/session",
            "engine/runtime/src/frame",
            "engine/runtime/src/dataflow",
            "engine/runtime/src/state",
            "engine/runtime/src/micro_batch",
        ],
    ),
    ("hdfs_native", &["engine/core/src/store"]),
    ("hdfs_native_object_store", &["engine/core/src/store"]),
    ("parquet", &["sinks/src/parquet"]),
];

/// Licences that we take. All of them are permissive.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "MIT",
    "MIT-0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "0BSD",
    "ISC",
    "Zlib",
    "zlib-acknowledgement",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "bzip2-1.0.6",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the project with its text, by its path from the root.
fn sources() -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                walk(&path, found);
            } else if name.ends_with(".rs") {
                let key = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
                found.insert(key, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), &mut found);
    assert!(found.len() > 50, "the walk missed the project: {} files", found.len());
    found
}

/// The lines of a file that are code: no comments, no in-file test module.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code.lines().map(str::trim_start).filter(|line| !line.starts_with("//"))
}

/// Whether a line names a crate: in a `use`, or in a path.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let bounded = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '"');
        bounded && line[at + name.len()..].starts_with("::")
    })
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.starts_with("tests/")
        || path.starts_with("benches/")
}

#[test]
fn no_file_is_longer_than_its_reader_can_bear() {
    let long: Vec<_> = sources()
        .iter()
        .map(|(path, text)| (text.lines().count(), path.clone()))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn nothing_is_a_stub() {
    // Written apart, so that this file does not find itself.
    let stubs = [concat!("todo", "!("), concat!("unimplemented", "!(")];
    for (path, text) in sources() {
        for stub in stubs {
            assert!(!text.contains(stub), "{path} has {stub}");
        }
    }
}

/// Whether there is a test of this name, such as `kill::each_offset_lands_once_*`: a star stands for any text.
fn is_a_test(sources: &BTreeMap<String, String>, name: &str) -> bool {
    let (place, test) = name.rsplit_once("::").unwrap();
    let file = place.rsplit("::").next().unwrap();
    let here = |path: &str| path.ends_with(&format!("/{file}.rs")) || path.contains(&format!("/{file}/"));
    let (before, after) = test.split_once('*').map_or((test, None), |(before, after)| (before, Some(after)));
    sources.iter().filter(|(path, _)| here(path)).any(|(_, text)| {
        text.match_indices("fn ").map(|(at, _)| text[at + 3..].split(['(', '<']).next().unwrap_or_default()).any(
            |found| match after {
                None => found == before,
                Some(after) => found.starts_with(before) && found.ends_with(after.trim_start_matches('*')),
            },
        )
    })
}

#[test]
fn every_schedule_names_tests_that_are_there() {
    let (sources, text) = (sources(), std::fs::read_to_string(root().join("tests/SCHEDULES.md")).unwrap());
    let mut schedules = 0;
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if ["tests", "---"].contains(&cell) {
            continue;
        }
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            assert!(is_a_test(&sources, name), "{name} is not there");
        }
        schedules += 1;
    }
    assert!(schedules > 50, "{schedules}");
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let (sources, text) = (sources(), std::fs::read_to_string(root().join("PROMISES.md")).unwrap());
    let names: Vec<&str> =
        text.split('`').skip(1).step_by(2).filter(|code| code.contains("::") && code.len() > 2).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names.into_iter().filter(|name| !name.contains('(')) {
        assert!(is_a_test(&sources, name), "{name} is not there");
    }
}

#[test]
fn arrows_point_down_only() {
    let ours = ["tidemill_core", "tidemill_runtime", "tidemill_connectors", "tidemill_sinks"];
    let mut judged = 0;
    for (path, text) in sources() {
        let Some((_, allowed)) = FLOORS.iter().find(|(floor, _)| path.starts_with(&format!("{floor}/"))) else {
            continue;
        };
        judged += 1;
        for line in code_lines(&text).filter(|_| !is_test(&path)) {
            for name in ours.iter().filter(|name| !allowed.contains(name)) {
                assert!(!names(line, name), "{path} looks up to {name}: {line}");
            }
        }
    }
    assert!(judged > 50, "{judged}");
}

#[test]
fn rooms_of_one_floor_do_not_know_each_other() {
    for (path, text) in sources() {
        let Some(inside) = path.strip_prefix("engine/runtime/src/") else { continue };
        let room = inside.split(['/', '.']).next().unwrap();
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            assert_eq!(room, "lib", "{path} is in no room");
            continue;
        };
        for line in code_lines(&text).filter(|_| !is_test(&path)) {
            for (other, _) in ROOMS.iter().filter(|(other, _)| *other != room && !allowed.contains(other)) {
                let imports = line.contains(&format!("crate::{other}::"));
                assert!(!imports, "{path} looks into {other}: {line}");
            }
        }
    }
}

#[test]
fn each_outside_thing_has_one_door() {
    for (path, text) in sources() {
        if is_test(&path) || path.starts_with("examples/") {
            continue;
        }
        for (name, doors) in DOORS {
            let inside = doors.iter().any(|door| path.starts_with(&format!("{door}/")) || path == format!("{door}.rs"));
            let at_door = inside || code_lines(&text).all(|line| !names(line, name));
            assert!(at_door, "{path} goes to {name} past its door");
        }
    }
}

#[test]
fn unsafe_code_has_one_file() {
    for (path, text) in sources() {
        let found = code_lines(&text).any(|line| {
            let word = concat!("uns", "afe");
            line.contains(&format!("{word} {{"))
                || line.contains(&format!("{word} fn"))
                || line.contains(&format!("{word} impl"))
        });
        assert!(!found || path == "connectors/src/kafka/ffi.rs" || path == "tests/house.rs", "{path}");
    }
}

/// `cargo metadata` of this very checkout, offline: of this platform, since others' packages may never have been fetched.
fn metadata() -> serde_json::Value {
    let version = std::process::Command::new("rustc").arg("-vV").output().expect("rustc is there").stdout;
    let version = String::from_utf8(version).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("it names its host");
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host])
        .current_dir(root())
        .output()
        .expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn there_is_one_arrow_and_one_object_store() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    for name in ["arrow", "arrow-array", "parquet", "object_store", "datafusion"] {
        let versions: Vec<_> =
            packages.iter().filter(|package| package["name"] == name).map(|p| &p["version"]).collect();
        assert_eq!(versions.len(), 1, "{name}: {versions:?}");
    }
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 200, "{}", packages.len());
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        let is_ours = |licence: &str| LICENCES.contains(&licence.trim().trim_matches(['(', ')']));
        let permissive = licence
            .replace('/', " OR ")
            .split(" OR ")
            .any(|choice| choice.split(" AND ").all(|part| part.split(" OR ").any(is_ours)));
        assert!(permissive, "{} {}: {licence}", package["name"], package["version"]);
    }
}
