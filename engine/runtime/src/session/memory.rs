//! How much memory the process may have. A container's limit is the control group's, not the machine's: an engine that
//! plans with the machine's memory is killed by the kernel.

use std::path::{Path, PathBuf};

/// The budget is at least this.
const FLOOR: u64 = 128 << 20;

/// Where Linux shows its control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Half of what the process may have. The other half is for what no budget counts: client libraries, buffers in flight,
/// the allocator's own.
pub(super) fn default_budget() -> usize {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let group_limit = limit_files(&groups).iter().filter_map(|path| limit(&read(path)?)).min();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_memory(&text));
    budget(group_limit, machine)
}

fn budget(group_limit: Option<u64>, machine: Option<u64>) -> usize {
    let allowed = group_limit.into_iter().chain(machine).min().unwrap_or(0);
    usize::try_from((allowed / 2).max(FLOOR)).unwrap_or(usize::MAX)
}

/// The files that may hold a limit: that of the process's group and of every group above it, as the tightest counts.
/// Inside a container the own group may be shown as the root, which the last step up covers.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (PathBuf::from(GROUPS), "memory.max"),
            // Version 1 has a tree for each controller.
            controllers if controllers.split(',').any(|name| name == "memory") => {
                (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        files.extend(group.ancestors().take_while(|group| group.starts_with(&root)).map(|group| group.join(file)));
    }
    files
}

/// A limit as a file states it. (`max`, or a number near the top of the range, is no limit; the machine's memory is
/// smaller than the latter in any case.)
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The machine's memory in bytes, from the text of `/proc/meminfo`.
fn machine_memory(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_half_of_the_tightest_limit_and_never_below_the_floor() {
        fn check(group_limit: Option<u64>, machine: Option<u64>, expected: u64) {
            assert_eq!(budget(group_limit, machine) as u64, expected, "{group_limit:?} {machine:?}");
        }
        check(Some(2 << 30), Some(16 << 30), 1 << 30);
        check(None, Some(16 << 30), 8 << 30);
        check(Some(u64::MAX / 2), Some(16 << 30), 8 << 30);
        check(Some(64 << 20), Some(16 << 30), FLOOR);
        check(None, None, FLOOR);
    }

    #[test]
    fn limits_are_looked_for_in_every_group_from_the_own_one_upwards() {
        let files = |groups| -> Vec<String> {
            limit_files(groups).iter().map(|path| path.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            files("0::/user.slice/job\n"),
            [
                "/sys/fs/cgroup/user.slice/job/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(
            files("5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n"),
            [
                "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert!(files("nonsense").is_empty());
    }

    #[test]
    fn limits_and_machine_memory_are_read_from_their_texts() {
        assert_eq!(limit("1073741824\n"), Some(1 << 30));
        assert_eq!(limit("max\n"), None);
        assert_eq!(machine_memory("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24576 * 1024));
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_machine_has_a_budget() {
        assert!(default_budget() as u64 >= FLOOR);
    }
}
