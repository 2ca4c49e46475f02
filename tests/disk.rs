//! What a local disk does to us: the order of syncs as the kernel sees it, a disk that is full, one that is read-only.

use std::process::Command;

use crate::support::broker::{Broker, unique_topic};
use crate::support::child::{Landing, example};
use crate::support::{loader, table};

/// One system call on a file or a folder: what was done, and the name.
#[derive(Debug, PartialEq)]
struct Call {
    what: &'static str,
    name: String,
}

/// The calls of a trace that made something durable, or gave or took a name, below a folder.
fn calls(trace: &str, root: &str) -> Vec<Call> {
    let text = |line: &str, number: usize| line.split('"').nth(2 * number + 1).map(str::to_owned);
    let descriptor = |line: &str| Some(line.split_once('<')?.1.split_once('>')?.0.to_owned());
    let call = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let call = call.trim_start();
        if !call.ends_with("= 0") {
            return None;
        }
        let (what, name) = match call.split_once('(')?.0 {
            "fsync" | "fdatasync" => ("sync", descriptor(call)?),
            "linkat" | "link" | "rename" | "renameat" | "renameat2" => ("link", text(call, 1)?),
            "unlinkat" | "unlink" => ("unlink", text(call, 0)?),
            _ => return None,
        };
        let name = name.strip_prefix(root)?.trim_start_matches('/').to_owned();
        Some(Call { what, name })
    };
    trace.lines().filter_map(call).collect()
}

#[test]
fn files_are_synced_before_they_have_a_name_and_folders_before_the_next_step() {
    let broker = Broker::shared();
    let topic = unique_topic("traced");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..10);
    let root = tempfile::tempdir().unwrap();
    let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &[]);
    let log = root.path().join("trace");
    // One line a call when it has returned, descriptors with their names.
    let traced = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-e",
            "trace=/^(fsync|fdatasync|link|linkat|rename.*|unlink|unlinkat)$",
            "-e",
            "signal=none",
            "-s",
            "400",
        ])
        .arg("-o")
        .arg(&log)
        .arg(example("kafka_to_parquet"))
        .args(["--brokers", &landing.brokers, "--topic", &topic, "--columns", "raw", "--trigger", "available-now"])
        .args(["--table", &landing.table(), "--checkpoint", &landing.checkpoint()])
        .output()
        .expect("strace is installed");
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let trace = joined(&std::fs::read_to_string(&log).unwrap());
    let calls = calls(&trace, &root.path().canonicalize().unwrap().display().to_string());
    let at = |what: &str, test: &dyn Fn(&str) -> bool| {
        calls.iter().position(|call| call.what == what && test(&call.name)).unwrap_or_else(|| {
            panic!("no such {what} among {calls:#?}");
        })
    };
    let named = |end: &'static str| at("link", &move |name: &str| name.ends_with(end));
    let first = format!("{:020}", 0);

    // A name is given to bytes that are on the disk, and the folder is synced before anything else is named in it.
    for (folder, name) in [("checkpoint/offsets", &first), ("checkpoint/acks", &first), ("checkpoint/commits", &first)]
    {
        let (link, temporary) = (at("link", &|at| at == format!("{folder}/{name}")), format!("{folder}/.{name}."));
        let written = at("sync", &|at| at.starts_with(&temporary));
        let folder_synced =
            link + calls[link..].iter().position(|call| call.what == "sync" && call.name == folder).unwrap();
        assert!(written < link && link < folder_synced, "{folder}: {calls:#?}");
    }
    // Rows are durable before the acks; shown and durable before their stage goes; then the manifest; then the commit.
    let staged = named(".parquet.staged");
    let rows_synced = at("sync", &|name| name.contains(".parquet.staged."));
    let acks = at("link", &|name| name == format!("checkpoint/acks/{first}"));
    let shown = at("link", &|name| name.starts_with("table/part-") && name.ends_with(".parquet"));
    let shown_synced =
        shown + calls[shown..].iter().position(|call| call.what == "sync" && call.name == "table").unwrap();
    let unstaged = at("unlink", &|name| name.ends_with(".parquet.staged"));
    let manifest = named("/manifest/00000000000000000000.json");
    let commit = at("link", &|name| name == format!("checkpoint/commits/{first}"));
    let order = [rows_synced, staged, acks, shown, shown_synced, unstaged, manifest, commit];
    assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}: {calls:#?}");
}

/// The kernel says that it could not sync, once in every thread of a landing's, at this sync of the thread's.
#[test]
fn a_sync_that_fails_ends_the_process_and_loses_nothing() {
    let broker = Broker::shared();
    let topic = unique_topic("unsynced");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..200);
    let mut ends = Vec::new();
    for nth in [1, 2, 3, 5, 8, 13, 1_000] {
        let root = tempfile::tempdir().unwrap();
        let landing = Landing::new(broker.bootstrap(), &topic, root.path(), &["--max-offsets", "20"]);
        let failing = Command::new("strace")
            .args(["-f", "-e", "trace=fsync,fdatasync", "-e", "signal=none"])
            .args(["-e", &format!("inject=fsync,fdatasync:error=EIO:when={nth}"), "-o", "/dev/null"])
            .arg(example("kafka_to_parquet"))
            .args(["--brokers", &landing.brokers, "--topic", &topic, "--columns", "raw", "--trigger", "available-now"])
            .args(["--table", &landing.table(), "--checkpoint", &landing.checkpoint()])
            .args(&landing.flags)
            .output()
            .expect("strace is installed");
        let told = String::from_utf8_lossy(&failing.stderr);
        let code = failing.status.code();
        // When it tries the folder out, or later.
        let is_told = ["TM0102", "TM0104"].iter().any(|code| told.contains(code)) && told.contains("os error 5");
        assert!(code == Some(0) || (code == Some(74) && is_told), "sync {nth}: {code:?}: {told}");
        ends.push(code == Some(0));
        landing.finish();
        let expected: Vec<_> = (0..200).map(|offset| (0, offset)).collect();
        assert_eq!(table::offsets(landing.table()), expected, "sync {nth}");
    }
    assert_eq!(
        (ends[0], ends[6]),
        (false, true),
        "the first sync of a thread is made, the thousandth is not: {ends:?}"
    );
}

/// strace cuts a call in two when another thread comes between: puts the halves together where the call returned.
fn joined(trace: &str) -> String {
    let mut begun = std::collections::HashMap::new();
    let mut whole = String::new();
    for line in trace.lines() {
        let thread = line.split(' ').next().unwrap_or_default();
        if let Some(start) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(thread.to_owned(), start.to_owned());
        } else if let Some((_, end)) = line.split_once(" resumed>") {
            whole += &format!("{}{end}\n", begun.remove(thread).unwrap_or_default());
        } else {
            whole += &format!("{line}\n");
        }
    }
    whole
}

/// Runs a shell script in which `land` lands a topic on a small file system of its own, `$small`; gives what it prints.
/// None where no file system may be mounted.
fn on_a_small_disk(rows: u64, script: &str) -> Option<String> {
    let broker = Broker::shared();
    let topic = unique_topic("small");
    broker.create_topic(&topic, 1, &[]);
    loader::load(broker.bootstrap(), &topic, 1, 0..rows);
    let root = tempfile::tempdir().unwrap();
    let whole = format!(
        "small={root}; mount -t tmpfs -o size=1m none $small || exit 99
         land() {{ \"$@\" --table $small/table --checkpoint $small/checkpoint 2>&1; echo \"land $?\"; }}
         {script}",
        root = root.path().display()
    );
    let ran = Command::new("unshare")
        .args(["--mount", "--map-root-user", "bash", "-c", &whole, "bash"])
        .arg(example("kafka_to_parquet"))
        .args(["--brokers", broker.bootstrap(), "--topic", &topic, "--columns", "raw", "--trigger", "available-now"])
        .output()
        .unwrap();
    let told = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    match ran.status.code() {
        Some(0) => Some(told),
        // No right to mount, or no `unshare`: seen in containers without capabilities.
        Some(99 | 1) if !told.contains("land ") => {
            println!("not run, since no file system can be mounted here: {told}");
            None
        }
        _ => panic!("{told}"),
    }
}

/// The offsets in the table that a script copied away, from the line "copied FOLDER".
fn copied(told: &str) -> Vec<(i32, i64)> {
    let folder = told.lines().find_map(|line| line.strip_prefix("copied ")).expect("the table is copied");
    let found = table::offsets(folder);
    std::fs::remove_dir_all(folder).unwrap();
    found
}

#[test]
fn a_full_disk_is_a_clear_error_and_loses_nothing_once_there_is_space() {
    let script = "head -c 950K /dev/zero >$small/filler
        land \"$@\"; rm $small/filler; land \"$@\"
        to=$(mktemp -d); cp -r $small/table/. $to; echo \"copied $to\"";
    let Some(told) = on_a_small_disk(20_000, script) else { return };
    let ends: Vec<&str> = told.lines().filter(|line| line.starts_with("land ")).collect();
    assert_eq!(ends, ["land 74", "land 0"], "{told}");
    assert!(told.contains("TM0102") && told.contains("no space is left"), "{told}");
    assert_eq!(copied(&told), (0..20_000).map(|offset| (0, offset)).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_turns_read_only_is_a_clear_error_and_loses_nothing_once_it_is_writable() {
    let script = "land \"$@\" --max-offsets 500 --keep-batches 5
        mount -o remount,ro $small; land \"$@\"
        mount -o remount,rw $small; land \"$@\"
        to=$(mktemp -d); cp -r $small/table/. $to; echo \"copied $to\"";
    let Some(told) = on_a_small_disk(2_000, script) else { return };
    let ends: Vec<&str> = told.lines().filter(|line| line.starts_with("land ")).collect();
    assert_eq!(ends, ["land 0", "land 74", "land 0"], "{told}");
    assert!(told.contains("TM0102"), "{told}");
    assert_eq!(copied(&told), (0..2_000).map(|offset| (0, offset)).collect::<Vec<_>>());
}
