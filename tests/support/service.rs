//! A service that tests start and end: a script of `tests/services` as a child, which takes commands through a pipe.
//!
//! Promises: it and its files are gone when the `Service` is dropped, and also when the program dies by any signal,
//! since the script cleans up when the pipe closes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running script.
pub struct Service {
    name: &'static str,
    script: Child,
    /// Closing it is what ends the service; `None` only while dropping.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    dir: PathBuf,
    address: String,
}

impl Service {
    /// Starts `tests/services/NAME.sh` with `settings`, and the service with it.
    pub fn start(name: &'static str, settings: &[(&str, &str)], env: &[(&str, &str)]) -> Service {
        let script = format!("{}/tests/services/{name}.sh", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("bash");
        command.arg(script).arg("serve").envs(env.iter().copied());
        command.args(settings.iter().map(|(key, value)| format!("{key}={value}")));
        // In a process group of its own: Ctrl-C is for the test, whose end then ends the service in order.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut script = command.spawn().expect("bash runs the script");
        let commands = script.stdin.take();
        let mut answers = BufReader::new(script.stdout.take().expect("stdout is piped"));
        let dir = answer(&mut answers, "dir ").expect("the service has a folder").into();
        let mut service = Service { name, script, commands, answers, dir, address: String::new() };
        service.address = service.ask("start");
        service
    }

    /// Where it listens; the same through every restart.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The folder that holds its data, settings and logs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process id of one of its processes, while it runs.
    pub fn pid(&self, process: &str) -> u32 {
        let text = std::fs::read_to_string(self.dir.join(format!("{process}.pid"))).expect("the id is in the folder");
        text.trim().parse().expect("the file holds one number")
    }

    /// Has a command done; its answer is the address. The script bounds its own work, so this does not wait for ever.
    pub fn ask(&mut self, command: &str) -> String {
        let commands = self.commands.as_mut().expect("the pipe is open until drop");
        let sent = writeln!(commands, "{command}").map_err(|error| format!("the script is gone: {error}"));
        match sent.and_then(|()| answer(&mut self.answers, "ok ")) {
            Ok(address) => address,
            Err(why) => panic!("cannot {command} the {} at {}: {why}", self.name, self.address),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.commands.take());
        // No panic here: a second one while a failed test unwinds would hide the first.
        let _ = self.script.wait();
    }
}

/// Reads one answer, which has to start with `expected`.
fn answer(answers: &mut BufReader<ChildStdout>, expected: &str) -> Result<String, String> {
    let mut line = String::new();
    answers.read_line(&mut line).map_err(|error| error.to_string())?;
    match line.trim_end().strip_prefix(expected) {
        Some(rest) => Ok(rest.to_owned()),
        None if line.is_empty() => Err("the script has ended".to_owned()),
        None => Err(line.trim_end().to_owned()),
    }
}

/// What `tests/services/fetch.sh` answers: where something that tests need is. It is fetched when a test is run without
/// `./dev test`.
pub fn fetched(what: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/fetch.sh");
    let output = Command::new("bash").args([script, what]).output().expect("bash runs tests/services/fetch.sh");
    assert!(output.status.success(), "cannot fetch {what}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the path is text").trim_end().to_owned()
}
