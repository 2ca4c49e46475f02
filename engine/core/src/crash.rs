//! Crash points: places at which a test can kill the process, as a power cut would.
//!
//! With feature `testing`, `TIDEMILL_CRASH_AT=name:batch` sends SIGKILL to this very process when the point of that
//! name is reached in that batch (`name` alone: in any batch), and `TIDEMILL_STOP_AT=name:batch` sends SIGSTOP: the driver
//! sleeps there until somebody wakes it. Without the feature a point is nothing.

use crate::ids::BatchId;

/// The names of all crash points, in the order in which a batch passes them.
pub const POINTS: &[&str] = &[
    "plan",
    "log",
    "mid-read",
    "mid-write",
    "write",
    "acks",
    "mid-publish",
    "publish",
    "manifest",
    "commit",
    "mid-purge",
];

/// A crash point. `name` is one of [`POINTS`]: what has just been done.
#[inline]
pub fn crash_point(name: &'static str, batch_id: BatchId) {
    debug_assert!(POINTS.contains(&name), "{name} is not in the list");
    #[cfg(feature = "testing")]
    testing::reached(name, batch_id);
    #[cfg(not(feature = "testing"))]
    let _ = batch_id;
}

#[cfg(feature = "testing")]
mod testing {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::ids::BatchId;

    /// A point by its name, and the batch in which it counts; none for any batch.
    type Wanted = Option<(String, Option<u64>)>;

    static CRASH_AT: OnceLock<Wanted> = OnceLock::new();
    static STOP_AT: OnceLock<Wanted> = OnceLock::new();
    static STOPPED: AtomicBool = AtomicBool::new(false);

    pub(super) fn reached(name: &str, batch_id: BatchId) {
        // Once in a process: tasks that come to the point together would stop it again after it was woken.
        if is_wanted(&STOP_AT, "TIDEMILL_STOP_AT", name, batch_id) && !STOPPED.swap(true, Ordering::SeqCst) {
            eprintln!("stop point {name}:{batch_id} reached");
            send_this("STOP");
        }
        if is_wanted(&CRASH_AT, "TIDEMILL_CRASH_AT", name, batch_id) {
            eprintln!("crash point {name}:{batch_id} reached");
            send_this("KILL");
            // SIGKILL cannot be survived; if there is no `kill`, end all the same, without running any destructor.
            std::process::abort();
        }
    }

    fn is_wanted(wanted: &'static OnceLock<Wanted>, variable: &str, name: &str, batch_id: BatchId) -> bool {
        let wanted = wanted.get_or_init(|| {
            let text = std::env::var(variable).ok()?;
            let (name, batch) = text.split_once(':').unwrap_or((&text, ""));
            Some((name.to_owned(), batch.parse().ok()))
        });
        wanted.as_ref().is_some_and(|(point, batch)| point == name && batch.is_none_or(|batch| batch == batch_id.0))
    }

    fn send_this(signal: &str) {
        let this = std::process::id().to_string();
        // The shell has it built in; not every system has it as a program.
        let _ = std::process::Command::new("sh").args(["-c", &format!("kill -{signal} {this}")]).status();
    }
}
