//! The example `kafka_to_parquet` as a child process, to be killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tidemill::store::{Location, Path as StorePath, Stores};

use super::place::{Place, blocking};

/// A landing: where it reads, and where it writes.
#[derive(Clone)]
pub struct Landing {
    pub brokers: String,
    pub topic: String,
    /// A folder or a URL, in which the table and the checkpoint are.
    pub root: String,
    /// Further variables of its environment.
    pub env: Vec<(String, String)>,
    /// Where its log goes.
    pub logs: PathBuf,
    pub stores: Stores,
    pub columns: &'static str,
    /// Further flags, such as `["--max-offsets", "1000"]`.
    pub flags: Vec<String>,
}

/// A child that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

/// An example's binary, beside the test's own.
pub fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let path = this.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    path
}

impl Landing {
    /// A landing in a local folder.
    pub fn new(brokers: &str, topic: &str, root: &Path, flags: &[&str]) -> Landing {
        Landing {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            root: root.display().to_string(),
            env: Vec::new(),
            logs: root.to_owned(),
            stores: Stores::default(),
            columns: "raw",
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    /// A landing anywhere.
    pub fn at(brokers: &str, topic: &str, place: &Place, flags: &[&str]) -> Landing {
        let local = Landing::new(brokers, topic, place.folder.path(), flags);
        Landing { root: place.url.clone(), env: place.env.clone(), stores: place.stores(), ..local }
    }

    /// Where the table is.
    pub fn table(&self) -> String {
        format!("{}/table", self.root)
    }

    /// Where the checkpoint is.
    pub fn checkpoint(&self) -> String {
        format!("{}/checkpoint", self.root)
    }

    /// Starts it. Its stderr goes to a file, so that a long run cannot block on a pipe.
    pub fn start(&self, trigger: &str, env: &[(&str, &str)]) -> Running {
        let log = tempfile::NamedTempFile::new_in(&self.logs).unwrap();
        let child = Command::new(example("kafka_to_parquet"))
            .args(["--brokers", &self.brokers, "--topic", &self.topic, "--columns", self.columns, "--trigger", trigger])
            .arg("--table")
            .arg(self.table())
            .arg("--checkpoint")
            .arg(self.checkpoint())
            .args(&self.flags)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        Running { child, log }
    }

    /// Runs it until all that is there now is landed.
    pub fn finish(&self) -> Ended {
        let ended = self.start("available-now", &[]).wait(Duration::from_secs(300));
        assert!(ended.status.success(), "{}\n{}", ended.status, ended.stderr);
        ended
    }

    /// How many of a log's entries there are: `offsets`, `acks` or `commits`.
    pub fn newest(&self, log: &str) -> Option<u64> {
        let checkpoint: Location = self.stores.open(&self.checkpoint()).unwrap();
        let names = blocking(checkpoint.names(&StorePath::from(log))).ok()?;
        names.iter().filter_map(|name| name.get(..20)?.parse().ok()).max()
    }

    /// Whether a batch is logged and not committed.
    pub fn is_in_the_middle(&self) -> bool {
        self.newest("offsets") > self.newest("commits")
    }
}

/// Sends a signal by its name. The shell has `kill` built in; not every system has it as a program.
pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(sent.success(), "kill -{name}");
}

/// A child that runs.
pub struct Running {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Running {
    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// SIGKILL, and what was left to say.
    pub fn kill(mut self) -> Ended {
        let _ = self.child.kill();
        self.wait(Duration::from_secs(10))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Waits until its stderr holds a text.
    pub fn wait_for(&mut self, text: &str, bound: Duration) {
        let since = Instant::now();
        while !self.stderr().contains(text) {
            let ended = !self.is_running();
            assert!(!ended, "ended without \"{text}\":\n{}", self.stderr());
            assert!(since.elapsed() < bound, "no \"{text}\" within {bound:?}:\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, within a bound.
    pub fn wait(mut self, bound: Duration) -> Ended {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Ended { status, stderr: self.stderr() };
            }
            if since.elapsed() > bound {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("still running after {bound:?}:\n{}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
